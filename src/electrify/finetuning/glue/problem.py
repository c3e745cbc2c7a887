"""One fine-tuning: a task, a seed, a model; committed when it is finished, never run again.

DIR/jobs/cola-0/identity.json        what decides the result: written first
                result.json          scores and what they came from: written last
                outputs.safetensors  what the model says of every development example
                model.safetensors    the fine-tuned weights, while they are wanted
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from electrify.errors import GuardError
from electrify.finetuning.encoder import (
    Encoder,
    load_body,
    new_network,
    open_encoder,
)
from electrify.finetuning.fit import fit, forget, outputs
from electrify.finetuning.glue import data as glue_data
from electrify.finetuning.glue.data import Examples, read_split
from electrify.finetuning.glue.presets import Plan
from electrify.finetuning.glue.results import Result, write_result
from electrify.finetuning.glue.tasks import TASKS, GlueTask, Split
from electrify.finetuning.heads import Classifier, Head, Kind, OwnHead
from electrify.finetuning.metrics import scores
from electrify.finetuning.rows import Rows, collating, rows_of
from electrify.storage.commit import committed, write_json
from electrify.training.state import load_model, model_tensors

DEV_SPLITS: tuple[Split, ...] = ("dev", "dev_mismatched")
Told = Callable[[int, int, float], None]


class Job(NamedTuple):
    """A task and a seed, and how they are fine-tuned."""

    model: str
    data: Path
    task: str
    seed: int
    preset: str
    plan: Plan
    out: Path
    train_limit: int = 0
    """The first examples of the training file alone; 0: all."""
    starts_from: Path | None = None
    """The weights of another job whose body this one starts from."""
    device: str = "auto"
    threads: int = 0
    """Of this job; 0: as many as torch takes."""
    identity: Mapping[str, Any] = {}
    """All that decides the result: tells whether a finished job is the one asked for."""

    @property
    def name(self) -> str:
        """The job's folder."""
        return f"{self.task}-{self.seed}"

    @property
    def folder(self) -> Path:
        """Where the job keeps what is its own."""
        return self.out / "jobs" / self.name


def identified(job: Job, model: str, data: Mapping[str, str]) -> Job:
    """A job that carries its identity; the fingerprints are those of its encoder and its files."""
    plan = {**job.plan._asdict(), "fit": vars(job.plan.fit)}
    if job.plan.head == "official":
        del plan["init_head"]  # which is always new
    known = {
        "source": job.model,  # where the model is found again; the fingerprint says what it is
        "model": model,
        "data": data,
        "preset": job.preset,
        "plan": plan,
        "train_limit": job.train_limit,
    }
    return job._replace(identity=known)


def run_job(job: Job, told: Told = lambda step, steps, loss: None) -> Result:
    """Fine-tune, measure, commit; a training that breaks down is a result that says so."""
    if job.threads:
        torch.set_num_threads(job.threads)
    job.folder.mkdir(parents=True, exist_ok=True)
    write_json(job.folder / "identity.json", job.identity)
    task, encoder = TASKS[job.task], open_encoder(job.model)
    train = read_split(job.data, task, "train")
    rows = training_rows(encoder, train, job)
    model = build_model(job, task)
    kind = kind_of(task)
    collate = collating(rows, encoder.pad, kind, job.plan.score_scale)
    used = min(job.train_limit or len(train), len(train))
    result = Result(job.task, job.seed, job.preset, train_rows=used)
    try:
        fitted = fit(
            model, rows.lengths, collate, job.plan.fit, job.seed, job.folder, job.device, told
        )
    except GuardError as error:
        result = result._replace(failed=error.what)
        write_result(job.folder, result, job.identity)
        forget(job.folder)
        return result
    found: dict[str, dict[str, float]] = {}
    said: dict[str, NDArray[np.float32]] = {}
    why = ""
    malformed = train.malformed
    for split in DEV_SPLITS:
        if glue_data.has_split(job.data, task, split):
            examples = read_split(job.data, task, split)
            malformed += examples.malformed
            said[split] = predict(model, encoder, task, examples, job.plan.length)
            answers = answers_of(task, said[split], job.plan.score_scale)
            found[split] = dict(scores(task, answers, np.asarray(examples.labels)).items())
            why = why or degenerate(answers)
    _commit(job.folder, model, said)
    result = result._replace(
        scores=found,
        degenerate=why,
        seconds=fitted.seconds,
        examples_per_second=fitted.examples_per_second,
        steps=fitted.steps,
        malformed=malformed,
    )
    write_result(job.folder, result, job.identity)
    forget(job.folder)
    return result


def training_rows(encoder: Encoder, train: Examples, job: Job) -> Rows:
    """The training examples as tokens; those of a symmetric task in both orders, if so planned."""
    first, second, labels = train.first, train.second, train.labels
    if job.train_limit:
        first, labels = first[: job.train_limit], labels[: job.train_limit]
        second = second[: job.train_limit] if second else second
    if job.plan.doubled and second is not None:
        first, second, labels = first + second, second + first, labels + labels
    return rows_of(encoder, first, second, labels, job.plan.length)


def kind_of(task: GlueTask) -> Kind:
    """Whether a task is about classes or about a score."""
    return "classes" if task.labels else "score"


def build_model(job: Job, task: GlueTask) -> Head:
    """The encoder under the planned head, new parts drawn by the job's seed."""
    outputs_wanted = len(task.labels) or 1
    model: Head
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        if job.plan.head == "official":
            body = load_body(job.model)
            model = Classifier(
                body, outputs_wanted, kind_of(task), job.plan.reduction, seed=job.seed
            )
        else:
            network = new_network(
                AutoModelForSequenceClassification,
                job.model,
                job.plan.init_head,
                num_labels=outputs_wanted,
            )
            model = OwnHead(network, kind_of(task), job.plan.reduction)
    if job.starts_from is not None:
        tensors = load_file(job.starts_from)
        prefix = f"{model.base_model_prefix}."
        body_names = {name for name in model_tensors(model) if name.startswith(prefix)}
        own = {name: t for name, t in model_tensors(model).items() if name not in body_names}
        load_model(model, {**{n: tensors[n] for n in body_names}, **own}, str(job.starts_from))
    return model


def predict(
    model: Head, encoder: Encoder, task: GlueTask, examples: Examples, length: int
) -> NDArray[np.float32]:
    """What a model says of examples, one row of logits each."""
    rows = rows_of(encoder, examples.first, examples.second, [], length)
    return np.stack(outputs(model, rows.lengths, collating(rows, encoder.pad, kind_of(task))))


def answers_of(task: GlueTask, logits: NDArray[np.float32], scale: float) -> NDArray[Any]:
    """Numbers of classes, or scores on the task's own scale."""
    return logits.argmax(axis=1) if task.labels else logits[:, 0].astype(np.float64) * scale


def degenerate(answers: NDArray[Any]) -> str:
    """Why answers are no answers: all the same, or no numbers; empty if they are fine.

    >>> degenerate(np.array([1, 1, 1]))
    'the same answer (1) for every example'
    """
    if not np.isfinite(answers).all():
        return "answers that are no numbers"
    if np.ptp(answers) < 1e-6:
        return f"the same answer ({answers[0]:g}) for every example"
    return ""


def load_fitted(job: Job) -> Head:
    """The fine-tuned model of a finished job whose weights are kept."""
    model = build_model(job._replace(starts_from=None), TASKS[job.task])
    path = job.folder / "model.safetensors"
    load_model(model, load_file(path), str(path))
    return model


def read_outputs(folder: Path) -> dict[str, NDArray[np.float32]]:
    """What a finished job's model said of the development examples, by split."""
    return dict(load_arrays(folder / "outputs.safetensors"))


def _commit(folder: Path, model: Head, said: dict[str, NDArray[np.float32]]) -> None:
    with committed(folder / "outputs.safetensors") as temporary:
        save_arrays(said, temporary)
    tensors = {name: t.cpu().contiguous() for name, t in model_tensors(model).items()}
    with committed(folder / "model.safetensors") as temporary:
        save_file(tensors, temporary)

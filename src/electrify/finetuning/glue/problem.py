"""A GLUE task as a problem of fine-tuning: what is read, which head learns, what is measured.

Beside its result a run keeps

outputs.safetensors  what the model says of every development example
model.safetensors    the fine-tuned weights, while they are wanted
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from electrify.finetuning import experiment
from electrify.finetuning.batches import Rows, as_rows
from electrify.finetuning.encoder import Encoder, encode, load_backbone, new_network
from electrify.finetuning.experiment import TRAIN, Outputs, Problem, TrainedModel
from electrify.finetuning.glue.data import GlueExamples, read_split
from electrify.finetuning.glue.presets import TaskPlan
from electrify.finetuning.glue.tasks import GlueTask, Split
from electrify.finetuning.heads import Classifier, Head, OwnHead
from electrify.finetuning.metrics import scores
from electrify.storage.commit import committed
from electrify.training.state import load_model, model_tensors

MODEL = "model.safetensors"


class Label(NamedTuple):
    """The number of a class, or a score on the task's own scale."""

    prediction: float


@dataclass(frozen=True)
class GlueProblem(Problem):
    """A task, and how it is fine-tuned; the same for all its seeds."""

    fewest_answers = 1
    data: Path
    task: GlueTask
    plan: TaskPlan
    preset: str
    splits: Sequence[Split] = ()
    """The development files that are there."""
    train_limit: int = 0
    """The first examples of the training file alone; 0: all."""
    starts_from: Path | None = None
    """The weights of another job whose body this one starts from."""
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.name

    def identified(self, source: str, model: str, data: Mapping[str, str]) -> "GlueProblem":
        """Return the problem with its identity: the fingerprints of its encoder and its files.

        `source` is where the model is found again; the fingerprint says what it is.
        """
        plan = {**self.plan._asdict(), "fit": vars(self.plan.fit)}
        if self.plan.head == "official":
            del plan["init_head"]  # which is always new
        known = {"source": source, "model": model, "data": data, "preset": self.preset}
        return replace(self, identity={**known, "plan": plan, "train_limit": self.train_limit})

    def read(self, split: Any) -> GlueExamples:
        """Return a split, of the training file as much as is used."""
        examples = read_split(self.data, self.task, split)
        return examples.first_rows(self.train_limit) if split == TRAIN else examples

    def prepare(self, examples: GlueExamples, encoder: Encoder, learn: bool) -> Rows:
        """Return rows; those to learn from in both orders of the texts, if so planned."""
        first, second, labels = examples.first, examples.second, examples.labels
        if learn and self.plan.doubled and second is not None:
            first, second, labels = first + second, second + first, labels + labels
        made = encode(encoder, first, second, self.plan.length)
        values = np.asarray(labels if learn else [], np.float64)
        scaled = values if self.task.labels else values / self.plan.score_scale
        return as_rows(made, scaled, self.task.kind, encoder.pad)

    def head(self, encoder: Encoder, seed: int) -> Head:
        """Return the encoder, or another job's, under the planned head."""
        how, outputs, model = self.plan, self.task.outputs, encoder.source
        made: Head
        if how.head == "official":
            made = Classifier(
                load_backbone(model), outputs, self.task.kind, how.reduction, seed=seed
            )
        else:
            auto = AutoModelForSequenceClassification
            network = new_network(auto, model, how.init_head, num_labels=outputs)
            made = OwnHead(network, self.task.kind, how.reduction)
        if self.starts_from is not None:
            own, tensors = model_tensors(made), load_file(self.starts_from)
            body = {n: tensors[n] for n in own if n.startswith(f"{made.base_model_prefix}.")}
            load_model(made, {**own, **body}, str(self.starts_from))
        return made

    def answers(self, rows: Rows, said: Outputs) -> list[Label]:
        """Return the most likely class of each example, or its score."""
        logits_NC = np.stack(said)
        if self.task.labels:
            return [Label(number) for number in logits_NC.argmax(axis=1).tolist()]
        scores_N = logits_NC[:, 0].astype(np.float64) * self.plan.score_scale
        return [Label(score) for score in scores_N.tolist()]

    def measure(self, examples: GlueExamples, answers: Sequence[Label]) -> dict[str, float]:
        """Return all metrics of the task."""
        predictions = [answer.prediction for answer in answers]
        return scores(self.task.title, self.task.metrics, predictions, examples.labels)

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Write the outputs and the weights."""
        said = {split: np.stack(some) for split, some in trained.outputs.items()}
        with committed(folder / "outputs.safetensors") as temporary:
            save_arrays(said, temporary)
        tensors = {n: t.cpu().contiguous() for n, t in model_tensors(trained.model).items()}
        with committed(folder / MODEL) as temporary:
            save_file(tensors, temporary)

    def counts(self, splits: Mapping[str, experiment.PreparedSplit]) -> dict[str, int]:
        """Return the rows that were used, and those of any split that could not be."""
        malformed = sum(split.examples.malformed for split in splits.values())
        return {"train_rows": len(splits[TRAIN].examples), "malformed": malformed}


def load_fitted(problem: GlueProblem, encoder: Encoder, seed: int, folder: Path) -> Head:
    """The fine-tuned model of a finished job whose weights are kept."""
    model: Head = experiment.new_model(replace(problem, starts_from=None), encoder, seed)
    load_model(model, load_file(folder / MODEL), str(folder / MODEL))
    return model

"""Every preset field takes effect, and every prediction ends up in the right file.

All tests go through the commands: `glue` plans, trains and evaluates; `glue submit` predicts.
"""

import csv
from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.finetuning.conftest import MARK

from electrify.finetuning import fit as fitting
from electrify.finetuning.batches import BatchIndices
from electrify.finetuning.glue import command as commands
from electrify.finetuning.glue import problem as jobs
from electrify.finetuning.glue import submission as submit
from electrify.finetuning.glue import submit as submitting
from electrify.finetuning.glue.command import glue
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.presets import PRESETS, Preset
from electrify.finetuning.glue.results import read_results
from electrify.finetuning.glue.submit import glue_submit
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import Glue, GlueSubmit

LIMIT = 24
CLASSES = [task.name for task in TASKS.values() if task.labels]


@dataclass
class Observation:
    """The arguments of the training loop for the last job, all tasks that ran, and the folder."""

    run: object
    steps: int
    tasks: list[str]
    out: Path

    @property
    def scales(self):
        """Return the learning-rate factor of each part of the encoder, which must be unique."""
        parts = {"embeddings": set(), "layer.0.": set(), "layer.1.": set(), "classifier": set()}
        for group in self.run.stepper.optimizer.param_groups:
            for name in group["names"]:
                next(scales for part, scales in parts.items() if part in name).add(group["scale"])
        return [value for scales in parts.values() for value in sorted(scales)]

    @property
    def decayed(self):
        """Return the weight decay of matrices, and of other parameters."""
        decay = {True: set(), False: set()}
        for group in self.run.stepper.optimizer.param_groups:
            for parameter in group["params"]:
                decay[parameter.ndim > 1].add(group["weight_decay"])
        return decay[True], decay[False]

    @property
    def losses_summed(self):
        """Return how many mean losses the loss of the first batch equals; 1 for a mean."""
        batch, model = self.run.stepper.task.batches[0], self.run.stepper.model.eval()
        tensors, totals = self.run.stepper.task.tensors(batch), batch.totals()
        with torch.no_grad():
            loss, _ = model(tensors, totals)
            mean = torch.nn.functional.cross_entropy(model.logits(tensors), tensors.labels_B)
        return round(float(loss / mean), 3)

    @property
    def labels(self):
        rows = BatchIndices(np.arange(LIMIT), np.ones(LIMIT))
        return self.run.stepper.task.tensors(rows).labels_B.tolist()

    @property
    def pairs(self):
        """Return the tokens of both texts of every training row."""
        numbers = np.arange(len(self.run.stepper.task.batches.lengths))
        batch = self.run.stepper.task.tensors(BatchIndices(numbers, numbers))
        pairs = []
        for ids, types, real in zip(batch.ids_BL, batch.types_BL, batch.attention_BL, strict=True):
            first, second = ids[(types == 0) & (real == 1)], ids[(types == 1) & (real == 1)]
            pairs.append((first[1:-1].tolist(), second[:-1].tolist()))  # without [CLS] and [SEP]
        return pairs

    def cell(self, column):
        with (self.out / "glue.csv").open() as file:
            return float(next(csv.DictReader(file))[column])


@pytest.fixture
def see(encoder_folder, glue_folder, tmp_path, monkeypatch):
    """Run `glue` with a changed preset, recording the training loop's arguments, not training."""

    def see(task="rte", runs=1, **changes) -> Observation:
        seen = Observation(None, 0, [], tmp_path / "glue")

        def no_training(run, start):
            seen.run, seen.steps = run, run.cadence.steps
            run.writer.close()
            return SimpleNamespace(why="")

        def recorded(job, on_progress):
            seen.tasks.append(job.problem.name)
            return real(job, on_progress)

        real = commands.run_job
        monkeypatch.setattr(fitting, "train", no_training)
        monkeypatch.setattr(commands, "run_job", recorded)
        monkeypatch.setitem(PRESETS, "paper", replace(PRESETS["paper"], **changes))
        where = {"model": str(encoder_folder), "data": glue_folder, "out": seen.out}
        glue(Glue(**where, tasks=task, seeds=runs, length=32, train_limit=LIMIT))
        return seen

    return see


PAPER = PRESETS["paper"].fit
RATES = {"small": 1e-3, "base": 0.0, "large": 0.0}
HALVES = {"small": 0.5, "base": 1.0, "large": 1.0}

# Field, value, task, what to look at, and the expected value. RTE has ten steps here.
CASES = [
    ("seeds", 2, {"runs": 0}, lambda seen: seen.tasks, ["rte"] * 2),
    ("seeds", 3, {"runs": 0}, lambda seen: seen.tasks, ["rte"] * 3),
    ("rates", RATES, {}, lambda seen: seen.run.schedule(5), 1e-3 * 0.5),
    ("task_rates", {"rte": 2e-5}, {}, lambda seen: seen.run.schedule(5), 2e-5 * 0.5),
    ("task_epochs", {"rte": 2.0}, {}, lambda seen: seen.steps, 2),
    ("task_epochs", {}, {}, lambda seen: seen.steps, 10),
    ("decays", HALVES, {}, lambda seen: seen.scales, [0.125, 0.25, 0.5, 1]),
    ("fit", replace(PAPER, layers="intended"), {}, lambda s: s.scales, [0.512, 0.64, 0.8, 1]),
    ("fit", replace(PAPER, layers="official"), {}, lambda s: s.scales, [0.4096, 0.512, 0.64, 1]),
    ("fit", replace(PAPER, weight_decay=0.0), {}, lambda seen: seen.decayed, ({0.0}, {0.0})),
    ("fit", replace(PAPER, weight_decay=0.3), {}, lambda seen: seen.decayed, ({0.3}, {0.0})),
    ("fit", replace(PAPER, clip=0.5), {}, lambda seen: seen.run.stepper.clip, 0.5),
    ("fit", replace(PAPER, warmup=0.5), {}, lambda seen: seen.run.schedule(2), 3e-4 * 0.4 * 0.8),
    ("fit", replace(PAPER, schedule="constant"), {}, lambda seen: seen.run.schedule(9), 3e-4),
    ("fit", replace(PAPER, schedule="linear"), {}, lambda seen: seen.run.schedule(4), 3e-4 * 6 / 9),
    ("fit", replace(PAPER, batch_size=8), {}, lambda seen: seen.steps, 30),
    ("fit", replace(PAPER, optimizer="adamw"), {}, lambda s: type(s.run.stepper.optimizer).__name__, "AdamW"),
    ("fit", PAPER, {}, lambda seen: type(seen.run.stepper.optimizer).__name__, "ElectraAdam"),
    ("head", "official", {}, lambda seen: type(seen.run.stepper.model).__name__, "Classifier"),
    ("head", "own", {}, lambda seen: type(seen.run.stepper.model).__name__, "OwnHead"),
    ("reduction", "mean", {}, lambda seen: seen.losses_summed, 1),
    ("reduction", "sum", {}, lambda seen: seen.losses_summed, LIMIT),
    ("scaled", True, {"task": "stsb"}, lambda seen: set(seen.labels), {0.0, 1.0}),
    ("scaled", False, {"task": "stsb"}, lambda seen: set(seen.labels), {0.0, 5.0}),
    ("doubled", True, {"task": "mrpc"}, lambda seen: len(seen.pairs), 2 * LIMIT),
    ("doubled", False, {"task": "mrpc"}, lambda seen: len(seen.pairs), LIMIT),
    ("doubled", True, {"task": "rte"}, lambda seen: len(seen.pairs), LIMIT),  # not symmetric
    ("chains", {"rte": "mnli"}, {}, lambda seen: seen.tasks, ["mnli", "rte"]),
    ("chains", {}, {}, lambda seen: seen.tasks, ["rte"]),
]  # fmt: skip
CHECKED_BELOW = {"aggregate", "average"}
DOCUMENTATION = {"description"}


def test_every_preset_field_is_tested():
    assert {field for field, *_ in CASES} | CHECKED_BELOW | DOCUMENTATION == {
        field.name for field in fields(Preset)
    }


@pytest.mark.parametrize(
    ("field", "value", "where", "look", "expected"), CASES, ids=[field for field, *_ in CASES]
)
def test_every_preset_field_takes_effect(see, field, value, where, look, expected):
    found = look(see(**where, **{field: value}))
    assert found == (
        expected if isinstance(expected, tuple | set | str) else pytest.approx(expected)
    )


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_the_table_uses_the_aggregate_of_the_preset(see, aggregate, monkeypatch):
    scores = iter([0.1, 0.8, 0.9])
    monkeypatch.setattr(jobs, "scores", lambda *_: {"accuracy": next(scores)})
    seen = see("rte", 3, aggregate=aggregate)
    assert seen.cell("RTE") == pytest.approx({"mean": 60, "median": 80}[aggregate])


@pytest.mark.parametrize("average", ["average", "seed-003 style"])
def test_the_average_of_the_preset_defines_the_cell_and_the_best_run(see, average, monkeypatch):
    scores = iter([0.8, 0.2, 0.7, 0.6])  # matched and mismatched of seed 0, of seed 1
    monkeypatch.setattr(jobs, "scores", lambda *_: {"accuracy": next(scores)})
    seen = see("mnli", 2, average=average)
    both = average == "seed-003 style"
    assert seen.cell("MNLI") == pytest.approx(57.5 if both else 75)
    kept = [path.parent.name for path in seen.out.glob("jobs/*/model.safetensors")]
    assert kept == ["mnli-1" if both else "mnli-0"]


@pytest.mark.parametrize("task", ["mrpc", "stsb"])
def test_symmetric_tasks_are_doubled_with_swapped_texts(see, task):
    pairs = see(task, doubled=True).pairs
    assert [(b, a) for a, b in pairs[:LIMIT]] == pairs[LIMIT:]
    assert any(a != b for a, b in pairs)


def test_a_chained_task_starts_from_the_weights_of_the_other(see):
    from safetensors.torch import load_file

    seen = see("rte", chains={"rte": "mnli"})
    before = load_file(seen.out / "jobs/mnli-0/model.safetensors")
    mine = dict(seen.run.stepper.model.named_parameters())
    assert all((mine[n] == before[n]).all() for n in before if n.startswith("body."))


# ---- evaluation and submission


def settings(encoder_folder, glue_folder, out, **changes) -> Glue:
    chosen = {"seeds": 1, "length": 32, "train_limit": 16, "epochs": 1.0, **changes}
    return Glue(model=str(encoder_folder), data=glue_folder, out=out, **chosen)


@pytest.fixture(scope="module")
def everything(encoder_folder, glue_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("everything") / "glue"
    glue(settings(encoder_folder, glue_folder, out, tasks=",".join(TASKS)))
    return out


@pytest.fixture
def few(monkeypatch):
    """Reduce the server's files to the rows of the tiny test files."""
    tiny = {
        name: wanted._replace(rows=12 if name == "AX.tsv" else 20)
        for name, wanted in submit.SUBMISSION_FILES.items()
    }
    monkeypatch.setattr(submit, "SUBMISSION_FILES", tiny)
    monkeypatch.setattr(submitting, "SUBMISSION_FILES", tiny)


def submitted(folder) -> dict[str, list[str]]:
    return {
        path.name: [line.split("\t")[1] for line in path.read_text().splitlines()[1:]]
        for path in folder.iterdir()
    }


def test_scores_are_those_of_the_development_examples(everything, glue_folder):
    for result in read_results(everything):
        task = TASKS[result.task]
        outputs = load_file(everything / f"jobs/{result.task}-0/outputs.safetensors")
        assert outputs.keys() == result.scores.keys() == {s for s in task.files if "dev" in s}
        for split, logits in outputs.items():
            labels = read_split(glue_folder, task, split).labels
            assert len(logits) == len(labels) == 40  # the training file has 256 rows
            if "accuracy" in task.metrics:
                accuracy = np.mean(logits.argmax(axis=1) == labels)
                assert result.scores[split]["accuracy"] == pytest.approx(accuracy)


def test_both_mnli_dev_sets_are_read_from_their_files(
    encoder_folder, glue_folder, tmp_path, monkeypatch
):
    seen = []
    real = jobs.read_split

    def recorded(folder, task, split):
        seen.append(split)
        return real(folder, task, split)

    monkeypatch.setattr(jobs, "read_split", recorded)
    glue(settings(encoder_folder, glue_folder, tmp_path / "glue", tasks="mnli"))
    assert seen == ["train", "dev", "dev_mismatched"]


WORDS = {"qnli": ("not_entailment", "entailment"), "rte": ("not_entailment", "entailment"),
         "mnli": ("contradiction", "entailment")}  # fmt: skip


@pytest.mark.parametrize("preset", ["paper", "seed-004"])
def test_stsb_scores_are_submitted_on_their_original_scale(
    preset, encoder_folder, glue_folder, tmp_path, few, monkeypatch
):
    out = tmp_path / "glue"
    glue(settings(encoder_folder, glue_folder, out, tasks="stsb", preset=preset))
    learned = np.linspace(0.02, 0.8, 20, dtype=np.float32)[:, None]
    predicted = list(learned * (1 if preset == "paper" else 5))
    monkeypatch.setattr(submitting, "outputs", lambda *_, precision: predicted)
    glue_submit(GlueSubmit(results=out, data=glue_folder, out=tmp_path / "files"))
    written = [float(word) for word in submitted(tmp_path / "files")["STS-B.tsv"]]
    assert written == pytest.approx(np.linspace(0.1, 4.0, 20), abs=6e-4)


def test_submitted_labels_are_those_of_the_training_files(
    everything, glue_folder, tmp_path, few, monkeypatch
):
    """A perfect model knows the classes of texts with and without the mark."""

    asked = []
    real = jobs.GlueProblem.read

    def read(problem, split):
        examples = real(problem, split)
        asked.append((problem.task, examples))
        return examples

    def perfect(model, lengths, collate, precision):
        task, examples = asked[-1]
        if not task.labels:
            return list(np.linspace(0, 1, len(examples), dtype=np.float32)[:, None])
        train = read_split(glue_folder, task, "train")
        known = Counter(zip((MARK in text for text in train.first), train.labels, strict=True))
        usual = {
            marked: max((n, label) for (m, label), n in known.items() if m == marked)[1]
            for marked in (True, False)
        }
        classes = [int(usual[MARK in text]) for text in examples.first]
        return list(np.eye(len(task.labels), dtype=np.float32)[classes])

    monkeypatch.setattr(jobs.GlueProblem, "read", read)
    monkeypatch.setattr(submitting, "outputs", perfect)
    glue_submit(GlueSubmit(results=everything, data=glue_folder, out=tmp_path / "files"))
    found = submitted(tmp_path / "files")
    assert found.keys() == submit.SUBMISSION_FILES.keys()
    for name in CLASSES:
        bad, good = WORDS.get(name, ("0", "1"))
        for file in TASKS[name].submitted:
            texts = read_split(glue_folder, TASKS[name], file.split).first
            expected = [good if MARK in text else bad for text in texts]
            assert found[file.name] == expected, file.name
            assert len(set(expected)) == 2


def test_the_best_run_is_the_one_submitted(
    encoder_folder, glue_folder, tmp_path, few, monkeypatch, capsys
):
    scores = iter([0.4, 0.9, 0.6])
    monkeypatch.setattr(jobs, "scores", lambda *_: {"accuracy": next(scores)})
    out = tmp_path / "glue"
    glue(settings(encoder_folder, glue_folder, out, tasks="sst2", seeds=3))
    assert [p.parent.name for p in out.glob("jobs/*/model.safetensors")] == ["sst2-1"]
    loaded = []
    real = submitting.load_finetuned
    monkeypatch.setattr(
        submitting,
        "load_finetuned",
        lambda *args: (loaded.append(f"{args[0].name}-{args[2]}"), real(*args))[1],
    )
    glue_submit(GlueSubmit(results=out, data=glue_folder, out=tmp_path / "files"))
    assert loaded == ["sst2-1"]
    assert "SST-2: seed 1, 0.9000 on dev" in capsys.readouterr().out

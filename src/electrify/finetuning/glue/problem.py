"""A GLUE task as a fine-tuning problem: its examples, its head and its metrics.

Next to its result, a run saves

outputs.safetensors  the model's outputs for every development example
model.safetensors    the fine-tuned weights, as long as they are needed
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
from electrify.finetuning.batches import Rows, to_rows
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
    """A class index, or a score on the task's own scale."""

    prediction: float


@dataclass(frozen=True)
class GlueProblem(Problem):
    """A task and how to fine-tune it; shared by all its seeds."""

    fewest_answers = 1
    data: Path
    task: GlueTask
    plan: TaskPlan
    preset: str
    splits: Sequence[Split] = ()
    """The development splits that the data has."""
    train_limit: int = 0
    """Use only the first N training examples; 0 uses all."""
    starts_from: Path | None = None
    """Weights of another job whose encoder this one starts from."""
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the task."""
        return self.task.name

    def with_identity(self, source: str, model: str, data: Mapping[str, str]) -> "GlueProblem":
        """Return the problem with its identity: the fingerprints of its encoder and its files.

        `source` is only the location of the model; `model`, its fingerprint, identifies it.
        """
        plan = {**self.plan._asdict(), "fit": vars(self.plan.fit)}
        if self.plan.head == "official":
            del plan["init_head"]  # the official head is always new
        known = {"source": source, "model": model, "data": data, "preset": self.preset}
        return replace(self, identity={**known, "plan": plan, "train_limit": self.train_limit})

    def read(self, split: Any) -> GlueExamples:
        """Return the examples of a split; of the training split, the first `train_limit`."""
        examples = read_split(self.data, self.task, split)
        return examples.first_rows(self.train_limit) if split == TRAIN else examples

    def prepare(self, examples: GlueExamples, encoder: Encoder, learn: bool) -> Rows:
        """Return tokenized rows; the plan may add training pairs with swapped texts."""
        first, second, labels = examples.first, examples.second, examples.labels
        if learn and self.plan.doubled and second is not None:
            first, second, labels = first + second, second + first, labels + labels
        encodings = encode(encoder, first, second, self.plan.length)
        values = np.asarray(labels if learn else [], np.float64)
        scaled = values if self.task.labels else values / self.plan.score_scale
        return to_rows(encodings, scaled, self.task.kind, encoder.pad)

    def head(self, encoder: Encoder, seed: int) -> Head:
        """Return the encoder, or that of another job, with the planned head."""
        plan, outputs, source = self.plan, self.task.outputs, encoder.source
        model: Head
        if plan.head == "official":
            backbone = load_backbone(source)
            model = Classifier(backbone, outputs, self.task.kind, plan.reduction, seed=seed)
        else:
            auto = AutoModelForSequenceClassification
            network = new_network(auto, source, plan.init_head, num_labels=outputs)
            model = OwnHead(network, self.task.kind, plan.reduction)
        if self.starts_from is not None:
            own, other = model_tensors(model), load_file(self.starts_from)
            prefix = f"{model.base_model_prefix}."
            backbone_tensors = {name: other[name] for name in own if name.startswith(prefix)}
            load_model(model, {**own, **backbone_tensors}, str(self.starts_from))
        return model

    def answers(self, rows: Rows, outputs: Outputs) -> list[Label]:
        """Return the most likely class of each example, or its score."""
        logits_NC = np.stack(outputs)
        if self.task.labels:
            return [Label(index) for index in logits_NC.argmax(axis=1).tolist()]
        scores_N = logits_NC[:, 0].astype(np.float64) * self.plan.score_scale
        return [Label(score) for score in scores_N.tolist()]

    def measure(self, examples: GlueExamples, answers: Sequence[Label]) -> dict[str, float]:
        """Return all metrics of the task."""
        predictions = [answer.prediction for answer in answers]
        return scores(self.task.title, self.task.metrics, predictions, examples.labels)

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Save the outputs and the weights."""
        outputs = {split: np.stack(rows) for split, rows in trained.outputs.items()}
        with committed(folder / "outputs.safetensors") as temporary:
            save_arrays(outputs, temporary)
        tensors = {n: t.cpu().contiguous() for n, t in model_tensors(trained.model).items()}
        with committed(folder / MODEL) as temporary:
            save_file(tensors, temporary)

    def counts(self, splits: Mapping[str, experiment.PreparedSplit]) -> dict[str, int]:
        """Return the number of training rows used, and of malformed rows in all splits."""
        malformed = sum(split.examples.malformed for split in splits.values())
        return {"train_rows": len(splits[TRAIN].examples), "malformed": malformed}


def load_finetuned(problem: GlueProblem, encoder: Encoder, seed: int, folder: Path) -> Head:
    """Load the fine-tuned model of a finished job whose weights were kept."""
    model: Head = experiment.new_model(replace(problem, starts_from=None), encoder, seed)
    load_model(model, load_file(folder / MODEL), str(folder / MODEL))
    return model

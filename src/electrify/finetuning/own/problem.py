"""Your files as a fine-tuning problem.

Scores are standardized to mean 0 and standard deviation 1 for training; the output layer is then
converted back to their original scale. Every run saves a Hugging Face folder, which must give the
same outputs when it is loaded again.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from electrify.errors import GuardError, UserError
from electrify.finetuning.encoder import Encoder, load_network, new_network, open_encoder
from electrify.finetuning.experiment import (
    TO_PUBLISH,
    TRAIN,
    Outputs,
    PreparedSplit,
    Problem,
    TrainedModel,
)
from electrify.finetuning.fit import outputs
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.by_label import by_label
from electrify.finetuning.own.target import (
    AUTO_CLASSES,
    MODEL_CLASSES,
    Data,
    OwnAnswer,
    OwnRows,
    Target,
    answers,
    config_fields,
    constant_baseline,
    measure,
    prepare_rows,
    undo_standardization,
)
from electrify.storage.commit import write_json

DETAILS = "details.json"
"""File of a run with the scores of each label and the training losses."""
PROBES = 8
RELOAD_TOLERANCE = 1e-5


@dataclass(frozen=True)
class OwnProblem(Problem):
    """A training file, a development file, and what to predict."""

    settings: Finetune
    target: Target
    train: Data
    dev: Data
    length: int
    name: str = "own"
    preset: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)

    def read(self, split: str) -> Data:
        """Return the data of a split, which was read to find the target."""
        return self.train if split == TRAIN else self.dev

    def prepare(self, examples: Data, encoder: Encoder, learn: bool) -> OwnRows:
        """Return tokenized rows with their labels; invalid labels are refused before training."""
        return prepare_rows(self.target, examples, encoder, self.length)

    def head(self, encoder: Encoder, seed: int) -> Any:
        """Return the encoder with the transformers head for this kind of labels."""
        kind, init_head = AUTO_CLASSES[self.target.kind], self.settings.init_head
        network = new_network(kind, encoder.source, init_head, **config_fields(self.target))
        return MODEL_CLASSES[self.target.kind](network)

    def learned(self, model: Any) -> None:
        """Convert predicted scores back to their original scale."""
        if self.target.kind == "score":
            undo_standardization(model.network, self.target)

    def answers(self, rows: OwnRows, model_outputs: Outputs) -> list[OwnAnswer]:
        """Return the predicted classes, scores or tags."""
        return answers(self.target, rows, model_outputs)

    def measure(self, examples: Data, answers: Sequence[OwnAnswer]) -> dict[str, float]:
        """Return the scores of this kind of labels."""
        return measure(self.target, examples, answers)

    def counts(self, splits: Mapping[str, PreparedSplit]) -> dict[str, int]:
        """Return the number of training rows."""
        return {"train_rows": len(self.train.lines)}

    def facts(self, encoder: Encoder, splits: Mapping[str, PreparedSplit]) -> dict[str, Any]:
        """Return what result.json has besides the scores: those of a constant answer."""
        return {"baseline": constant_baseline(self.target, self.train, self.dev)}

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Save the network and tokenizer, and check that they give the same outputs when loaded.

        The scores of each label and the losses are saved too.
        """
        files, model = folder / TO_PUBLISH, trained.model.cpu()
        tokenizer = trained.encoder.tokenizer
        tokenizer.model_max_length = self.length
        details = by_label(self.target, self.dev, trained.answers["dev"])
        losses = trained.fitted.losses
        write_json(folder / DETAILS, {"by_label": details, "losses": losses})
        shutil.rmtree(files, ignore_errors=True)  # left by a process that was killed while writing
        model.network.save_pretrained(files)
        tokenizer.save_pretrained(files)
        reloaded = open_encoder(str(files))
        network = load_network(AUTO_CLASSES[self.target.kind], str(files))
        probes = prepare_rows(self.target, first_rows(self.dev, PROBES), reloaded, self.length)
        rows = trained.splits["dev"].rows
        before = outputs(model, rows.lengths[:PROBES], rows.collate)
        after = outputs(MODEL_CLASSES[self.target.kind](network), probes.lengths, probes.collate)
        if not all(np.isfinite(logits).all() for logits in before):
            raise GuardError(
                "training diverged: the outputs of the model are not finite",
                got=f"--lr {self.settings.fit.lr:g}",
                fix="use a lower --lr and another --out, or check the data",
            )
        for old, new in zip(before, after, strict=True):
            limit = RELOAD_TOLERANCE * max(1.0, float(abs(old).max()))
            if old.shape != new.shape or not abs(old - new).max() <= limit:
                raise UserError(
                    f"the saved {model.config.model_type} model differs from the trained one",
                    got="different outputs after saving and loading it",
                    fix="use another model or another version of transformers",
                )


def first_rows(data: Data, count: int) -> Any:
    """Return the first texts or sentences of a file; all of them if `count` is 0."""
    if not count:
        return data
    fields = (field[:count] if isinstance(field, list) else field for field in data)
    return type(data)._make(fields)

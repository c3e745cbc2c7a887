"""Your own files as a problem of fine-tuning.

Scores are learned with mean 0 and deviation 1; the last layer is then put on their own scale. Of
every run a Hugging Face folder is kept, which must say the same when it is loaded again.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, load_network, new_network, open_encoder
from electrify.finetuning.experiment import TO_PUBLISH, TRAIN, Outputs, Problem, TrainedModel
from electrify.finetuning.fit import outputs
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.target import (
    AUTO,
    MODELS,
    Data,
    OwnAnswer,
    OwnRows,
    Target,
    answers,
    fields_of,
    measure,
    prepare_rows,
    unscale,
)

PROBES = 8
RELOAD_TOLERANCE = 1e-5


@dataclass(frozen=True)
class OwnProblem(Problem):
    """What is to be learned from one file and measured on another."""

    name = "own"
    settings: Finetune
    target: Target
    train: Data
    dev: Data
    length: int

    def read(self, split: str) -> Data:
        """Return what was read to find out what is to be learned."""
        return self.train if split == TRAIN else self.dev

    def prepare(self, examples: Data, encoder: Encoder, learn: bool) -> OwnRows:
        """Return rows with their labels; wrong ones show before anything is learned."""
        return prepare_rows(self.target, examples, encoder, self.length)

    def head(self, encoder: Encoder, seed: int) -> Any:
        """Return the encoder under transformers' head for this kind of labels."""
        kind, init_head = AUTO[self.target.kind], self.settings.init_head
        network = new_network(kind, encoder.source, init_head, **fields_of(self.target))
        return MODELS[self.target.kind](network)

    def learned(self, model: Any) -> None:
        """Put scores on their own scale."""
        if self.target.kind == "score":
            unscale(model.network, self.target)

    def answers(self, rows: OwnRows, said: Outputs) -> list[OwnAnswer]:
        """Return classes, scores or tags."""
        return answers(self.target, rows, said)

    def measure(self, examples: Data, answers: Sequence[OwnAnswer]) -> dict[str, float]:
        """Return the scores of this kind of labels."""
        return measure(self.target, examples, answers)

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Write a network and its tokenizer; loaded again they must say the same."""
        files, model = folder / TO_PUBLISH, trained.model.cpu()
        tokenizer = trained.encoder.tokenizer
        tokenizer.model_max_length = self.length
        shutil.rmtree(files, ignore_errors=True)  # of a process that was killed while it wrote
        model.network.save_pretrained(files)
        tokenizer.save_pretrained(files)
        again = open_encoder(str(files))
        network = load_network(AUTO[self.target.kind], str(files))
        written = prepare_rows(self.target, _first(self.dev, PROBES), again, self.length)
        rows = trained.splits["dev"].rows
        before = outputs(model, rows.lengths[:PROBES], rows.collate)
        after = outputs(MODELS[self.target.kind](network), written.lengths, written.collate)
        for old, new in zip(before, after, strict=True):
            limit = RELOAD_TOLERANCE * max(1.0, float(abs(old).max()))
            if old.shape != new.shape or not abs(old - new).max() <= limit:
                raise UserError(
                    f"{model.config.model_type} does not survive export",
                    got="what was written and loaded again gives other outputs",
                    fix="take another model or another version of transformers",
                )


def _first(data: Data, count: int) -> Any:
    fields = (one[:count] if isinstance(one, list) else one for one in data)
    return type(data)._make(fields)

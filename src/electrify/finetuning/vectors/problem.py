"""`electrify finetune --kind sentences`: train an encoder to make sentence vectors.

The losses are those of sentence-transformers: CoSENT for pairs with scores, which learns the order
of the scores, and MultipleNegativesRanking for pairs that belong together, which contrasts each
with the other pairs of its batch.

The training loop is ours. The package's Trainer was tried: it resumes to the same weights after a
kill, but needs the `datasets` package, keeps its checkpoints as pickles, which electrify never
loads, and has neither the settings of `Fit` nor a folder that is complete or absent.
"""

# N pairs, B batch, H width

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from electrify.errors import GuardError, UserError, needs
from electrify.finetuning.encoder import Encoder, load_backbone, open_encoder
from electrify.finetuning.experiment import (
    TO_PUBLISH,
    TRAIN,
    Outputs,
    PreparedSplit,
    Problem,
    TrainedModel,
)
from electrify.finetuning.fit import outputs
from electrify.finetuning.heads import Examples
from electrify.finetuning.metrics import pearson, spearman
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.data import Columns, Texts, parse_scores
from electrify.finetuning.own.problem import DETAILS, PROBES, RELOAD_TOLERANCE
from electrify.finetuning.own.target import Target, TrainingFile
from electrify.finetuning.vectors.model import (
    SentenceEncoder,
    encode_texts,
    find_sentence_model,
    text_rows,
)
from electrify.finetuning.vectors.pairs import (
    SCORED,
    PairBatch,
    PairRows,
    prepare_pairs,
    read_matching_pairs,
    read_pairs,
    second_texts,
)
from electrify.finetuning.vectors.retrieval import retrieval_scores, unit_rows
from electrify.models.export import encoder_alone
from electrify.models.pooling import Pooling
from electrify.models.sentence_folder import SentenceModel, write_sentence_folder
from electrify.storage.commit import write_json

LOSSES = {True: "CoSENTLoss", False: "MultipleNegativesRankingLoss"}
"""The loss in sentence-transformers, by whether the pairs have scores."""


class PairLearner(SentenceEncoder):
    """A sentence encoder with a loss of sentence-transformers for pairs."""

    def __init__(self, backbone: Any, pooling: Pooling, normalize: bool, scored: bool) -> None:
        super().__init__(backbone, pooling, normalize)
        losses = import_sentence_transformers(".sentence_transformer.losses")
        # Without a model: only the vectors that we computed are passed to it.
        self.loss = getattr(losses, LOSSES[scored])(None)

    def forward(self, batch: PairBatch, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of the batch, which `fit` never splits."""
        sides = list(self.vectors(batch.ids_BL, batch).chunk(2))
        loss = self.loss.compute_loss_from_embeddings(sides, batch.scores_B)
        return loss, {"loss": loss.detach()}

    def logits(self, batch: Any) -> Tensor:
        """Return both vectors of each pair, B × 2 × H."""
        return _by_pair(self.vectors(batch.ids_BL, batch))


def _by_pair(vectors: Tensor) -> Tensor:
    return vectors.view(2, -1, vectors.shape[-1]).transpose(0, 1)


def import_sentence_transformers(module: str = "") -> Any:
    """Import sentence-transformers, or raise an error that says how to install it."""
    why = "training sentence vectors"
    return needs(f"sentence_transformers{module}", extra="sentences", why=why)


class PairAnswer(NamedTuple):
    """The vectors of a pair."""

    prediction: float
    """Their cosine similarity."""
    vectors_2H: NDArray[np.float32]


def open_sentences(settings: Finetune) -> tuple[TrainingFile, "SentenceProblem"]:
    """Read the files of pairs and find out how the model makes vectors."""
    requested = Columns(settings.text, settings.pair, settings.label)
    training = read_pairs(settings.train, requested)
    dev = read_matching_pairs(settings.dev, training.columns)
    import_sentence_transformers()
    model = find_sentence_model(settings.model, settings.pooling)
    length = min(settings.length, open_encoder(model.source).longest)
    settings = replace(settings, model=model.source, pooling=model.pooling)
    model = model._replace(length=length)
    train: Any = training.data
    return training, SentenceProblem(settings, training.target, train, dev, length, model)


@dataclass(frozen=True)
class SentenceProblem(Problem):
    """A training file and a development file of pairs, and how vectors are made."""

    name = "sentences"
    settings: Finetune
    target: Target
    train: Texts
    dev: Texts
    length: int
    model: SentenceModel

    @property
    def scored(self) -> bool:
        """Return whether the pairs have scores."""
        return self.target.labels == (SCORED,)

    def read(self, split: str) -> Texts:
        """Return the pairs of a split."""
        return self.train if split == TRAIN else self.dev

    def prepare(self, examples: Texts, encoder: Encoder, learn: bool) -> PairRows:
        """Return tokenized pairs."""
        return prepare_pairs(self.model, encoder, examples, self.length, learn)

    def head(self, encoder: Encoder, seed: int) -> PairLearner:
        """Return the encoder with pooling and the loss; it has no new weights."""
        backbone, (_, pooling, normalize, *_) = load_backbone(encoder.source), self.model
        return PairLearner(backbone, pooling, normalize, self.scored)

    def answers(self, rows: PairRows, model_outputs: Outputs) -> list[PairAnswer]:
        """Return the vectors of each pair and their cosine similarity."""
        unit = unit_rows(np.stack(model_outputs))
        cosines_N = (unit[:, 0] * unit[:, 1]).sum(axis=1)
        return [PairAnswer(*pair) for pair in zip(cosines_N.tolist(), model_outputs, strict=True)]

    def measure(self, examples: Texts, answers: Sequence[PairAnswer]) -> dict[str, float]:
        """Return correlations of the cosine with the scores, or how often the pair is found."""
        if self.scored:
            cosines_N, scores_N = np.array([a.prediction for a in answers]), parse_scores(examples)
            return {
                "spearman": spearman(cosines_N, scores_N),
                "pearson": pearson(cosines_N, scores_N),
            }
        first, second = np.stack([a.vectors_2H for a in answers]).swapaxes(0, 1)
        return retrieval_scores(examples.first, second_texts(examples), first, second)

    def facts(self, encoder: Encoder, splits: Mapping[str, PreparedSplit]) -> dict[str, Any]:
        """Return what result.json has besides the scores: also those without training."""
        examples, rows = splits["dev"]
        raw = outputs(self.head(encoder, 0), rows.lengths, rows.collate, self.answered_together)
        untrained = self.measure(examples, self.answers(rows, raw))
        return {"pooling": self.model.pooling, "untrained": untrained}

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Save a folder of sentence-transformers, and check that it gives the same vectors."""
        files, model = folder / TO_PUBLISH, trained.model.cpu()
        write_json(folder / DETAILS, {"by_label": {}, "losses": trained.fitted.losses})
        shutil.rmtree(files, ignore_errors=True)  # left by a process that was killed while writing
        tokenizer = trained.encoder.tokenizer
        tokenizer.model_max_length = self.length
        encoder_alone(model.body).save_pretrained(files)
        tokenizer.save_pretrained(files)
        write_sentence_folder(files, self.model, model.config.hidden_size)
        self._check_reload(files, trained)

    def _check_reload(self, files: Path, trained: TrainedModel) -> None:
        special = trained.encoder.tokenizer.all_special_tokens
        # Text such as "[MASK]" is a special token to the library, and text to us.
        plain = [t for t in self.dev.first if not any(token in t for token in special)]
        texts = plain[:PROBES] or ["a text"]
        wanted = _vectors(trained.model, self.model, trained.encoder, texts)
        if not np.isfinite(wanted).all():
            raise GuardError(
                "training diverged: the vectors are not finite",
                got=f"--lr {self.settings.fit.lr:g}",
                fix="use a lower --lr and another --out, or check the data",
            )
        found = find_sentence_model(str(files))
        network = SentenceEncoder(load_backbone(found.source), found.pooling, found.normalize)
        ours = _vectors(network, found, open_encoder(found.source), texts)
        library = import_sentence_transformers().SentenceTransformer(str(files), device="cpu")
        theirs = library.encode(texts, show_progress_bar=False)
        limit = RELOAD_TOLERANCE * max(1.0, float(abs(wanted).max()))
        for name, vectors in (("electrify", ours), ("sentence-transformers", theirs)):
            if vectors.shape != wanted.shape or not abs(vectors - wanted).max() <= limit:
                kind = trained.model.config.model_type
                raise UserError(
                    f"the saved {kind} model differs from the trained one",
                    got=f"different vectors after {name} loads it",
                    fix="use another model, or other versions of the packages",
                )


def _vectors(
    network: SentenceEncoder, model: SentenceModel, encoder: Encoder, texts: Sequence[str]
) -> NDArray[np.float32]:
    rows = text_rows(encode_texts(model, encoder, texts, model.length), encoder.pad)
    plain = SentenceEncoder(network.body, network.pooling, network.normalize)
    return np.stack(outputs(plain, rows.lengths, rows.collate))

"""SQuAD as a fine-tuning problem: training windows, answers, n-best lists, scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from electrify.config import to_dict
from electrify.finetuning.encoder import Encoder
from electrify.finetuning.experiment import (
    TO_PUBLISH,
    TRAIN,
    Outputs,
    PreparedSplit,
    Problem,
    TrainedModel,
)
from electrify.finetuning.options import Squad
from electrify.finetuning.squad.answers import QuestionAnswers, decode, n_best
from electrify.finetuning.squad.data import Question, SquadFiles, read_questions, sample_questions
from electrify.finetuning.squad.heads import SPAN_HEADS, JointSpans, SimpleSpans, SpanHead
from electrify.finetuning.squad.metrics import evaluate_answers
from electrify.finetuning.squad.windows import Windows, build_windows
from electrify.models.export import own_tensors
from electrify.storage.commit import write_json
from electrify.training.state import model_tensors


@dataclass(frozen=True)
class SquadProblem(Problem):
    """A version of SQuAD and the settings to fine-tune on it."""

    settings: Squad
    files: SquadFiles
    answered_together: int
    """Windows per batch in prediction."""
    name: str = "squad"
    preset: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result_settings(self) -> dict[str, Any]:
        """Return the settings that determine the result."""
        settings = to_dict(self.settings)
        for name in ("model", "data", "out", "device", "version"):
            del settings[name]
        return settings

    @property
    def span_head(self) -> SpanHead:
        """Return how the head is built and its scores are used."""
        return SPAN_HEADS[self.settings.head]

    @property
    def threshold(self) -> float:
        """Return the odds above which no answer is given."""
        threshold = self.settings.null_threshold
        return self.span_head.threshold if threshold is None else threshold

    def read(self, split: str) -> list[Question]:
        """Return as many questions as the settings request."""
        if split == TRAIN:
            questions = read_questions(self.files.train, self.files.version)
            return sample_questions(questions, self.settings.train_share)
        questions = read_questions(self.files.dev, self.files.version)
        return questions[: self.settings.dev_limit or None]

    def prepare(self, examples: list[Question], encoder: Encoder, learn: bool) -> Windows:
        """Return windows of questions and contexts as tokens."""
        length = min(self.settings.length, encoder.longest)
        return build_windows(encoder, examples, length, self.settings.stride, learn)

    def head(self, encoder: Encoder, seed: int) -> SimpleSpans | JointSpans:
        """Return the encoder with the chosen head."""
        return self.span_head.build(encoder, seed)

    def answers(self, rows: Windows, model_outputs: Outputs) -> list[QuestionAnswers]:
        """Return the answers of every question, the best first."""
        return decode(rows, model_outputs)

    def measure(
        self, examples: list[Question], answers: Sequence[QuestionAnswers]
    ) -> dict[str, float]:
        """Return the metrics of the evaluation script of the version."""
        best = {q.id: a.prediction for q, a in zip(examples, answers, strict=True)}
        odds = self._odds(examples, answers)
        return evaluate_answers(examples, best, self.files.version, odds, self.threshold)

    def counts(self, splits: Mapping[str, PreparedSplit]) -> dict[str, int]:
        """Return the number of training questions."""
        return {"train_rows": splits[TRAIN].rows.counts["questions"]}

    def _odds(
        self, questions: Sequence[Question], answers: Sequence[QuestionAnswers]
    ) -> dict[str, float] | None:
        """Return the odds that each question has no answer; None for 1.1."""
        if self.files.version == "1.1":
            return None
        pairs = zip(questions, answers, strict=True)
        return {q.id: float(self.span_head.odds(a.null, a.answers[0].score)) for q, a in pairs}

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Write predictions, scores and the model."""
        files, settings = folder / TO_PUBLISH, self.settings
        questions, answers = trained.splits["dev"].examples, trained.answers["dev"]
        pairs = list(zip(questions, answers, strict=True))
        odds = self._odds(questions, answers)
        contents: dict[str, Any] = {} if odds is None else {"null_odds": odds}
        contents["predictions"] = {
            q.id: "" if odds is not None and odds[q.id] > self.threshold else a.prediction
            for q, a in pairs
        }
        contents["nbest_predictions"] = {q.id: n_best(a) for q, a in pairs}
        contents["result"] = {
            "version": self.files.version,
            "head": settings.head,
            "model": settings.model,
            "scores": trained.scores["dev"],
            **({"null_threshold": self.threshold} if odds is not None else {}),
            "train": trained.splits[TRAIN].rows.counts,
            "dev": {"questions": len(pairs), "windows": len(trained.splits["dev"].rows.windows)},
            "fit": trained.fitted._asdict(),
            "settings": self.result_settings,
        }
        _export(trained.model, trained.encoder, files / "model")
        for name, content in contents.items():
            write_json(files / f"{name}.json", content)


def _export(model: Any, encoder: Encoder, folder: Path) -> None:
    """Save the model in a transformers folder; the official head is saved beside its backbone."""
    simple = isinstance(model, SimpleSpans)
    network = (model.network if simple else model.body).cpu()
    network.save_pretrained(folder, state_dict=own_tensors(network))
    encoder.tokenizer.save_pretrained(folder)
    if not simple:
        head = {n: t.cpu() for n, t in model_tensors(model).items() if not n.startswith("body.")}
        save_file(head, folder / "head.safetensors")

"""SQuAD as a problem of fine-tuning: windows to learn from, answers, n-best, scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from electrify.config import to_dict
from electrify.finetuning.encoder import Encoder
from electrify.finetuning.experiment import TO_PUBLISH, TRAIN, Outputs, Problem, TrainedModel
from electrify.finetuning.options import Squad
from electrify.finetuning.squad.answers import Answered, decode, n_best
from electrify.finetuning.squad.data import Files, Question, read_questions, some_of
from electrify.finetuning.squad.heads import SPAN_HEADS, JointSpans, SimpleSpans, SpanHead
from electrify.finetuning.squad.metrics import evaluate_answers
from electrify.finetuning.squad.windows import Windows, build_windows
from electrify.models.export import own_tensors
from electrify.storage.commit import write_json
from electrify.training.state import model_tensors


@dataclass(frozen=True)
class SquadProblem(Problem):
    """A version of SQuAD, and how it is learned."""

    name = "squad"
    settings: Squad
    files: Files
    answered_together: int
    """As the head's beam has room for."""

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that decide the result."""
        chosen = to_dict(self.settings)
        for name in ("model", "data", "out", "device", "version"):
            del chosen[name]
        return chosen

    @property
    def span_head(self) -> SpanHead:
        """How the head is made and read."""
        return SPAN_HEADS[self.settings.head]

    @property
    def threshold(self) -> float:
        """The odds above which no answer is given."""
        given = self.settings.null_threshold
        return self.span_head.threshold if given is None else given

    def read(self, split: str) -> list[Question]:
        """Return the questions, as many as are asked for."""
        if split == TRAIN:
            questions = read_questions(self.files.train, self.files.version)
            return some_of(questions, self.settings.train_share)
        questions = read_questions(self.files.dev, self.files.version)
        return questions[: self.settings.dev_limit or None]

    def prepare(self, examples: list[Question], encoder: Encoder, learn: bool) -> Windows:
        """Return windows of questions and contexts."""
        length = min(self.settings.length, encoder.longest)
        return build_windows(encoder, examples, length, self.settings.stride, learn)

    def head(self, encoder: Encoder, seed: int) -> SimpleSpans | JointSpans:
        """Return the encoder under the head that was asked for."""
        return self.span_head.build(encoder, seed)

    def answers(self, rows: Windows, said: Outputs) -> list[Answered]:
        """Return the answers of every question, the best first."""
        return decode(rows, said)

    def measure(self, examples: list[Question], answers: Sequence[Answered]) -> dict[str, float]:
        """Return what the evaluation script of the version prints."""
        best = {q.id: a.prediction for q, a in zip(examples, answers, strict=True)}
        odds = self._odds(examples, answers)
        return evaluate_answers(examples, best, self.files.version, odds, self.threshold)

    def _odds(
        self, questions: Sequence[Question], answered: Sequence[Answered]
    ) -> dict[str, float] | None:
        """How likely it is that there is no answer; 1.1 has none such."""
        if self.files.version == "1.1":
            return None
        pairs = zip(questions, answered, strict=True)
        return {q.id: float(self.span_head.odds(a.null, a.answers[0].score)) for q, a in pairs}

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Write predictions, scores and the model."""
        files, settings = folder / TO_PUBLISH, self.settings
        questions, answered = trained.splits["dev"].examples, trained.answers["dev"]
        pairs = list(zip(questions, answered, strict=True))
        odds = self._odds(questions, answered)
        written: dict[str, Any] = {} if odds is None else {"null_odds": odds}
        written["predictions"] = {
            q.id: "" if odds is not None and odds[q.id] > self.threshold else a.prediction
            for q, a in pairs
        }
        written["nbest_predictions"] = {q.id: n_best(a) for q, a in pairs}
        written["result"] = {
            "version": self.files.version,
            "head": settings.head,
            "model": settings.model,
            "scores": trained.scores["dev"],
            **({"null_threshold": self.threshold} if odds is not None else {}),
            "train": trained.splits[TRAIN].rows.counts,
            "dev": {"questions": len(pairs), "windows": len(trained.splits["dev"].rows.windows)},
            "fit": trained.fitted._asdict(),
            "settings": self.chosen,
        }
        _export(trained.model, trained.encoder, files / "model")
        for name, content in written.items():
            write_json(files / f"{name}.json", content)


def _export(model: Any, encoder: Encoder, folder: Path) -> None:
    """Write a model that transformers loads; of the official head, its body, and the head apart."""
    simple = isinstance(model, SimpleSpans)
    network = (model.network if simple else model.body).cpu()
    network.save_pretrained(folder, state_dict=own_tensors(network))
    encoder.tokenizer.save_pretrained(folder)
    if not simple:
        head = {n: t.cpu() for n, t in model_tensors(model).items() if not n.startswith("body.")}
        save_file(head, folder / "head.safetensors")

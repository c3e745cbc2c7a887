"""Find and read the files of SQuAD 1.1 and 2.0."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from electrify.errors import UserError
from electrify.finetuning.own.files import MAX_CHARACTERS, read_text
from electrify.storage.commit import parse_json

Version = Literal["1.1", "2.0"]
VERSIONS: tuple[Version, ...] = ("1.1", "2.0")
_Value = TypeVar("_Value")


class Gold(NamedTuple):
    """An annotated answer: its text and its first character in the context."""

    text: str
    start: int


class Question(NamedTuple):
    """A question, its context, and its answers, which are empty if it has none."""

    id: str
    text: str
    context: str
    answers: tuple[Gold, ...]

    @property
    def impossible(self) -> bool:
        """Return whether the context does not answer the question."""
        return not self.answers


class SquadFiles(NamedTuple):
    """The training and development files of a version."""

    version: Version
    train: Path
    dev: Path


def find_files(folder: Path, version: Version | Literal["auto"]) -> SquadFiles:
    """Find `train-v1.1*.json` and `dev-v1.1*.json`, or those of 2.0, as .json or .json.xz."""
    if not folder.is_dir():
        raise UserError(
            f"no such folder: {folder}", got=f"{folder}", fix="use the folder with SQuAD's files"
        )
    versions = VERSIONS if version == "auto" else (version,)
    found = {v: [_file(folder, f"{split}-v{v}") for split in ("train", "dev")] for v in versions}
    complete = [SquadFiles(v, *both) for v, both in found.items() if all(both)]  # type: ignore[arg-type]
    if len(complete) > 1:
        got = ", ".join(files.version for files in complete)
        fix = f"choose one, such as --version {complete[-1].version}"
        raise UserError(f"{folder} has several versions of SQuAD", got=got, fix=fix)
    if not complete:
        names = sorted(p.name for p in folder.iterdir() if ".json" in p.name)
        expected = " or ".join(f"train-v{v}*.json and dev-v{v}*.json" for v in versions)
        raise UserError(
            f"{folder} must contain both a training and a development file",
            got=", ".join(names[:5]) or "no .json and no .json.xz",
            fix=f"add {expected}, or the same as .json.xz",
        )
    return complete[0]


def _file(folder: Path, stem: str) -> Path | None:
    for ending in (".json", ".json.xz"):
        found = sorted(folder.glob(f"{stem}*{ending}"))
        if len(found) > 1:
            got = ", ".join(path.name for path in found[:5])
            fix = "keep only one of them"
            raise UserError(f"{folder} has several files {stem}*{ending}", got=got, fix=fix)
        if found:
            return found[0]
    return None


def read_questions(path: Path, version: Version) -> list[Question]:
    """Return all questions of a file, in order."""
    questions = list(_questions(path, _json(path), version))
    if not questions:
        raise UserError(f"{path} has no questions", got='"data" is empty', fix="use SQuAD's file")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(
                f"{path} has a duplicate question", got=f"id {question.id}", fix="use unique ids"
            )
        seen.add(question.id)
    return questions


def _json(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except (ValueError, RecursionError) as error:
        what, fix = f"{path} is not valid JSON", "download the file again"
        raise UserError(what, got=f"{error}", fix=fix) from error


def _questions(path: Path, content: Any, version: Version) -> Iterator[Question]:
    for a, article in enumerate(_field(path, content, "data", list, "the file")):
        for p, paragraph in enumerate(_field(path, article, "paragraphs", list, f"data[{a}]")):
            where = f"data[{a}].paragraphs[{p}]"
            context = _field(path, paragraph, "context", str, where)
            for q, entry in enumerate(_field(path, paragraph, "qas", list, where)):
                yield _question(path, entry, context, version, f"{where}.qas[{q}]")


def _question(path: Path, entry: Any, context: str, version: Version, where: str) -> Question:
    number = _field(path, entry, "id", str, where)
    text = _field(path, entry, "question", str, where)
    answers = tuple(
        Gold(
            _field(path, answer, "text", str, f"{where}.answers[{i}]"),
            _field(path, answer, "answer_start", int, f"{where}.answers[{i}]"),
        )
        for i, answer in enumerate(_field(path, entry, "answers", list, where))
    )
    if entry.get("is_impossible", not answers):
        if version == "1.1":
            raise UserError(
                f"{path}: a question has no answer, which SQuAD 1.1 does not allow",
                got=f"{where}, id {number}",
                fix="use --version 2.0, with files of that version",
            )
        answers = ()
    elif not answers:
        raise _layout_error(path, f"{where}: no answers, but is_impossible is false")
    return Question(number, text, context, answers)


def _field(path: Path, entry: Any, name: str, kind: type[_Value], where: str) -> _Value:
    if not isinstance(entry, dict) or name not in entry:
        raise _layout_error(path, f'{where} has no "{name}"')
    value = entry[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        got = f'{where}: "{name}" is {type(value).__name__}, not {kind.__name__}'
        raise _layout_error(path, got)
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise UserError(
            f"{path} has a text of more than {MAX_CHARACTERS:,} characters",
            got=f'{where}: "{name}" has {len(value):,}',
            fix="split it into several contexts; SQuAD's have a few thousand characters",
        )
    return value


def _layout_error(path: Path, got: str) -> UserError:
    return UserError(
        f"{path} does not have the layout of SQuAD",
        got=got,
        fix='use {"data": [{"paragraphs": [{"context": …, "qas": [{"id", "question", "answers": '
        '[{"text", "answer_start"}]}]}]}]}',
    )


def sample_questions(questions: list[Question], share: float) -> list[Question]:
    """Return a fixed random fraction of the questions, in order."""
    if not 0 < share <= 1:
        what = "--train-share must be greater than 0 and at most 1"
        raise UserError(what, got=f"{share}", fix="use 0.1 for 10 % of the questions, or 1 for all")
    count = max(1, round(len(questions) * share))
    chosen = np.random.default_rng(0).permutation(len(questions))[:count]
    return [questions[number] for number in sorted(chosen)]


class AnswerSpan(NamedTuple):
    """The characters of the first answer in the context, and whether the file was wrong."""

    start: int
    end: int
    moved: bool


def locate_answer(question: Question) -> AnswerSpan | None:
    """Return where the first answer is, or None if the context does not contain its text.

    A position in the file is wrong if another text is there, or if it cuts a word although the text
    occurs elsewhere as complete words. The nearest correct occurrence is then used.
    """
    text, start = question.answers[0]
    if not text.strip():
        return None
    context, length = question.context, len(text)
    matches = start >= 0 and context.startswith(text, start)
    if matches and _on_word_boundaries(context, start, start + length):
        return AnswerSpan(start, start + length, False)
    occurrences = [i for i in range(len(context) - length + 1) if context.startswith(text, i)]
    complete = [i for i in occurrences if _on_word_boundaries(context, i, i + length)]
    if not complete and matches:
        return AnswerSpan(start, start + length, False)
    if not occurrences:
        return None
    nearest = min(complete or occurrences, key=lambda i: abs(i - start))
    return AnswerSpan(nearest, nearest + length, True)


def _on_word_boundaries(context: str, start: int, end: int) -> bool:
    """Return whether a span does not cut a word."""
    return not (_inside_word(context, start) or _inside_word(context, end))


def _inside_word(context: str, index: int) -> bool:
    return 0 < index < len(context) and all(map(_is_word_character, context[index - 1 : index + 1]))


def _is_word_character(character: str) -> bool:
    # Scripts with letter case put spaces between words; in others, neighbours tell nothing.
    return character.isdigit() or character.lower() != character.upper()

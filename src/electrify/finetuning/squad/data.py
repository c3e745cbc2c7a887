"""SQuAD's files, versions 1.1 and 2.0: which are in a folder, and the questions in them."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from electrify.errors import UserError

Version = Literal["1.1", "2.0"]
VERSIONS: tuple[Version, ...] = ("1.1", "2.0")
_Value = TypeVar("_Value")


class Gold(NamedTuple):
    """An answer that a person gave: its text, and where in the context it begins."""

    text: str
    start: int


class Question(NamedTuple):
    """A question, the text to answer it from, and its answers: none where there is no answer."""

    id: str
    text: str
    context: str
    answers: tuple[Gold, ...]

    @property
    def impossible(self) -> bool:
        """Whether the context does not answer it."""
        return not self.answers


class Files(NamedTuple):
    """The two files of a version."""

    version: Version
    train: Path
    dev: Path


def find_files(folder: Path, version: Version | Literal["auto"]) -> Files:
    """The files `train-v1.1*.json`, `dev-v1.1*.json` or those of 2.0, plain or as .json.xz."""
    if not folder.is_dir():
        raise UserError(
            f"no such folder: {folder}", got=f"{folder}", fix="give the folder of SQuAD's files"
        )
    asked = VERSIONS if version == "auto" else (version,)
    found = {v: [_file(folder, f"{split}-v{v}") for split in ("train", "dev")] for v in asked}
    whole = [Files(v, *both) for v, both in found.items() if all(both)]  # type: ignore[arg-type]
    if len(whole) > 1:
        got = ", ".join(files.version for files in whole)
        fix = f"choose one, such as --version {whole[-1].version}"
        raise UserError(f"{folder} has several versions of SQuAD", got=got, fix=fix)
    if not whole:
        there = sorted(p.name for p in folder.iterdir() if ".json" in p.name)
        wanted = " or ".join(f"train-v{v}*.json and dev-v{v}*.json" for v in asked)
        raise UserError(
            f"{folder} has not both a training and a development file",
            got=", ".join(there[:5]) or "no .json and no .json.xz",
            fix=f"put {wanted} there, or the same as .json.xz",
        )
    return whole[0]


def _file(folder: Path, stem: str) -> Path | None:
    for ending in (".json", ".json.xz"):
        found = sorted(folder.glob(f"{stem}*{ending}"))
        if len(found) > 1:
            got = ", ".join(path.name for path in found[:5])
            fix = "leave one of them there"
            raise UserError(f"{folder} has several files {stem}*{ending}", got=got, fix=fix)
        if found:
            return found[0]
    return None


def read_questions(path: Path, version: Version) -> list[Question]:
    """All questions of a file, in its order."""
    questions = list(_questions(path, _json(path), version))
    if not questions:
        raise UserError(f"{path} has no questions", got='"data" is empty', fix="give SQuAD's file")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(
                f"{path} has a question twice", got=f"id {question.id}", fix="give each its own id"
            )
        seen.add(question.id)
    return questions


def _json(path: Path) -> Any:
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            return json.load(file)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON", got=f"{error}", fix="get the file again") from error
    except (lzma.LZMAError, EOFError) as error:
        raise UserError(
            f"{path} is no whole .xz file", got=f"{error}", fix="get it again"
        ) from error


def _questions(path: Path, content: Any, version: Version) -> Iterator[Question]:
    for a, article in enumerate(_field(path, content, "data", list, "the file")):
        for p, paragraph in enumerate(_field(path, article, "paragraphs", list, f"data[{a}]")):
            place = f"data[{a}].paragraphs[{p}]"
            context = _field(path, paragraph, "context", str, place)
            for q, entry in enumerate(_field(path, paragraph, "qas", list, place)):
                yield _question(path, entry, context, version, f"{place}.qas[{q}]")


def _question(path: Path, entry: Any, context: str, version: Version, place: str) -> Question:
    number = _field(path, entry, "id", str, place)
    text = _field(path, entry, "question", str, place)
    answers = tuple(
        Gold(
            _field(path, answer, "text", str, f"{place}.answers[{i}]"),
            _field(path, answer, "answer_start", int, f"{place}.answers[{i}]"),
        )
        for i, answer in enumerate(_field(path, entry, "answers", list, place))
    )
    if entry.get("is_impossible", not answers):
        if version == "1.1":
            raise UserError(
                f"{path}: a question without an answer, which version 1.1 has not",
                got=f"{place}, id {number}",
                fix="--version 2.0, with files of that name",
            )
        answers = ()
    elif not answers:
        raise _wrong(path, f"{place}: no answers, but is_impossible is false")
    return Question(number, text, context, answers)


def _field(path: Path, entry: Any, name: str, kind: type[_Value], place: str) -> _Value:
    if not isinstance(entry, dict) or name not in entry:
        raise _wrong(path, f'{place} has no "{name}"')
    value = entry[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _wrong(path, f'{place}: "{name}" is {type(value).__name__}, not {kind.__name__}')
    return value


def _wrong(path: Path, got: str) -> UserError:
    return UserError(
        f"{path} has not the layout of SQuAD",
        got=got,
        fix='it is {"data": [{"paragraphs": [{"context": …, "qas": [{"id", "question", "answers": '
        '[{"text", "answer_start"}]}]}]}]}',
    )


def some_of(questions: list[Question], share: float) -> list[Question]:
    """A share of the questions, always the same ones, in their order."""
    if not 0 < share <= 1:
        raise UserError("--train-share is no share", got=f"{share}", fix="give 0.1, or 1 for all")
    count = max(1, round(len(questions) * share))
    chosen = np.random.default_rng(0).permutation(len(questions))[:count]
    return [questions[number] for number in sorted(chosen)]


class Placed(NamedTuple):
    """Where in the context the first answer is, by characters, and whether the file said so."""

    start: int
    end: int
    moved: bool


def placed(question: Question) -> Placed | None:
    """Where the answer to learn is; None if the context does not have its text.

    A place that holds another text, or that begins or ends inside a word although the text stands
    elsewhere as words of its own, is wrong: the nearest right one is taken.
    """
    text, start = question.answers[0]
    if not text.strip():
        return None
    context, length = question.context, len(text)
    said_right = start >= 0 and context.startswith(text, start)
    if said_right and _apart(context, start, start + length):
        return Placed(start, start + length, False)
    places = [i for i in range(len(context) - length + 1) if context.startswith(text, i)]
    whole = [i for i in places if _apart(context, i, i + length)]
    if not whole and said_right:
        return Placed(start, start + length, False)
    if not places:
        return None
    nearest = min(whole or places, key=lambda place: abs(place - start))
    return Placed(nearest, nearest + length, True)


def _apart(context: str, start: int, end: int) -> bool:
    """Whether characters start … end do not cut a word."""
    return not (_joined(context, start) or _joined(context, end))


def _joined(context: str, place: int) -> bool:
    return 0 < place < len(context) and all(map(_of_spaced_word, context[place - 1 : place + 1]))


def _of_spaced_word(character: str) -> bool:
    # scripts with cases write spaces between words; of others the neighbours say nothing
    return character.isdigit() or character.lower() != character.upper()

"""Choose what suits a text and a machine, and say why in one line each."""

from typing import Any, NamedTuple

from electrify.corpora.archive import MAX_DOCUMENT_BYTES
from electrify.pipeline.survey import DocumentText, RawText
from electrify.progress import duration

PARAGRAPH = 500
"""Characters: blocks between blank lines that are shorter are paragraphs, not documents."""
ACCENTS_ARE_LETTERS = 0.002
"""Fraction of letters with accents; English text has about a tenth of it."""
SHORT_BUDGET = 15 * 60
LITTLE_TEXT, MUCH_TEXT = 2_000_000, 100_000_000  # characters


class Setting(NamedTuple):
    """A chosen setting: its name, its value, and the reason for it."""

    name: str
    value: Any
    why: str


class Machine(NamedTuple):
    """What training can use."""

    cuda: bool
    description: str


def choose_reading(raw: RawText) -> list[Setting]:
    """Choose how files become documents.

    >>> novels = RawText("text", files=67, largest=900_000, block=310, wrapped=0.0)
    >>> [(choice.name, choice.value) for choice in choose_reading(novels)]
    [('kind', 'text'), ('split', 'file')]
    """
    files = f"{raw.files:,} file{'s' if raw.files > 1 else ''}"
    chosen = [Setting("kind", raw.kind, _why_kind(raw, files))]
    if raw.kind == "text":
        paragraphs = 0 < raw.block < PARAGRAPH
        if paragraphs and raw.largest <= MAX_DOCUMENT_BYTES:
            why = f"blank lines separate paragraphs (median {raw.block:.0f} characters)"
            chosen.append(Setting("split", "file", f"{why}, so each file is one document"))
        elif paragraphs:
            why = (
                f"a file is larger than the longest document ({MAX_DOCUMENT_BYTES // 1_000_000} MB)"
            )
            chosen.append(Setting("split", "blank", f"{why}, so blank lines separate documents"))
        else:
            why = f"blank lines separate documents (median {raw.block:,.0f} characters)"
            chosen.append(Setting("split", "blank", why))
    return chosen


def _why_kind(raw: RawText, files: str) -> str:
    if raw.kind == "gutenberg":
        return f"{files} with Project Gutenberg's header; its boilerplate is removed"
    if raw.kind == "text" and raw.wrapped > 0.5:
        return f"{files} of plain text, with lines wrapped at a page's width"
    return f"{files} of this format"


def choose_training(text: DocumentText, machine: Machine, seconds: float) -> list[Setting]:
    """Choose tokenizer, recipe and length for documents, a machine and a time budget.

    >>> german = DocumentText(67, 30_000_000, 400_000, "LATIN", accents=0.015)
    >>> laptop = Machine(cuda=False, description="2 cores")
    >>> {c.name: c.value for c in choose_training(german, laptop, 3600)}["recipe"]
    'cram-cpu'
    """
    size = f"{text.characters / 1e6:,.1f} million characters"
    chosen = []
    if text.spaced or text.script == "CJK":
        why = (
            "words are separated by spaces" if text.spaced else "every Chinese character is a word"
        )
        chosen.append(Setting("tokenizer", "wordpiece", why))
    else:
        why = f"{text.script.title()} puts no spaces between words"
        chosen.append(Setting("tokenizer", "unigram", why))
    keep = text.accents > ACCENTS_ARE_LETTERS
    why = f"{text.accents:.1%} of the letters ({text.script.title()}) change without their accents"
    chosen.append(Setting("keep_accents", keep, why))
    chosen.append(_vocabulary(text, machine, size))
    if machine.cuda:
        recipe, length, why = "electra-small", 128, f"there is a GPU: {machine.description}"
    elif seconds < SHORT_BUDGET:
        recipe, length, why = "tiny", 64, f"{duration(seconds)} on a CPU ({machine.description})"
    else:
        recipe, length, why = (
            "cram-cpu",
            64,
            f"{duration(seconds)} on a CPU ({machine.description})",
        )
    chosen.append(Setting("recipe", recipe, why))
    chosen.append(Setting("length", length, f"the length that {recipe} was made for"))
    return chosen


def _vocabulary(text: DocumentText, machine: Machine, size: str) -> Setting:
    if text.characters < LITTLE_TEXT:
        tokens = 4_096
    elif machine.cuda:
        tokens = 30_522 if text.characters >= MUCH_TEXT else 16_384
    else:
        tokens = 8_192
    if text.script == "CJK":
        tokens *= 2
        return Setting("vocab_size", tokens, f"{size}; Chinese has thousands of characters")
    small = "" if machine.cuda else "; a small model has little room for more"
    return Setting("vocab_size", tokens, f"{size}{small}")

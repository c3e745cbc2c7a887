"""Choose what suits a text and a machine, and say why in one line each."""

from typing import Any, NamedTuple

from electrify.corpora.archive import MAX_DOCUMENT_BYTES
from electrify.errors import UserError
from electrify.pipeline.survey import DocumentText, RawText
from electrify.progress import duration
from electrify.recipes import schema

PARAGRAPH, PARAGRAPH_OF_MANY_FILES = 500, 2_000
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

    >>> novels = RawText("text", files=67, largest=900_000, block=310)
    >>> [(setting.name, setting.value) for setting in choose_reading(novels)]
    [('kind', 'text'), ('split', 'file')]
    """
    files = f"{raw.files:,} file{'s' if raw.files > 1 else ''}"
    reason = {
        "text": f"{files} of plain text{', wrapped at a page width' * (raw.wrapped > 0.5)}",
        "gutenberg": f"{files} of Project Gutenberg, whose boilerplate is removed",
    }
    kind = Setting("kind", raw.kind, reason.get(raw.kind, f"{files} of this format"))
    return [kind, _split(raw)] if raw.kind == "text" else [kind]


def _split(raw: RawText) -> Setting:
    fits, limit = raw.largest <= MAX_DOCUMENT_BYTES, f"{MAX_DOCUMENT_BYTES // 1_000_000} MB"
    if not raw.separated:
        if not fits:
            raise UserError(
                f"a file is larger than a document may be ({limit}) and has no blank lines",
                got=f"{raw.largest / 1e6:.0f} MB of text in one file",
                fix="put blank lines between documents, or write one JSON object per line (.jsonl)",
            )
        return Setting("split", "file", "there are no blank lines, so each file is one document")
    if raw.single > 0.5 and raw.files > 1 and fits:
        why = f"{raw.single:.0%} of the files have no blank lines, so each file is one document"
        return Setting("split", "file", why)
    median = f"median {raw.block:,.0f} characters"
    shortest = PARAGRAPH if raw.files == 1 else PARAGRAPH_OF_MANY_FILES
    if raw.block >= shortest:
        return Setting("split", "blank", f"blank lines separate documents ({median})")
    if not fits:
        why = f"a file is larger than a document may be ({limit})"
        return Setting("split", "blank", f"{why}, so blank lines separate documents")
    why = f"blank lines separate paragraphs ({median})"
    return Setting("split", "file", f"{why}, so each file is one document")


def choose_training(
    text: DocumentText, machine: Machine, seconds: float, recipe: str | None = None
) -> list[Setting]:
    """Choose tokenizer, recipe and length for documents, a machine and a time budget.

    >>> german = DocumentText(67, 30_000_000, "LATIN", accents=0.015)
    >>> laptop = Machine(cuda=False, description="2 cores")
    >>> {s.name: s.value for s in choose_training(german, laptop, 3600)}["recipe"]
    'cram-cpu'
    """
    if text.spaced:
        tokenizer = Setting("tokenizer", "wordpiece", "words are separated by spaces")
    elif text.script == "CJK":
        tokenizer = Setting("tokenizer", "wordpiece", "Chinese characters are words")
    else:
        tokenizer = Setting(
            "tokenizer", "unigram", f"{text.script_name} puts no spaces between words"
        )
    accents = f"{text.accents:.1%} of the letters change without their accents or marks"
    if recipe:
        why = "given by its option"
    elif machine.cuda:
        recipe, why = "electra-small", f"{duration(seconds)} on a GPU"
    else:
        recipe = "tiny" if seconds < SHORT_BUDGET else "cram-cpu"
        why = f"{duration(seconds)} on a CPU"
    return [
        tokenizer,
        Setting("keep_accents", text.accents > ACCENTS_ARE_LETTERS, accents),
        _vocabulary(text, machine),
        Setting("recipe", recipe, why),
        Setting("length", schema.load(recipe).run.length, f"the length of {recipe}"),
    ]


def _vocabulary(text: DocumentText, machine: Machine) -> Setting:
    """Choose a vocabulary that the text can fill and the model can hold."""
    if text.characters < LITTLE_TEXT:
        tokens = 4_096
    elif machine.cuda:
        tokens = 30_522 if text.characters >= MUCH_TEXT else 16_384
    else:
        tokens = 8_192
    size = f"{text.characters:,} characters of text"
    if text.script in ("CJK", "HIRAGANA"):
        return Setting("vocab_size", 2 * tokens, f"{size} in a script of thousands of characters")
    small = "" if machine.cuda else ", and a small model has little room for more"
    return Setting("vocab_size", tokens, f"{size}{small}")

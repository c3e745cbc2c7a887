"""Add the words of a field to an existing tokenizer: `electrify tokenizer extend`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.table import Column, Table

from electrify import config
from electrify.corpora.document import describe_documents
from electrify.errors import UserError, visible
from electrify.progress import Update, progress
from electrify.storage.build import Build
from electrify.storage.commit import read_manifest
from electrify.tokens.encoder import at_spaces, spaced
from electrify.tokens.held_out import check_fractions, splits_of_documents
from electrify.tokens.new_words import RULES, WordFinder, with_new_words
from electrify.tokens.tokenizer import (
    LoadedTokenizer,
    description,
    load_tokenizer,
    save_tokenizer,
)
from electrify.tokens.vocabulary import line_batches

CHUNKS_AT_ONCE = 20_000
WORDS_SHOWN = 20

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class ExtendTokenizer(config.AcceptsTextPaths):
    """Add the words of your documents that shorten them most to an existing tokenizer.

    All old tokens keep their ids, and text without the new words keeps its tokens.
    """

    base: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="BASE")]
    """The tokenizer to extend: a folder, a vocab.txt or a model name on the Hugging Face Hub."""
    docs: tuple[Path, ...]
    """Folders of documents made by `electrify corpus`."""
    out: Path
    """Output folder."""
    add: int = 2_000
    """Number of words to add."""
    validation: float = 0.01
    """Fraction of documents that `prepare` sets aside for validation; not counted."""
    test: float = 0.01
    """Fraction of documents that `prepare` sets aside for testing; not counted."""
    min_count: int = 5
    """Minimum number of occurrences of a new word in the documents."""
    max_chars: int = 200_000_000
    """Count the words of at most about this many characters, sampled evenly by document."""


@dataclass(frozen=True)
class NewWord:
    """A word to add, its occurrences in the documents, and its tokens before."""

    entry: str
    text: str
    count: int
    pieces: int

    @property
    def saved(self) -> int:
        """The number of tokens that it saves in the documents."""
        return self.count * (self.pieces - 1)


@dataclass(frozen=True)
class TextChunk:
    """Text between two spaces: its occurrences, its words, and its ids before."""

    text: str
    count: int
    entries: tuple[str, ...]
    ids: tuple[int, ...]


def extend_tokenizer(settings: ExtendTokenizer) -> dict[str, Any]:
    """Make the extended tokenizer and return its manifest."""
    config.check_minimum(settings, add=1, min_count=1, max_chars=1)
    if not settings.docs:
        raise UserError(
            "no documents given", got="nothing", fix="electrify tokenizer extend BASE --docs DOCS"
        )
    check_fractions(settings.validation, settings.test)
    base = load_tokenizer(settings.base)
    finder = WordFinder(base)
    identity = {
        "settings": config.to_dict(settings, without=("base", "docs", "out")),
        "base": {"vocab_size": base.vocab_size, "sha256": base.fingerprint},
        "inputs": [describe_documents(folder) for folder in settings.docs],
    }
    with Build(settings.out, "tokenizer", identity, files=["tokenizer*.json"]) as build:
        if build.finished:
            print(f"{settings.out} is already made with these settings; nothing to do")
            return read_manifest(settings.out, "tokenizer")
        build.save_settings(config.to_toml(settings, without=("out",)))
        print(f"{settings.base}: {description(base)}")
        with progress("new words") as update:
            extended, summary = _extend(settings, finder, update)
        files = save_tokenizer(extended, settings.out)
        sizes = {"vocab_size": extended.vocab_size, "sha256": extended.fingerprint}
        manifest = build.finish({**sizes, "extension": summary, "files": files})
    _report(settings, extended, summary)
    return manifest


def _extend(
    settings: ExtendTokenizer, finder: WordFinder, update: Update
) -> tuple[LoadedTokenizer, dict[str, Any]]:
    """Choose words and add them until all other words of the documents keep their tokens."""
    split = spaced if finder.splits_before_spaces else at_spaces
    counts: Counter[str] = Counter()
    words = 0
    splits = splits_of_documents(settings.docs, settings.validation, settings.test)
    for lines in line_batches(settings.docs, settings.max_chars, update, splits):
        for line in lines:
            counts.update(split(line))
            words += len(line.split())
    counts.pop("", None)
    chunks, texts = _chunks(finder, counts, update)
    candidates, left_out = choose_words(finder, chunks, texts, settings.min_count)
    before = sum(chunk.count * len(chunk.ids) for chunk in chunks)
    refused: set[str] = set()
    while True:
        chosen = [word for word in candidates if word.entry not in refused][: settings.add]
        if not chosen:
            raise UserError(
                "the documents have no words to add",
                got=_joined(left_out) or "no words",
                fix="use more documents, or a smaller --min-count",
            )
        extended = with_new_words(finder, [word.entry for word in chosen])
        after, others, changing = _compare(finder, extended, chunks, chosen, update)
        if not changing:
            break
        refused |= changing
    rest = len(candidates) - len(chosen) - len(refused)
    left_out |= {"would change longer words": len(refused), "save less (--add)": rest}
    return extended, {
        "kind": finder.kind,
        "words": words,
        "tokens": {"before": before, "after": after},
        "other_words": others,
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "new": [
            {"word": w.text, "token": w.entry, "count": w.count, "pieces": w.pieces} for w in chosen
        ],
    }


def _chunks(
    finder: WordFinder, counts: Counter[str], update: Update
) -> tuple[list[TextChunk], dict[str, str]]:
    """Return distinct chunks with their words and ids, and the text of each word."""
    chunks, texts = list[TextChunk](), dict[str, str]()
    for part in _parts(list(counts.items())):
        encoded = _encode(finder.base, [text for text, _ in part])
        for (text, count), ids in zip(part, encoded, strict=True):
            found = finder.words(text)
            texts.update(found)
            chunks.append(TextChunk(text, count, tuple(entry for entry, _ in found), ids))
        update(len(chunks) / len(counts), f"{len(texts):,} different words")
    return chunks, texts


def choose_words(
    finder: WordFinder, chunks: Iterable[TextChunk], texts: dict[str, str], min_count: int
) -> tuple[list[NewWord], dict[str, int]]:
    """Return the words that can be added, most useful first, and how many others there are.

    A word that is one token of `pieces` saves `pieces - 1` tokens each time, whatever else is
    added, so the best choice is the first words of this order. Ties are broken by the text.
    """
    counts: Counter[str] = Counter()
    for chunk in chunks:
        for entry in chunk.entries:
            counts[entry] += chunk.count
    candidates, left_out = list[NewWord](), Counter[str]()
    for entry, count in counts.items():
        text = texts[entry]
        pieces = len(finder.tokens(entry))
        if not any(character.isalpha() for character in text):
            left_out["without letters"] += 1
        elif finder.base.backend.token_to_id(entry) is not None:
            left_out["in the vocabulary already"] += 1
        elif not finder.can_become_token(entry, text):
            left_out["with unknown characters"] += 1
        elif count < min_count:
            left_out[f"occur fewer than {min_count} times"] += 1
        elif pieces > 1:
            candidates.append(NewWord(entry, text, count, pieces))
    candidates.sort(key=lambda word: (-word.saved, word.entry))
    return candidates, dict(left_out)


def _compare(
    finder: WordFinder,
    extended: LoadedTokenizer,
    chunks: Sequence[TextChunk],
    chosen: Sequence[NewWord],
    update: Update,
) -> tuple[int, int, set[str]]:
    """Return the tokens after, the other chunks, and the new words that change other chunks."""
    new, total, others, changing = {word.entry for word in chosen}, 0, 0, set[str]()
    first, done = finder.base.vocab_size, 0
    for part in _parts(chunks):
        for chunk, ids in zip(part, _encode(extended, [c.text for c in part]), strict=True):
            total += chunk.count * len(ids)
            if new.isdisjoint(chunk.entries):
                others += 1
                if ids != chunk.ids:
                    changing |= {chosen[number - first].entry for number in ids if number >= first}
        done += len(part)
        update(done / len(chunks), "checking that other words keep their tokens")
    return total, others, changing


def _parts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (items[n : n + CHUNKS_AT_ONCE] for n in range(0, len(items), CHUNKS_AT_ONCE))


def _encode(tokenizer: LoadedTokenizer, texts: list[str]) -> Iterator[tuple[int, ...]]:
    encodings = tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)
    return (tuple(encoding.ids) for encoding in encodings)


def _report(settings: ExtendTokenizer, extended: LoadedTokenizer, summary: dict[str, Any]) -> None:
    new, words = summary["new"], max(1, summary["words"])
    before, after = summary["tokens"]["before"], summary["tokens"]["after"]
    print(f"{settings.out}: {description(extended)}")
    if len(new) < settings.add:
        print(f"note: the documents give only {len(new):,} words instead of {settings.add:,}")
    print(
        f"tokens per word of the documents: {before / words:.3f} before, "
        f"{after / words:.3f} after ({after / before - 1:+.1%} tokens)"
    )
    numbers = [Column(name, justify="right") for name in ("count", "tokens before", "tokens saved")]
    table = Table("new word", *numbers, box=None)
    for word in new[:WORDS_SHOWN]:
        saved = word["count"] * (word["pieces"] - 1)
        table.add_row(
            visible(word["word"]), f"{word['count']:,}", f"{word['pieces']}", f"{saved:,}"
        )
    Console().print(table)
    if left_out := _joined(summary["left_out"]):
        print(f"left out: {left_out}")
    print(
        f"checked: {summary['other_words']:,} different words of the documents, all without new "
        f"tokens, keep their tokens; {RULES[summary['kind']]}"
    )


def _joined(left_out: dict[str, int]) -> str:
    return "; ".join(f"{count:,} words {reason}" for reason, count in left_out.items())

"""Train a tokenizer on documents, or convert an existing one: `electrify tokenizer`."""

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electrify import config
from electrify.corpora.document import Document, describe_documents, read_parquet, row_groups
from electrify.errors import UserError
from electrify.progress import Update, progress
from electrify.storage.build import Build
from electrify.storage.commit import read_manifest
from electrify.tokens import tokenizer as tokenizers_on_disk
from electrify.tokens.encoder import LineEncoder
from electrify.tokens.examples import warn_of_unknown
from electrify.tokens.splits import Splits
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.tokens.trainers import train_bpe, train_unigram, train_wordpiece

SAMPLE_DOCUMENTS = 500
FEWEST_TOKENS, MOST_TOKENS = 100, 1_000_000
LINES_AT_ONCE = 10_000  # the library counts the words of a batch in parallel
ACCENTS_MATTER = 0.01  # fraction of letters changed by stripping accents, above which to warn


@dataclass(frozen=True)
class MakeTokenizer(config.AcceptsTextPaths):
    """Train a tokenizer on documents, or convert one, and save it for AutoTokenizer."""

    docs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DOCS…", help_behavior_hint="(not needed with --load)"),
    ]
    """Folders of documents made by `electrify corpus`."""
    out: Path
    """Output folder."""
    kind: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """WordPiece as in BERT and ELECTRA, byte-level BPE as in RoBERTa, or Unigram as in ALBERT.
    Unigram training is not bit-reproducible; the others are."""
    vocab_size: int = 30_522
    """Vocabulary size, including special tokens."""
    cased: bool = False
    """Distinguish upper and lower case (wordpiece, unigram; bpe always does)."""
    keep_accents: bool = False
    """Keep accents, as languages such as Vietnamese need; implied by --cased."""
    min_frequency: int = 2
    """Minimum number of occurrences of a token (wordpiece, bpe)."""
    max_chars: int = 200_000_000
    """Train on at most about this many characters, sampled evenly by document."""
    load: str | None = None
    """Convert a vocab.txt, a tokenizer folder or a Hub name instead of training a tokenizer."""


def make_tokenizer(settings: MakeTokenizer) -> LoadedTokenizer:
    """Train or convert a tokenizer, write its folder and return it."""
    _check(settings)
    converted = tokenizers_on_disk.load_tokenizer(settings.load) if settings.load else None
    identity = {
        "settings": config.to_dict(settings, without=("docs", "out", "load")),
        "inputs": [describe_documents(folder) for folder in settings.docs],
        "converted_sha256": converted.fingerprint if converted else None,
    }
    with Build(settings.out, "tokenizer", identity, files=["tokenizer*.json"]) as build:
        if build.finished:
            print(f"{settings.out} is already made with these settings; nothing to do")
            return tokenizers_on_disk.load_tokenizer(settings.out)
        build.save_settings(config.to_toml(settings, without=("out",)))
        made = converted or _train(settings)
        files = tokenizers_on_disk.save_tokenizer(made, settings.out)
        build.finish({"vocab_size": made.vocab_size, "sha256": made.fingerprint, "files": files})
    _report(settings, made)
    return made


def _check(settings: MakeTokenizer) -> None:
    if bool(settings.docs) == bool(settings.load):
        raise UserError(
            "give documents to train on, or a tokenizer to convert with --load",
            got="both" if settings.load else "neither",
            fix="electrify tokenizer DOCS --vocab-size 30522 --out DIR",
        )
    if not FEWEST_TOKENS <= settings.vocab_size <= MOST_TOKENS:
        raise UserError(
            f"--vocab-size is too {'small' if settings.vocab_size < FEWEST_TOKENS else 'large'}",
            got=f"{settings.vocab_size}",
            fix=f"use {FEWEST_TOKENS} to {MOST_TOKENS:,}; 30522 is common",
        )


def _train(settings: MakeTokenizer) -> LoadedTokenizer:
    _warn_of_lost_accents(settings)
    size, frequency = settings.vocab_size, settings.min_frequency
    lowercase, strip_accents = not settings.cased, _strips_accents(settings)
    with progress("tokenizer") as update:
        batches = line_batches(settings.docs, settings.max_chars, update)
        if settings.kind == "wordpiece":
            made = train_wordpiece(batches, size, frequency, lowercase, strip_accents)
        elif settings.kind == "bpe":
            made = train_bpe(batches, size, frequency)
        else:
            made = train_unigram(batches, size, lowercase, strip_accents)
    if made.vocab_size < size:
        print(
            f"note: the documents give only {made.vocab_size:,} tokens instead of {size:,}; "
            "use a smaller --vocab-size, or more text"
        )
    return made


def _strips_accents(settings: MakeTokenizer) -> bool:
    return not (settings.cased or settings.keep_accents)


def line_batches(
    docs: Sequence[Path], max_chars: int, update: Update, splits: Splits | None = None
) -> Iterator[list[str]]:
    """Yield batches of lines of the documents, or of an even sample if there is too much text.

    With `splits`, only of the text for training.
    """
    manifests = [read_manifest(folder, "documents") for folder in docs]
    available = sum(manifest["characters"] for manifest in manifests)
    total = sum(manifest["documents"] for manifest in manifests)
    fraction = max_chars / max(1, available)
    batch: list[str] = []
    for number, document in enumerate(_documents(docs), start=1):
        if fraction >= 1 or _position(document.text) < fraction:
            parts = splits.of(document.text) if splits else [("train", document.text)]
            batch += [line for name, text in parts if name == "train" for line in text.split("\n")]
        if len(batch) >= LINES_AT_ONCE:
            yield batch
            batch = []
            update(number / total, f"{number:,} documents read")
    yield batch
    update(1.0, f"{total:,} documents read")


def _position(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    digest = hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=8, person=b"vocabulary"
    )
    return int.from_bytes(digest.digest(), "big") / 2**64


def _documents(docs: Sequence[Path]) -> Iterator[Document]:
    for folder in docs:
        yield from read_parquet(row_groups(folder))


def _sample(settings: MakeTokenizer) -> list[str]:
    return [d.text[:10_000] for d in islice(_documents(settings.docs), SAMPLE_DOCUMENTS)]


def _warn_of_lost_accents(settings: MakeTokenizer) -> None:
    if settings.kind == "bpe" or not _strips_accents(settings):
        return
    share = share_with_accents(" ".join(_sample(settings)))
    if share > ACCENTS_MATTER:
        print(
            f"note: stripping accents changes {share:.0%} of the letters of these documents; "
            "if accents distinguish letters in this language, add --keep-accents"
        )


def share_with_accents(text: str) -> float:
    """Return the fraction of letters that stripping accents changes or robs of their marks.

    >>> share_with_accents("résumé"), share_with_accents("한글"), share_with_accents("ที่")
    (0.3333333333333333, 1.0, 1.0)
    """
    letters = [character for character in text if character.isalpha()]
    changed = sum(unicodedata.normalize("NFD", letter) != letter for letter in letters)
    marks = sum(unicodedata.category(character) == "Mn" for character in text)
    return min(1.0, (changed + marks) / max(1, len(letters)))


def _report(settings: MakeTokenizer, made: LoadedTokenizer) -> None:
    print(f"{settings.out}: {tokenizers_on_disk.description(made)}")
    texts = _sample(settings)
    if not texts:
        return
    lines = [ids for text in texts for ids in LineEncoder(made.backend).lines(text)]
    tokens = [token for ids in lines for token in ids]
    words = sum(len(text.split()) for text in texts)
    unknown = tokens.count(made.special.unk) if made.special.unk is not None else 0
    print(
        f"on the first {len(texts):,} documents: {len(tokens) / max(1, words):.2f} tokens per "
        f"word, {unknown / max(1, len(tokens)):.3%} unknown"
    )
    if warning := warn_of_unknown(unknown, len(tokens)):
        print(warning)

"""Look at text before anything is made from it: its format, its documents, its script.

The raw files tell which reader fits and where a document ends; the documents tell which tokenizer
fits. Both are judged from a sample that is spread evenly, so that large folders take seconds.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

from electrify.corpora import archive
from electrify.corpora.document import documents_at
from electrify.corpora.wrapping import blocks_of, is_wrapped_prose, wrap_width
from electrify.errors import UserError
from electrify.storage.commit import read_manifest
from electrify.tokens.vocabulary import share_with_accents

_Item = TypeVar("_Item")

SAMPLED_FILES, SAMPLED_BYTES = 50, 200_000
SAMPLED_DOCUMENTS, SAMPLED_CHARACTERS = 500, 10_000
KIND_OF_SUFFIX = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".xml": "wikipedia",
}
GUTENBERG_MARK = b"project gutenberg"
UNSPACED = frozenset(
    ["CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE"]
)
"""Scripts, by the first word of Unicode's names, that put no spaces between words."""


class RawText(NamedTuple):
    """What a sample of the raw files shows."""

    kind: str
    """The kind of corpus whose reader fits, by suffix and content."""
    files: int
    largest: int
    """Bytes of the largest file, as stored."""
    block: float
    """Median number of characters between blank lines; 0 where the kind has no such blocks."""
    wrapped: float
    """Fraction of the sampled blocks of several lines that are prose wrapped at a page's width."""


class DocumentText(NamedTuple):
    """What a sample of the documents shows."""

    documents: int
    characters: int
    median: float
    """Characters of the median document of the sample."""
    script: str
    """The script of most letters, such as LATIN."""
    accents: float
    """Fraction of letters that change when accents are stripped."""

    @property
    def spaced(self) -> bool:
        """Whether words are separated by spaces."""
        return self.script not in UNSPACED


def survey_files(sources: Sequence[Path]) -> RawText:
    """Look at raw files: one kind of corpus must fit them all."""
    files = [path for source in sources for path in _files(source)]
    kinds = Counter(filter(None, map(kind_of_file, files)))
    if not kinds:
        raise UserError(
            "no text was found",
            got=", ".join(map(str, sources)),
            fix=f"give files or folders with {', '.join(KIND_OF_SUFFIX)} (compressed or not)",
        )
    if len(kinds) > 1:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        raise UserError(
            "the sources mix several formats",
            got=f"files of {counts}",
            fix="give sources of one format, or choose one with --kind",
        )
    [kind] = kinds
    chosen = [path for path in files if kind_of_file(path) == kind]
    largest = max(path.stat().st_size for path in chosen)
    if kind != "text":
        return RawText(kind, len(chosen), largest, 0.0, 0.0)
    samples = [_beginning(path) for path in evenly(chosen, SAMPLED_FILES)]
    marked = sum(GUTENBERG_MARK in sample[:20_000].lower() for sample in samples)
    texts = [sample.decode(errors="replace") for sample in samples]
    blocks = [block for text in texts for block in blocks_of(text.split("\n"))]
    lengths = [sum(map(len, block)) for block in blocks]
    several = [block for block in blocks if len(block) > 2]
    wrapped = sum(is_wrapped_prose(block, wrap_width(block)) for block in several)
    return RawText(
        "gutenberg" if 2 * marked > len(samples) else "text",
        len(chosen),
        largest,
        float(median(lengths)) if lengths else 0.0,
        wrapped / len(several) if several else 0.0,
    )


def survey_documents(folder: Path) -> DocumentText:
    """Look at documents that `electrify corpus` made."""
    manifest = read_manifest(folder, "documents")
    count = manifest["documents"]
    if not count:
        raise UserError(
            f"{folder} has no documents",
            got="every document was left out",
            fix="see the reasons above; give other sources, or another --kind or --split",
        )
    numbers = list(evenly(range(count), SAMPLED_DOCUMENTS))
    texts = [document.text for document in documents_at(folder, numbers)]
    sample = " ".join(text[:SAMPLED_CHARACTERS] for text in texts)
    return DocumentText(
        count,
        manifest["characters"],
        float(median(map(len, texts))),
        script_of(sample),
        share_with_accents(sample),
    )


def kind_of_file(path: Path) -> str | None:
    """Return the kind of corpus that reads a file, by its name.

    >>> kind_of_file(Path("a.jsonl.gz")), kind_of_file(Path("b.TXT")), kind_of_file(Path("c.jpg"))
    ('jsonl', 'text', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in archive.COMPRESSED:
        suffixes.pop()
    return KIND_OF_SUFFIX.get(suffixes[-1]) if suffixes else None


def script_of(text: str) -> str:
    """Return the script of most letters, as Unicode's names call it.

    >>> [script_of(text) for text in ("Ein schönes Buch", "한글", "漢字 abc 漢字", "42")]
    ['LATIN', 'HANGUL', 'CJK', 'unknown']
    """
    names = Counter(
        unicodedata.name(letter, "unknown").split()[0] for letter in text if letter.isalpha()
    )
    return names.most_common(1)[0][0] if names else "unknown"


def evenly(items: Sequence[_Item], most: int) -> Iterator[_Item]:
    """Yield at most so many items, spread evenly.

    >>> list(evenly(range(10), 3)), list(evenly("ab", 5))
    ([0, 3, 6], ['a', 'b'])
    """
    count = min(most, len(items))
    return (items[number * len(items) // count] for number in range(count))


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    elif source.is_dir():
        hidden = (".", "_")
        yield from sorted(
            path
            for path in source.rglob("*")
            if path.is_file() and not path.name.startswith(hidden)
        )
    else:
        raise UserError(
            f"{source} does not exist", got=f"{source}", fix="give files or folders of text"
        )


def _beginning(path: Path) -> bytes:
    found = b""
    with suppress(archive.Truncated):
        for block in islice(archive.read_blocks(path), 64):
            found += block
            if len(found) >= SAMPLED_BYTES:
                break
    return found[:SAMPLED_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n")

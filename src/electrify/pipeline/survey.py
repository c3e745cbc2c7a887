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
from electrify.corpora.hub import Parquet
from electrify.corpora.plaintext import JsonLines, Text, as_utf8
from electrify.corpora.table import Csv
from electrify.corpora.wrapping import blocks_of, is_wrapped_prose, wrap_width
from electrify.errors import UserError
from electrify.storage.commit import read_manifest
from electrify.tokens.vocabulary import share_with_accents

_Item = TypeVar("_Item")

SAMPLED_FILES, SAMPLED_BYTES = 50, 200_000
SAMPLED_DOCUMENTS, SAMPLED_CHARACTERS = 500, 10_000
SUFFIXES_OF_KIND = {
    "text": tuple(Text.suffixes),
    "jsonl": tuple(JsonLines.suffixes),
    "csv": tuple(Csv.suffixes),
    "parquet": tuple(Parquet.suffixes),
    "wikipedia": archive.compressed_suffixes(".xml"),
    "gutenberg": (".zip",),  # and text files, by their header
}
WIKIPEDIA_INDEX = "-index.txt"  # lies beside a multistream dump
GUTENBERG_MARK = b"project gutenberg"
UNSPACED = frozenset(["CJK", "HIRAGANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE"])
"""Scripts, by the first word of Unicode's names, that put no spaces between words."""
KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
JAPANESE = 0.05  # fraction of kana among the letters: Chinese has none


class RawText(NamedTuple):
    """What a sample of the raw files shows."""

    kind: str
    """The kind of corpus whose reader fits, by suffix and content."""
    files: int
    largest: int = 0
    """Estimated bytes of text in the largest file."""
    block: float = 0.0
    """Median number of characters between blank lines."""
    separated: bool = True
    """Whether any sampled file has blank lines between text."""
    single: float = 0.0
    """Fraction of the sampled files that have none."""
    wrapped: float = 0.0
    """Fraction of the sampled blocks of several lines that are prose wrapped at a page's width."""


class DocumentText(NamedTuple):
    """What a sample of the documents shows."""

    documents: int
    characters: int
    script: str
    """The script of most letters, such as LATIN; HIRAGANA for Japanese."""
    accents: float
    """Fraction of letters that change when accents and other marks are stripped."""
    duplicates: int = 0
    """Number of documents that were left out because their text occurs before."""

    @property
    def script_name(self) -> str:
        """The script as a person would write it."""
        return "Japanese" if self.script == "HIRAGANA" else self.script.title()

    @property
    def description(self) -> str:
        """The text in one line."""
        size = f"{self.documents:,} documents of {self.characters:,} characters"
        removed = f"{self.duplicates:,} duplicate{'' if self.duplicates == 1 else 's'} removed"
        return f"{size}, {self.script_name} script, {removed}"

    @property
    def spaced(self) -> bool:
        """Whether words are separated by spaces."""
        return self.script not in UNSPACED


def survey_files(sources: Sequence[Path], kind: str | None = None) -> RawText:
    """Look at raw files, which must be of one kind unless a kind is given."""
    if kind is None:
        found, files = _detect([path for source in sources for path in _files(source)], sources)
    else:
        suffixes = SUFFIXES_OF_KIND[kind] + SUFFIXES_OF_KIND["text"] * (kind == "gutenberg")
        found, files = kind, [path for path, _ in archive.expand(sources, suffixes)]
    raw = RawText(found, len(files), max(map(archive.estimate_text_bytes, files)))
    if found != "text":
        return raw
    samples = [_beginning(path) for path in evenly(files, SAMPLED_FILES)]
    marked = sum(GUTENBERG_MARK in sample[:20_000].lower() for sample in samples)
    if kind is None and 2 * marked > len(samples):
        return raw._replace(kind="gutenberg")
    return _survey_text(raw, samples)


def _detect(files: Sequence[Path], sources: Sequence[Path]) -> tuple[str, list[Path]]:
    """Return the kind of the files by their names, and the files of that kind."""
    kinds = {path: kind for path in files if (kind := kind_of_file(path))}
    if "wikipedia" in kinds.values():
        kinds = {path: kind for path, kind in kinds.items() if WIKIPEDIA_INDEX not in path.name}
    counts = Counter(kinds.values())
    if not counts:
        known = ", ".join(suffixes[0] for suffixes in SUFFIXES_OF_KIND.values())
        found = Counter(path.suffix or "no suffix" for path in files).most_common(3)
        raise UserError(
            "no text was found",
            got=", ".join(map(str, sources))
            + (": files with " if found else "")
            + ", ".join(f"{suffix} ({count:,})" for suffix, count in found),
            fix=f"give files or folders with {known} (compressed or not); plain text under another "
            "name must be renamed to .txt",
        )
    if len(counts) > 1:
        raise UserError(
            "the sources mix several formats",
            got="files of " + ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common()),
            fix="give sources of one format, or choose one with --kind",
        )
    [kind] = counts
    return kind, list(kinds)


def _survey_text(found: RawText, samples: Sequence[bytes]) -> RawText:
    """Look at where blank lines and line ends stand in plain text."""
    others = sum(not _is_utf8(sample) for sample in samples)
    if others * 4 > len(samples):
        raise UserError(
            "the text is not UTF-8",
            got=f"{others} of {len(samples)} files have bytes that UTF-8 does not have",
            fix="convert the files, for example with: iconv -f LATIN1 -t UTF-8 OLD > NEW",
        )
    texts = [sample.decode(errors="replace") for sample in samples]
    if not any(map(str.isalpha, "".join(texts))):
        raise UserError(
            "no text was found", got="files without letters", fix="give files that contain text"
        )
    by_file = [list(blocks_of(text.split("\n"))) for text in texts]
    blocks = [block for blocks in by_file for block in blocks]
    several = [block for block in blocks if len(block) > 2]
    wrapped = sum(is_wrapped_prose(block, wrap_width(block)) for block in several)
    return found._replace(
        block=float(median(sum(map(len, block)) for block in blocks)),
        separated=any(len(blocks) > 1 for blocks in by_file),
        single=sum(len(blocks) < 2 for blocks in by_file) / len(by_file),
        wrapped=wrapped / max(1, len(several)),
    )


def survey_documents(folder: Path) -> DocumentText:
    """Look at documents that `electrify corpus` made."""
    manifest = read_manifest(folder, "documents")
    count = manifest["documents"]
    if not count:
        raise UserError(
            f"{folder} has no documents",
            got="every document was left out, for the reasons above",
            fix="use other sources, or another --kind or --split, with another --out",
        )
    numbers = list(evenly(range(count), SAMPLED_DOCUMENTS))
    texts = [document.text[:SAMPLED_CHARACTERS] for document in documents_at(folder, numbers)]
    sample = " ".join(texts)
    duplicates = manifest.get("dropped", {}).get("duplicate", 0)
    return DocumentText(
        count, manifest["characters"], script_of(sample), share_with_accents(sample), duplicates
    )


def kind_of_file(path: Path) -> str | None:
    """Return the kind of corpus that reads a file, by its name.

    >>> kind_of_file(Path("a.jsonl.gz")), kind_of_file(Path("b.TXT")), kind_of_file(Path("c.jpg"))
    ('jsonl', 'text', None)
    """
    kinds = SUFFIXES_OF_KIND.items()
    return next((kind for kind, ends in kinds if path.name.lower().endswith(ends)), None)


def script_of(text: str) -> str:
    """Return the script of most letters, as Unicode's names call it; HIRAGANA for Japanese.

    >>> [script_of(text) for text in ("Ein Buch", "한글", "漢字 abc 漢字", "漢字を書く", "42")]
    ['LATIN', 'HANGUL', 'CJK', 'HIRAGANA', 'unknown']
    """
    names = Counter(
        unicodedata.name(letter, "unknown").split()[0] for letter in text if letter.isalpha()
    )
    if sum(names[name] for name in KANA) > JAPANESE * names.total():
        return "HIRAGANA"
    return names.most_common(1)[0][0] if names else "unknown"


def evenly(items: Sequence[_Item], most: int) -> Iterator[_Item]:
    """Yield at most so many items, spread evenly.

    >>> list(evenly(range(10), 3)), list(evenly("ab", 5))
    ([0, 3, 6], ['a', 'b'])
    """
    count = min(most, len(items))
    return (items[number * len(items) // count] for number in range(count))


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        return sorted(
            path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")
        )
    if not source.is_file():
        raise archive.unreadable(source)
    return [source]


def _beginning(path: Path) -> bytes:
    """Return the first text of a file as UTF-8 with plain line ends."""
    found = b""
    with suppress(archive.Truncated):
        for block in islice(as_utf8(archive.read_blocks(path)), 64):
            found += block
            if len(found) >= SAMPLED_BYTES:
                break
    return found[:SAMPLED_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _is_utf8(sample: bytes) -> bool:
    try:
        sample[:-4].decode()  # the sample may end inside a character
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 8
    return True

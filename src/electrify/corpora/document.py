"""A document, the parts a corpus is read in, and what every kind of corpus must offer."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from electrify.errors import DamagedError, UserError, needs
from electrify.storage.commit import read_manifest, sha256_of
from electrify.storage.verified import Stamp, stamp_of

ROW_GROUP_CHARACTERS = 4_000_000
SHORT = 400  # characters: a paragraph rather than a document
MOST_AT_ONCE = 1 << 28  # bytes that are read, if every row repeats all that its row group holds
MOST_TEXT = 1 << 26  # bytes in a row group: more than 4 million characters and the largest document


class Document(NamedTuple):
    """One text. `id` is unique in its corpus and stays the same when the corpus is rebuilt."""

    id: str
    text: str
    source: str
    title: str | None = None
    label: str | None = None


class Slice(NamedTuple):
    """A place to read from: a whole file, or bytes (for Parquet: row groups) start to stop."""

    path: Path
    start: int = 0
    stop: int | None = None
    sha256: str = ""
    """Of the file, if it is known: then it is verified before anything is read."""


@dataclass(frozen=True)
class Part:
    """What one worker turns into one file of documents.

    Parts follow from the source alone, never from the number of workers: that is why the output
    is the same for any number. A part carries `data` where the source can only be read in order
    (one compressed stream) and `slices` where a worker can open the source by itself.
    """

    source: str
    data: bytes = b""
    slices: tuple[Slice, ...] = ()
    context: Any = None
    """What the kind's reader wants to know again in the worker; must pickle."""
    troubles: tuple[str, ...] = ()
    """Faults of the source met while it was cut into parts, e.g. "source truncated"."""
    share: float | None = None
    """How much of all sources is read when this part ends, from 0 to 1, where that is known."""


def part_of_files(files: Sequence[tuple[Path, str]], share: float) -> Part:
    """A part of whole files, with their names as its context."""
    slices, names = tuple(Slice(path) for path, _ in files), tuple(name for _, name in files)
    return Part(names[0], slices=slices, context=names, share=share)


class Reader(Protocol):
    """One kind of corpus. A frozen dataclass: its fields are the kind's options."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts. Runs in the parent and should do little but read."""
        ...

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part. Runs in a worker; `tally` counts what is left out, by reason."""
        ...


@runtime_checkable
class KnowsItsSources(Protocol):
    """A reader whose sources are not paths on this machine."""

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, Any]]:
        """What identifies the sources: name and version, size or hash."""
        ...


@runtime_checkable
class Advises(Protocol):
    """A reader that can tell from what was read whether its options suit the sources."""

    def advice(self, read: Mapping[str, int]) -> str | None:
        """What to tell the user, if anything; `read` counts what was read, before any filter.

        Keys: documents, short (fewer than SHORT characters), characters, dropped (characters).
        """
        ...


def write_parquet(path: Path, documents: Iterable[Document]) -> None:
    """Write documents in row groups of a few megabytes; equal documents give equal bytes."""
    pa, pq = _arrow()
    schema = pa.schema([(name, pa.string()) for name in Document._fields])
    with (
        pa.OSFile(os.fsencode(path), "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for group in _groups(documents):
            columns = zip(*group, strict=True)
            writer.write_table(
                pa.table(dict(zip(Document._fields, columns, strict=True)), schema=schema)
            )


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document.text)
        if size >= ROW_GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def describe_documents(folder: Path) -> dict[str, Any]:
    """What identifies a folder of documents as the input of something else."""
    manifest = read_manifest(folder, "documents")
    if not manifest["documents"]:
        raise UserError(
            f"{folder} holds no documents",
            got="a finished folder with none",
            fix="see in its manifest.json why all were left out, and make it again",
        )
    digest = sha256_of(folder / "manifest.json")
    return {"name": folder.name, "documents": manifest["documents"], "manifest_sha256": digest}


def row_groups(folder: Path) -> list[Slice]:
    """Every row group of a folder of documents, in order: what can be read independently."""
    slices = []
    for entry in read_manifest(folder, "documents")["files"]:
        path = folder / entry["name"]
        with _opened(path) as file:
            count = file.metadata.num_row_groups
        slices += [Slice(path, group, group + 1, entry["sha256"]) for group in range(count)]
    return slices


def read_parquet(slices: Sequence[Slice]) -> Iterator[Document]:
    """The documents of row groups, in order; what is damaged on disk is an error."""
    for path, start, stop, sha256 in slices:
        with _opened(path, sha256) as file:
            _check_columns(file.schema_arrow)
            for group in range(start, file.metadata.num_row_groups if stop is None else stop):
                for batch in _batches(file, group):
                    columns = (batch.column(name).to_pylist() for name in Document._fields)
                    yield from map(Document._make, zip(*columns, strict=True))


@contextmanager
def _opened(path: Path, sha256: str = "") -> Iterator[Any]:
    """A file of documents, verified first if its hash is given; damage found inside is an error."""
    pa, pq = _arrow()
    try:
        _check_unchanged(stamp_of(path, sha256))
        with (
            pa.OSFile(os.fsencode(path)) as opened,
            pq.ParquetFile(opened, page_checksum_verification=True) as file,
        ):
            yield file
    except (OSError, ValueError) as error:
        raise DamagedError(
            f"{path} is damaged", got=str(error), fix="delete the folder and build it again"
        ) from error


def _check_columns(schema: Any) -> None:
    for name in Document._fields:
        if schema.names.count(name) != 1:
            raise ValueError(f"the columns {schema.names}, not {list(Document._fields)}")
        if str(kind := schema.field(name).type) not in ("string", "large_string"):
            raise ValueError(f"column {name!r} holds {kind}, not strings")


def _batches(file: Any, group: int) -> Iterator[Any]:
    """The rows of a row group, so few at a time that memory stays bounded."""
    size = max(1, file.metadata.row_group(group).total_byte_size)
    rows = min(1000, max(1, MOST_AT_ONCE // size))
    total, fields = 0, list(Document._fields)
    for batch in file.iter_batches(rows, row_groups=[group], columns=fields, use_threads=False):
        text = batch.column("text")
        total += text.nbytes
        if total > MOST_TEXT:
            raise ValueError(f"more than {MOST_TEXT:,} bytes of text in one row group")
        if text.null_count:
            raise ValueError("a document without text")
        yield batch


@lru_cache(maxsize=64)  # a file's row groups are read one after another
def _check_unchanged(stamp: Stamp) -> None:
    path, expected = Path(stamp[0]), stamp[1]
    if expected and (found := sha256_of(path)) != expected:
        raise ValueError(f"SHA-256 is {found}, should be {expected}")


def documents_at(folder: Path, numbers: Sequence[int]) -> Iterator[Document]:
    """The documents at some places of a folder, which must be in rising order."""
    begin, wanted = 0, list(numbers)
    for group in row_groups(folder):
        if not wanted:
            return
        documents: list[Document] | None = None
        with _opened(group.path) as file:
            count = file.metadata.row_group(group.start).num_rows
        while wanted and wanted[0] < begin + count:
            documents = documents or list(read_parquet([group]))
            yield documents[wanted.pop(0) - begin]
        begin += count


def _arrow() -> tuple[Any, Any]:
    parquet = needs("pyarrow.parquet", extra="data", why="reading and writing documents")
    return needs("pyarrow", extra="data"), parquet

"""Documents, the parts a corpus is read in, and the interface of a reader."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from electrify.errors import DamagedError, UserError, needs
from electrify.storage.commit import read_manifest, sha256_of
from electrify.storage.verified import Stamp, stamp_of

ROW_GROUP_CHARACTERS = 4_000_000
SHORT_DOCUMENT = 400  # characters: a paragraph rather than a document
# Bytes of a batch of rows, in the worst case that every row repeats the whole row group.
MAX_BATCH_BYTES = 1 << 28
# Bytes of text in a row group: room for 4 million characters and the largest document.
MAX_ROW_GROUP_BYTES = 1 << 26
MAX_NAME_BYTES = 1 << 13  # of the other columns, on average: a row group has many short documents


class Document(NamedTuple):
    """A text; `id` is unique in its corpus and stays the same when the corpus is rebuilt."""

    id: str
    text: str
    source: str
    title: str | None = None
    label: str | None = None


class Slice(NamedTuple):
    """A file, or the bytes (for Parquet: the row groups) of one from start to stop."""

    path: Path
    start: int = 0
    stop: int | None = None
    sha256: str = ""
    """The checksum of the file, verified before reading; empty if unknown."""


@dataclass(frozen=True)
class Part:
    """The input from which one worker makes one file of documents.

    Parts depend on the source alone, never on the number of workers, so the output is the same for
    any number. A part carries `data` if the source can only be read in order (one compressed
    stream), and `slices` if a worker can open the source itself.
    """

    source: str
    data: bytes = b""
    slices: tuple[Slice, ...] = ()
    context: Any = None
    """Anything that the reader needs again in the worker; must be picklable."""
    problems: tuple[str, ...] = ()
    """Problems found while splitting the source into parts, e.g. "source truncated"."""
    fraction: float | None = None
    """Fraction of all sources that has been read at the end of this part, if known."""


def part_of_files(files: Sequence[tuple[Path, str]], fraction: float) -> Part:
    """Return a part of complete files, with their names as its context."""
    slices, names = tuple(Slice(path) for path, _ in files), tuple(name for _, name in files)
    return Part(names[0], slices=slices, context=names, fraction=fraction)


class Reader(Protocol):
    """A reader of one kind of corpus: a frozen dataclass whose fields are its options."""

    suffixes: ClassVar[Sequence[str]]
    """Which files it reads in a folder; empty if its sources are not folders."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts; runs in the parent, so it should do little but read."""
        ...

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part; runs in a worker. `tally` counts drops by reason."""
        ...


@runtime_checkable
class HasFingerprints(Protocol):
    """A reader whose sources are not local paths."""

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, Any]]:
        """Return what identifies the sources: name and version, size or hash."""
        ...


@runtime_checkable
class HasAdvice(Protocol):
    """A reader that can check, after reading, whether its options suit the sources."""

    def advice(self, counts: Mapping[str, int]) -> str | None:
        """Return advice for the user, or None. `counts` is of what was read, before any filter.

        Keys: documents, short (below SHORT_DOCUMENT characters), characters, dropped (characters).
        """
        ...


def write_parquet(path: Path, documents: Iterable[Document]) -> None:
    """Write documents in row groups of a few megabytes; the bytes depend on the documents only."""
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
    """Return what identifies a folder of documents when it is the input of another step."""
    manifest = read_manifest(folder, "documents")
    if not manifest["documents"]:
        raise UserError(
            f"{folder} contains no documents",
            got="a complete folder with 0 documents",
            fix='look for the reasons under "dropped" in its manifest.json, then rebuild it',
        )
    digest = sha256_of(folder / "manifest.json")
    return {"name": folder.name, "documents": manifest["documents"], "manifest_sha256": digest}


def row_groups(folder: Path) -> list[Slice]:
    """Return every row group of a folder of documents, in order; each can be read on its own."""
    manifest = read_manifest(folder, "documents")
    slices, rows = [], 0
    for entry in manifest["files"]:
        path = folder / entry["name"]
        with _opened(path) as file:
            if (size := path.stat().st_size) != entry["bytes"]:
                raise ValueError(f"{size:,} bytes, expected {entry['bytes']:,}")
            count = file.metadata.num_row_groups
            rows += sum(file.metadata.row_group(group).num_rows for group in range(count))
        slices += [Slice(path, group, group + 1, entry["sha256"]) for group in range(count)]
    if rows != manifest["documents"]:  # a file without row groups would never be hashed
        raise DamagedError(
            f"{folder} is damaged",
            got=f"{rows:,} documents in its files, expected {manifest['documents']:,}",
            fix="delete the folder and rebuild it",
        )
    return slices


def read_parquet(slices: Sequence[Slice]) -> Iterator[Document]:
    """Yield the documents of row groups in order; damage on disk is an error."""
    for path, start, stop, sha256 in slices:
        with _opened(path, sha256) as file:
            _check_columns(file.schema_arrow)
            for group in range(start, file.metadata.num_row_groups if stop is None else stop):
                for batch in _batches(file, group):
                    columns = (batch.column(name).to_pylist() for name in Document._fields)
                    yield from map(Document._make, zip(*columns, strict=True))


@contextmanager
def _opened(path: Path, sha256: str = "") -> Iterator[Any]:
    """Open a file of documents, verifying its hash if given; damage is an error."""
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
            f"{path} is damaged", got=str(error), fix="delete the folder and rebuild it"
        ) from error


def _check_columns(schema: Any) -> None:
    for name in Document._fields:
        if schema.names.count(name) != 1:
            raise ValueError(f"the columns are {schema.names}, expected {list(Document._fields)}")
        if str(kind := schema.field(name).type) not in ("string", "large_string"):
            raise ValueError(f"column {name!r} has type {kind}, expected string")


def _batches(file: Any, group: int) -> Iterator[Any]:
    """Yield the rows of a row group in batches small enough to bound memory."""
    size = max(1, file.metadata.row_group(group).total_byte_size)
    rows = min(1000, max(1, MAX_BATCH_BYTES // size))
    texts = names = 0
    fields = list(Document._fields)
    for batch in file.iter_batches(rows, row_groups=[group], columns=fields, use_threads=False):
        text = batch.column("text")
        texts += text.nbytes
        names += batch.nbytes - text.nbytes - MAX_NAME_BYTES * batch.num_rows
        if max(texts, names) > MAX_ROW_GROUP_BYTES:
            what = "text" if texts > names else "names"
            raise ValueError(f"more than {MAX_ROW_GROUP_BYTES:,} bytes of {what} in one row group")
        if text.null_count:
            raise ValueError("a document without text")
        yield batch


@lru_cache(maxsize=64)  # because the row groups of a file are read one after another
def _check_unchanged(stamp: Stamp) -> None:
    path, expected = Path(stamp[0]), stamp[1]
    if expected and (found := sha256_of(path)) != expected:
        raise ValueError(f"the SHA-256 is {found}, expected {expected}")


def documents_at(folder: Path, numbers: Sequence[int]) -> Iterator[Document]:
    """Yield the documents at the given positions of a folder, which must be ascending."""
    offset, wanted = 0, list(numbers)
    for group in row_groups(folder):
        if not wanted:
            return
        with _opened(group.path) as file:
            count = file.metadata.row_group(group.start).num_rows
        if wanted[0] < offset + count:
            for number, document in enumerate(read_parquet([group]), start=offset):
                if wanted and wanted[0] == number:
                    del wanted[0]
                    yield document
        offset += count


def _arrow() -> tuple[Any, Any]:
    parquet = needs("pyarrow.parquet", extra="data", why="reading and writing documents")
    return needs("pyarrow", extra="data"), parquet

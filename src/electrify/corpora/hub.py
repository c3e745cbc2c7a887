"""Read local Parquet files, and stream Parquet datasets of the Hugging Face Hub."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import MAX_DOCUMENT_BYTES, PART_BYTES
from electrify.corpora.clean import decode_utf8
from electrify.corpora.columns import (
    STRINGS,
    check_text,
    columns_to_read,
    has_column,
    plain_values,
    text_values,
)
from electrify.corpora.document import MAX_BATCH_BYTES, Document, Part, Slice
from electrify.corpora.plaintext import TextFields
from electrify.corpora.troubles import TOO_LARGE, missing
from electrify.errors import UserError, needs
from electrify.storage.commit import sha256_of

BATCH_BYTES = 4_000_000  # of text decompressed at a time
# Up to this size, a row group is read with dictionary encoding, which holds a repeated text once.
# Arrow would collect all texts of a larger one for that, so those are read a few rows at a time, in
# case they are all the same.
MAX_DICTIONARY_BYTES = 2 * PART_BYTES
ROWS_PER_BATCH = 8  # of a larger row group
TIMEOUT = 10.0  # seconds to wait for the Hub's answer


class ParquetSource(NamedTuple):
    """A Parquet file, its name in document ids and its size; `remote` if it is on the Hub."""

    path: Path
    name: str
    size: int
    remote: bool = False


class _RowGroup(NamedTuple):
    """A row group: its bytes of text, and the fraction of the file up to its end."""

    source: ParquetSource
    number: int
    size: int
    fraction: float


@contextmanager
def _parquet(source: ParquetSource) -> Iterator[Callable[..., Any]]:
    """Open a local or remote file, and yield a function that makes `ParquetFile`s of it."""
    pq = needs("pyarrow.parquet", extra="data", why="reading Parquet")
    try:
        with _opened(source) as file:
            # a small buffer instead of the complete row group, which may have gigabytes
            yield partial(pq.ParquetFile, file, pre_buffer=False, buffer_size=archive.BLOCK_BYTES)
    except hub_errors() as error:  # pyarrow's ArrowInvalid is a ValueError
        raise UserError(
            f"{source.name} cannot be read as Parquet",
            got=_first_line(error),
            fix="try again"
            if source.remote
            else "download the file again: it may be truncated or damaged",
        ) from error


def _opened(source: ParquetSource) -> Any:
    if source.remote:
        from huggingface_hub import HfFileSystem

        return HfFileSystem().open(source.path.as_posix(), "rb")
    import pyarrow as pa

    return pa.OSFile(os.fsencode(source.path))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def hub_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that reading raises, locally or over the network."""
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases include the error of the HTTP library that this version of the client uses.
    return (OSError, ValueError, *HfHubHTTPError.__bases__)


def _row_groups(source: ParquetSource, columns: TextFields) -> Iterator[_RowGroup]:
    with _parquet(source) as parquet:
        file = parquet()
        available = file.schema_arrow.names
        if columns.text not in available:
            raise missing(source.name, "column", "--text", columns.text, available)
        check_text(source.name, columns.text, file.schema_arrow)
        count = file.metadata.num_row_groups
        for number in range(count):
            group = file.metadata.row_group(number)
            size, stored = _sizes(group, columns)
            archive.refuse_bomb(source.name, size, stored)
            yield _RowGroup(source, number, size, (number + 1) / count)


def _sizes(group: Any, columns: TextFields) -> tuple[int, int]:
    """Return the bytes of a row group's columns, decompressed and as stored."""
    names = (columns.text, columns.id, columns.title)
    chunks = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema in names]
    decompressed = sum(chunk.total_uncompressed_size for chunk in chunks)
    return decompressed, sum(chunk.total_compressed_size for chunk in chunks)


def _parts(sources: Sequence[ParquetSource], columns: TextFields) -> Iterator[Part]:
    """Group consecutive row groups into parts."""
    total = max(1, sum(source.size for source in sources))
    offsets = dict(zip(sources, accumulate((s.size for s in sources), initial=0), strict=False))
    groups = (group for source in sources for group in _row_groups(source, columns))
    for batch in archive.group(groups, lambda group: group.size, PART_BYTES):
        used: dict[ParquetSource, Slice] = {}
        for source, run in groupby(batch, attrgetter("source")):
            numbers = [group.number for group in run]
            used[source] = Slice(source.path, numbers[0], numbers[-1] + 1)
        last = batch[-1]
        fraction = min(1, (offsets[last.source] + last.source.size * last.fraction) / total)
        name, slices = batch[0].source.name, tuple(used.values())
        yield Part(name, slices=slices, context=tuple(used), fraction=fraction)


def _rows(
    source: ParquetSource, selection: Slice, columns: TextFields
) -> Iterator[tuple[int, bytes | None, object, object]]:
    """Yield (row number, text, id, title) of some row groups, a few megabytes at a time."""
    with _parquet(source) as parquet:
        file = parquet()
        stop = file.num_row_groups if selection.stop is None else selection.stop
        groups = [file.metadata.row_group(number) for number in range(stop)]
        row = 1 + sum(group.num_rows for group in groups[: selection.start])
        groups = groups[selection.start :]
        found = [_sizes(group, columns) for group in groups]
        sizes, stored, decompressed = [size for size, _ in found], sum(s for _, s in found), 0
        max_rows = sum(group.num_rows for group in groups) * BATCH_BYTES // max(1, sum(sizes))
        largest = max([1, *sizes])
        small = largest <= MAX_DICTIONARY_BYTES
        read = columns_to_read(file.schema_arrow, columns)
        dictionary = [
            name for name in read if small and has_column(file.schema_arrow, name, STRINGS)
        ]
        rows = 1000 if small else min(ROWS_PER_BATCH, MAX_BATCH_BYTES // largest)
        batches = parquet(metadata=file.metadata, read_dictionary=dictionary).iter_batches(
            batch_size=max(1, min(rows, max_rows)),
            row_groups=list(range(selection.start, stop)),
            columns=read,
            use_threads=False,  # there is already one worker per core
        )
        for batch in batches:
            table = {name: batch.column(name) for name in batch.schema.names}
            texts = text_values(table[columns.text])
            decompressed += sum(len(text) for text in texts if text is not None)
            archive.refuse_bomb(source.name, decompressed, stored)
            absent = [None] * len(texts)
            ids = plain_values(table.get(columns.id), absent)
            titles = plain_values(table.get(columns.title), absent)
            yield from zip(range(row, row + len(texts)), texts, ids, titles, strict=True)
            row += len(texts)


@dataclass(frozen=True)
class Parquet(TextFields):
    """Parquet files or folders of them, with a text column."""

    suffixes: ClassVar[Sequence[str]] = (".parquet",)

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        files = archive.expand(sources, self.suffixes)
        yield from _parts(
            [ParquetSource(path, name, path.stat().st_size) for path, name in files], self
        )

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        for rows, source in zip(part.slices, part.context, strict=True):
            for row, text, row_id, title in _rows(source, rows, self):
                if text is None:
                    tally["no text"] += 1
                elif len(text) > MAX_DOCUMENT_BYTES:
                    tally[TOO_LARGE] += 1
                else:
                    yield self.document(source.name, row, decode_utf8(text, tally), row_id, title)


class ResolvedDataset(NamedTuple):
    """A dataset at one commit: what the manifest must record to reproduce the text."""

    name: str
    revision: str
    files: tuple[ParquetSource, ...]


@dataclass(frozen=True)
class Hub(Parquet):
    """A Parquet dataset on the Hugging Face Hub by name, or a local copy of one by its folder.

    The files are streamed, not downloaded first. The revision is resolved to a commit once, so that
    all parts come from the same version of the dataset; use `--revision COMMIT` to pin it for later
    runs. A local copy is identified by the hashes of its files.
    """

    subset: str | None = None
    """Subset (configuration): the folder of its files, e.g. 20231101.en."""
    split: str = "train"
    """Split: the first part of its file names, or their folder."""
    revision: str | None = None
    """Branch, tag or commit; None is the main branch."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        names = dict.fromkeys(sources)  # a source named twice would repeat its ids
        yield from _parts([file for name in names for file in self.resolve(name).files], self)

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, Any]]:
        """Return the commit and the files of each dataset."""
        return [
            {
                "name": resolved.name,
                "revision": resolved.revision,
                "files": [_fingerprint(file) for file in resolved.files],
            }
            for resolved in map(self.resolve, sources)
        ]

    def resolve(self, source: Path) -> ResolvedDataset:
        """Return the commit and the files that a name refers to now."""
        name = source.as_posix()
        local = source.is_dir()
        try:
            files, root, commit = _local(source) if local else _remote(name, self.revision)
            found = choose_files(files, name, self.subset, self.split)
        except hub_errors() as error:
            raise unreachable(name, self.revision, error) from error
        chosen = (
            ParquetSource(Path(root) / path, f"{name}/{path}", size, remote=not local)
            for path, size in found
        )
        return ResolvedDataset(name, commit, tuple(chosen))


def _fingerprint(file: ParquetSource) -> dict[str, Any]:
    """Identify a file: a remote one by the commit, a local one by its hash."""
    known = {"name": file.name, "bytes": file.size}
    return known if file.remote else {**known, "sha256": sha256_of(file.path)}


def _local(folder: Path) -> tuple[list[tuple[str, int]], str, str]:
    import fsspec

    return list_parquet(fsspec.filesystem("file"), folder.as_posix()), folder.as_posix(), ""


@lru_cache  # the fingerprints and the parts must refer to the same commit
def _remote(name: str, revision: str | None) -> tuple[list[tuple[str, int]], str, str]:
    import huggingface_hub as hub

    # A first request with a timeout, because the file system would retry for long.
    commit = str(hub.HfApi().dataset_info(name, revision=revision, timeout=TIMEOUT).sha)
    root = f"datasets/{name}@{commit}"
    return list_parquet(hub.HfFileSystem(), root), root, commit


def list_parquet(filesystem: Any, root: str) -> list[tuple[str, int]]:
    """Return (path below `root`, size) of every Parquet file in an fsspec file system."""
    start = filesystem._strip_protocol(root).rstrip("/") + "/"
    found = filesystem.find(root, detail=True)
    return sorted(
        (path.removeprefix(start), int(entry["size"]))
        for path, entry in found.items()
        if path.endswith(".parquet")
    )


def unreachable(name: str, revision: str | None, error: BaseException) -> UserError:
    """Return the error for a dataset that the Hub does not deliver."""
    kind = type(error).__name__
    if "NotFound" in kind or isinstance(error, ValueError):
        fix = "check the name (owner/name), --revision, and that you have access"
    elif "Gated" in kind:
        fix = "accept the terms on the page of the dataset, then log in with `hf auth login`"
    else:
        fix = "check the network, or download the files and use `electrify corpus parquet`"
    at = f" at {revision}" if revision else ""
    return UserError(f"dataset {name}{at} cannot be read", got=_first_line(error), fix=fix)


def choose_files(
    files: Sequence[tuple[str, int]], name: str, subset: str | None, split: str
) -> list[tuple[str, int]]:
    """Return the files of a subset and split.

    The Hub names files `subset/split-00000-of-00002`, `data/split-*`, `split/*` or
    `subset/split/*`; files without a split in their path belong to `train`.
    """
    if not files:
        raise UserError(
            f"dataset {name} has no Parquet files",
            got="none in the repository",
            fix="try --revision refs/convert/parquet, which the Hub creates for many datasets",
        )
    splits = {path: _split_of(path) for path, _ in files}
    subsets = sorted({_subset_of(path, splits[path]) for path in splits} - {""})
    if subset is None and len(subsets) > 1:
        shown = ", ".join(subsets[:20]) + (", …" if len(subsets) > 20 else "")
        what = f"dataset {name} has several subsets"
        raise UserError(what, got=shown, fix="choose one of them with --subset")
    if subset is not None and subset not in subsets:
        raise missing(name, "subset", "--subset", subset, subsets or ["(none)"])
    in_subset = [f for f in files if subset is None or _subset_of(f[0], splits[f[0]]) == subset]
    chosen = [file for file in in_subset if splits[file[0]] == split]
    if not chosen:
        available = sorted({splits[path] for path, _ in in_subset})
        raise missing(name, "split", "--split", split, available)
    return chosen


_SHARD = re.compile(r"(?P<split>\w+(?:[.-]\w+)*?)-\d+(?:-of-\d+)?(?:-\w+)?")
_COMMON_SPLIT = re.compile(r"(?:partial-)?(train|validation|valid|dev|test)", re.IGNORECASE)


def _split_of(path: str) -> str:
    stem, folder = PurePosixPath(path).stem, PurePosixPath(path).parent.name
    shard = _SHARD.fullmatch(stem)
    name = shard["split"] if shard else stem
    if _COMMON_SPLIT.fullmatch(name) or (shard and name not in ("part", "data")):
        return name
    return folder if _COMMON_SPLIT.fullmatch(folder) else "train"


def _subset_of(path: str, split: str) -> str:
    """Return the folders of a path except the split and the customary `data`."""
    folders = [step for step in PurePosixPath(path).parent.parts if step not in (split, "data")]
    return "/".join(folders)

"""Parquet: files and folders here, and data sets of the Hugging Face Hub, read as they stream."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import LIMIT, PART
from electrify.corpora.clean import decode_utf8
from electrify.corpora.columns import (
    STRINGS,
    check_text,
    columns_to_read,
    holds,
    plain_values,
    text_values,
)
from electrify.corpora.document import MOST_AT_ONCE, Document, Part, Slice
from electrify.corpora.plaintext import TextFields
from electrify.corpora.troubles import TOO_LARGE, missing
from electrify.errors import UserError, needs
from electrify.storage.commit import sha256_of

BATCH = 4_000_000  # bytes of text that are unpacked at a time
# Bytes of a row group whose texts are held once if they are stored once. Of a larger one Arrow
# would collect all texts for that, so a few rows are read at a time, in case they are all the same.
MOST_CODED = 2 * PART
ROWS_AT_ONCE = 8
TIMEOUT = 10.0  # seconds until the Hub must have answered


class ParquetSource(NamedTuple):
    """A Parquet file, its name in ids and its size; `remote` if it is a path on the Hub."""

    path: Path
    name: str
    size: int
    remote: bool = False


class _RowGroup(NamedTuple):
    """A row group of a file: bytes of text in it, and the share of the file that ends with it."""

    source: ParquetSource
    number: int
    size: int
    share: float


@contextmanager
def _parquet(source: ParquetSource) -> Iterator[Callable[..., Any]]:
    """Makes a `ParquetFile` of a file that is opened here or on the Hub, with any options."""
    pq = needs("pyarrow.parquet", extra="data", why="reading Parquet")
    try:
        with _opened(source) as file:
            # a small buffer, not the whole row group at once: row groups may have gigabytes
            yield partial(pq.ParquetFile, file, pre_buffer=False, buffer_size=archive.BLOCK_BYTES)
    except _reading_errors() as error:  # pyarrow's ArrowInvalid is a ValueError
        raise UserError(
            f"{source.name} cannot be read as Parquet",
            got=_first_line(error),
            fix="try again" if source.remote else "get the file again: it may be cut or damaged",
        ) from error


def _opened(source: ParquetSource) -> Any:
    if source.remote:
        from huggingface_hub import HfFileSystem

        return HfFileSystem().open(source.path.as_posix(), "rb")
    import pyarrow as pa

    return pa.OSFile(os.fsencode(source.path))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _reading_errors() -> tuple[type[BaseException], ...]:
    """What reading raises here or over the network."""
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases include the error of whichever HTTP library this version of the Hub's client uses.
    return (OSError, ValueError, *HfHubHTTPError.__bases__)


def _row_groups(source: ParquetSource, columns: TextFields) -> Iterator[_RowGroup]:
    with _parquet(source) as parquet:
        file = parquet()
        there = file.schema_arrow.names
        if columns.text not in there:
            raise missing(source.name, "column", "--text", columns.text, there)
        check_text(source.name, columns.text, file.schema_arrow)
        count = file.metadata.num_row_groups
        for number in range(count):
            group = file.metadata.row_group(number)
            size, stored = _sizes(group, columns)
            archive.refuse_bomb(source.name, size, stored)
            yield _RowGroup(source, number, size, (number + 1) / count)


def _sizes(group: Any, columns: TextFields) -> tuple[int, int]:
    """The bytes of a row group's columns, unpacked and as stored."""
    names = (columns.text, columns.id, columns.title)
    chunks = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema in names]
    unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
    return unpacked, sum(chunk.total_compressed_size for chunk in chunks)


def _parts(sources: Sequence[ParquetSource], columns: TextFields) -> Iterator[Part]:
    """Neighbouring row groups together, up to the size of a part."""
    total = max(1, sum(source.size for source in sources))
    begin = dict(zip(sources, accumulate((s.size for s in sources), initial=0), strict=False))
    groups = (group for source in sources for group in _row_groups(source, columns))
    for batch in archive.group(groups, lambda group: group.size, PART):
        slices: list[Slice] = []
        used: list[ParquetSource] = []
        for group in batch:
            if slices and used[-1] == group.source:
                slices[-1] = slices[-1]._replace(stop=group.number + 1)
            else:
                slices.append(Slice(group.source.path, group.number, group.number + 1))
                used.append(group.source)
        share = min(1, (begin[used[-1]] + used[-1].size * batch[-1].share) / total)
        yield Part(used[0].name, slices=tuple(slices), context=tuple(used), share=share)


def _documents(part: Part, columns: TextFields, tally: Counter[str]) -> Iterator[Document]:
    for piece, source in zip(part.slices, part.context, strict=True):
        for row, text, given, title in _rows(source, piece, columns):
            if text is None:
                tally["no text"] += 1
            elif len(text) > LIMIT:
                tally[TOO_LARGE] += 1
            else:
                yield columns.document(source.name, row, decode_utf8(text, tally), given, title)


def _rows(
    source: ParquetSource, piece: Slice, columns: TextFields
) -> Iterator[tuple[int, bytes | None, object, object]]:
    """(row number, text, id, title) of the row groups of a slice, a few megabytes at a time."""
    with _parquet(source) as parquet:
        file = parquet()
        stop = file.num_row_groups if piece.stop is None else piece.stop
        groups = [file.metadata.row_group(number) for number in range(stop)]
        row = 1 + sum(group.num_rows for group in groups[: piece.start])
        groups = groups[piece.start :]
        found = [_sizes(group, columns) for group in groups]
        sizes, stored, unpacked = [size for size, _ in found], sum(s for _, s in found), 0
        most = sum(group.num_rows for group in groups) * BATCH // max(1, sum(sizes))
        largest = max([1, *sizes])
        small = largest <= MOST_CODED
        read = columns_to_read(file.schema_arrow, columns)
        coded = [name for name in read if small and holds(file.schema_arrow, name, STRINGS)]
        rows = 1000 if small else min(ROWS_AT_ONCE, MOST_AT_ONCE // largest)
        batches = parquet(metadata=file.metadata, read_dictionary=coded).iter_batches(
            batch_size=max(1, min(rows, most)),
            row_groups=list(range(piece.start, stop)),
            columns=read,
            use_threads=False,  # the engine has a worker per core already
        )
        for batch in batches:
            table = {name: batch.column(name) for name in batch.schema.names}
            texts = text_values(table[columns.text])
            unpacked += sum(len(text) for text in texts if text is not None)
            archive.refuse_bomb(source.name, unpacked, stored)
            nothing = [None] * len(texts)
            ids = plain_values(table.get(columns.id), nothing)
            titles = plain_values(table.get(columns.title), nothing)
            yield from zip(range(row, row + len(texts)), texts, ids, titles, strict=True)
            row += len(texts)


@dataclass(frozen=True)
class Parquet(TextFields):
    """Parquet files, or folders of them, with a column of text."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = archive.expand(sources, (".parquet",))
        yield from _parts(
            [ParquetSource(path, name, path.stat().st_size) for path, name in files], self
        )

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        yield from _documents(part, self, tally)


class Resolved(NamedTuple):
    """A data set at one commit: what a manifest must say to get the same text again."""

    name: str
    revision: str
    files: tuple[ParquetSource, ...]


@dataclass(frozen=True)
class Hub(Parquet):
    """A Parquet data set of the Hugging Face Hub by name, or a local copy of one by its folder.

    Nothing is downloaded as a whole. The revision is resolved to a commit once, so that all parts
    come from the same state of the data set; `--revision` and a commit pins it, so that later runs
    read that state, too. A local copy is known by the hashes of its files.
    """

    subset: str | None = None
    """The subset (configuration): the folder that holds its files, e.g. 20231101.en."""
    split: str = "train"
    """The split: the beginning of the names of its files, or their folder."""
    revision: str | None = None
    """A branch, tag or commit; the main branch if not given."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        names = dict.fromkeys(sources)  # one that is named twice would give its ids twice
        yield from _parts([file for name in names for file in self.resolve(name).files], self)

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, Any]]:
        """The commit of each data set, and its files."""
        return [
            {
                "name": resolved.name,
                "revision": resolved.revision,
                "files": [_fingerprint(file) for file in resolved.files],
            }
            for resolved in map(self.resolve, sources)
        ]

    def resolve(self, source: Path) -> Resolved:
        """The commit and the files that a name means now."""
        name = source.as_posix()
        local = source.is_dir()
        try:
            files, root, commit = _local(source) if local else _remote(name, self.revision)
            found = choose_files(files, name, self.subset, self.split)
        except _reading_errors() as error:
            raise _unreachable(name, self.revision, error) from error
        chosen = (
            ParquetSource(Path(root) / path, f"{name}/{path}", size, remote=not local)
            for path, size in found
        )
        return Resolved(name, commit, tuple(chosen))


def _fingerprint(file: ParquetSource) -> dict[str, Any]:
    """A commit says all about a remote file; one that is here is hashed."""
    known = {"name": file.name, "bytes": file.size}
    return known if file.remote else {**known, "sha256": sha256_of(file.path)}


def _local(folder: Path) -> tuple[list[tuple[str, int]], str, str]:
    import fsspec

    return list_parquet(fsspec.filesystem("file"), folder.as_posix()), folder.as_posix(), ""


@lru_cache  # asked for the fingerprints and again for the parts: both must mean the same commit
def _remote(name: str, revision: str | None) -> tuple[list[tuple[str, int]], str, str]:
    import huggingface_hub as hub

    # One question with a time limit first: the file system would try again and again.
    commit = str(hub.HfApi().dataset_info(name, revision=revision, timeout=TIMEOUT).sha)
    root = f"datasets/{name}@{commit}"
    return list_parquet(hub.HfFileSystem(), root), root, commit


def list_parquet(filesystem: Any, root: str) -> list[tuple[str, int]]:
    """(path below `root`, size) of every Parquet file, from any fsspec file system."""
    start = filesystem._strip_protocol(root).rstrip("/") + "/"
    found = filesystem.find(root, detail=True)
    return sorted(
        (path.removeprefix(start), int(entry["size"]))
        for path, entry in found.items()
        if path.endswith(".parquet")
    )


def _unreachable(name: str, revision: str | None, error: BaseException) -> UserError:
    kind = type(error).__name__
    if "NotFound" in kind or isinstance(error, ValueError):
        fix = "check the name (owner/name), --revision, and whether you may read it"
    elif "Gated" in kind:
        fix = "accept its conditions on its page, then log in with `hf auth login`"
    else:
        fix = "check the network, or download the Parquet files and use the kind parquet"
    at = f" at {revision}" if revision else ""
    return UserError(f"data set {name}{at} cannot be read", got=_first_line(error), fix=fix)


def choose_files(
    files: Sequence[tuple[str, int]], name: str, subset: str | None, split: str
) -> list[tuple[str, int]]:
    """The files of a subset and split, by the Hub's naming: `subset/split-00000-of-00002`,
    `data/split-*`, `split/*`, `subset/split/*`; files that name no split at all are `train`.
    """
    if not files:
        raise UserError(
            f"data set {name} has no Parquet files",
            got="none in the repository",
            fix="try --revision refs/convert/parquet, which the Hub makes for many data sets",
        )
    splits = {path: _split_of(path) for path, _ in files}
    subsets = sorted({_subset_of(path, splits[path]) for path in splits} - {""})
    if subset is None and len(subsets) > 1:
        shown = ", ".join(subsets[:20]) + (", …" if len(subsets) > 20 else "")
        what = f"data set {name} has several subsets"
        raise UserError(what, got=shown, fix="give --subset and one of them")
    if subset is not None and subset not in subsets:
        raise missing(name, "subset", "--subset", subset, subsets or ["(none)"])
    mine = [f for f in files if subset is None or _subset_of(f[0], splits[f[0]]) == subset]
    chosen = [file for file in mine if splits[file[0]] == split]
    if not chosen:
        there = sorted({splits[path] for path, _ in mine})
        raise missing(name, "split", "--split", split, there)
    return chosen


_SHARD = re.compile(r"(?P<split>\w+(?:[.-]\w+)*?)-\d+(?:-of-\d+)?(?:-\w+)?")
_USUAL = re.compile(r"(?:partial-)?(train|validation|valid|dev|test)", re.IGNORECASE)


def _split_of(path: str) -> str:
    stem, folder = PurePosixPath(path).stem, PurePosixPath(path).parent.name
    shard = _SHARD.fullmatch(stem)
    name = shard["split"] if shard else stem
    if _USUAL.fullmatch(name) or (shard and name not in ("part", "data")):
        return name
    return folder if _USUAL.fullmatch(folder) else "train"


def _subset_of(path: str, split: str) -> str:
    """The folders of a path that are neither the split nor the customary `data`."""
    folders = [step for step in PurePosixPath(path).parent.parts if step not in (split, "data")]
    return "/".join(folders)

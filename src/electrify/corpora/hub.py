"""Parquet: files and folders here, and data sets of the Hugging Face Hub, read as they stream."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import LIMIT, MOST_RATIO, PART
from electrify.corpora.clean import decode, storable
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.plaintext import TOO_LARGE, missing_field, unique_id
from electrify.errors import UserError

BATCH = 4_000_000  # bytes of text that are unpacked at a time
TIMEOUT = 10.0  # seconds until the Hub must have answered


class Columns(NamedTuple):
    """The columns that hold what a document needs; only the text must be there."""

    text: str
    id: str
    title: str


class Source(NamedTuple):
    """A Parquet file and its name in ids; `remote` if it is a path on the Hub."""

    path: Path
    name: str
    remote: bool = False


@contextmanager
def _parquet(source: Source) -> Iterator[Any]:
    """A Parquet file, opened here or on the Hub."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise _needs("reading Parquet", "pyarrow", error) from error
    try:
        if not source.remote:
            # a small buffer, not the whole row group at once: row groups may have gigabytes
            yield pq.ParquetFile(source.path, pre_buffer=False, buffer_size=archive.BLOCK)
            return
        from huggingface_hub import HfFileSystem

        with HfFileSystem().open(source.path.as_posix(), "rb") as file:
            yield pq.ParquetFile(file)
    except _reading_errors() as error:  # pyarrow's ArrowInvalid is a ValueError
        raise UserError(
            f"{source.name} cannot be read as Parquet",
            got=_first_line(error),
            fix="try again" if source.remote else "get the file again: it may be cut or damaged",
        ) from error


def _needs(what: str, package: str, error: ImportError) -> UserError:
    fix = 'pip install "electrify[data]"'
    return UserError(f"{what} needs {package}", got=str(error), fix=fix)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _reading_errors() -> tuple[type[BaseException], ...]:
    """What reading raises here or over the network."""
    try:
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        return (OSError, ValueError)
    # Its bases include the error of whichever HTTP library this version of the Hub's client uses.
    return (OSError, ValueError, *HfHubHTTPError.__bases__)


def _row_groups(source: Source, columns: Columns) -> Iterator[tuple[Source, int, int]]:
    """(source, row group, bytes of text) for each row group of a file."""
    with _parquet(source) as file:
        there = file.schema_arrow.names
        if columns.text not in there:
            raise missing_field(source.name, "column", "text", columns.text, there)
        _check_strings(source, columns.text, file.schema_arrow)
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            all_chunks = map(group.column, range(group.num_columns))
            chunks = [chunk for chunk in all_chunks if chunk.path_in_schema in columns]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            stored = sum(chunk.total_compressed_size for chunk in chunks)
            if size > MOST_RATIO * (stored + archive.RATIO_SLACK):
                raise UserError(
                    f"{source.name} unpacks to far more than text ever does",
                    got=f"{size:,} bytes out of {stored:,}, more than {MOST_RATIO} : 1",
                    fix="leave this file out",
                )
            yield source, number, size


def _check_strings(source: Source, column: str, schema: Any) -> None:
    import pyarrow.types as kinds

    kind = schema.field(column).type
    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    tests = (
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_string_view,
        kinds.is_binary,
        kinds.is_large_binary,
    )
    if not any(test(kind) for test in tests):
        texts = [f.name for f in schema if kinds.is_string(f.type) or kinds.is_large_string(f.type)]
        raise UserError(
            f"column {column!r} of {source.name} holds no text",
            got=str(kind),
            fix=f"set text to one of: {', '.join(texts)}" if texts else "choose another file",
        )


def _parts(sources: Sequence[Source], columns: Columns) -> Iterator[Part]:
    """Neighbouring row groups together, up to the size of a part."""
    groups = (group for source in sources for group in _row_groups(source, columns))
    for batch in archive.group(groups, lambda group: group[2], PART):
        slices: list[Slice] = []
        used: list[Source] = []
        for source, number, _ in batch:
            if slices and used[-1] == source:
                slices[-1] = slices[-1]._replace(stop=number + 1)
            else:
                slices.append(Slice(source.path, number, number + 1))
                used.append(source)
        yield Part(used[0].name, slices=tuple(slices), context=tuple(used))


def _documents(part: Part, columns: Columns, tally: Counter[str]) -> Iterator[Document]:
    for piece, source in zip(part.slices, part.context, strict=True):
        ids: set[str] = set()
        for row, text, given, title in _rows(source, piece, columns):
            if text is None:
                tally["no text"] += 1
            elif len(text) > LIMIT:
                tally[TOO_LARGE] += 1
            else:
                yield Document(
                    unique_id(source.name, row, given, ids),
                    decode(text, tally),
                    source.name,
                    storable(title, Counter()) if isinstance(title, str) else None,
                )


def _rows(
    source: Source, piece: Slice, columns: Columns
) -> Iterator[tuple[int, bytes | None, object, object]]:
    """(row number, text, id, title) of the row groups of a slice, a few megabytes at a time."""
    import pyarrow as pa

    with _parquet(source) as file:
        stop = file.metadata.num_row_groups if piece.stop is None else piece.stop
        groups = [file.metadata.row_group(number) for number in range(stop)]
        row = 1 + sum(group.num_rows for group in groups[: piece.start])
        rows = sum(group.num_rows for group in groups[piece.start :])
        size = sum(group.total_byte_size for group in groups[piece.start :])
        batches = file.iter_batches(
            batch_size=max(1, min(1000, rows * BATCH // max(1, size))),
            row_groups=list(range(piece.start, stop)),
            columns=[name for name in file.schema_arrow.names if name in columns],
            use_threads=False,  # the engine has a worker per core already
        )
        for batch in batches:
            table = {name: batch.column(name) for name in batch.schema.names}
            text = table[columns.text]
            if pa.types.is_dictionary(text.type):
                text = text.dictionary_decode()
            # as bytes: nothing has checked that they are UTF-8
            texts = text.cast(pa.large_binary()).to_pylist()
            nothing = [None] * len(texts)
            ids = _plain(table.get(columns.id), nothing)
            titles = _plain(table.get(columns.title), nothing)
            yield from zip(range(row, row + len(texts)), texts, ids, titles, strict=True)
            row += len(texts)


def _plain(column: Any, nothing: list[None]) -> Sequence[object]:
    try:
        return nothing if column is None else list(column.to_pylist())
    except UnicodeDecodeError:
        return nothing


@dataclass(frozen=True)
class Parquet:
    """Parquet files, or folders of them, with a column of text."""

    text: str = "text"
    """The column that holds the text."""
    id: str = "id"
    """The column that names the document within its file, if there is one."""
    title: str = "title"
    """The column that holds the title, if there is one."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = archive.expand(sources, (".parquet",))
        yield from _parts([Source(path, name) for path, name in files], self._columns)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        yield from _documents(part, self._columns, tally)

    @property
    def _columns(self) -> Columns:
        return Columns(self.text, self.id, self.title)


class Resolved(NamedTuple):
    """A data set at one commit: what a manifest must say to get the same text again."""

    name: str
    revision: str
    files: tuple[tuple[Source, int], ...]
    """Each file and its size in bytes."""


@dataclass(frozen=True)
class Hub:
    """A Parquet data set of the Hugging Face Hub by name, or a local copy of one by its folder.

    Nothing is downloaded as a whole. The revision is resolved to a commit once, so that all parts
    come from the same state of the data set.
    """

    config: str | None = None
    """The configuration: the folder that holds its files, e.g. 20231101.en."""
    split: str = "train"
    """The split: the beginning of the names of its files, or their folder."""
    revision: str | None = None
    """A branch, tag or commit; the main branch if not given."""
    text: str = "text"
    """The column that holds the text."""
    id: str = "id"
    """The column that names the document within its file, if there is one."""
    title: str = "title"
    """The column that holds the title, if there is one."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = [source for name in sources for source, _ in self.resolve(name).files]
        yield from _parts(files, Columns(self.text, self.id, self.title))

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        yield from _documents(part, Columns(self.text, self.id, self.title), tally)

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, Any]]:
        """The commit of each data set, and its files with their sizes."""
        return [
            {
                "name": resolved.name,
                "revision": resolved.revision,
                "files": [{"name": file.name, "bytes": size} for file, size in resolved.files],
            }
            for resolved in map(self.resolve, sources)
        ]

    def resolve(self, source: Path) -> Resolved:
        """The commit and the files that a name means now."""
        name = source.as_posix()
        local = source.is_dir()
        try:
            files, root, commit = _local(source) if local else _remote(name, self.revision)
            found = choose_files(files, name, self.config, self.split)
        except _reading_errors() as error:
            raise _unreachable(name, self.revision, error) from error
        chosen = (
            (Source(Path(root) / path, f"{name}/{path}", remote=not local), size)
            for path, size in found
        )
        return Resolved(name, commit, tuple(chosen))


def _local(folder: Path) -> tuple[list[tuple[str, int]], str, str]:
    import fsspec

    return list_parquet(fsspec.filesystem("file"), folder.as_posix()), folder.as_posix(), ""


def _remote(name: str, revision: str | None) -> tuple[list[tuple[str, int]], str, str]:
    try:
        from huggingface_hub import HfApi, HfFileSystem
    except ImportError as error:
        raise _needs("reading from the Hub", "huggingface_hub", error) from error
    # One question with a time limit first: the file system would try again and again.
    commit = str(HfApi().dataset_info(name, revision=revision, timeout=TIMEOUT).sha)
    root = f"datasets/{name}@{commit}"
    return list_parquet(HfFileSystem(), root), root, commit


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
        fix = "check the name (owner/name), the revision, and whether you may read it"
    elif "Gated" in kind:
        fix = "accept its conditions on its page, then log in with `hf auth login`"
    else:
        fix = "check the network, or download the Parquet files and use the kind parquet"
    at = f" at {revision}" if revision else ""
    return UserError(f"data set {name}{at} cannot be read", got=_first_line(error), fix=fix)


def choose_files(
    files: Sequence[tuple[str, int]], name: str, config: str | None, split: str
) -> list[tuple[str, int]]:
    """The files of a configuration and split, by the Hub's naming: `config/split-00000-of-00002`,
    `data/split-*`, `split/*`, `config/split/*`; files that name no split at all are `train`.
    """
    if not files:
        raise UserError(
            f"data set {name} has no Parquet files",
            got="none in the repository",
            fix="try the revision refs/convert/parquet, which the Hub makes for many data sets",
        )
    splits = {path: _split_of(path) for path, _ in files}
    configs = sorted({_config_of(path, splits[path]) for path in splits} - {""})
    if config is None and len(configs) > 1:
        shown = ", ".join(configs[:20]) + (", …" if len(configs) > 20 else "")
        raise UserError(
            f"data set {name} has several configurations",
            got=shown,
            fix="set config to one of them",
        )
    if config is not None and config not in configs:
        raise missing_field(name, "configuration", "config", config, configs or ["(none)"])
    mine = [f for f in files if config is None or _config_of(f[0], splits[f[0]]) == config]
    chosen = [file for file in mine if splits[file[0]] == split]
    if not chosen:
        there = sorted({splits[path] for path, _ in mine})
        raise missing_field(name, "split", "split", split, there)
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


def _config_of(path: str, split: str) -> str:
    """The folders of a path that are neither the split nor the customary `data`."""
    folders = [step for step in PurePosixPath(path).parent.parts if step not in (split, "data")]
    return "/".join(folders)

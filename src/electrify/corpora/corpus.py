"""Raw sources to documents: `electrify corpus KIND SOURCE… --out DIR`.

Every kind goes the same way: its reader cuts the sources into parts, workers read, tidy and filter
the documents of a part and commit them as one Parquet file, and the manifest is written last.
De-duplication and a limit look at all documents in order, so with them the parts are first made in
the build's own folder and then copied without what is left out.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from electrify import config
from electrify.corpora.archive import source_fingerprint
from electrify.corpora.clean import Filters, reason_to_drop, repaired, tidy
from electrify.corpora.document import (
    SHORT,
    Advises,
    Document,
    KnowsItsSources,
    Part,
    Reader,
    Slice,
    read_parquet,
    write_parquet,
)
from electrify.corpora.duplicates import KEY, first_occurrences, text_key
from electrify.errors import UserError
from electrify.jobs import executor
from electrify.progress import progress
from electrify.storage.build import Build, Record, committed_file
from electrify.storage.commit import read_manifest


class CorpusKind(NamedTuple):
    """Where a kind's reader is, what it reads, and an example of a source."""

    reader: str
    says: str
    source: str


KINDS = {
    "wikipedia": CorpusKind(
        "electrify.corpora.wikipedia:Wikipedia",
        "a MediaWiki dump (.xml, .bz2, .gz)",
        "enwiki-latest-pages-articles-multistream.xml.bz2",
    ),
    "gutenberg": CorpusKind(
        "electrify.corpora.gutenberg:Gutenberg",
        "Project Gutenberg books, a folder or a zip of .txt",
        "Gutenberg.zip",
    ),
    "openwebtext": CorpusKind(
        "electrify.corpora.openwebtext:OpenWebText",
        "the original nested archive, or a folder of its .xz tars",
        "openwebtext.tar.xz",
    ),
    "text": CorpusKind(
        "electrify.corpora.plaintext:Text",
        "plain text, packed or not, split at blank lines or by file",
        "my_texts/",
    ),
    "jsonl": CorpusKind(
        "electrify.corpora.plaintext:JsonLines",
        "one JSON object a line, packed or not",
        "my.jsonl.gz",
    ),
    "parquet": CorpusKind(
        "electrify.corpora.hub:Parquet", "local Parquet files", "my_table.parquet"
    ),
    "hub": CorpusKind(
        "electrify.corpora.hub:Hub",
        "a Parquet data set on the Hugging Face Hub, streamed",
        "wikimedia/wikipedia --subset 20231101.vi",
    ),
    "docstrings": CorpusKind(
        "electrify.corpora.docstrings:Docstrings",
        "the docstrings of this Python installation: nothing to download",
        "",
    ),
}

FINAL = "documents-{:05d}.parquet"
STAGED = ".parts/read/{:05d}.parquet"
KEYS = ".parts/read/{:05d}.keys"
PARTS_AHEAD = 8  # of about 16 MB each
MEASURES = ("documents", "characters", "text_bytes")


@dataclass(frozen=True)
class Corpus(config.AcceptsTextPaths):
    """Turn raw sources into documents."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE…")]
    """Files, folders or (hub) names to read."""
    out: Path
    """The folder to make."""
    reader: Any = None
    filters: Annotated[Filters, tyro.conf.arg(name="")] = field(default_factory=Filters)
    workers: str = "0"
    """Processes (0: one per core), or the address of a Dask scheduler."""


def settings_type(kind: str) -> type[Corpus]:
    """The settings of one kind of corpus: the common ones and the kind's own."""
    reader = config.named(KINDS[kind].reader)
    options: Any = Annotated[reader, tyro.conf.arg(name="")]
    fields = [("reader", options, field(default_factory=reader))]
    return make_dataclass(
        reader.__name__, fields, bases=(Corpus,), frozen=True, namespace={"__doc__": reader.__doc__}
    )


def corpus(settings: Corpus) -> dict[str, Any]:
    """Make the documents and return their manifest."""
    _keep_apart(settings.out, _paths(settings.sources))
    identity = {
        "settings": {
            "kind": type(settings.reader).__name__,
            "reader": config.to_dict(settings.reader),
            "filters": config.to_dict(settings.filters),
        },
        "sources": _fingerprints(settings.reader, settings.sources),
    }
    with Build(settings.out, "documents", identity) as build:
        if build.finished:
            print(f"{settings.out} is already made with these settings; nothing to do")
            return read_manifest(settings.out, "documents")
        build.save_settings(config.to_toml(settings, without=("out", "workers")))
        looks_at_all = settings.filters.dedup or settings.filters.limit is not None
        try:
            with executor(settings.workers) as pool:
                read = _read_all(build, settings, pool, STAGED if looks_at_all else FINAL)
                made = _publish(build, settings.filters, read, pool) if looks_at_all else read
        except UserError:
            build.withdraw()
            raise
        manifest = build.finish(_summary(read, made))
    print_summary(settings.out, manifest)
    if isinstance(settings.reader, Advises) and (note := settings.reader.advice(_total_read(read))):
        print(f"note: {note}")
    return manifest


def _total_read(records: Sequence[Record]) -> Counter[str]:
    total = Counter[str]()
    for record in records:
        total.update(record.get("read", {}))  # parts of an earlier version do not say
    return total


def _fingerprints(reader: Reader, sources: Sequence[str]) -> list[dict[str, Any]]:
    if isinstance(reader, KnowsItsSources):
        return reader.fingerprints(_paths(sources))
    if not sources:
        raise UserError("nothing to read", got="no source", fix="name files or folders to read")
    for source in sources:
        if not Path(source).exists():
            raise UserError(f"no such file or folder: {source}", got=source, fix="check the path")
    found = []
    with progress("hashing sources") as update:
        for number, path in enumerate(_paths(sources)):
            update(number / len(sources), path.name)
            found.append(source_fingerprint(path))
    return found


def _keep_apart(out: Path, sources: Sequence[Path]) -> None:
    """An output inside a source would be read as text when the same command runs again."""
    out = Path(os.path.realpath(out))  # unlike resolve, not troubled by links in a circle
    for source in (Path(os.path.realpath(source)) for source in sources if source.exists()):
        if source in out.parents:
            raise UserError(
                "--out lies inside a source",
                got=f"{out} in {source}",
                fix="give --out a folder beside the source; nothing was touched",
            )


def _paths(sources: Sequence[str]) -> list[Path]:
    return [Path(source) for source in sources]


def _read_all(build: Build, settings: Corpus, pool: Executor, name: str) -> list[Record]:
    """Read the parts in order until the sources end or the limit is reached."""
    shares: list[float | None] = []
    records: list[Record] = []
    enough = _Enough(settings.filters)
    documents = megabytes = 0.0

    def watched() -> Iterator[Part]:
        for part in settings.reader.parts(_paths(settings.sources)):
            shares.append(part.share)
            yield part

    work = partial(_read, settings.reader, settings.filters, name)
    made = build.make("read", watched(), work, pool, ahead=PARTS_AHEAD)
    with progress("documents") as update, closing(made):
        for record in made:
            records.append(record)
            documents += record["documents"]
            megabytes += record["text_bytes"] / 1e6
            share = shares[len(records) - 1]
            update(share, f"{documents:,.0f} documents, {megabytes:,.0f} MB")
            if enough.after(build.out, record):
                break
    return records


def _read(reader: Reader, filters: Filters, name: str, part: Part, index: int, out: Path) -> Record:
    """One part's documents, tidied and filtered, written as they come."""
    tally, read, keys = Counter(part.troubles), Counter[str](), bytearray()

    def kept() -> Iterator[Document]:
        for document in reader.documents(part, tally):
            text = repaired(tidy(document.text)) if filters.repair else tidy(document.text)
            size = len(text)
            read.update({"documents": 1, "short": int(size < SHORT), "characters": size})
            if reason := reason_to_drop(text, filters):
                tally[reason] += 1
                read["dropped"] += size
                continue
            keys.extend(text_key(text) if name == STAGED else b"")
            yield document._replace(text=text)

    record = _written(out, name.format(index), kept())
    if keys:
        entry = committed_file(out, KEYS.format(index), lambda path: path.write_bytes(keys))
        record["files"].append(entry)
    return {**record, "dropped": dict(sorted(tally.items())), "read": dict(read)}


def _written(out: Path, name: str, documents: Iterator[Document]) -> Record:
    """Commit documents as they come, if there are any: the file's entry and what is in it."""
    measured, files = Counter[str](), []

    def counted() -> Iterator[Document]:
        for document in documents:
            sizes = 1, len(document.text), len(document.text.encode())
            measured.update(dict(zip(MEASURES, sizes, strict=True)))
            yield document

    for first in (given := counted()):
        write = partial(write_parquet, documents=chain([first], given))
        files.append(committed_file(out, name, write))
    return {"files": files, **{name: measured[name] for name in MEASURES}}


class _Enough:
    """Says when the parts read so far hold as many documents as the limit allows."""

    def __init__(self, filters: Filters) -> None:
        self.filters = filters
        self.seen: set[bytes] = set()
        self.count = 0

    def after(self, out: Path, record: Record) -> bool:
        if self.filters.limit is None:
            return False
        self.count += record["documents"]
        if self.filters.dedup and record["files"]:
            keys = _file(out, record, ".keys").read_bytes()
            self.seen.update(keys[i : i + KEY.itemsize] for i in range(0, len(keys), KEY.itemsize))
            self.count = len(self.seen)
        return self.count >= self.filters.limit


def _file(out: Path, record: Record, suffix: str) -> Path:
    (name,) = (entry["name"] for entry in record["files"] if entry["name"].endswith(suffix))
    return out / str(name)


def _publish(build: Build, filters: Filters, read: list[Record], pool: Executor) -> list[Record]:
    """Copy the staged parts without repeated documents and without what is past the limit."""
    staged = [record for record in read if record["files"]]
    if filters.dedup:
        keep = first_occurrences([_file(build.out, record, ".keys") for record in staged])
    else:
        keep = [np.ones(record["documents"], dtype=bool) for record in staged]
    parts = []
    left = filters.limit
    for record, rows in zip(staged, keep, strict=True):
        unique = np.flatnonzero(rows)
        chosen = unique[:left]
        left = None if left is None else left - len(chosen)
        dropped = {"duplicate": int(np.sum(~rows)), "past the limit": len(unique) - len(chosen)}
        parts.append((_file(build.out, record, ".parquet"), chosen, dropped))
    made = []
    with progress("publishing") as update:
        for record in build.make("publish", parts, _copy, pool, ahead=PARTS_AHEAD):
            made.append(record)
            update(len(made) / len(parts), f"{len(made):,} files")
    return made


def _copy(part: tuple[Path, NDArray[np.int64], dict[str, int]], index: int, out: Path) -> Record:
    staged, rows, dropped = part
    chosen = set(rows.tolist())
    read = enumerate(read_parquet([Slice(staged)]))
    record = _written(out, FINAL.format(index), (one for row, one in read if row in chosen))
    return {**record, "dropped": {reason: count for reason, count in dropped.items() if count}}


def _summary(read: list[Record], made: list[Record]) -> dict[str, Any]:
    tally = Counter[str]()
    for record in read if made is read else [*read, *made]:
        tally.update(record["dropped"])
    dropped = {reason: tally[reason] for reason in sorted(tally) if not is_note(reason)}
    notes = {note: tally[note] for note in sorted(tally) if is_note(note)}
    totals = {name: sum(record[name] for record in made) for name in MEASURES}
    files = [entry for record in made for entry in record["files"]]
    return {**totals, "dropped": dropped, "notes": notes, "files": files}


def is_note(reason: str) -> bool:
    """Whether a count is of something noticed rather than left out."""
    return reason.startswith("note: ")


def print_summary(out: Path, manifest: dict[str, Any]) -> None:
    """Say what came out, and what did not and why."""
    print(
        f"{out}: {manifest['documents']:,} documents, "
        f"{manifest['text_bytes'] / 1e6:,.1f} MB of text in {len(manifest['files']):,} files"
    )
    for reason, count in sorted(manifest["dropped"].items(), key=lambda item: -item[1]):
        print(f"  {count:>10,}  {reason}")
    for note, count in manifest["notes"].items():
        print(f"{note} ({count:,})" if count > 1 else note)
    if not manifest["documents"]:
        print("note: no document was kept; look at the reasons above")

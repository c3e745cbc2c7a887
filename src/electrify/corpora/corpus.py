"""Turn raw sources into documents: `electrify corpus KIND SOURCE… --out DIR`.

Every kind takes the same path: its reader splits the sources into parts, workers read, tidy and
filter the documents of a part and commit them as one Parquet file, and the manifest is written
last. Deduplication and a limit depend on all documents in order, so with them the parts are staged
first, then copied without the dropped documents.
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
from electrify.corpora.archive import count_unread, source_fingerprint
from electrify.corpora.changes import SourcesChanged, Watched
from electrify.corpora.clean import Filters, reason_to_drop, repair_unicode, tidy
from electrify.corpora.document import (
    SHORT_DOCUMENT,
    Document,
    HasAdvice,
    HasFingerprints,
    Part,
    Reader,
    Slice,
    read_parquet,
    write_parquet,
)
from electrify.corpora.duplicates import KEY, first_occurrences, text_key
from electrify.corpora.troubles import NOTE
from electrify.errors import UserError, needs
from electrify.jobs import executor
from electrify.progress import progress
from electrify.storage.build import Build, Record, committed_file
from electrify.storage.commit import read_manifest


class CorpusKind(NamedTuple):
    """The reader of a kind (module:class), a description of its sources, and an example."""

    reader: str
    says: str
    source: str


KINDS = {
    "wikipedia": CorpusKind(
        "wikipedia:Wikipedia",
        "a MediaWiki dump (.xml, .bz2, .gz)",
        "enwiki-latest-pages-articles-multistream.xml.bz2",
    ),
    "gutenberg": CorpusKind(
        "gutenberg:Gutenberg",
        "Project Gutenberg books: a folder or zip of .txt files",
        "Gutenberg.zip",
    ),
    "openwebtext": CorpusKind(
        "openwebtext:OpenWebText",
        "the original OpenWebText archive, or a folder of its .xz tar files",
        "openwebtext.tar.xz",
    ),
    "text": CorpusKind(
        "plaintext:Text",
        "plain text, compressed or not, split at blank lines or by file",
        "my_texts/",
    ),
    "jsonl": CorpusKind(
        "plaintext:JsonLines", "one JSON object per line, compressed or not", "my.jsonl.gz"
    ),
    "csv": CorpusKind(
        "table:Csv",
        "CSV or TSV files with a text column, compressed or not",
        "my.csv --text review",
    ),
    "parquet": CorpusKind("hub:Parquet", "local Parquet files", "my_table.parquet"),
    "hub": CorpusKind(
        "hub:Hub",
        "a Parquet dataset on the Hugging Face Hub, streamed",
        "wikimedia/wikipedia --subset 20231101.vi",
    ),
    "docstrings": CorpusKind(
        "docstrings:Docstrings",
        "docstrings of installed Python packages; no download needed",
        "",
    ),
}

FINAL = "documents-{:05d}.parquet"
STAGED = ".parts/read/{:05d}.parquet"
KEYS = ".parts/read/{:05d}.keys"
PARTS_AHEAD = 8  # parts read ahead, of about 16 MB each
MEASURES = ("documents", "characters", "text_bytes")


@dataclass(frozen=True)
class Corpus(config.AcceptsTextPaths):
    """Turn raw sources into documents."""

    sources: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="SOURCE…", help_behavior_hint="(required)"),
    ]
    """Files or folders to read; hub: dataset names; docstrings: package names."""
    out: Path
    """Folder to create."""
    reader: Any = None
    filters: Annotated[Filters, tyro.conf.arg(name="")] = field(default_factory=Filters)
    workers: str = "0"
    """Number of processes (0: one per core), or the address of a Dask scheduler."""


def settings_type(kind: str) -> type[Corpus]:
    """Return the settings of one kind of corpus: the common options and its own."""
    reader = config.named(f"electrify.corpora.{KINDS[kind].reader}")
    options: Any = Annotated[reader, tyro.conf.arg(name="")]
    fields = [("reader", options, field(default_factory=reader))]
    return make_dataclass(
        reader.__name__, fields, bases=(Corpus,), frozen=True, namespace={"__doc__": reader.__doc__}
    )


def corpus(settings: Corpus) -> dict[str, Any]:
    """Build the documents and return their manifest."""
    needs("pyarrow", extra="data", why="writing documents")  # before the sources are hashed
    refuse_output_in_source(settings.out, _paths(settings.sources))
    # The sources of a reader without suffixes are names; those of the Hub may be folders.
    watched = Watched(_paths(settings.sources) if settings.reader.suffixes else [])
    with watched.unchanged():
        fingerprints = _fingerprints(settings.reader, settings.sources)
    identity = {
        "settings": {
            "kind": type(settings.reader).__name__,
            "reader": config.to_dict(settings.reader),
            "filters": config.to_dict(settings.filters),
        },
        "sources": fingerprints,
    }
    with Build(settings.out, "documents", identity, files=["documents-*.parquet"]) as build:
        if build.finished:
            print(f"{settings.out} is already made with these settings; nothing to do")
            return read_manifest(settings.out, "documents")
        build.keep_parts_of(watched.fingerprint)
        build.save_settings(config.to_toml(settings, without=("out", "workers")))
        needs_all = settings.filters.dedup or settings.filters.limit is not None
        try:
            with watched.unchanged(), executor(settings.workers) as pool:
                read = _read_all(build, settings, pool, STAGED if needs_all else FINAL)
                written = _publish(build, settings.filters, read, pool) if needs_all else read
        except UserError as error:
            if isinstance(error, SourcesChanged):
                build.discard()
            build.withdraw()
            raise
        unread = count_unread(_paths(settings.sources), settings.reader.suffixes)
        manifest = build.finish(_summary(read, written, unread))
    print_summary(settings.out, manifest)
    if isinstance(settings.reader, HasAdvice):
        # "read" is absent in the records of an earlier version
        counts = sum((Counter(record.get("read", {})) for record in read), Counter[str]())
        if note := settings.reader.advice(counts):
            print(f"note: {note}")
    return manifest


def _fingerprints(reader: Reader, sources: Sequence[str]) -> list[dict[str, Any]]:
    if isinstance(reader, HasFingerprints):
        return reader.fingerprints(_paths(sources))
    if not sources:
        raise UserError("no sources given", got="none", fix="name the files or folders to read")
    for source in sources:
        if not Path(source).exists():
            raise UserError(f"no such file or folder: {source}", got=source, fix="check the path")
    fingerprints = []
    with progress("hashing sources") as update:
        for number, path in enumerate(_paths(sources)):
            update(number / len(sources), path.name)
            fingerprints.append(source_fingerprint(path))
    return fingerprints


def refuse_output_in_source(out: Path, sources: Sequence[Path]) -> None:
    """Refuse an output inside a source: the next run would read it as text."""
    out = Path(os.path.realpath(out))  # unlike resolve, allows circular links
    for source in (Path(os.path.realpath(source)) for source in sources if source.exists()):
        if source in out.parents:
            raise UserError(
                "--out is inside a source",
                got=f"{out} is in {source}",
                fix="choose an --out folder outside the source; nothing was changed",
            )


def _paths(sources: Sequence[str]) -> list[Path]:
    return [Path(source) for source in sources]


def _read_all(build: Build, settings: Corpus, pool: Executor, name: str) -> list[Record]:
    """Read the parts in order until the sources end or the limit is reached."""
    limit, dedup = settings.filters.limit, settings.filters.dedup
    fractions: list[float | None] = []
    records: list[Record] = []
    unique: set[bytes] = set()
    documents, megabytes = 0, 0.0

    def parts() -> Iterator[Part]:
        for part in settings.reader.parts(_paths(settings.sources)):
            fractions.append(part.fraction)
            yield part

    work = partial(_read, settings.reader, settings.filters, name)
    made = build.make("read", parts(), work, pool, ahead=PARTS_AHEAD)
    with progress("reading") as update, closing(made):
        for record in made:
            records.append(record)
            documents += record["documents"]
            megabytes += record["text_bytes"] / 1e6
            fraction = fractions[len(records) - 1]
            update(fraction, f"{documents:,} documents, {megabytes:,.0f} MB")
            if limit is not None and dedup and record["files"]:
                keys = _file(build.out, record, ".keys").read_bytes()
                unique.update(keys[i : i + KEY.itemsize] for i in range(0, len(keys), KEY.itemsize))
            if limit is not None and (len(unique) if dedup else documents) >= limit:
                break
    return records


def _read(reader: Reader, filters: Filters, name: str, part: Part, index: int, out: Path) -> Record:
    """Tidy, filter and write the documents of a part one at a time."""
    tally, read, keys = Counter(part.problems), Counter[str](), bytearray()

    def kept() -> Iterator[Document]:
        for document in reader.documents(part, tally):
            text = repair_unicode(tidy(document.text)) if filters.repair else tidy(document.text)
            size = len(text)
            read.update({"documents": 1, "short": int(size < SHORT_DOCUMENT), "characters": size})
            if reason := reason_to_drop(text, filters):
                tally[reason] += 1
                read["dropped"] += size
                continue
            keys.extend(text_key(text) if name == STAGED else b"")
            yield document._replace(text=text)

    record = _write(out, name.format(index), kept())
    if keys:
        entry = committed_file(out, KEYS.format(index), lambda path: path.write_bytes(keys))
        record["files"].append(entry)
    return {**record, "dropped": dict(sorted(tally.items())), "read": dict(read)}


def _write(out: Path, name: str, documents: Iterator[Document]) -> Record:
    """Commit documents one at a time, if any; return the entry of the file and their sizes."""
    totals, files = Counter[str](), []

    def counted() -> Iterator[Document]:
        for document in documents:
            sizes = 1, len(document.text), len(document.text.encode())
            totals.update(dict(zip(MEASURES, sizes, strict=True)))
            yield document

    for first in (given := counted()):
        write = partial(write_parquet, documents=chain([first], given))
        files.append(committed_file(out, name, write))
    return {"files": files, **{name: totals[name] for name in MEASURES}}


def _file(out: Path, record: Record, suffix: str) -> Path:
    (name,) = (entry["name"] for entry in record["files"] if entry["name"].endswith(suffix))
    return out / str(name)


def _publish(build: Build, filters: Filters, read: list[Record], pool: Executor) -> list[Record]:
    """Copy the staged parts without duplicates and without documents past the limit."""
    staged = [record for record in read if record["files"]]
    if filters.dedup:
        keep = first_occurrences([_file(build.out, record, ".keys") for record in staged])
    else:
        keep = [np.ones(record["documents"], dtype=bool) for record in staged]
    parts = []
    remaining = filters.limit
    for record, rows in zip(staged, keep, strict=True):
        unique = np.flatnonzero(rows)
        chosen = unique[:remaining]
        remaining = None if remaining is None else remaining - len(chosen)
        dropped = {"duplicate": int(np.sum(~rows)), "past the limit": len(unique) - len(chosen)}
        parts.append((_file(build.out, record, ".parquet"), chosen, dropped))
    made = []
    with progress("copying") as update:
        for record in build.make("publish", parts, _copy, pool, ahead=PARTS_AHEAD):
            made.append(record)
            update(len(made) / len(parts), f"{len(made):,} files")
    return made


def _copy(part: tuple[Path, NDArray[np.int64], dict[str, int]], index: int, out: Path) -> Record:
    staged, rows, dropped = part
    chosen = set(rows.tolist())
    read = enumerate(read_parquet([Slice(staged)]))
    record = _write(out, FINAL.format(index), (document for row, document in read if row in chosen))
    return {**record, "dropped": {reason: count for reason, count in dropped.items() if count}}


def _summary(read: list[Record], written: list[Record], unread: Counter[str]) -> dict[str, Any]:
    tally = Counter(unread)
    for record in read if written is read else [*read, *written]:
        tally.update(record["dropped"])
    dropped = {reason: tally[reason] for reason in sorted(tally) if not is_note(reason)}
    notes = {note: tally[note] for note in sorted(tally) if is_note(note)}
    totals = {name: sum(record[name] for record in written) for name in MEASURES}
    files = [entry for record in written for entry in record["files"]]
    return {**totals, "dropped": dropped, "notes": notes, "files": files}


def is_note(reason: str) -> bool:
    """Return whether a reason describes something noticed rather than dropped."""
    return reason.startswith(NOTE)


def print_summary(out: Path, manifest: dict[str, Any]) -> None:
    """Print what was kept, and what was dropped and why."""
    print(
        f"{out}: {manifest['documents']:,} documents, "
        f"{manifest['text_bytes'] / 1e6:,.1f} MB of text in {len(manifest['files']):,} files"
    )
    for reason, count in sorted(manifest["dropped"].items(), key=lambda item: -item[1]):
        print(f"  {count:>10,}  {reason}")
    for note, count in manifest["notes"].items():
        print(f"{note} ({count:,})" if count > 1 else note)
    if not manifest["documents"]:
        print("note: no document was kept; see the reasons above")

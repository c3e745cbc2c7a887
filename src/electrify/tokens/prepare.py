"""Documents to token shards: `electrify prepare`."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table
from tokenizers import Tokenizer

from electrify import config
from electrify.corpora.document import Document, Slice, describe_documents, read_parquet, row_groups
from electrify.errors import UserError
from electrify.jobs import executor
from electrify.progress import progress
from electrify.storage.build import Build, Record, committed_file
from electrify.storage.commit import read_manifest
from electrify.tokens import examples, store, tokenizer
from electrify.tokens.encoder import LineEncoder
from electrify.tokens.examples import Example, ExampleFrame, Layout, Overflow
from electrify.tokens.splits import (
    SPLITS,
    Splits,
    may_be_too_few,
    number_of,
    splits_for,
)

ROW_GROUPS_PER_SHARD = 4  # of 4 million characters each: shards of a few million tokens
SHORTEST_LENGTH = 8
LONGEST_LENGTH = 65_535
COUNTED = ("documents", "examples", "tokens", "text_tokens", "dropped_tokens", "unknown_tokens")
REPORTED = ("documents", "examples", "tokens", "mean length", "dropped", "unknown")


@dataclass(frozen=True)
class Prepare(config.AcceptsTextPaths):
    """Turn documents into token shards for training."""

    docs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DOCS…")]
    """Folders of documents that `electrify corpus` made."""
    tokenizer: str
    """A tokenizer folder, a vocab.txt or a Hub name."""
    out: Path
    """The folder to make."""
    length: int = 128
    """The most tokens an example has, special tokens included."""
    layout: Layout = "electra"
    """electra: two segments of adjacent text. pairs: two random lines of a document. packed: whole
    documents one after another; attention crosses them, and all after the first have segment 1."""
    overflow: Overflow = "carry"
    """What does not fit begins the next example (carry), or is lost as officially (drop)."""
    validation: float = 0.01
    """Share of documents held out for evaluation during training; of few documents, their ends."""
    test: float = 0.01
    """Share of documents held out for the end."""
    seed: int = 0
    """Seed of the segment lengths and pairings."""
    workers: str = "0"
    """Processes (0: one per core), or the address of a Dask scheduler."""


@dataclass(frozen=True)
class ShardJob:
    """What a worker needs to know, sent once with each part."""

    settings: Prepare
    tokenizer_json: str
    special: tokenizer.SpecialIds
    vocab_size: int
    splits: Splits


@dataclass
class SplitExamples:
    """The examples of one split of one part, and what was counted on the way."""

    examples: list[Example] = field(default_factory=list)
    documents: int = 0
    text_tokens: int = 0


def prepare(settings: Prepare) -> dict[str, Any]:
    """Make the shards and return their manifest."""
    _check(settings)
    loaded = tokenizer.load_tokenizer(settings.tokenizer)
    print(f"tokenizer {settings.tokenizer}: {tokenizer.description(loaded)}")
    inputs = [describe_documents(folder) for folder in settings.docs]
    identity = {
        "settings": config.to_dict(settings, without=("docs", "tokenizer", "out", "workers")),
        "tokenizer": {"vocab_size": loaded.vocab_size, "sha256": loaded.fingerprint},
        "inputs": inputs,
    }
    with Build(settings.out, "shards", identity, folders=("tokenizer",)) as build:
        if build.finished:
            print(f"{settings.out} is already made with these settings; nothing to do")
            return read_manifest(settings.out, "shards")
        build.save_settings(config.to_toml(settings, without=("out", "workers")))
        manifest = _make(build, settings, loaded)
    print_shards(manifest)
    return manifest


def _make(build: Build, settings: Prepare, loaded: tokenizer.LoadedTokenizer) -> dict[str, Any]:
    saved = tokenizer.save_tokenizer(
        loaded, settings.out / "tokenizer", max(512, settings.length), within=settings.out
    )
    groups = [group for folder in settings.docs for group in row_groups(folder)]
    documents = sum(entry["documents"] for entry in build.identity["inputs"])
    splits = _splits(settings, groups, documents)
    job = ShardJob(settings, loaded.backend.to_str(), loaded.special, loaded.vocab_size, splits)
    parts = [
        tuple(groups[start : start + ROW_GROUPS_PER_SHARD])
        for start in range(0, len(groups), ROW_GROUPS_PER_SHARD)
    ]
    records, tokens = [], 0
    with executor(settings.workers) as pool, progress("shards") as update:
        work = partial(_make_shards, job)
        for record in build.make("shards", parts, work, pool, ahead=64):
            records.append(record)
            tokens += sum(entry["tokens"] for entry in record["files"])
            update(len(records) / len(parts), f"{tokens / 1e6:,.1f} M tokens")
    summary = _summary(records, settings)
    if ends := splits.parts:
        on_progress = {name: getattr(ends, name) for name in ("documents", "validation", "test")}
        summary = {"held_out_parts": on_progress, **summary}
    return build.finish({**summary, "files": [*saved, *summary["files"]]})


def _check(settings: Prepare) -> None:
    if not SHORTEST_LENGTH <= settings.length <= LONGEST_LENGTH:
        raise UserError(
            f"--length is too {'small' if settings.length < SHORTEST_LENGTH else 'large'}",
            got=f"{settings.length}",
            fix=f"{SHORTEST_LENGTH} to {LONGEST_LENGTH:,}; 128 and 512 are usual",
        )
    validation_batches = settings.validation + settings.test
    if not (
        settings.validation >= 0 and settings.test >= 0 and validation_batches < 1
    ):  # NaN is neither
        raise UserError(
            "--validation and --test are shares of the documents",
            got=f"{settings.validation} and {settings.test}",
            fix="give each 0 or more, and less than 1 together",
        )
    if settings.layout == "packed" and settings.overflow == "drop":
        raise UserError(
            "the packed layout has nothing to drop",
            got="--layout packed --overflow drop",
            fix="leave --overflow out: a document goes on in the next example",
        )
    if not settings.docs:
        raise UserError("no documents given", got="nothing", fix="electrify prepare DOCS --out …")


def _splits(settings: Prepare, groups: Sequence[Slice], documents: int) -> Splits:
    """How to split the text; of few documents, after a look at how much each split would get."""
    shares = settings.validation, settings.test
    if not may_be_too_few(documents, *shares):
        return Splits(*shares)
    return splits_for((document.text for document in read_parquet(groups)), *shares)


def _make_shards(job: ShardJob, part: Sequence[Slice], index: int, out: Path) -> Record:
    with without_collection():
        splits = split_examples(job, read_parquet(part))
    files, counts = [], {}
    for name, split in splits.items():
        arrays = store.to_arrays(split.examples, job.vocab_size)
        counts[name] = _count(split, arrays, job.special)
        if split.examples:
            write = partial(store.write_shard, arrays=arrays)
            entry = committed_file(out, f"{name}-{index:05d}.safetensors", write)
            files.append({**entry, "split": name, **store.shard_entry(arrays)})
    return {"files": files, "counts": counts}


@contextmanager
def without_collection() -> Iterator[None]:
    """Millions of ids live in lists, but in no cycle: looking for cycles would cost a tenth."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def split_examples(job: ShardJob, documents: Iterator[Document]) -> dict[str, SplitExamples]:
    """The examples of some documents, by split."""
    settings = job.settings
    encoder = _encoder(job.tokenizer_json)
    frame = ExampleFrame(job.special.cls, job.special.sep)
    splits = {name: SplitExamples() for name in SPLITS}
    waiting: dict[str, list[list[list[int]]]] = {name: [] for name in SPLITS}
    for document in documents:
        for name, text in job.splits.of(document.text):
            lines = encoder.lines(text)
            splits[name].documents += 1
            splits[name].text_tokens += sum(map(len, lines))
            if settings.layout == "packed":
                waiting[name].append(lines)
                continue
            build = examples.electra if settings.layout == "electra" else examples.line_pairs
            rng = Random(number_of(text, f"examples {settings.seed}"))
            splits[name].examples += build(lines, settings.length, rng, frame, settings.overflow)
    for name, texts in waiting.items():
        splits[name].examples += examples.packed(texts, settings.length, frame)
    return splits


@lru_cache(maxsize=1)
def _encoder(tokenizer_json: str) -> LineEncoder:
    """The encoder of this process, kept because what it has learned serves every part."""
    backend = Tokenizer.from_str(tokenizer_json)
    backend.encode_special_tokens = True
    return LineEncoder(backend)


def _count(
    split: SplitExamples, arrays: dict[str, NDArray[Any]], special: tokenizer.SpecialIds
) -> dict[str, Any]:
    tokens, lengths = arrays["tokens"], np.diff(arrays["offsets"])
    framing = np.count_nonzero((tokens == special.cls) | (tokens == special.sep))
    unknown = 0 if special.unk is None else np.count_nonzero(tokens == special.unk)
    return {
        "documents": split.documents,
        "examples": len(lengths),
        "tokens": len(tokens),
        "text_tokens": split.text_tokens,
        "dropped_tokens": split.text_tokens - (len(tokens) - int(framing)),
        "unknown_tokens": int(unknown),
        "lengths": np.bincount(lengths, minlength=1).tolist(),
    }


def _summary(records: list[Record], settings: Prepare) -> dict[str, Any]:
    """The manifest's account of all parts: their files, and what was counted in each split."""
    counts: dict[str, dict[str, Any]] = {}
    for name in SPLITS:
        parts = [record["counts"][name] for record in records]
        lengths = np.zeros(settings.length + 1, dtype=np.int64)
        for part in parts:
            lengths[: len(part["lengths"])] += part["lengths"]
        counts[name] = {
            **{key: sum(part[key] for part in parts) for key in COUNTED},
            "lengths": lengths.tolist(),
        }
    return {"files": [entry for record in records for entry in record["files"]], "splits": counts}


def print_shards(manifest: dict[str, Any]) -> None:
    """Print what is in the shards, and what a user should know about it."""
    table = Table("split", *(Column(n, justify="right") for n in REPORTED), box=None)
    for name, split in manifest["splits"].items():
        table.add_row(
            name,
            f"{split['documents']:,}",
            f"{split['examples']:,}",
            f"{split['tokens']:,}",
            f"{split['tokens'] / max(1, split['examples']):.1f}",
            f"{split['dropped_tokens'] / max(1, split['text_tokens']):.2%}",
            f"{split['unknown_tokens'] / max(1, split['tokens']):.3%}",
        )
    Console().print(table)
    for note in examples.notes(manifest):
        print(note)
    if parts := manifest.get("held_out_parts"):
        ends = [f"{parts[name]:.2%} for {name}" for name in ("validation", "test") if parts[name]]
        print(
            f"note: few documents, so the ends of {parts['documents']:,} of them are held out: "
            f"{' and '.join(ends)}"
        )
    for name in ("train", "validation"):
        if not manifest["splits"][name]["examples"]:
            fix = "add text" if name == "train" else "give a larger --validation, or add text"
            print(f"note: there are no {name} examples; {fix}")

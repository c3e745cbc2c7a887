"""Turn documents into token shards: `electrify prepare`."""

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
from electrify.tokens.held_out import check_fractions, splits_of_documents
from electrify.tokens.splits import SPLITS, Splits, hash_text

ROW_GROUPS_PER_SHARD = 4  # of 4 million characters each, so a shard has a few million tokens
SHARD_FILES = (*(f"{split}-*.safetensors" for split in SPLITS), "tokenizer/*")
SHORTEST_LENGTH = 8
LONGEST_LENGTH = 65_535
COUNTED = ("documents", "examples", "tokens", "text_tokens", "dropped_tokens", "unknown_tokens")
REPORTED = ("documents", "examples", "tokens", "mean length", "dropped", "unknown")


@dataclass(frozen=True)
class Prepare(config.AcceptsTextPaths):
    """Turn documents into token shards for training."""

    docs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DOCS…", help_behavior_hint="(required)"),
    ]
    """Folders of documents made by `electrify corpus`."""
    tokenizer: str
    """A tokenizer folder, a vocab.txt or a model name on the Hugging Face Hub."""
    out: Path
    """Output folder."""
    length: int = 128
    """Maximum number of tokens per example, including special tokens."""
    layout: Layout = "electra"
    """electra: two segments of adjacent text. pairs: two random lines of a document.
    packed: consecutive documents; attention crosses boundaries; segment id 1 after the first.
    """
    overflow: Overflow = "carry"
    """Carry tokens that do not fit to the next example, or drop them as the official code does."""
    validation: float = 0.01
    """Fraction of documents for validation; if there are few, the ends of some are used instead."""
    test: float = 0.01
    """Fraction of documents for the test set, for a final evaluation."""
    seed: int = 0
    """Random seed for segment lengths and line pairs."""
    workers: str = "0"
    """Number of processes (0: one per core), or the address of a Dask scheduler."""


@dataclass(frozen=True)
class ShardJob:
    """What a worker needs besides its part of the documents."""

    settings: Prepare
    tokenizer_json: str
    special: tokenizer.SpecialIds
    vocab_size: int
    splits: Splits


@dataclass
class SplitExamples:
    """The examples of one split of one part, with counts of its documents and text tokens."""

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
    with Build(settings.out, "shards", identity, files=SHARD_FILES) as build:
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
    splits = splits_of_documents(settings.docs, settings.validation, settings.test)
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
        held_out = {name: getattr(ends, name) for name in ("documents", "validation", "test")}
        summary = {"held_out_parts": held_out, **summary}
    return build.finish({**summary, "files": [*saved, *summary["files"]]})


def _check(settings: Prepare) -> None:
    if not SHORTEST_LENGTH <= settings.length <= LONGEST_LENGTH:
        raise UserError(
            f"--length is too {'small' if settings.length < SHORTEST_LENGTH else 'large'}",
            got=f"{settings.length}",
            fix=f"use {SHORTEST_LENGTH} to {LONGEST_LENGTH:,}; 128 and 512 are common",
        )
    check_fractions(settings.validation, settings.test)
    if settings.layout == "packed" and settings.overflow == "drop":
        raise UserError(
            "the packed layout never drops tokens",
            got="--layout packed --overflow drop",
            fix="omit --overflow: a document continues in the next example",
        )
    if not settings.docs:
        raise UserError("no documents given", got="nothing", fix="electrify prepare DOCS --out …")


def _make_shards(job: ShardJob, part: Sequence[Slice], index: int, out: Path) -> Record:
    with garbage_collection_disabled():
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
def garbage_collection_disabled() -> Iterator[None]:
    """Disable the search for reference cycles, which costs 10 % of the time and finds none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def split_examples(job: ShardJob, documents: Iterator[Document]) -> dict[str, SplitExamples]:
    """Return the examples of documents, by split."""
    settings = job.settings
    encoder = _encoder(job.tokenizer_json)
    frame = ExampleFrame(job.special.cls, job.special.sep)
    splits = {name: SplitExamples() for name in SPLITS}
    to_pack: dict[str, list[list[list[int]]]] = {name: [] for name in SPLITS}
    for document in documents:
        for name, text in job.splits.of(document.text):
            lines = encoder.lines(text)
            splits[name].documents += 1
            splits[name].text_tokens += sum(map(len, lines))
            if settings.layout == "packed":
                to_pack[name].append(lines)
                continue
            build = examples.electra if settings.layout == "electra" else examples.line_pairs
            rng = Random(hash_text(text, f"examples {settings.seed}"))
            splits[name].examples += build(lines, settings.length, rng, frame, settings.overflow)
    for name, texts in to_pack.items():
        splits[name].examples += examples.packed(texts, settings.length, frame)
    return splits


@lru_cache(maxsize=1)
def _encoder(tokenizer_json: str) -> LineEncoder:
    """Return the encoder of this process, whose word cache is shared by all parts."""
    backend = Tokenizer.from_str(tokenizer_json)
    backend.encode_special_tokens = True
    return LineEncoder(backend)


def _count(
    split: SplitExamples, arrays: dict[str, NDArray[Any]], special: tokenizer.SpecialIds
) -> dict[str, Any]:
    tokens, lengths = arrays["tokens"], np.diff(arrays["offsets"])
    frame_tokens = np.count_nonzero((tokens == special.cls) | (tokens == special.sep))
    unknown = 0 if special.unk is None else np.count_nonzero(tokens == special.unk)
    return {
        "documents": split.documents,
        "examples": len(lengths),
        "tokens": len(tokens),
        "text_tokens": split.text_tokens,
        "dropped_tokens": split.text_tokens - (len(tokens) - int(frame_tokens)),
        "unknown_tokens": int(unknown),
        "lengths": np.bincount(lengths, minlength=1).tolist(),
    }


def _summary(records: list[Record], settings: Prepare) -> dict[str, Any]:
    """Return the files of all parts and the counts of each split, for the manifest."""
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
    """Print the counts of each split, and notes for the user."""
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
            f"note: few documents, so the ends of {parts['documents']:,} of them are held out "
            f"instead: {' and '.join(ends)}"
        )
    for name in ("train", "validation"):
        if not manifest["splits"][name]["examples"]:
            fix = "add text" if name == "train" else "use a larger --validation, or add text"
            print(f"note: there are no {name} examples; {fix}")

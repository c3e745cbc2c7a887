"""Look at what was made: `electrify show DIR`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from electrify.commit import read_json, verify
from electrify.corpora.document import read_parquet, row_groups
from electrify.errors import DamagedError, UserError
from electrify.tokens import tokenizer
from electrify.tokens.prepare import report
from electrify.tokens.store import StoredExample, check_split

COLOURS = ("cyan", "yellow", "green", "magenta")  # of the segments, in turn
LONGEST_DOCUMENT = 1_500


@dataclass(frozen=True)
class Show:
    """Print examples of a folder of documents or shards, or check every file's checksum."""

    folder: Annotated[Path, tyro.conf.Positional]
    """A folder that `electrify corpus` or `electrify prepare` made."""
    count: int = 3
    """How many to print."""
    split: Literal["train", "validation", "test"] = "train"
    """Which examples of shards."""
    seed: int | None = None
    """Choose at random with this seed; without it, the first ones."""
    ids: bool = False
    """Print token ids too."""
    verify: bool = False
    """Check every file against its SHA-256 instead."""


def show(settings: Show) -> None:
    """Print what is asked for."""
    manifest = _manifest(settings.folder)
    if settings.verify:
        _verify(settings.folder, manifest)
        return
    console = Console(soft_wrap=True, highlight=False)
    for item in _SHOWN[manifest["kind"]](settings):
        console.print(item)
        console.print()
    if manifest["kind"] == "shards":
        report(manifest)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    manifest = read_json(path) if path.is_file() else {}
    if manifest.get("kind") not in _SHOWN:
        raise UserError(
            f"nothing to show in {folder}",
            got=manifest.get("kind", "no manifest.json" if folder.is_dir() else "no such folder"),
            fix="give a finished folder of documents or shards",
        )
    return dict(manifest)


def _verify(folder: Path, manifest: dict[str, Any]) -> None:
    faults = verify(folder, manifest)
    if faults:
        raise DamagedError(
            f"{folder}: {len(faults)} of {len(manifest['files'])} files are not what was written",
            got="\n       ".join(faults),
            fix="delete the folder and make it again, or restore these files",
        )
    size = sum(entry["bytes"] for entry in manifest["files"])
    print(f"{folder}: all {len(manifest['files']):,} files are as written ({size / 1e6:,.1f} MB)")


def _documents(settings: Show) -> Iterator[Text]:
    groups = row_groups(settings.folder)
    if settings.seed is None:
        documents = read_parquet(groups)
    else:
        rng = Random(settings.seed)
        documents = (
            rng.choice(list(read_parquet([rng.choice(groups)]))) for _ in groups and iter(int, 1)
        )
    for _, document in zip(range(settings.count), documents, strict=False):
        heading = " · ".join(filter(None, (document.id, document.title, document.label)))
        body = document.text[:LONGEST_DOCUMENT]
        more = len(document.text) - len(body)
        text = Text(f"{heading}\n", style="bold").append(body, style="not bold")
        yield text.append(f"\n… and {more:,} characters more", style="dim") if more else text


def _examples(settings: Show) -> Iterator[Text]:
    examples = check_split(settings.folder, settings.split)
    loaded = tokenizer.load(settings.folder / "tokenizer")
    count = min(settings.count, len(examples))
    chosen: Any = range(count)
    if settings.seed is not None:
        chosen = sorted(Random(settings.seed).sample(range(len(examples)), count))
    for index in chosen:
        example = examples[index]
        segments = len(example.starts) + 1
        heading = f"example {index:,} · {len(example.ids)} tokens · {segments} segments"
        text = Text(f"{heading}\n", style="bold")
        for number, ids in enumerate(_segments(example)):
            decoded = loaded.backend.decode(ids, skip_special_tokens=False)
            text.append(decoded + " ", style=f"not bold {COLOURS[number % len(COLOURS)]}")
        yield text.append(f"\n{example.ids.tolist()}", style="dim") if settings.ids else text


def _segments(example: StoredExample) -> Iterator[list[int]]:
    bounds = [0, *example.starts.tolist(), len(example.ids)]
    for start, stop in pairwise(bounds):
        yield example.ids[start:stop].tolist()


_SHOWN = {"documents": _documents, "shards": _examples}

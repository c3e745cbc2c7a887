"""Print examples of documents and shards, or verify files: `electrify show DIR`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from electrify.config import AcceptsTextPaths, check_minimum
from electrify.corpora.document import documents_at
from electrify.errors import DamagedError, UserError, visible
from electrify.storage.commit import checked_manifest, read_manifest, verify
from electrify.tokens.prepare import print_shards
from electrify.tokens.store import check_split

SEGMENT_COLOURS = ("cyan", "yellow", "green", "magenta")  # used in turn
LONGEST_DOCUMENT = 1_500


@dataclass(frozen=True)
class Show(AcceptsTextPaths):
    """Print examples of documents, shards or a run, or verify every file's checksum.

    For a run, print validation examples with the generator's samples and the discriminator's
    predictions at the newest checkpoint.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """A folder made by `electrify corpus`, `electrify prepare` or `electrify pretrain`."""
    count: int = 3
    """Number of examples to print."""
    split: Literal["train", "validation", "test"] = "train"
    """Split of the shards to print examples from."""
    seed: int | None = None
    """Choose examples at random with this seed; by default, print the first ones."""
    ids: bool = False
    """Also print token ids."""
    verify: bool = False
    """Verify the SHA-256 of every file; print no examples."""


def show_folder(settings: Show) -> None:
    """Print examples of a folder of documents or shards, or verify its files."""
    check_minimum(settings, count=1)
    if not (path := settings.folder / "manifest.json").is_file():
        raise UserError(
            f"nothing to show in {settings.folder}",
            got="no manifest.json" if settings.folder.is_dir() else "no such folder",
            fix="give a finished folder that electrify made",
        )
    manifest = checked_manifest(path)
    if settings.verify:
        _verify(settings.folder, manifest)
        return
    if manifest["kind"] not in _SHOWN:
        raise UserError(
            f"nothing to show in {settings.folder}",
            got=manifest["kind"],
            fix="give a finished folder of documents or shards; --verify works on any folder",
        )
    console = Console(soft_wrap=True, highlight=False)
    for item in _SHOWN[manifest["kind"]](settings):
        console.print(item)
        console.print()
    if manifest["kind"] == "shards":
        print_shards(manifest)


def _verify(folder: Path, manifest: dict[str, Any]) -> None:
    faults = verify(folder, manifest)
    if faults:
        raise DamagedError(
            f"{folder}: {len(faults)} of {len(manifest['files'])} files are damaged",
            got="\n       ".join(faults),
            fix="delete the folder and make it again, or restore these files",
        )
    size = sum(entry["bytes"] for entry in manifest["files"])
    print(f"{folder}: all {len(manifest['files']):,} files are intact ({size / 1e6:,.1f} MB)")


def _documents(settings: Show) -> Iterator[Text]:
    total = read_manifest(settings.folder, "documents")["documents"]
    for document in documents_at(settings.folder, sample_indices(settings, total)):
        names = dict.fromkeys(filter(None, (document.id, document.title, document.label)))
        start = visible(document.text[:LONGEST_DOCUMENT])
        more = len(document.text) - len(start)
        text = Text(visible(" · ".join(names)) + "\n", style="bold").append(start, style="not bold")
        yield text.append(f"\n… and {more:,} more characters", style="dim") if more else text


def sample_indices(settings: Show, total: int) -> Sequence[int]:
    """Return the indices of the items to show: the first ones, or a sample without repeats."""
    count = min(settings.count, total)
    if settings.seed is None:
        return range(count)
    return sorted(Random(settings.seed).sample(range(total), count))


def _examples(settings: Show) -> Iterator[Text]:
    examples = check_split(settings.folder, settings.split)
    loaded = examples.tokenizer()
    for index in sample_indices(settings, len(examples)):
        example = examples[index]
        segments = len(example.starts) + 1
        heading = f"example {index:,} · {len(example.ids)} tokens · {plural(segments, 'segment')}"
        text = Text(f"{heading}\n", style="bold")
        bounds = pairwise([0, *example.starts.tolist(), len(example.ids)])
        for number, (start, stop) in enumerate(bounds):
            ids = example.ids[start:stop].tolist()
            decoded = visible(loaded.backend.decode(ids, skip_special_tokens=False))
            colour = SEGMENT_COLOURS[number % len(SEGMENT_COLOURS)]
            text.append(decoded + " ", style=f"not bold {colour}")
        yield text.append(f"\n{example.ids.tolist()}", style="dim") if settings.ids else text


def plural(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_SHOWN = {"documents": _documents, "shards": _examples}

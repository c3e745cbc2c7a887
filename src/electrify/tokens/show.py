"""Look at what was made: `electrify show DIR`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from electrify.config import AcceptsTextPaths, check_least
from electrify.corpora.document import documents_at
from electrify.errors import DamagedError, UserError
from electrify.storage.commit import checked_manifest, read_manifest, verify
from electrify.tokens.prepare import print_shards
from electrify.tokens.store import StoredExample, check_split

SEGMENT_COLOURS = ("cyan", "yellow", "green", "magenta")  # of the segments, in turn
LONGEST_DOCUMENT = 1_500
# C0 and C1 could command a terminal; directional overrides turn around what follows them.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {
    code: "\ufffd"
    for code in (*range(32), *range(127, 160), *_DIRECTIONS)
    if chr(code) not in "\n\t"
}


@dataclass(frozen=True)
class Show(AcceptsTextPaths):
    """Print examples of documents, shards or a run, or check every file's checksum.

    Of a run: held-out examples as its networks see them, at the newest checkpoint.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """A folder that `electrify corpus`, `electrify prepare` or `electrify pretrain` made."""
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


def show_folder(settings: Show) -> None:
    """Print what is asked for."""
    check_least(settings, count=1)
    manifest = _manifest(settings.folder)
    if settings.verify:
        _verify(settings.folder, manifest)
        return
    if manifest["kind"] not in _SHOWN:
        raise UserError(
            f"nothing to show in {settings.folder}",
            got=manifest["kind"],
            fix="give a finished folder of documents or shards; --verify checks any",
        )
    console = Console(soft_wrap=True, highlight=False)
    for item in _SHOWN[manifest["kind"]](settings):
        console.print(item)
        console.print()
    if manifest["kind"] == "shards":
        print_shards(manifest)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.is_file():
        raise UserError(
            f"nothing to show in {folder}",
            got="no manifest.json" if folder.is_dir() else "no such folder",
            fix="give a finished folder that electrify made",
        )
    return checked_manifest(path)


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
    total = read_manifest(settings.folder, "documents")["documents"]
    for document in documents_at(settings.folder, numbers_to_show(settings, total)):
        names = dict.fromkeys(filter(None, (document.id, document.title, document.label)))
        body = visible(document.text[:LONGEST_DOCUMENT])
        more = len(document.text) - len(body)
        text = Text(visible(" · ".join(names)) + "\n", style="bold").append(body, style="not bold")
        yield text.append(f"\n… and {more:,} characters more", style="dim") if more else text


def numbers_to_show(settings: Show, total: int) -> Sequence[int]:
    """Which of `total` things to show, in order: the first ones, or a sample without repeats."""
    count = min(settings.count, total)
    if settings.seed is None:
        return range(count)
    return sorted(Random(settings.seed).sample(range(total), count))


def _examples(settings: Show) -> Iterator[Text]:
    examples = check_split(settings.folder, settings.split)
    loaded = examples.tokenizer()
    for index in numbers_to_show(settings, len(examples)):
        example = examples[index]
        segments = len(example.starts) + 1
        heading = f"example {index:,} · {len(example.ids)} tokens · {plural(segments, 'segment')}"
        text = Text(f"{heading}\n", style="bold")
        for number, ids in enumerate(_segments(example)):
            decoded = visible(loaded.backend.decode(ids, skip_special_tokens=False))
            colour = SEGMENT_COLOURS[number % len(SEGMENT_COLOURS)]
            text.append(decoded + " ", style=f"not bold {colour}")
        yield text.append(f"\n{example.ids.tolist()}", style="dim") if settings.ids else text


def visible(text: str) -> str:
    """Text in which control characters, which could command the terminal, are replaced."""
    return text.translate(_CONTROLS)


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _segments(example: StoredExample) -> Iterator[list[int]]:
    bounds = [0, *example.starts.tolist(), len(example.ids)]
    for start, stop in pairwise(bounds):
        yield example.ids[start:stop].tolist()


_SHOWN = {"documents": _documents, "shards": _examples}

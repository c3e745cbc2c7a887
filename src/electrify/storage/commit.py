"""A file is committed or it is not there: temporary name, fsync, rename, fsync of the folder."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from electrify.errors import DamagedError, UserError


@contextmanager
def committed(path: Path) -> Iterator[Path]:
    """Write to the path this gives; it becomes `path` only when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        fsync_folder(path.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def left_over(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return temporary files of `committed` for names below a folder, which may be patterns."""
    found = []
    for name in names:
        parent, slash, last = name.rpartition("/")
        for path in folder.glob(f"{parent}{slash}.{last}.*.tmp"):
            before, _, process = path.stem.rpartition(".")
            if process.isdigit() and fnmatchcase(before, f".{last}"):
                found.append(path)
    return found


def fsync_folder(folder: Path) -> None:
    """Make renames in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: Any) -> None:
    """Commit `content` as JSON; the same content always gives the same bytes."""
    with committed(path) as temporary:
        temporary.write_bytes(json_bytes(content))


def defined(value: Any) -> Any:
    """A value as JSON can have it: what is no number, or endless, is null.

    >>> defined({"loss": float("nan"), "bounds": (0.5, float("inf"))})
    {'loss': None, 'bounds': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: defined(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [defined(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_bytes(content: Any) -> bytes:
    """JSON for people to read; the same content always gives the same bytes."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    # a file name may hold bytes that are no characters; as \udcXX, JSON can hold them, too
    return text.encode("utf-8", errors="backslashreplace")


def read_json(path: Path) -> Any:
    """The content of a JSON file that we wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, got: str) -> DamagedError:
    """The error for a file that is not as we wrote it."""
    return DamagedError(
        f"{path} is damaged", got=got, fix="build the folder again, or restore the file"
    )


MOST = 1 << 48  # of anything that is counted: sums of such numbers still fit 64 bits


class Expected(NamedTuple):
    """What a value in a manifest must be."""

    words: str
    fits: Callable[[Any], bool]


TEXT = Expected("a string", lambda value: isinstance(value, str))
TABLE = Expected("an object", lambda value: isinstance(value, dict))
LIST = Expected("a list", lambda value: isinstance(value, list))
NATURAL = Expected("a whole number from 0", lambda value: type(value) is int and 0 <= value < MOST)
NATURALS = Expected(
    "a list of whole numbers from 0",
    lambda value: isinstance(value, list) and all(map(NATURAL.fits, value)),
)
# Text that several examples share makes what was dropped negative.
NUMBER = Expected("a whole number", lambda value: type(value) is int and abs(value) < MOST)
PARTS = Expected(
    "documents and their shares for validation and test",
    lambda value: (
        value is None
        or (
            isinstance(value, dict)
            and all(type(value.get(k)) in (int, float) for k in ("documents", "validation", "test"))
        )
    ),
)

_MANIFEST = {"kind": TEXT, "identity": TABLE, "files": LIST}
_FILE = {"name": TEXT, "bytes": NATURAL, "sha256": TEXT}
_SHARD = {"examples": NATURAL, "tokens": NATURAL, "index_crc32": NATURAL}
_SPLIT = {
    **dict.fromkeys(("documents", "examples", "tokens", "text_tokens", "unknown_tokens"), NATURAL),
    "dropped_tokens": NUMBER,
    "lengths": NATURALS,
}
_OF_KIND: dict[str, dict[str, Expected]] = {
    "documents": {"documents": NATURAL, "characters": NATURAL},
    "shards": {
        "identity.settings": TABLE,
        "identity.settings.length": NATURAL,
        "identity.tokenizer": TABLE,
        "identity.tokenizer.vocab_size": NATURAL,
        "held_out_parts": PARTS,
        "splits": TABLE,
        **{
            f"splits.{split}{key}": kind
            for split in ("train", "validation", "test")
            for key, kind in {"": TABLE, **{f".{k}": v for k, v in _SPLIT.items()}}.items()
        },
    },
}


def checked_json(path: Path, kinds: Mapping[str, Expected]) -> dict[str, Any]:
    """The content of a JSON file that we wrote, whose values are of some kinds."""
    content: dict[str, Any] = read_json(path)
    _check(path, content, kinds)
    return content


def checked_manifest(path: Path) -> dict[str, Any]:
    """A manifest that has what all of its kind have, and names no file outside its folder."""
    manifest: dict[str, Any] = read_json(path)
    _check(path, manifest, _MANIFEST)
    _check(path, manifest, _OF_KIND.get(manifest["kind"], {}))
    for entry in manifest["files"]:
        _check(path, entry, _FILE)
        if manifest["kind"] == "shards" and "split" in entry:
            _check(path, entry, _SHARD)
        name = PurePosixPath(entry["name"])
        if name.is_absolute() or ".." in name.parts:
            raise damaged(path, f"a file outside the folder: {name}")
    return manifest


def _check(path: Path, content: Any, kinds: Mapping[str, Expected]) -> None:
    """Check the values under dotted names; a table comes before what is inside it."""
    if not isinstance(content, dict):
        raise damaged(path, f"{type(content).__name__} where an object should be")
    for name, kind in kinds.items():
        *tables, key = name.split(".")
        inner = content
        for table in tables:
            inner = inner[table]
        if not kind.fits(inner.get(key)):
            raise damaged(path, f"{name}: {inner.get(key)!r:.100}, which is not {kind.words}")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest of a finished folder of a kind ("documents", "shards")."""
    path = folder / "manifest.json"
    if not folder.is_dir():
        got = "a file" if folder.exists() else f"{folder}"
        raise UserError(f"no such folder: {folder}", got=got, fix=f"give a folder of {kind}")
    if not path.exists():
        unfinished = (folder / ".parts").exists()
        raise UserError(
            f"{folder} holds no finished {kind}",
            got="a folder that was not finished"
            if unfinished
            else "a folder without manifest.json",
            fix="run the command that makes it again: it goes on where it stopped"
            if unfinished
            else f"give a folder of {kind} that electrify made",
        )
    manifest = checked_manifest(path)
    if manifest["kind"] != kind:
        raise UserError(
            f"{folder} does not hold {kind}", got=manifest["kind"], fix=f"give a folder of {kind}"
        )
    return manifest


def verify(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """What is wrong with the files a manifest lists: one line per fault, none if all is well."""
    faults = ((entry["name"], fault_of(folder, entry)) for entry in manifest["files"])
    return [f"{name}: {fault}" for name, fault in faults if fault]


def fault_of(folder: Path, entry: Mapping[str, Any]) -> str:
    """How a file differs from its entry in a manifest; empty if it does not."""
    path = folder / entry["name"]
    if not path.is_file():
        return "missing"
    if path.stat().st_size != entry["bytes"]:
        return f"{path.stat().st_size:,} bytes, should be {entry['bytes']:,}"
    if (found := sha256_of(path)) != entry["sha256"]:
        return f"SHA-256 is {found}, should be {entry['sha256']}"
    return ""


def differences(there: Any, here: Any, free: Collection[str] = ()) -> str:
    """In words, the first few values in which two identities differ; empty if in none.

    Fields called as in `free` may differ.

    >>> differences({"run": {"seed": 1, "log": 5}}, {"run": {"seed": 2, "log": 7}}, free={"log"})
    'run.seed: 1 there, 2 here'
    """
    old, new = flat(there), flat(here)
    names = [
        name
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name.rpartition(".")[2] not in free
    ]
    return "; ".join(f"{n}: {old.get(n)} there, {new.get(n)} here" for n in names[:3])


def made_before(there: Any, here: Any, later: Mapping[str, str], free: Collection[str] = ()) -> str:
    """Return what an identity was made before, if it lacks a later field and is else the same.

    `later` has fields by their names, and what began with each.

    >>> made_before({"seed": 1}, {"seed": 1, "mask": "spans"}, {"mask": "spans were masked"})
    'spans were masked'
    """
    for field, since in later.items():
        had, has = (any(n.rpartition(".")[2] == field for n in flat(t)) for t in (there, here))
        if has and not had and not differences(there, here, {*free, field}):
            return since
    return ""


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted names.

    >>> flat({"run": {"seed": 1, "steps": 5}})
    {'run.seed': 1, 'run.steps': 5}
    """
    if isinstance(tree, dict):
        return {k: v for key in tree for k, v in flat(tree[key], f"{prefix}{key}.").items()}
    return {prefix.rstrip("."): tree}

"""Commit files atomically: temporary name, fsync, rename, fsync of the folder. Check manifests."""

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
    """Yield a temporary path, which becomes `path` only if the block ends without an error."""
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
    """Return the temporary files of `committed` for names or patterns of names below a folder."""
    found = []
    for name in names:
        parent, slash, last = name.rpartition("/")
        for path in folder.glob(f"{parent}{slash}.{last}.*.tmp"):
            stem, _, process = path.stem.rpartition(".")
            if process.isdigit() and fnmatchcase(stem, f".{last}"):
                found.append(path)
    return found


def fsync_folder(folder: Path) -> None:
    """Flush the renames in a folder to disk."""
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
    """Return a value as JSON can represent it: NaN and infinity become null.

    >>> defined({"loss": float("nan"), "bounds": (0.5, float("inf"))})
    {'loss': None, 'bounds': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: defined(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [defined(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_bytes(content: Any) -> bytes:
    """Return readable JSON; the same content always gives the same bytes."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    # File names may contain bytes that are not valid UTF-8; JSON stores them as \udcXX.
    return text.encode("utf-8", errors="backslashreplace")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that electrify wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error


def parse_json(text: str) -> Any:
    r"""Parse JSON of any origin; lone surrogates, which no tokenizer accepts, become U+FFFD.

    >>> parse_json('{"text": "a \\ud800 b"}')
    {'text': 'a � b'}
    """
    value = json.loads(text)
    if "\\ud" not in text and "\\uD" not in text:  # only an escape can express one
        return value
    again = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(again.decode("utf-16", "replace"))


def damaged(path: Path, got: str) -> DamagedError:
    """Return the error for a file that is not as electrify wrote it."""
    return DamagedError(
        f"{path} is damaged", got=got, fix="build the folder again, or restore the file"
    )


MOST = 1 << 48  # upper limit of every count, so that sums of counts still fit in 64 bits


class Expected(NamedTuple):
    """The type that a value in a manifest must have."""

    description: str
    fits: Callable[[Any], bool]


TEXT = Expected("a string", lambda value: isinstance(value, str))
TABLE = Expected("an object", lambda value: isinstance(value, dict))
TABLE_IF_ANY = Expected("an object", lambda value: value is None or isinstance(value, dict))
LIST = Expected("a list", lambda value: isinstance(value, list))
NATURAL = Expected("an integer >= 0", lambda value: type(value) is int and 0 <= value < MOST)
NATURALS = Expected(
    "a list of integers >= 0",
    lambda value: isinstance(value, list) and all(map(NATURAL.fits, value)),
)
# The number of dropped tokens is negative if several examples share text.
NUMBER = Expected("an integer", lambda value: type(value) is int and abs(value) < MOST)
PARTS = Expected(
    "documents and their fractions for validation and test",
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
FILES_IF_ANY = Expected(
    "a list of files",
    lambda value: value is None or (isinstance(value, list) and all(map(_is_file, value))),
)
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


def _is_file(entry: Any) -> bool:
    return isinstance(entry, dict) and all(kind.fits(entry.get(k)) for k, kind in _FILE.items())


def checked_json(path: Path, kinds: Mapping[str, Expected]) -> dict[str, Any]:
    """Return the content of a JSON file after checking the types of some of its values."""
    content: dict[str, Any] = read_json(path)
    _check(path, content, kinds)
    return content


def checked_manifest(path: Path) -> dict[str, Any]:
    """Return a manifest after checking its fields, and that its files are inside its folder."""
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
    """Check the values under dotted names; a table must precede the values inside it."""
    if not isinstance(content, dict):
        raise damaged(path, f"{type(content).__name__} instead of an object")
    for name, kind in kinds.items():
        *tables, key = name.split(".")
        inner = content
        for table in tables:
            inner = inner[table]
        if not kind.fits(inner.get(key)):
            got = f"{name}: {inner.get(key)!r:.100}, which is not {kind.description}"
            raise damaged(path, got)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """Return the manifest of a finished folder of a kind ("documents", "shards")."""
    path = folder / "manifest.json"
    if not folder.is_dir():
        got = "a file" if folder.exists() else f"{folder}"
        raise UserError(f"no such folder: {folder}", got=got, fix=f"give a folder of {kind}")
    if not path.exists():
        got, fix = "a folder without manifest.json", f"give a folder of {kind} that electrify made"
        if (folder / ".parts").exists():
            got, fix = "an unfinished folder", "run the command that makes it again to resume"
        raise UserError(f"{folder} does not contain finished {kind}", got=got, fix=fix)
    manifest = checked_manifest(path)
    if (got := manifest["kind"]) != kind:
        fix = f"give a folder of {kind}"
        raise UserError(f"{folder} does not contain {kind}", got=got, fix=fix)
    return manifest


def verify(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Return one line per file of a manifest that is missing or differs from what was written."""
    faults = ((entry["name"], describe_damage(folder, entry)) for entry in manifest["files"])
    return [f"{name}: {fault}" for name, fault in faults if fault]


def describe_damage(folder: Path, entry: Mapping[str, Any]) -> str:
    """Return how a file differs from its entry in a manifest; empty if it does not."""
    path = folder / entry["name"]
    if not path.is_file():
        return "missing"
    if path.stat().st_size != entry["bytes"]:
        return f"{path.stat().st_size:,} bytes, should be {entry['bytes']:,}"
    if (found := sha256_of(path)) != entry["sha256"]:
        return f"SHA-256 is {found}, should be {entry['sha256']}"
    return ""


def differences(first: Any, second: Any, free: Collection[str] = (), form: str = "{} vs {}") -> str:
    """Describe the first three values that differ between two identities; empty if none does.

    Fields whose names are in `free` may differ.

    >>> differences({"run": {"seed": 1, "log": 5}}, {"run": {"seed": 2, "log": 7}}, free={"log"})
    'run.seed: 1 vs 2'
    """
    old, new = flat(first), flat(second)
    names = differing(first, second, free)[:3]
    return "; ".join(f"{n}: {form.format(old.get(n), new.get(n))}" for n in names)


def differing(first: Any, second: Any, free: Collection[str] = ()) -> list[str]:
    """Return the dotted names of the values that differ between two identities."""
    old, new = flat(first), flat(second)
    return [
        name
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name.rpartition(".")[2] not in free
    ]


def made_before(old: Any, new: Any, later: Mapping[str, str], free: Collection[str] = ()) -> str:
    """Return the change that an identity predates, if it lacks that field and is otherwise equal.

    `later` maps the names of fields to the change that added each.

    >>> made_before({"seed": 1}, {"seed": 1, "mask": "spans"}, {"mask": "spans were masked"})
    'spans were masked'
    """
    for field, change in later.items():
        had, has = (any(n.rpartition(".")[2] == field for n in flat(t)) for t in (old, new))
        if has and not had and not differences(old, new, {*free, field}):
            return change
    return ""


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted names.

    >>> flat({"run": {"seed": 1, "steps": 5}})
    {'run.seed': 1, 'run.steps': 5}
    """
    if isinstance(tree, dict):
        return {k: v for key in tree for k, v in flat(tree[key], f"{prefix}{key}.").items()}
    return {prefix.rstrip("."): tree}

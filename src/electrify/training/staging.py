"""Copy shards from an object store to this machine before training, and verify them."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from electrify.errors import DamagedError, UserError
from electrify.storage.commit import committed, describe_damage, read_manifest
from electrify.storage.lock import hold
from electrify.storage.url import url_of
from electrify.training.remote import MANIFEST_FILE, mask, open_remote


def staged(data: Path, option: str = "--data") -> Path:
    """Return a folder of shards on this machine; one at a URL is copied and verified first.

    The copy is named after its manifest, so other shards at the same URL get another folder. The
    first process of a machine copies, and the others wait for it.
    """
    if (url := url_of(data)) is None:
        return data
    system, root = open_remote(url, option)
    content = _read(system, f"{root}/{MANIFEST_FILE}", url)
    folder = cache_folder() / hashlib.sha256(content).hexdigest()[:16]
    incoming = folder / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    with hold(folder / "lock", f"copying {mask(url)}", wait=True):
        with committed(incoming / MANIFEST_FILE) as temporary:
            temporary.write_bytes(content)
        files = read_manifest(incoming, "shards")["files"]
        missing = [entry for entry in files if describe_damage(folder, entry)]
        if missing:
            _check_space(folder, missing)
            size = sum(entry["bytes"] for entry in missing) / 1e9
            print(
                f"copying {mask(url)} to {folder}: {len(missing)} files, {size:.2f} GB", flush=True
            )
        for entry in missing:
            _copy(system, f"{root}/{entry['name']}", folder, entry, url)
        with committed(folder / MANIFEST_FILE) as temporary:
            temporary.write_bytes(content)
    print(f"{mask(url)}: verified {len(files)} files by SHA-256, in {folder}", flush=True)
    return folder


def cache_folder() -> Path:
    """Return the folder of all copies: in $XDG_CACHE_HOME, which is ~/.cache unless it is set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "electrify" / "shards"


def _check_space(folder: Path, entries: list[dict[str, Any]]) -> None:
    needed, free = sum(entry["bytes"] for entry in entries), shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            "the shards do not fit on the disk",
            got=f"{needed / 1e9:.2f} GB to copy, {free / 1e9:.2f} GB free in {folder}",
            fix="set XDG_CACHE_HOME to a folder on a larger disk",
        )


def _copy(system: Any, source: str, folder: Path, entry: dict[str, Any], url: str) -> None:
    path = folder / entry["name"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with committed(path) as temporary:
        try:
            system.get_file(source, str(temporary))
        except Exception as error:  # every kind of store has its own kinds of errors
            raise _unreadable(source, url, error) from error
        fault = describe_damage(folder, {**entry, "name": temporary.relative_to(folder).as_posix()})
        if fault:
            raise DamagedError(
                f"{entry['name']} did not arrive as it was written",
                got=mask(f"{fault}, from {url}"),
                fix="run the same command again; if it fails again, upload the shards again",
            )


def _read(system: Any, path: str, url: str) -> bytes:
    try:
        return bytes(system.cat_file(path))
    except Exception as error:  # every kind of store has its own kinds of errors
        raise _unreadable(path, url, error) from error


def _unreadable(path: str, url: str, error: Exception) -> UserError:
    return UserError(
        "--data cannot be read",
        got=mask(f"{url}: {path.rpartition('/')[2]}: {type(error).__name__}: {error}"),
        fix="check the address, your credentials, and that the upload is complete",
    )

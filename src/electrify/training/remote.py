"""Folders of checkpoints at a URL: s3, gs, hf, file and whatever else fsspec supports.

The manifest of a checkpoint is uploaded last, so a remote folder with a manifest is complete. A URL
holds the checkpoints of one run.
"""

import glob
import json
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from electrify.errors import UserError
from electrify.storage.commit import checked_manifest, read_json
from electrify.training.checkpoint import RunOf

MANIFEST_FILE = "manifest.json"
SECONDS_TO_CHECK = 10.0  # for a server to list its files; a slow one does not delay training
_S3 = '"electrify[s3]"'
PACKAGES = {"s3": _S3, "s3a": _S3, "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs"}
# Object stores need no folders, and creating one would create a bucket with a mistyped name.
OBJECT_STORES = frozenset(["s3", "s3a", "gs", "gcs"])

_USER = re.compile(r"(\w://)(?:[^\s/:@]*:\S*|[^\s/]*)@")  # a password may contain slashes
_QUERY = re.compile(r"(\w://[^\s?]*\?)[^\s'\"]+")

Send = Callable[[Path, set[str]], None]
"""Uploads a folder, except the files whose names are given; adds the names it has uploaded."""


def mask(text: str) -> str:
    """Return a text with user names, passwords and queries of URLs masked.

    >>> mask("cannot reach sftp://ann:p/w@host/runs?token=abc")
    'cannot reach sftp://***@host/runs?***'
    """
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***@", text))


def open_remote(url: str, option: str = "--upload") -> tuple[Any, str]:
    """Return the fsspec file system of a URL, which an option gave, and the path in it."""
    protocol, colon, location = url.partition("://")
    # Without a location, the working directory is used. A chain such as simplecache::file:// hides
    # where it leads, for example into the run.
    if not colon or not location.strip("/") or "::" in url:
        raise UserError(
            f"{option} must be the URL of a folder",
            got=mask(url),
            fix="use file:///folder, s3://bucket/folder, …",
        )
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = PACKAGES.get(protocol)
        raise UserError(
            f"the package for {protocol}:// is not installed",
            got=mask(f"{url} ({error})"),
            fix=f"pip install {package}" if package else "install the package named above",
        ) from error
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"{option} does not support this URL",
            got=mask(f"{url} ({error})"),
            fix="use a URL that fsspec supports: file, s3, gs, hf, …",
        ) from error
    return system, str(path).rstrip("/")


def sender(url: str) -> Send:
    """Return a function that uploads the folder of a checkpoint to a URL."""
    system, root = open_remote(url)
    needs_folders = url.partition("://")[0] not in OBJECT_STORES

    def send(folder: Path, sent: set[str]) -> None:
        remote, names = f"{root}/{folder.name}", checkpoint_files(folder)
        if needs_folders:
            system.makedirs(remote, exist_ok=True)
        # An older checkpoint of the same step is no longer complete once its files change.
        if not sent and system.exists(f"{remote}/{MANIFEST_FILE}"):
            run = read_json(folder / MANIFEST_FILE)["identity"].get("run", "")
            _refuse_other_run(system, f"{remote}/{MANIFEST_FILE}", run)
            system.rm_file(f"{remote}/{MANIFEST_FILE}")
        for name in names:
            if name in sent:
                continue
            system.put_file(str(folder / name), f"{remote}/{name}")
            system.invalidate_cache()
            size, arrived = (folder / name).stat().st_size, system.info(f"{remote}/{name}")["size"]
            if arrived != size:
                raise OSError(f"{name}: {arrived:,} of {size:,} bytes arrived")
            sent.add(name)

    return send


def check_target(url: str, run: Path, fingerprints: RunOf) -> None:
    """Refuse a URL inside the run, or one that has checkpoints of another run.

    A server that does not answer soon is not waited for, because training does not depend on it.
    """
    system, root = open_remote(url)
    there = Path(os.path.realpath(root))
    inside = Path(os.path.realpath(run)) in (there, *there.parents)
    if inside and isinstance(system, LocalFileSystem):
        raise UserError(
            "--upload must not be a folder of the run",
            got=mask(url),
            fix="use a folder on another disk, or a bucket",
        )
    refused: list[UserError] = []

    def ask() -> None:
        with suppress(Exception):  # every kind of target has its own kinds of errors
            try:
                manifests = system.glob(f"{glob.escape(root)}/step-*/{MANIFEST_FILE}")
                for path in sorted(manifests)[-1:]:
                    step = int(path.split("/")[-2].removeprefix("step-"))
                    _refuse_other_run(system, path, fingerprints(step))
            except UserError as error:
                refused.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_CHECK)
    if refused:
        raise refused[0]


def _refuse_other_run(system: Any, manifest: str, run: str) -> None:
    try:
        found = json.loads(system.cat_file(manifest))["identity"]["run"]
    except (KeyError, TypeError, ValueError):  # half of a manifest, which is to be replaced
        return
    if found != run:
        raise UserError(
            "--upload has checkpoints of another run",
            got=mask(manifest),
            fix="use another URL for each run: add its name to the path",
        )


def checkpoint_files(folder: Path) -> list[str]:
    """Return the names of the files of a checkpoint, the manifest last."""
    manifest = checked_manifest(folder / MANIFEST_FILE)
    return [*(entry["name"] for entry in manifest["files"]), MANIFEST_FILE]

"""Make bad sources, and check what was built from them."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import zstandard

from tests.conftest import make_documents

MB = 1_000_000


PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


GOOD = b"The first good document."


ALSO_GOOD = b"The last good document."


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def checked(folder: Path) -> dict:
    """Return the manifest of a complete folder after checking it against the files."""
    stated = manifest(folder)
    for file in stated["files"]:
        data = (folder / file["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    names = {file["name"] for file in stated["files"]} | {"manifest.json", "settings.toml"}
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert present == names
    if stated["kind"] == "documents":
        assert len(texts(folder)) == stated["documents"]
    return stated


def texts(folder: Path) -> list[str]:
    found = []
    for file in manifest(folder)["files"]:
        table = pyarrow.parquet.read_table(io.BytesIO((folder / file["name"]).read_bytes()))
        table.validate(full=True)  # valid UTF-8, too
        found += table["text"].to_pylist()
    return found


def counted(stated: dict, *ends: str) -> int:
    """Return the count of the reasons, of drops and notes, that end in one of `ends`."""
    counts = [*stated["dropped"].items(), *stated["notes"].items()]
    return sum(count for reason, count in counts if reason.endswith(ends))


def dropped_count(stated: dict) -> int:
    """Return the number of dropped documents."""
    return sum(stated["dropped"].values())


def accounted(folder: Path) -> int:
    stated = checked(folder)
    return stated["documents"] + dropped_count(stated)


def tree(folder: Path, exclude: str = "") -> dict[str, bytes | None]:
    """Return every path below a folder with its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not exclude or not name.startswith(exclude):
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def same_bytes(one: Path, other: Path) -> bool:
    """Return whether two outputs are equal except settings.toml, which may name the folders."""
    first, second = tree(one, "settings.toml"), tree(other, "settings.toml")
    return first == second and "manifest.json" in first


def wiki(*texts: str, head: str = "") -> bytes:
    pages = "".join(
        f"<page><title>Page {n}</title><ns>0</ns><id>{n}</id><revision><id>{n}</id>"
        f'<model>wikitext</model><format>text/x-wiki</format><text xml:space="preserve">{text}</text>'
        "</revision></page>\n"
        for n, text in enumerate(texts, 1)
    )
    return (
        f'{head}<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" '
        f'xml:lang="en">\n<siteinfo><sitename>Wikipedia</sitename><dbname>enwiki</dbname></siteinfo>'
        f"\n{pages}</mediawiki>\n"
    ).encode()


def tar(*members: tuple[str, bytes | str, bytes]) -> bytes:
    """Return a tar of (name, content, type); the content of a link is its target."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if isinstance(content, str):
                info.linkname = content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def repeated(path: Path, block: bytes, times: int, before: bytes = b"", after: bytes = b"") -> Path:
    with path.open("wb") as file:
        file.write(before)
        for _ in range(times):
            file.write(block)
        file.write(after)
    return path


def session_processes(session: int) -> Iterator[tuple[int, int]]:
    """Yield (process id, peak memory in bytes so far) of every process in a session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                status = (folder / "status").read_text()
                yield int(folder.name), int(status.split("VmHWM:")[1].split()[0]) * 1024
        except (OSError, IndexError):  # it has ended
            continue


def run_within(limit: int, folder: Path, *arguments: object, code: int, seconds: int = 60) -> None:
    """Run a command whose processes together must peak below `limit` bytes of memory."""
    command = [sys.executable, "-m", "electrify", *map(str, arguments)]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        peaks: dict[int, int] = {}
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            peaks.update(session_processes(process.pid))
            time.sleep(0.02)
        hung = process.poll() is None
        if hung:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    output = (folder / "log").read_text()
    assert not hung, f"still running after {seconds} s\n{output}"
    assert process.returncode == code, output
    assert "Traceback" not in output
    assert code == 0 or "\n  fix: " in output
    assert sum(peaks.values()) < limit, {pid: peak // MB for pid, peak in peaks.items()}


def source_of(kind: str) -> tuple[str, bytes]:
    """Return the name and bytes of an intact source of 300 documents."""
    lines = [document.text.replace("\n", " ") for document in make_documents(300)]
    if kind == "text":
        return "a.txt", "\n\n".join(lines).encode()
    if kind == "jsonl":
        return "a.jsonl", "\n".join(json.dumps({"text": line}) for line in lines).encode()
    if kind == "csv":
        return "a.csv", "\n".join(["text", *(f'"{line}"' for line in lines)]).encode()
    return "a.xml", wiki(*lines)

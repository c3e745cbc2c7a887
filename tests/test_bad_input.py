"""Bad input from the outside: handled and counted, or an error that says what, got and fix.

Never a traceback, a hang, a file outside the output folder, or half an output taken for a whole.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from electrify.corpora.document import Document
from electrify.storage.commit import sha256_of
from electrify.tokens import tokenizer
from tests.conftest import make_documents, write_documents

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


@pytest.fixture
def run(electrify: Run, tmp_path: Path) -> Run:
    """Runs the command in a folder of its own, where it must end soon and leave no rubbish."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(*arguments: object, **kwargs: object) -> "subprocess.CompletedProcess[str]":
        if arguments[0] in ("corpus", "prepare") and "--workers" not in arguments:
            arguments = (*arguments, "--workers", 1)  # one starts soonest
        env = {**os.environ, "TMPDIR": str(scratch), **kwargs.pop("env", {})}  # type: ignore[dict-item]
        done = electrify(*arguments, cwd=tmp_path, timeout=60, env=env, **kwargs)
        assert not list(scratch.iterdir()), "left behind in the folder for temporary files"
        return done

    return run


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """Runs a command that must fail with a proper error, and returns the error."""

    def refused(*arguments: object, code: int = 2, **kwargs: object) -> str:
        error = run(*arguments, code=code, **kwargs).stderr
        what = error.index("error: ")
        assert what < error.index("\n  got: ") < error.index("\n  fix: "), error
        return error

    return refused


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def checked(folder: Path) -> dict:
    """The manifest of a finished folder, after a look whether it tells the truth."""
    stated = manifest(folder)
    for file in stated["files"]:
        data = (folder / file["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    names = {file["name"] for file in stated["files"]} | {"manifest.json", "settings.toml"}
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there == names
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
    """How often what ends like this was met: what was left out, and what was only noted."""
    met = [*stated["dropped"].items(), *stated["notes"].items()]
    return sum(count for reason, count in met if reason.endswith(ends))


def left_out(stated: dict) -> int:
    """How many documents were left out."""
    return sum(stated["dropped"].values())


def accounted(folder: Path) -> int:
    stated = checked(folder)
    return stated["documents"] + left_out(stated)


def tree(folder: Path, but: str = "") -> dict[str, bytes | None]:
    """Every path below a folder, with its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not but or not name.startswith(but):
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two outputs are the same, but for settings.toml, which may name the folders."""
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
    """A tar of (name, content, type); the content of a link is where it points to."""
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


def repeated(path: Path, piece: bytes, times: int, before: bytes = b"", after: bytes = b"") -> Path:
    with path.open("wb") as file:
        file.write(before)
        for _ in range(times):
            file.write(piece)
        file.write(after)
    return path


# ------------------------------------------------------------------------------------ bytes

BYTES = {
    "invalid UTF-8": b"bad \xff\xfe\xfa bytes",
    "cut UTF-8": b"ends in the middle of \xe2\x82",
    "encoded surrogate": b"half a pair \xed\xa0\x80 here",
    "overlong": b"overlong \xc0\xaf slash",
    "NUL": b"a nul \0 byte",
    "other controls": bytes(range(1, 9)) + b"\x0b\x0c\x0e\x1b\x7f\xc2\x85",
    "noncharacters": "\ufffe \uffff \U0010ffff".encode(),
    "line separators": "one\u2028two\u2029three".encode(),
    "BOM inside": b"\xef\xbb\xbfinside",
}


def test_bad_bytes_spoil_one_document_and_not_its_neighbours(tmp_path, run):
    """All of the bytes as files of three documents each, in one run."""
    (tmp_path / "src").mkdir()
    for name, data in BYTES.items():
        (tmp_path / "src" / f"{name}.txt").write_bytes(GOOD + b"\n\n" + data + b"\n\n" + ALSO_GOOD)
    run("corpus", "text", "src", "--out", "docs")
    found = texts(tmp_path / "docs")
    assert accounted(tmp_path / "docs") == 3 * len(BYTES)
    assert found.count(GOOD.decode()) == found.count(ALSO_GOOD.decode()) == len(BYTES)
    assert not any(c in text for text in found for c in "\0\r\ufeff")
    run("show", "docs", "--count", "100", env={"PYTHONIOENCODING": "ascii"}, fresh=True)


LINE_ENDS = {
    "BOM": b"\xef\xbb\xbfone\ntwo\n\nthree\n",
    "CRLF": b"one\r\ntwo\r\n\r\nthree\r\n",
    "BOM and CRLF without a last line end": b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree",
    "blank lines": b"\n\n\none\ntwo\n \t \n\n\nthree\n\n\n",
}


def test_bom_and_line_ends_change_nothing(tmp_path, run):
    (tmp_path / "src").mkdir()
    for name, data in LINE_ENDS.items():
        (tmp_path / "src" / f"{name}.txt").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == ["one\ntwo", "three"] * len(LINE_ENDS)


def test_another_encoding_is_no_traceback(tmp_path, run):
    encodings = ["utf-16", "utf-16-le", "utf-32", "latin-1"]
    (tmp_path / "src").mkdir()
    for encoding in encodings:
        data = "Käse und Brot.\n\nÄpfel.\n".encode(encoding)
        (tmp_path / "src" / f"{encoding}.txt").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert accounted(tmp_path / "docs") >= len(encodings)


NOTHING = {
    ("text", "a.txt"): b"",
    ("text", "blank.txt"): b"\r\n\r\n \n",
    ("text", "a.txt.gz"): gzip.compress(b""),
    ("jsonl", "a.jsonl"): b"",
    ("openwebtext", "none.tar"): tar(),
}


@pytest.mark.parametrize(("kind", "name"), NOTHING, ids=lambda value: value)
def test_nothing_in_nothing_out(tmp_path, run, kind, name):
    """See test_folders_that_hold_no_documents for what can be made of it: nothing."""
    (tmp_path / name).write_bytes(NOTHING[kind, name])
    assert "no document" in run("corpus", kind, name, "--out", "docs").stdout
    assert checked(tmp_path / "docs")["documents"] == 0


def test_an_empty_file_among_others_is_no_error(tmp_path, run):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_bytes(b"")
    (tmp_path / "src" / "b.txt").write_bytes(GOOD)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == [GOOD.decode()]


# ------------------------------------------------------------------------------------- size


def tree_of_processes(session: int) -> Iterator[tuple[int, int]]:
    """(process, its peak memory in bytes so far) of everything in a session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                status = (folder / "status").read_text()
                yield int(folder.name), int(status.split("VmHWM:")[1].split()[0]) * 1024
        except (OSError, IndexError):  # it has ended
            continue


def run_within(limit: int, folder: Path, *arguments: object, code: int, seconds: int = 60) -> None:
    """Runs the command; all its processes together must peak below a number of bytes."""
    command = [sys.executable, "-m", "electrify", *map(str, arguments)]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        peaks: dict[int, int] = {}
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            peaks.update(tree_of_processes(process.pid))
            time.sleep(0.02)
        hung = process.poll() is None
        if hung:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = (folder / "log").read_text()
    assert not hung, f"still running after {seconds} s\n{said}"
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert code == 0 or "\n  fix: " in said
    assert sum(peaks.values()) < limit, {pid: peak // MB for pid, peak in peaks.items()}


def around(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """What goes before and after a huge text in a file of three lines of JSON."""
    good, last = (json.dumps({"text": text.decode()}).encode() for text in (GOOD, ALSO_GOOD))
    return good + b"\n" + before, after + b"\n" + last


WORDS = b"word " * 200_000  # 1 MB


def long_line_text(folder: Path) -> str:
    repeated(folder / "a.txt", WORDS, 100, GOOD + b"\n\n", b"\n\n" + ALSO_GOOD)
    return "a.txt"


def long_line_jsonl(folder: Path) -> str:
    repeated(folder / "a.jsonl", WORDS, 50, *around(b'{"text": "', b'"}'))
    return "a.jsonl"


def long_page_wikipedia(folder: Path) -> str:
    before, after = wiki(GOOD.decode(), "@", ALSO_GOOD.decode()).split(b"@")
    repeated(folder / "a.xml", WORDS, 50, before, after)
    return "a.xml"


def long_file_openwebtext(folder: Path) -> str:
    texts = (("a.txt", GOOD, b"0"), ("b.txt", WORDS * 50, b"0"), ("c.txt", ALSO_GOOD, b"0"))
    (folder / "owt").mkdir()
    (folder / "owt" / "a.tar").write_bytes(tar(("a.tar", tar(*texts), b"0")))
    return "owt/a.tar"


def long_book_gutenberg(folder: Path) -> str:
    (folder / "books").mkdir()
    (folder / "books" / "a.txt").write_bytes(GOOD)
    repeated(folder / "books" / "b.txt", WORDS, 50)
    (folder / "books" / "c.txt").write_bytes(ALSO_GOOD)
    return "books"


def long_cell_parquet(folder: Path) -> str:
    column = [GOOD.decode(), (WORDS * 50).decode(), ALSO_GOOD.decode()]
    table = pyarrow.table({"text": column})
    pyarrow.parquet.write_table(table, folder / "a.parquet", compression="none")
    return "a.parquet"


def bomb(packing: str, before: bytes, after: bytes) -> bytes:
    """Hundreds of megabytes out of a few kilobytes: packed pieces in a row are one stream."""
    pack = PACK[packing]
    return pack(before) + pack(b"a" * 10 * MB) * 50 + pack(after)


def bomb_text(folder: Path) -> str:
    (folder / "a.txt.zst").write_bytes(bomb("zst", GOOD + b"\n\n", b"\n\n" + ALSO_GOOD))
    return "a.txt.zst"


def bomb_jsonl(folder: Path) -> str:
    (folder / "a.jsonl.bz2").write_bytes(bomb("bz2", *around(b'{"text": "', b'"}')))
    return "a.jsonl.bz2"


def bomb_wikipedia(folder: Path) -> str:
    before, after = wiki(GOOD.decode(), "@", ALSO_GOOD.decode()).split(b"@")
    (folder / "a.xml.bz2").write_bytes(bomb("bz2", before, after))
    return "a.xml.bz2"


def bomb_openwebtext(folder: Path) -> str:
    info = tarfile.TarInfo("bomb.txt")
    info.size = 500 * MB
    after = bytes(-info.size % 512) + tar(("last.txt", ALSO_GOOD, b"0"))
    (folder / "owt.tar").write_bytes(tar(("one.xz", bomb("xz", info.tobuf(), after), b"0")))
    return "owt.tar"


def bomb_gutenberg(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.txt", GOOD)
        archive.writestr("b.txt", b"a" * 100 * MB)
    return "a.zip"


def bomb_parquet(folder: Path) -> str:
    """1.5 GB of text: one value of 5 MB, 300 times, stored once."""
    index, values = pyarrow.array([0] * 300, pyarrow.int32()), pyarrow.array(["word " * MB])
    column = pyarrow.DictionaryArray.from_arrays(index, values)
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), folder / "a.parquet")
    return "a.parquet"


def repeated_titles(folder: Path) -> str:
    """Short texts under 10 GB of titles: one value of 5 MB, 2,000 times, stored once."""
    index = pyarrow.array([0] * 2_000, pyarrow.int32())
    titles = pyarrow.DictionaryArray.from_arrays(index, pyarrow.array(["word " * MB]))
    texts = [f"A short text, number {number}." for number in range(2_000)]
    table = pyarrow.table({"text": texts, "title": titles})
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    return "a.parquet"


def nested_ids(folder: Path) -> str:
    """Short texts beside a column of ids that are lists of a million equal numbers each."""
    values = pyarrow.array(np.zeros(60 * MB, np.int8))
    lists = pyarrow.ListArray.from_arrays(np.arange(0, 60 * MB + 1, MB, np.int32), values)
    texts = [f"A short text, number {number}." for number in range(60)]
    table = pyarrow.table({"text": texts, "id": lists})
    pyarrow.parquet.write_table(table, folder / "a.parquet", compression="zstd")
    return "a.parquet"


@pytest.mark.parametrize(("make", "count"), [(repeated_titles, 2_000), (nested_ids, 60)])
def test_columns_beside_the_text_take_little_memory(tmp_path, make, count):
    source = make(tmp_path)
    assert (tmp_path / source).stat().st_size < 2 * MB
    options = ("--out", "docs", "--workers", 1)
    run_within(500 * MB, tmp_path, "corpus", "parquet", source, *options, code=0)
    assert checked(tmp_path / "docs")["documents"] == count


@pytest.mark.parametrize(
    ("kind", "make", "workers"),
    [
        ("text", long_line_text, 1),
        ("text", long_line_text, 2),
        ("jsonl", long_line_jsonl, 2),
        ("wikipedia", long_page_wikipedia, 2),
        ("openwebtext", long_file_openwebtext, 2),
        ("gutenberg", long_book_gutenberg, 2),
        ("parquet", long_cell_parquet, 2),
    ],
)
def test_huge_documents_are_counted_in_little_memory(tmp_path, kind, make, workers):
    source = make(tmp_path)
    options = ("--out", "docs", "--workers", workers)
    run_within(1_000 * MB, tmp_path, "corpus", kind, source, *options, code=0)
    assert texts(tmp_path / "docs") == [GOOD.decode(), ALSO_GOOD.decode()]
    assert sum(checked(tmp_path / "docs")["dropped"].values()) == 1


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("text", bomb_text),
        ("jsonl", bomb_jsonl),
        ("wikipedia", bomb_wikipedia),
        ("openwebtext", bomb_openwebtext),
        ("gutenberg", bomb_gutenberg),
        ("parquet", bomb_parquet),
    ],
)
def test_bombs_are_refused_in_little_memory(tmp_path, kind, make):
    source = make(tmp_path)
    options = ("--out", "docs", "--workers", 1)
    run_within(1_000 * MB, tmp_path, "corpus", kind, source, *options, code=2)
    assert not (tmp_path / "docs" / "manifest.json").exists()


@pytest.mark.slow
def test_twenty_thousand_tiny_files(tmp_path, run):
    (tmp_path / "src").mkdir()
    for number in range(20_000):
        (tmp_path / "src" / f"{number}.txt").write_text(f"File {number}.")
    run("corpus", "text", "src", "--out", "docs")
    assert checked(tmp_path / "docs")["documents"] == 20_000
    assert "nothing to do" in run("corpus", "text", "src", "--out", "docs").stdout


# ------------------------------------------------------------------------ packed and damaged


def source_of(kind: str) -> tuple[str, bytes]:
    """A sound source of 300 documents."""
    lines = [document.text.replace("\n", " ") for document in make_documents(300)]
    if kind == "text":
        return "a.txt", "\n\n".join(lines).encode()
    if kind == "jsonl":
        return "a.jsonl", "\n".join(json.dumps({"text": line}) for line in lines).encode()
    return "a.xml", wiki(*lines)


@pytest.mark.parametrize(
    ("kind", "packing"),
    [*(("text", packing) for packing in PACK), ("jsonl", "gz"), ("wikipedia", "bz2")],
)
def test_a_truncated_file_is_counted_and_no_document_is_cut(tmp_path, run, kind, packing):
    name, data = source_of(kind)
    packed = b"".join(
        PACK[packing](data[start : start + 20_000]) for start in range(0, len(data), 20_000)
    )
    (tmp_path / f"{name}.{packing}").write_bytes(packed[: len(packed) * 2 // 3])
    said = run("corpus", kind, f"{name}.{packing}", "--out", "docs").stdout
    found = texts(tmp_path / "docs")
    sound = [document.text.replace("\n", " ") for document in make_documents(300)]
    assert 100 < len(found) < 250
    assert found == sound[: len(found)]
    assert counted(checked(tmp_path / "docs"), "truncated") == 1
    assert "source truncated" in said


def test_what_is_not_packed_as_named_is_counted(tmp_path, run):
    (tmp_path / "src").mkdir()
    for packing in PACK:
        for name, data in {"zeros": bytes(1000), "text": GOOD * 50, "empty": b""}.items():
            (tmp_path / "src" / f"{name}.txt.{packing}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == []
    assert counted(checked(tmp_path / "docs"), "") == 3 * len(PACK)


def test_a_bit_flip_in_the_middle_is_counted(tmp_path, run):
    (tmp_path / "src").mkdir()
    checksummed = {**PACK, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}
    for packing, pack in checksummed.items():
        data = bytearray(pack(source_of("text")[1]))
        data[len(data) // 2] ^= 0x55
        (tmp_path / "src" / f"a.txt.{packing}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert counted(checked(tmp_path / "docs"), "truncated") == len(PACK)


def test_packed_pieces_one_after_another_are_one_file(tmp_path, run):
    (tmp_path / "src").mkdir()
    for packing, pack in PACK.items():
        data = pack(b"one\n\ntw") + pack(b"o\n\nthree")
        (tmp_path / "src" / f"a.txt.{packing}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == ["one", "two", "three"] * len(PACK)


def test_a_cut_xml_is_counted(tmp_path, run):
    data = source_of("wikipedia")[1]
    (tmp_path / "a.xml").write_bytes(data[: len(data) // 2])
    run("corpus", "wikipedia", "a.xml", "--out", "docs")
    stated = checked(tmp_path / "docs")
    assert 100 < stated["documents"] < 200
    assert counted(stated, "truncated") == 1


# --------------------------------------------------------------------------------- wikitext


def test_unbalanced_wikitext_ends_soon(tmp_path, run):
    """100,000 times each opening, alone and before prose, in one dump."""
    marks = ["{{", "[[", "{|", "{{{", "[http://a ", "'''", "&lt;ref&gt;", "&lt;!--", "&lt;math&gt;"]
    marks += ["}}", "]]", "|}", "&lt;/ref&gt;", "-->".replace(">", "&gt;"), "==", "&amp;", "[[a|"]
    marks += ["{{a|", "&lt;", "__", "\n*", "\n{|\n|", "&lt;nowiki&gt;", "[[File:a|", "~~~~", "\n="]
    pages = [GOOD.decode(), *(mark * 100_000 + " and prose." for mark in marks), ALSO_GOOD.decode()]
    (tmp_path / "a.xml").write_bytes(wiki(*pages))
    run("corpus", "wikipedia", "a.xml", "--out", "docs", "--workers", "2")
    assert accounted(tmp_path / "docs") == len(pages)
    assert {GOOD.decode(), ALSO_GOOD.decode()} <= set(texts(tmp_path / "docs"))


LAUGHS = '<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {name} "{f"&{before};" * 20}">' for before, name in pairwise("abcdefgh")
)
DOCTYPES = {
    "plain": ("<!DOCTYPE mediawiki>", ""),
    "billion laughs": (f"<!DOCTYPE mediawiki [{LAUGHS}]>", "&h;"),
    "external entity": ('<!DOCTYPE mediawiki [<!ENTITY x SYSTEM "file://@">]>', "&x;"),
    "external DTD": ('<!DOCTYPE mediawiki SYSTEM "file://@">', ""),
}


@pytest.mark.parametrize("name", DOCTYPES)
def test_a_doctype_brings_nothing_in(tmp_path, refused, name):
    """No dump has one, so the whole file is doubtful."""
    secret = tmp_path / "secret"
    secret.write_text("The secret.")
    head, entity = DOCTYPES[name]
    (tmp_path / "a.xml").write_bytes(
        wiki(GOOD.decode(), f"x {entity}", head=head.replace("@", str(secret)))
    )
    error = refused("corpus", "wikipedia", "a.xml", "--out", "docs")
    assert "secret." not in error
    assert not (tmp_path / "docs" / "manifest.json").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"no XML at all",
        b"<html><body><p>A page</body>",
        b"<a>" * 200_000,
    ],
    ids=["text", "HTML", "tags"],
)
def test_what_is_no_dump_is_refused(tmp_path, refused, data):
    (tmp_path / "a.xml").write_bytes(data)
    refused("corpus", "wikipedia", "a.xml", "--out", "docs")
    assert not (tmp_path / "docs" / "manifest.json").exists()


def test_broken_pages_are_counted_or_mended(tmp_path, run):
    sound = wiki(GOOD.decode(), "@", ALSO_GOOD.decode())
    cases = {
        "control": sound.replace(b"@", b"a bad \x01 character"),
        "NUL": sound.replace(b"@", b"a bad \0 character"),
        "not UTF-8": sound.replace(b"@", b"a \xff\xfe"),
        "entity": sound.replace(b"@", b"&undefined; &#0; &#xd800; &#99999999999; &"),
        "no end": sound.replace(b"@</text></revision>", b"@"),
        "no text": sound.replace(b'<text xml:space="preserve">@</text>', b""),
        "no title": sound.replace(b"<title>Page 2</title>", b""),
        "no id": sound.replace(b"<id>2</id>", b""),
        "tags": sound.replace(b"@", b"<b><page><i></text>"),
    }
    (tmp_path / "src").mkdir()
    for name, data in cases.items():
        (tmp_path / "src" / f"{name}.xml").write_bytes(data)
    sources = [f"src/{name}.xml" for name in cases]
    run("corpus", "wikipedia", *sources, "--out", "docs", "--workers", "2")
    found = texts(tmp_path / "docs")
    assert found.count(GOOD.decode()) == found.count(ALSO_GOOD.decode()) == len(cases)
    assert accounted(tmp_path / "docs") == 3 * len(cases)


# --------------------------------------------------------------------------------- archives


def evil_members(outside: Path) -> list[tuple[str, bytes | str, bytes]]:
    return [
        ("good.txt", GOOD, tarfile.REGTYPE),
        ("../evil.txt", b"climbs up", tarfile.REGTYPE),
        ("a/../../../evil.txt", b"climbs up", tarfile.REGTYPE),
        (str(outside / "evil.txt"), b"absolute", tarfile.REGTYPE),
        ("symlink.txt", str(outside / "secret.txt"), tarfile.SYMTYPE),
        ("hardlink.txt", str(outside / "secret.txt"), tarfile.LNKTYPE),
        ("up.txt", "../secret.txt", tarfile.SYMTYPE),
        ("loop.txt", "loop.txt", tarfile.SYMTYPE),
        ("zero.txt", b"", tarfile.CHRTYPE),
        ("disk.txt", b"", tarfile.BLKTYPE),
        ("pipe.txt", b"", tarfile.FIFOTYPE),
        ("folder.txt", b"", tarfile.DIRTYPE),
        ("bytes\udcff\n.txt", b"an odd name", tarfile.REGTYPE),
        ("last.txt", ALSO_GOOD, tarfile.REGTYPE),
    ]


def evil_tars(folder: Path, layer: str) -> str:
    members = evil_members(folder)
    if layer == "inner":
        (folder / "owt.tar").write_bytes(tar(("a/one.xz", PACK["xz"](tar(*members)), b"0")))
    else:  # the same as archives in the outer one
        packed = [
            (name.replace(".txt", ".xz"), c and PACK["xz"](tar(("x.txt", c, b"0"))), kind)
            if isinstance(c, bytes)
            else (name.replace(".txt", ".xz"), c, kind)
            for name, c, kind in members
        ]
        (folder / "owt.tar").write_bytes(tar(*packed))
    return "owt.tar"


@pytest.mark.parametrize(("layer", "workers"), [("inner", 1), ("outer", 2)])
def test_evil_tar_members_stay_inside(tmp_path, run, layer, workers):
    (tmp_path / "secret.txt").write_text("The secret.")
    source = evil_tars(tmp_path, layer)
    before = tree(tmp_path, "docs")
    run("corpus", "openwebtext", source, "--out", "docs", "--workers", workers)
    assert tree(tmp_path, "docs") == before
    assert not (tmp_path.parent / "evil.txt").exists()
    found = texts(tmp_path / "docs")
    assert {GOOD.decode(), ALSO_GOOD.decode()} <= set(found)
    assert "The secret." not in found
    stated = checked(tmp_path / "docs")
    # six regular files are left; links, devices and pipes (7) never are documents
    assert stated["documents"] + sum(stated["dropped"].values()) >= 6
    assert sum(stated["dropped"].values()) >= 7, stated["dropped"]


def test_evil_zip_members_stay_inside(tmp_path, run):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("good.txt", "../evil.txt", str(tmp_path / "evil.txt"), "C:\\evil.txt"):
            archive.writestr(name, GOOD)
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    before = tree(tmp_path, "docs")
    run("corpus", "gutenberg", "a.zip", "--out", "docs")
    assert tree(tmp_path, "docs") == before
    assert set(texts(tmp_path / "docs")) <= {GOOD.decode(), "/etc/passwd"}
    assert accounted(tmp_path / "docs") == 5


def test_broken_zips_are_refused_or_counted(tmp_path, run, refused):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", source_of("text")[1])
        archive.writestr("b.txt", GOOD)
    data = bytearray(file.getvalue())
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    refused("corpus", "gutenberg", "cut.zip", "--out", "cut")
    assert not (tmp_path / "cut" / "manifest.json").exists()
    data[len(data) // 2] ^= 0x55
    (tmp_path / "flipped.zip").write_bytes(data)
    run("corpus", "gutenberg", "flipped.zip", "--out", "flipped")
    assert texts(tmp_path / "flipped") == [GOOD.decode()]
    assert accounted(tmp_path / "flipped") == 2


def test_a_cut_archive_in_an_archive_is_counted(tmp_path, run):
    sound = [document.text for document in make_documents(60)]
    members = [(f"{n:02}.txt", text.encode(), b"0") for n, text in enumerate(sound)]
    one, two = (PACK["xz"](tar(*some)) for some in (members[:30], members[30:]))
    cases = {
        "inner": tar(("a.xz", one[: len(one) // 2], b"0"), ("b.xz", two, b"0")),
        "outer": tar(("a.xz", one, b"0"), ("b.xz", two, b"0"))[: len(one) + 3000],
    }
    for name, data in cases.items():
        (tmp_path / f"{name}.tar").write_bytes(data)
        run("corpus", "openwebtext", f"{name}.tar", "--out", name)
        assert set(texts(tmp_path / name)) < set(sound)
        assert counted(checked(tmp_path / name), "truncated") >= 1


# ---------------------------------------------------------------------------------- records

LINES = {
    "not JSON": b"{",
    "nested 100,000 times": b"[" * 100_000,
    "nested in a field": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "text": "x"}',
    "balanced": b"[" * 100_000 + b"]" * 100_000,
    "a list": b'["text"]',
    "a number": b"7",
    "null": b"null",
    "no text": b'{"title": "x"}',
    "null text": b'{"text": null}',
    "number as text": b'{"text": 7}',
    "list as text": b'{"text": ["x"]}',
    "empty text": b'{"text": ""}',
    "invalid UTF-8": b'{"text": "a \xff b"}',
    "half a pair": b'{"text": "a \\ud800 b"}',
    "NUL": b'{"text": "a \\u0000 b"}',
    "a raw NUL": b'{"text": "a \0 b"}',
    "a huge number": b'{"id": ' + b"9" * 10_000 + b', "text": "x"}',
    "a huge float": b'{"id": 1e999, "text": "x"}',
    "not a number": b'{"id": NaN, "text": "x"}',
    "odd id": b'{"id": {"a": [1]}, "text": "x"}',
    "half a pair as id": b'{"id": "\\udfff", "title": "\\ud800", "text": "x"}',
    "odd title": b'{"title": [1, 2], "text": "x"}',
    "the same field twice": b'{"text": 1, "text": "x"}',
    "two objects": b'{"text": "x"} {"text": "y"}',
}


def test_bad_json_lines_are_counted(tmp_path, run):
    good, last = (json.dumps({"text": t.decode()}).encode() for t in (GOOD, ALSO_GOOD))
    data = b"\r\n".join([b"\xef\xbb\xbf" + good, *LINES.values(), b"", last])
    (tmp_path / "a.jsonl").write_bytes(data)
    run("corpus", "jsonl", "a.jsonl", "--out", "docs")
    found = texts(tmp_path / "docs")
    assert (found[0], found[-1]) == (GOOD.decode(), ALSO_GOOD.decode())
    assert accounted(tmp_path / "docs") == len(LINES) + 2
    assert manifest(tmp_path / "docs")["documents"] <= 2 + sum(b'"x"' in v for v in LINES.values())
    run("show", "docs", "--count", "100")


def invalid_utf8_column() -> pyarrow.Array:
    raw = pyarrow.array([GOOD, b"a \xff b", ALSO_GOOD], pyarrow.binary())
    return pyarrow.Array.from_buffers(pyarrow.string(), 3, raw.buffers())


COLUMNS = {
    "numbers": (pyarrow.array([1, 2]), "refused"),
    "lists": (pyarrow.array([["a"], ["b"]]), "refused"),
    "only nulls": (pyarrow.nulls(3), "refused"),
    "some null": (pyarrow.array([GOOD.decode(), None, ALSO_GOOD.decode()]), "counted"),
    "invalid UTF-8": (invalid_utf8_column(), "counted"),
    "large strings": (
        pyarrow.array([GOOD.decode(), "", ALSO_GOOD.decode()], pyarrow.large_string()),
        "counted",
    ),
    "dictionary": (
        pyarrow.array([GOOD.decode(), "\0", ALSO_GOOD.decode()]).dictionary_encode(),
        "counted",
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_other_types(tmp_path, run, refused, name):
    column, outcome = COLUMNS[name]
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    if outcome == "refused":
        assert "text" in refused("corpus", "parquet", "a.parquet", "--out", "docs")
        assert not (tmp_path / "docs" / "manifest.json").exists()
    else:
        run("corpus", "parquet", "a.parquet", "--out", "docs")
        assert {GOOD.decode(), ALSO_GOOD.decode()} <= set(texts(tmp_path / "docs"))
        assert accounted(tmp_path / "docs") == 3


def test_two_columns_of_one_name_are_refused(tmp_path, refused):
    column = pyarrow.array([GOOD.decode()])
    table = pyarrow.Table.from_arrays([column, column], names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "several columns 'text'" in refused("corpus", "parquet", "a.parquet", "--out", "docs")


def test_parquet_that_is_none_is_refused(tmp_path, refused):
    file = io.BytesIO()
    column = [document.text for document in make_documents(100)]
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), file)
    data = file.getvalue()
    flipped = bytearray(data)
    flipped[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    cases = {
        "empty": b"",
        "text": GOOD,
        "cut": data[: len(data) // 2],
        "head": data[:8],
        "tail": data[-100:],
        "flipped": bytes(flipped),
    }
    for name, content in cases.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train-0.parquet").write_bytes(content)
        kind = "hub" if name == "cut" else "parquet"
        error = refused("corpus", kind, f"./{name}", "--out", f"{name}-docs")
        assert "train-0.parquet" in error
        assert not (tmp_path / f"{name}-docs" / "manifest.json").exists()


# ------------------------------------------------------------------------- files and folders


def test_sources_that_are_no_files_are_refused(tmp_path, refused, monkeypatch):
    """Each within the timeout of `run`: nothing waits for a pipe or reads a device to its end."""
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.txt.gz")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").write_bytes(GOOD)
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    listener.bind("socket")
    listener.close()
    odd = ["pipe", "pipe.txt.gz", "socket", "loop", "dangling", "nowhere", "folder", "a.txt/b"]
    for name in [*odd, "/dev/zero", "a" * 5000]:
        for kind in ["text", "jsonl", "wikipedia", "parquet"] if name == "pipe" else ["text"]:
            refused("corpus", kind, name, "--out", "docs")
            assert not (tmp_path / "docs" / "manifest.json").exists()


@pytest.mark.parametrize("kind", ["wikipedia", "gutenberg", "openwebtext", "jsonl", "parquet"])
def test_every_kind_refuses_what_is_missing_or_empty(tmp_path, refused, kind):
    (tmp_path / "empty").mkdir()
    for source in ("nowhere", "./empty") if kind == "jsonl" else ("./empty",):
        assert source.lstrip("./") in refused("corpus", kind, source, "--out", "docs")
    assert not (tmp_path / "docs" / "manifest.json").exists()


def test_odd_files_in_a_folder(tmp_path, run):
    """A pipe, loops of links, a folder named like a file, and names that are no UTF-8."""
    source = tmp_path / "src"
    (source / "folder.txt").mkdir(parents=True)
    os.mkfifo(source / "pipe.txt")
    (source / "self.txt").symlink_to("self.txt")
    (source / "dangling.txt").symlink_to("nowhere")
    (source / "up").symlink_to("..")
    (source / "here").symlink_to(".")
    odd_name = os.fsdecode(b"caf\xe9 \n.txt")
    (source / odd_name).write_bytes(GOOD)
    (source / "last.txt").write_bytes(ALSO_GOOD)
    for out, workers in (("docs", 1), ("docs2", 2)):
        run("corpus", "text", "src", "--out", out, "--workers", workers)
    assert sorted(texts(tmp_path / "docs")) == sorted([GOOD.decode(), ALSO_GOOD.decode()])
    assert same_bytes(tmp_path / "docs", tmp_path / "docs2")
    run("show", "docs")
    # named alone, as source and as output
    out = os.fsdecode(b"out-\xe9")
    run("corpus", "text", f"src/{odd_name}", "--out", out)
    assert texts(tmp_path / out) == [GOOD.decode()]
    assert "nothing to do" in run("corpus", "text", f"src/{odd_name}", "--out", out).stdout
    run("show", out)
    run("show", out, "--verify")


def test_an_error_about_an_odd_name_is_readable(tmp_path, run, refused):
    refused("corpus", "text", os.fsdecode(b"caf\xe9.txt"), "--out", "docs")
    (tmp_path / os.fsdecode(b"caf\xe9.txt.gz")).write_bytes(b"no gzip")
    run("corpus", "text", os.fsdecode(b"caf\xe9.txt.gz"), "--out", "docs")


def test_the_output_is_never_the_source(tmp_path, refused):
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "sub" / "a.txt").write_bytes(GOOD)
    (tmp_path / "link").symlink_to("src")
    before = tree(tmp_path / "src")
    for source, out in [
        ("src", "src"),
        ("src/sub/a.txt", "src/sub"),
        ("src/sub", "src"),
        ("src", "src/docs"),  # the next run would read its own output
        ("link", "src/docs"),
        ("src", "link/docs"),
        (".", "docs"),
    ]:
        refused("corpus", "text", source, "--out", out)
        assert tree(tmp_path / "src") == before


@pytest.fixture
def inputs(tmp_path: Path, docs: Path, vocab: Path) -> dict[str, list[object]]:
    """One working call of each command that makes a folder, but for --out."""
    (tmp_path / "a.txt").write_text("\n\n".join(d.text for d in make_documents(400)))
    return {
        "corpus": ["corpus", "text", "a.txt"],
        "tokenizer": ["tokenizer", docs, "--vocab-size", 150],
        "prepare": ["prepare", docs, "--tokenizer", vocab, "--length", 64],
    }


OTHER = {
    "corpus": ("--split", "file"),
    "tokenizer": ("--vocab-size", "160"),
    "prepare": ("--seed", "1"),
}
COMMANDS = list(OTHER)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_is_there_is_left_alone(tmp_path, run, refused, inputs, command):
    """Made with other settings, with a mangled manifest, or without one: nothing is touched."""
    run(*inputs[command], "--out", "out")
    before = tree(tmp_path / "out")
    refused(*inputs[command], *OTHER[command], "--out", "out")
    assert "nothing to do" in run(*inputs[command], "--out", "out").stdout
    assert tree(tmp_path / "out") == before
    (tmp_path / "out" / "manifest.json").write_text("{}")
    refused(*inputs[command], "--out", "out", code=3)
    (tmp_path / "out" / "manifest.json").unlink()
    refused(*inputs[command], "--out", "out")
    del before["manifest.json"]
    assert tree(tmp_path / "out") == before


def test_a_source_that_changed_is_noticed(tmp_path, run, refused):
    (tmp_path / "a.txt").write_bytes(GOOD)
    run("corpus", "text", "a.txt", "--out", "docs")
    times = (tmp_path / "a.txt").stat()
    (tmp_path / "a.txt").write_bytes(GOOD.replace(b"good", b"nice"))
    os.utime(tmp_path / "a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    refused("corpus", "text", "a.txt", "--out", "docs")
    assert texts(tmp_path / "docs") == [GOOD.decode()]


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_that_cannot_be(tmp_path, refused, inputs, command):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    (tmp_path / "dangling").symlink_to("loop")
    (tmp_path / "loop").symlink_to("dangling")
    before = tree(tmp_path)
    outs = ["file/out"]
    if command == "corpus":
        outs += ["folder", "file", "loop/out", "/dev/full", "/proc/out", "a" * 300, ""]
    for out in outs:
        refused(*inputs[command], "--out", out)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_an_error_and_the_same_command_goes_on(
    tmp_path, run, refused, inputs, command
):
    """No file may grow beyond a limit: writing fails as it does on a full disk."""

    def full(limit: int) -> Callable[[], None]:
        def apply() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return apply

    run(*inputs[command], "--out", "clean")
    for limit in (0, 500) if command == "corpus" else (500,):
        refused(*inputs[command], "--out", "out", preexec_fn=full(limit), fresh=True)
        assert not (tmp_path / "out" / "manifest.json").exists()
    run(*inputs[command], "--out", "out")
    assert same_bytes(tmp_path / "out", tmp_path / "clean")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; see the full disk")
def test_a_folder_that_may_not_be_written(tmp_path, refused, inputs):
    (tmp_path / "locked").mkdir(mode=0o555)
    for arguments in inputs.values():
        refused(*arguments, "--out", "locked/out")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_and_run_again_gives_the_same_bytes(tmp_path, run, inputs, docs, command):
    """Killed at many moments; the workers may outlive their parent for a while."""
    arguments = inputs[command]
    if command == "corpus":
        (tmp_path / "src").mkdir()
        for number in range(8):
            made = "\n\n".join(d.text for d in make_documents(300, seed=number))
            (tmp_path / "src" / f"{number}.txt").write_text(made)
        arguments = ["corpus", "text", "src", "--workers", 2]
    if command == "prepare":
        arguments = [*arguments, "--workers", 2]
    begin = time.monotonic()
    run(*arguments, "--out", "clean")
    whole = time.monotonic() - begin
    for part in (0.6, 0.9):
        process = subprocess.Popen(
            [sys.executable, "-m", "electrify", *map(str, arguments), "--out", "out"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(part * whole)
        process.kill()
        process.wait()
        if (tmp_path / "out" / "manifest.json").exists():
            assert same_bytes(tmp_path / "out", tmp_path / "clean")
    run(*arguments, "--out", "out")
    assert same_bytes(tmp_path / "out", tmp_path / "clean")


@pytest.mark.parametrize("kind", ["jsonl", "wikipedia"])
def test_the_same_bytes_for_any_number_of_workers(tmp_path, run, kind):
    name, data = source_of(kind)
    (tmp_path / name).write_bytes(data)
    for workers in (1, 3):
        run("corpus", kind, name, "--out", f"docs{workers}", "--workers", workers, "--dedup")
    assert same_bytes(tmp_path / "docs1", tmp_path / "docs3")


# ----------------------------------------------------------------------- tokenizers and shards


def test_a_vocabulary_with_windows_line_ends(tmp_path, run, docs, vocab):
    windows = tmp_path / "vocab.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + vocab.read_bytes().replace(b"\n", b"\r\n"))
    for name, path in (("unix", vocab), ("windows", windows)):
        run("prepare", docs, "--tokenizer", path, "--out", name)
    one, other = (checked(tmp_path / name) for name in ("unix", "windows"))
    assert one["files"] == other["files"]


VOCABULARIES = {
    "empty": b"",
    "no special tokens": b"a\nb\nc\n",
    "no [MASK]": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
    "a token twice": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n",
    "invalid UTF-8": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xff\xfe\n",
    "nested JSON": b"[" * 100_000,
    "no [UNK]": b"[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n",
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies_that_are_none(tmp_path, refused, docs, name):
    (tmp_path / "vocab.txt").write_bytes(VOCABULARIES[name])
    refused("prepare", docs, "--tokenizer", "vocab.txt", "--out", "shards")
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", b'{"version": "1.0", "model": {}}'])
def test_tokenizer_folders_that_are_none(tmp_path, refused, content):
    (tmp_path / "tok").mkdir()
    if content is not None:
        (tmp_path / "tok" / "tokenizer.json").write_bytes(content)
    refused("tokenizer", "--load", "tok", "--out", "tokenizer")
    assert not (tmp_path / "tokenizer").exists()


def unparseable(description: dict) -> None:
    description["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def large_ids(description: dict) -> None:
    vocabulary = description["model"]["vocab"]
    description["model"]["vocab"] = {word: 100 * id for word, id in vocabulary.items()}
    description["added_tokens"] = [
        {**token, "id": 100 * token["id"]} for token in description["added_tokens"]
    ]


def equal_ids(description: dict) -> None:
    description["model"]["vocab"] = dict.fromkeys(description["model"]["vocab"], 0)
    description["added_tokens"] = []


def no_unknown(description: dict) -> None:
    description["model"]["unk_token"] = "[NOPE]"


@pytest.mark.parametrize("edit", [unparseable, large_ids, equal_ids, no_unknown])
def test_tokenizers_that_cannot_work(tmp_path, refused, docs, vocab, edit):
    description = json.loads(tokenizer.load(vocab).backend.to_str())
    edit(description)
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "tokenizer.json").write_text(json.dumps(description))
    error = refused("prepare", docs, "--tokenizer", "tok", "--out", "shards")
    assert "tokenizer" in error
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--length", 65536),
        ("--length", 10**12),
        ("--length", -1),
        ("--length", "x"),
        ("--validation", "nan"),
        ("--validation", -0.1),
        ("--validation", 0.6, "--test", 0.6),
        ("--workers", -1),
        ("--seed", "x"),
        ("--tokenizer", ""),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_prepare_settings_out_of_range(tmp_path, run, docs, vocab, options):
    error = run("prepare", docs, "--tokenizer", vocab, "--out", "shards", *options, code=2).stderr
    assert options[0].strip("-") in error
    assert not (tmp_path / "shards" / "manifest.json").exists()


@pytest.mark.parametrize("size", [0, -5, 10, "x", 10**30])
def test_vocabulary_sizes_out_of_range(tmp_path, run, docs, size):
    error = run("tokenizer", docs, "--vocab-size", size, "--out", "tok", code=2).stderr
    assert "vocab-size" in error
    assert not (tmp_path / "tok").exists()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_text_that_yields_fewer_tokens_than_asked(tmp_path, run, docs, vocab, kind):
    """The tokenizer says how many it has, and works."""
    said = run("tokenizer", docs, "--kind", kind, "--vocab-size", 60_000, "--out", "tok").stdout
    tokens = json.loads((tmp_path / "tok" / "tokenizer.json").read_text())["model"]["vocab"]
    assert 5 < len(tokens) < 60_000
    assert f"{len(tokens):,}" in said or str(len(tokens)) in said
    run("prepare", docs, "--tokenizer", "tok", "--out", "shards")
    checked(tmp_path / "shards")


# ---------------------------------------------------------------------------- damaged folders


def damage(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    match how:
        case "deleted":
            file.unlink()
        case "truncated":
            file.write_bytes(data[: len(data) // 2])
        case "longer":
            file.write_bytes(data + bytes(2))
        case "a folder":
            file.unlink()
            file.mkdir()
        case "bit flip":
            data[len(data) // 2] ^= 0x55
            file.write_bytes(data)


DAMAGE = ["deleted", "truncated", "longer", "a folder", "bit flip"]


@pytest.fixture(scope="session")
def shards(docs: Path, vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of the documents, all for training."""
    folder = tmp_path_factory.mktemp("prepared") / "shards"
    options = [docs, "--tokenizer", vocab, "--validation", 0, "--test", 0, "--out", folder]
    command = [sys.executable, "-m", "electrify", "prepare", *map(str, options), "--workers", "1"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_documents(tmp_path, refused, docs, vocab, how):
    shutil.copytree(docs, tmp_path / "docs")
    damage(tmp_path / "docs" / "documents-00003.parquet", how)
    commands = [
        ("show", "docs", "--verify"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok"),
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
    ]
    for command in commands:
        assert "documents-00003.parquet" in refused(*command, code=3)
    for made in ("tok", "shards"):
        assert not (tmp_path / made / "manifest.json").exists()


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_shards(tmp_path, refused, shards, how):
    shutil.copytree(shards, tmp_path / "shards")
    shard = sorted((tmp_path / "shards").glob("train-*"))[0]
    damage(shard, how)
    assert shard.name in refused("show", "shards", "--verify", code=3)
    assert shard.name in refused("show", "shards", code=3)


def without(stated: dict, *keys: str) -> bytes:
    """The manifest without one key, somewhere inside."""
    inner: dict = stated
    for key in keys[:-1]:
        inner = inner[key] if key != "files" else inner["files"][0]
    del inner[keys[-1]]
    return json.dumps(stated).encode()


def manifests(sound: bytes) -> dict[str, tuple[bytes, int]]:
    """Mangled manifests, and the exit code: 2 where the folder may be the wrong one."""
    stated = json.loads(sound)
    outside = {**stated["files"][0], "name": "../../outside"}
    return {
        "cut": (sound[: len(sound) // 2], 3),
        "not UTF-8": (b"\xff\xfe\0", 3),
        "nested": (b"[" * 100_000, 3),
        "a list": (b"[]", 3),
        "nothing in it": (b"{}", 3),
        "no documents": (without(json.loads(sound), "documents"), 3),
        "no files": (without(json.loads(sound), "files"), 3),
        "no names": (without(json.loads(sound), "files", "name"), 3),
        "no sizes": (without(json.loads(sound), "files", "bytes"), 3),
        "no checksums": (without(json.loads(sound), "files", "sha256"), 3),
        "files as numbers": (json.dumps({**stated, "files": [1]}).encode(), 3),
        "sizes as text": (
            json.dumps({**stated, "files": [{**stated["files"][0], "bytes": "x"}]}).encode(),
            3,
        ),
        "outside": (json.dumps({**stated, "files": [outside]}).encode(), 3),
        "other kind": (json.dumps({**stated, "kind": "something else"}).encode(), 2),
    }


CASES = list(  # their names
    manifests(b'{"documents": 1, "files": [{"name": "", "bytes": 0, "sha256": ""}]}')
)


@pytest.mark.parametrize("case", CASES)
def test_mangled_manifest_of_documents(tmp_path, refused, docs, vocab, case):
    shutil.copytree(docs, tmp_path / "docs")
    file = tmp_path / "docs" / "manifest.json"
    content, code = manifests(file.read_bytes())[case]
    file.write_bytes(content)
    refused("show", "docs", code=code)
    if case in ("cut", "no documents", "other kind"):
        refused("prepare", "docs", "--tokenizer", vocab, "--out", "s", code=code)
        assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "keys", [("splits",), ("files", "name"), ("files", "sha256"), ("files",), ("kind",)]
)
def test_mangled_manifest_of_shards(tmp_path, refused, shards, keys):
    shutil.copytree(shards, tmp_path / "shards")
    file = tmp_path / "shards" / "manifest.json"
    file.write_bytes(without(json.loads(file.read_bytes()), *keys))
    refused("show", "shards", code=3)


@pytest.mark.parametrize("key", ["examples", "tokens", "index_crc32"])
def test_mangled_entry_of_a_shard(tmp_path, refused, shards, key):
    shutil.copytree(shards, tmp_path / "shards")
    file = tmp_path / "shards" / "manifest.json"
    stated = json.loads(file.read_bytes())
    for entry in stated["files"]:
        entry.pop(key, None)
    file.write_text(json.dumps(stated))
    refused("show", "shards", code=3)


def test_documents_and_tokenizers_changed_after_their_manifest(tmp_path, run, refused, docs, vocab):
    """Files that are sound, but not the ones the manifest lists."""
    shutil.copytree(docs, tmp_path / "docs")
    one, other = (tmp_path / "docs" / f"documents-0000{number}.parquet" for number in (0, 1))
    shutil.copy(one, other)
    run("tokenizer", "--load", vocab, "--out", "tok")
    for command in [
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok2"),
        ("show", "docs", "--count", 60),
    ]:
        assert other.name in refused(*command, code=3)
    file = tmp_path / "tok" / "tokenizer.json"
    file.write_text(file.read_text().replace('"kata"', '"atak"'))
    error = refused("prepare", docs, "--tokenizer", "tok", "--out", "shards2", code=3)
    assert "tokenizer.json" in error
    assert not (tmp_path / "shards2").exists()


def strange_documents(folder: Path, texts: pyarrow.Array) -> Path:
    """A folder whose manifest is true to its file, but not as `electrify corpus` makes them."""
    name, count = "documents-00000.parquet", len(texts)
    plain = {field: pyarrow.array(["x"] * count) for field in Document._fields}
    folder.mkdir()
    table = pyarrow.table({**plain, "text": texts})
    pyarrow.parquet.write_table(table, folder / name, store_schema=False)
    size = (folder / name).stat().st_size
    file = {"name": name, "bytes": size, "sha256": sha256_of(folder / name)}
    counts = {"documents": count, "characters": 10 * count}
    made = {"kind": "documents", "identity": {}, "files": [file], **counts}
    (folder / "manifest.json").write_text(json.dumps(made))
    return folder


@pytest.mark.parametrize("texts", [pyarrow.array([1, 2]), pyarrow.array(["some text", None])])
def test_documents_whose_text_is_none(tmp_path, refused, vocab, texts):
    strange_documents(tmp_path / "docs", texts)
    for command in [
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok"),
        ("show", "docs"),
    ]:
        assert "documents-00000.parquet" in refused(*command, code=3)


def test_documents_that_unpack_to_gigabytes_are_refused_in_little_memory(tmp_path, vocab):
    """2 GB of text: one value of 5 MB, 400 times, stored once."""
    index, values = pyarrow.array([0] * 400, pyarrow.int32()), pyarrow.array(["word " * MB])
    strange_documents(tmp_path / "docs", pyarrow.DictionaryArray.from_arrays(index, values))
    for command in (("show", "docs"), ("prepare", "docs", "--tokenizer", vocab, "--out", "s")):
        run_within(700 * MB, tmp_path, *command, code=3)


def test_folders_that_hold_no_documents(tmp_path, run, refused, vocab, shards):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    run("tokenizer", "--load", vocab, "--out", "tok")
    write_documents(tmp_path / "none", [])
    for source in ("empty", "file", "nowhere", shards, "tok", "none"):
        refused("prepare", source, "--tokenizer", vocab, "--out", "out")
    for source in ("empty", shards, "none"):
        refused("tokenizer", source, "--vocab-size", 150, "--out", "out")
    for source in ("empty", "file", "nowhere", "tok"):
        refused("show", source)
    assert not (tmp_path / "out").exists()
    run("show", "none")


def test_show_of_an_empty_split(run, refused, shards):
    assert "validation" in refused("show", shards, "--split", "validation")
    assert "test" in refused("show", shards, "--split", "test", "--seed", 1)
    run("show", shards, "--verify")


@pytest.mark.parametrize("options", [("--count", 10**9), ("--count", 10**9, "--seed", -1)])
def test_show_of_more_than_there_is(run, docs, options):
    run("show", docs, *options)


def test_a_reader_that_goes_away_is_no_traceback(docs):
    """`electrify show docs | head -1`"""
    process = subprocess.Popen(
        [sys.executable, "-m", "electrify", "show", str(docs), "--count", "400"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read(10)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert "Error" not in error


@pytest.mark.parametrize("content", [b"\xff", b"x = ", b"[reader]\nsplit = 7", b"sources = 1"])
def test_settings_files_that_are_none(tmp_path, run, content):
    (tmp_path / "settings.toml").write_bytes(content)
    run("corpus", "text", "--config", "settings.toml", "--out", "docs", code=2)
    assert not (tmp_path / "docs").exists()


def test_settings_files_that_are_missing(run):
    for name in ("nowhere.toml", ".", "/dev/zero/a"):
        run("corpus", "text", "--config", name, "--out", "docs", code=2)

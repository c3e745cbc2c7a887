"""Archives with malicious members, and broken archives."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.bad_input.sources import (
    ALSO_GOOD,
    GOOD,
    PACK,
    accounted,
    checked,
    counted,
    source_of,
    tar,
    texts,
    tree,
)
from tests.conftest import make_documents


def malicious_members(outside: Path) -> list[tuple[str, bytes | str, bytes]]:
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


def malicious_tars(folder: Path, layer: str) -> str:
    members = malicious_members(folder)
    if layer == "inner":
        (folder / "owt.tar").write_bytes(tar(("a/one.xz", PACK["xz"](tar(*members)), b"0")))
    else:  # the same members as archives inside the outer one
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
    source = malicious_tars(tmp_path, layer)
    before = tree(tmp_path, "docs")
    run("corpus", "openwebtext", source, "--out", "docs", "--workers", workers)
    assert tree(tmp_path, "docs") == before
    assert not (tmp_path.parent / "evil.txt").exists()
    found = texts(tmp_path / "docs")
    assert {GOOD.decode(), ALSO_GOOD.decode()} <= set(found)
    assert "The secret." not in found
    stated = checked(tmp_path / "docs")
    # six regular files remain; the 7 links, devices and pipes never become documents
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


def test_a_truncated_archive_in_an_archive_is_counted(tmp_path, run):
    intact = [document.text for document in make_documents(60)]
    members = [(f"{n:02}.txt", text.encode(), b"0") for n, text in enumerate(intact)]
    one, two = (PACK["xz"](tar(*chosen)) for chosen in (members[:30], members[30:]))
    cases = {
        "inner": tar(("a.xz", one[: len(one) // 2], b"0"), ("b.xz", two, b"0")),
        "outer": tar(("a.xz", one, b"0"), ("b.xz", two, b"0"))[: len(one) + 3000],
    }
    for name, data in cases.items():
        (tmp_path / f"{name}.tar").write_bytes(data)
        run("corpus", "openwebtext", f"{name}.tar", "--out", name)
        assert set(texts(tmp_path / name)) < set(intact)
        assert counted(checked(tmp_path / name), "truncated") >= 1

"""The steps that every kind of corpus goes through."""

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
from tests.conftest import make_documents, write_documents
from tests.training.nursery import Nursery

from electrify.cli import main
from electrify.corpora import archive, plaintext
from electrify.corpora.clean import Filters
from electrify.corpora.corpus import corpus, settings_type
from electrify.corpora.document import Document, read_parquet, row_groups, write_parquet
from electrify.corpora.duplicates import KEY, first_occurrences, text_key
from electrify.errors import DamagedError, UserError
from electrify.storage.commit import read_manifest, sha256_of, verify, write_json

Text = settings_type("text")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of 60 files of documents separated by blank lines, with duplicates."""
    folder = tmp_path / "source"
    folder.mkdir()
    documents = make_documents(900)
    rng = Random(3)
    for number in range(60):
        chosen = [documents[rng.randrange(900)].text for _ in range(15)]
        (folder / f"{number:02d}.txt").write_text("\n\n".join(chosen) + "\n")
    return folder


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(archive.group, "__defaults__", (20_000,))


def build_corpus(source: Path, out: Path, workers: str = "1", **filters: object) -> dict:
    settings = Text(sources=(str(source),), out=out, filters=Filters(**filters), workers=workers)
    return corpus(settings)


def digests(folder: Path) -> dict[str, str]:
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.is_file()
    }


def texts(folder: Path) -> list[str]:
    return [document.text for document in read_parquet(row_groups(folder))]


def test_documents_and_manifest(source, tmp_path):
    manifest = build_corpus(source, tmp_path / "docs")
    assert manifest["documents"] == 900 == len(texts(tmp_path / "docs"))
    assert len(manifest["files"]) > 4
    assert verify(tmp_path / "docs", manifest) == []
    assert read_manifest(tmp_path / "docs", "documents") == manifest
    (described,) = manifest["identity"]["sources"]
    assert described["files"] == 60
    assert described["bytes"] == sum(path.stat().st_size for path in source.iterdir())
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(source.iterdir())
    )
    assert described["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    assert not (tmp_path / "docs/.parts").exists()
    ids = [document.id for document in read_parquet(row_groups(tmp_path / "docs"))]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "filters", [{}, {"dedup": True}, {"limit": 100}, {"dedup": True, "limit": 333}]
)
def test_any_number_of_workers_gives_the_same_bytes(source, tmp_path, filters):
    build_corpus(source, tmp_path / "one", **filters)
    build_corpus(source, tmp_path / "three", workers="3", **filters)
    assert digests(tmp_path / "one") == digests(tmp_path / "three")


def test_dedup_keeps_the_first_of_each_text_and_counts_the_others(source, tmp_path):
    build_corpus(source, tmp_path / "all")
    manifest = build_corpus(source, tmp_path / "unique", dedup=True)
    everything = texts(tmp_path / "all")
    assert texts(tmp_path / "unique") == list(dict.fromkeys(everything))
    assert manifest["dropped"]["duplicate"] == len(everything) - manifest["documents"]


def test_limit_gives_the_first_documents(source, tmp_path):
    build_corpus(source, tmp_path / "all")
    build_corpus(source, tmp_path / "limited", limit=123)
    assert texts(tmp_path / "limited") == texts(tmp_path / "all")[:123]
    build_corpus(source, tmp_path / "unique", limit=200, dedup=True)
    assert texts(tmp_path / "unique") == list(dict.fromkeys(texts(tmp_path / "all")))[:200]


def test_first_occurrences_in_several_passes(tmp_path, monkeypatch):
    monkeypatch.setattr("electrify.corpora.duplicates.KEYS_PER_PASS", 7)
    rng = Random(0)
    words = [[f"{rng.randrange(60)}" for _ in range(20)] for _ in range(6)]
    files = []
    for number, file_words in enumerate(words):
        files.append(tmp_path / f"{number}.keys")
        files[-1].write_bytes(b"".join(map(text_key, file_words)))
        assert files[-1].stat().st_size == 20 * KEY.itemsize
    kept = [
        word
        for file_words, keep in zip(words, first_occurrences(files), strict=True)
        for word, is_first in zip(file_words, keep, strict=True)
        if is_first
    ]
    assert kept == list(dict.fromkeys(word for file_words in words for word in file_words))


def test_each_drop_is_counted_by_reason(tmp_path):
    (tmp_path / "a.txt").write_text(
        "tiny\n\nlong enough to stay here\n\n1234 5678 9012 3456 7890\n\nsame\nsame\nsame\nsame\nsame\n"
    )
    manifest = build_corpus(
        tmp_path / "a.txt", tmp_path / "o", min_chars=10, min_letters=0.5, max_repeated_lines=0.5
    )
    assert manifest["documents"] == 1
    assert manifest["dropped"] == {"repeated lines": 1, "too few letters": 1, "too short": 1}


SMALL_PARTS = "from electrify.corpora import archive; archive.group.__defaults__ = (20_000,)"


def start_build(warm: Nursery, source: Path, out: Path, workers: int) -> int:
    """Start a build in a child process, wait until it works, and return its pid."""
    command = ("corpus", "text", source, "--dedup", "--workers", workers, "--out", out)
    pid = warm.start(*command, log=out.with_suffix(".log"), before=SMALL_PARTS)
    while warm.running() and not (out / ".parts/read").exists():
        time.sleep(0.001)
    return pid


def test_killed_at_random_moments_it_ends_with_the_same_bytes(source, tmp_path, warm):
    build_corpus(source, tmp_path / "complete", dedup=True)
    out = tmp_path / "killed"
    rng = Random(5)
    kills, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        pid = start_build(warm, source, out, 1)
        if kills < 15 and warm.running(rng.uniform(0.0, 0.1)):
            os.kill(pid, signal.SIGKILL)
        code = warm.wait()
        kills += code == -signal.SIGKILL
    assert code == 0
    assert kills >= 3
    assert digests(out) == digests(tmp_path / "complete")
    assert not (out / ".parts").exists()


def processes_in(group: int) -> list[str]:
    """Return the running processes of a process group."""
    found = subprocess.run(["ps", "-eo", "pgid,stat,pid"], capture_output=True, text=True).stdout
    rows = [line.split() for line in found.splitlines()]
    return [pid for pgid, state, pid in rows if pgid == str(group) and state[0] != "Z"]


def test_workers_do_not_outlive_a_parent_that_is_killed(source, tmp_path, warm):
    out = tmp_path / "o"
    pid = start_build(warm, source, out, 2)
    while len(processes_in(pid)) < 3:
        assert warm.running(0.01)
    os.kill(pid, signal.SIGKILL)
    assert warm.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while processes_in(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes_in(pid)
    build_corpus(source, out, dedup=True)


def test_another_source_or_another_filter_is_refused(source, tmp_path):
    out = tmp_path / "docs"
    build_corpus(source, out)
    before = digests(out)
    with pytest.raises(UserError, match="other settings, other input") as error:
        build_corpus(source, out, min_chars=5)
    assert "settings.filters.min_chars: the folder has 1, the command says 5" in str(error.value)
    (source / "00.txt").write_text("changed")
    with pytest.raises(UserError, match="other settings, other input"):
        build_corpus(source, out)
    assert digests(out) == before


def test_an_empty_result_is_reported(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("x\n")
    assert (
        main(
            [
                "corpus",
                "text",
                str(tmp_path / "a.txt"),
                "--out",
                str(tmp_path / "o"),
                "--min-chars",
                "9",
            ]
        )
        == 0
    )
    assert "no document was kept" in capsys.readouterr().out


def test_documents_survive_parquet_unchanged(tmp_path):
    from electrify.corpora.document import Slice, write_parquet

    documents = [
        Document("1", "emoji 🙂 and \u0000 and עברית", "s", "a title", None),
        Document("2", "", "s", None, "label"),
    ]
    write_parquet(tmp_path / "d.parquet", documents)
    assert list(read_parquet([Slice(tmp_path / "d.parquet")])) == documents


def test_a_flipped_bit_anywhere_never_changes_a_document(tmp_path):
    folder = write_documents(tmp_path / "docs", make_documents(8))
    path = folder / "documents-00000.parquet"
    intact, documents = path.read_bytes(), list(read_parquet(row_groups(folder)))
    detected = 0
    for position in range(0, len(intact), 5):
        broken = bytearray(intact)
        broken[position] ^= 1 << position % 8
        path.write_bytes(broken)
        try:
            assert list(read_parquet(row_groups(folder))) == documents
        except DamagedError:
            detected += 1
    assert detected > len(intact) / 5 / 4


def test_a_refused_source_leaves_no_trace(tmp_path, electrify):
    (tmp_path / "source").mkdir()
    electrify("corpus", "text", tmp_path / "source", "--out", tmp_path / "docs", code=2)
    assert not (tmp_path / "docs").exists()
    (tmp_path / "source/a.txt").write_text("now there is text\n")
    electrify("corpus", "text", tmp_path / "source", "--out", tmp_path / "docs")


def test_parts_of_two_versions_are_never_mixed(source, tmp_path, monkeypatch):
    import electrify.corpora.corpus as module
    import electrify.storage.build as build

    original, calls = module._read, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_corpus(source, tmp_path / "docs")
    monkeypatch.setattr(module, "_read", original)
    monkeypatch.setattr(build, "__version__", "9.9")
    with pytest.raises(
        UserError, match=r"made_with\.electrify: the folder has .*, the command says 9\.9"
    ):
        build_corpus(source, tmp_path / "docs")


def test_a_damaged_parquet_file_is_a_damaged_error(source, tmp_path, electrify):
    build_corpus(source, tmp_path / "docs")
    path = tmp_path / "docs/documents-00000.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    assert "is damaged" in electrify("show", tmp_path / "docs", code=3).stderr
    manifest = json.loads((tmp_path / "docs/manifest.json").read_text())
    assert len(verify(tmp_path / "docs", manifest)) == 1


def test_a_file_replaced_by_one_without_rows_is_damage(tmp_path):
    folder = write_documents(tmp_path / "docs", make_documents(80))
    path = folder / "documents-00001.parquet"
    write_parquet(path, [])
    manifest = read_manifest(folder, "documents")
    manifest["files"][1]["bytes"] = path.stat().st_size  # as if it had the size of the other
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(DamagedError, match="40 documents in its files, expected 80"):
        row_groups(folder)


def grow(path: Path) -> None:
    path.write_text(path.read_text() + "\n\nOne more document.\n")


def rewrite(path: Path) -> None:
    path.write_text(path.read_text().replace("a", "b"))


def cut(path: Path) -> None:
    path.write_text(path.read_text()[: path.stat().st_size // 2])


def add_beside(path: Path) -> None:
    (path.parent / "new.txt").write_text("One more document.\n")


@pytest.mark.parametrize(
    ("change", "after"),
    [(grow, 0), (rewrite, None), (cut, 5), (Path.unlink, 0), (Path.unlink, 5), (add_beside, None)],
)
def test_sources_that_change_while_they_are_read_are_refused(
    source, tmp_path, monkeypatch, change, after
):
    """Before the first part is read, after it, and after the last one; nothing is finished."""
    last, parts = source / "59.txt", plaintext.Text.parts

    def changing(self, sources):
        for number, part in enumerate(parts(self, sources)):
            if number == after:
                change(last)
            yield part
        if after is None:
            change(last)

    monkeypatch.setattr(plaintext.Text, "parts", changing)
    with pytest.raises(UserError, match="the sources changed while they were read") as error:
        build_corpus(source, tmp_path / "out")
    assert ("new.txt" if change is add_beside else last.name) in error.value.got
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("dedup", [False, True])
def test_no_part_of_a_changed_source_is_kept(source, tmp_path, monkeypatch, killed, dedup):
    """The changed text is read, and the source is restored, with its time, before the rerun."""
    first, parts = source / "00.txt", plaintext.Text.parts
    good, before = first.read_text(), first.stat()

    def changing(self, sources):
        first.write_text(good.replace("a", "b"))
        for number, part in enumerate(parts(self, sources)):
            if killed and number == 12:
                raise KeyboardInterrupt
            yield part

    with monkeypatch.context() as patch:
        patch.setattr(plaintext.Text, "parts", changing)
        with pytest.raises(KeyboardInterrupt if killed else UserError):
            build_corpus(source, tmp_path / "out", dedup=dedup)
    assert any((tmp_path / "out").glob(".parts/read/*.json")) == killed
    first.write_text(good)
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    build_corpus(source, tmp_path / "out", dedup=dedup)
    build_corpus(source, tmp_path / "clean", dedup=dedup)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_a_source_removed_before_it_is_hashed_is_refused(source, tmp_path, monkeypatch):
    def removing(path):
        if path.name == "59.txt":
            path.unlink()
        return sha256_of(path)

    monkeypatch.setattr(archive, "sha256_of", removing)
    with pytest.raises(UserError, match="the sources changed while they were read"):
        build_corpus(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()

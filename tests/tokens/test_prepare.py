"""`electrify prepare`: reproducible bytes after any interruption, and no lost tokens."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.conftest import WORDS, make_documents, write_documents

from electrify.corpora.document import Document, read_parquet, row_groups
from electrify.errors import UserError
from electrify.tokens import tokenizer
from electrify.tokens.encoder import LineEncoder
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.splits import SPLITS, split_of, splits_for
from electrify.tokens.store import Shards


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Make several shards out of little text."""
    monkeypatch.setattr("electrify.tokens.prepare.ROW_GROUPS_PER_SHARD", 1)


def made(docs: Path, vocab: Path, out: Path, **options: object) -> Path:
    prepare(Prepare(docs=(docs,), tokenizer=str(vocab), out=out, **{"workers": "1", **options}))
    return out


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def examples(folder: Path, split: str) -> list[tuple[list[int], list[int]]]:
    shards = Shards(folder, split)
    return [(shards[i].ids.tolist(), shards[i].starts.tolist()) for i in range(len(shards))]


def text_tokens(folder: Path) -> np.ndarray:
    special = tokenizer.load_tokenizer(folder / "tokenizer").special
    tokens = [t for split in SPLITS for ids, _ in examples(folder, split) for t in ids]
    return np.array([t for t in tokens if t not in (special.cls, special.sep)])


@pytest.mark.parametrize("workers", ["2", "5"])
def test_any_number_of_workers_gives_the_same_bytes(docs, vocab, tmp_path, workers, monkeypatch):
    one = digests(made(docs, vocab, tmp_path / "one"))
    assert sum(name.startswith("train") for name in one) >= 8
    assert digests(made(docs, vocab, tmp_path / "many", workers=workers)) == one


@pytest.mark.parametrize("layout", ["electra", "pairs", "packed"])
def test_carry_loses_no_token_of_any_document(docs, vocab, tmp_path, layout):
    folder = made(docs, vocab, tmp_path / "s", layout=layout, length=32)
    encoder = LineEncoder(tokenizer.load_tokenizer(vocab).backend)
    texts = [document.text for document in read_parquet(row_groups(docs))]
    wanted = [token for text in texts for line in encoder.lines(text) for token in line]
    np.testing.assert_array_equal(np.sort(text_tokens(folder)), np.sort(wanted))
    manifest = Shards(folder).manifest
    assert sum(split["dropped_tokens"] for split in manifest["splits"].values()) == 0
    assert sum(split["text_tokens"] for split in manifest["splits"].values()) == len(wanted)


def test_drop_counts_what_it_drops(docs, vocab, tmp_path):
    folder = made(docs, vocab, tmp_path / "s", overflow="drop")
    splits = Shards(folder).manifest["splits"].values()
    dropped = sum(split["dropped_tokens"] for split in splits)
    assert dropped > 0
    assert dropped + len(text_tokens(folder)) == sum(split["text_tokens"] for split in splits)


@pytest.mark.parametrize("layout", ["electra", "pairs"])
def test_no_example_spans_two_documents(tmp_path, layout, vocab):
    """Every document has its own word, and no example contains two of them."""
    rng = Random(1)
    words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "ijklm" for c in "nopqr"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*tokenizer.OUR_NAMES.values(), *words]))
    documents = [
        Document(word, "\n".join(" ".join([word] * rng.randint(1, 60)) for _ in range(5)), "x")
        for word in words
    ]
    docs = write_documents(tmp_path / "docs", documents)
    folder = made(docs, path, tmp_path / "s", layout=layout, validation=0.2)
    special = tokenizer.load_tokenizer(path).special
    for split in SPLITS:
        for ids, _ in examples(folder, split):
            assert len(set(ids) - {special.cls, special.sep}) == 1


def test_adding_documents_moves_none_between_splits_and_equal_texts_stay_together():
    texts = [document.text for document in make_documents(3000)]
    splits = [split_of(text, 0.1, 0.05) for text in texts]
    counts = {split: splits.count(split) / len(texts) for split in SPLITS}
    assert counts["validation"] == pytest.approx(0.1, abs=0.02)
    assert counts["test"] == pytest.approx(0.05, abs=0.015)
    assert [split_of(text, 0.1, 0.05) for text in reversed(texts)] == splits[::-1]


def novels(count: int, lines: int, seed: int = 0) -> list[Document]:
    """Return long documents of numbered lines, which show the split of each line."""
    rng = Random(seed)
    return [
        Document(
            f"{seed}-{number}",
            "\n".join(
                f"{seed} {number} {line} {' '.join(rng.choices(WORDS, k=12))}"
                for line in range(lines)
            ),
            "made up",
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 7, 67])
@pytest.mark.parametrize("fractions", [(0.01, 0.01), (0.3, 0.0), (0.05, 0.2)])
def test_few_long_documents_give_every_split_its_fraction(count, fractions):
    documents = [document.text for document in novels(count, 300)]
    splits = splits_for(documents, *fractions)
    lines: dict[str, list[str]] = {name: [] for name in SPLITS}
    for text in documents:
        for name, part in splits.of(text):
            assert part in text
            lines[name] += part.splitlines()
    assert sorted(chain(*lines.values())) == sorted("\n".join(documents).splitlines())
    for name, fraction in zip(SPLITS[1:], fractions, strict=True):
        actual = len(lines[name]) / (300 * count)
        assert actual >= 0.2 * fraction
        assert bool(actual) == bool(fraction)
    assert len(lines["train"]) >= 0.2 * 300 * count


def test_documents_without_line_ends_are_cut_at_spaces():
    text = " ".join(f"word{number}" for number in range(10_000))
    parts = splits_for([text], 0.1, 0.1).of(text)
    assert [name for name, _ in parts] == list(SPLITS)
    assert "".join(part for _, part in parts) == text
    assert all(part.split()[0] in text.split() for _, part in parts)


def test_ordinary_corpora_are_split_by_whole_documents():
    texts = [document.text for document in make_documents(1_000)]
    splits = splits_for(texts, 0.05, 0.05)
    assert splits.parts is None
    assert all(splits.of(text) == [(split_of(text, 0.05, 0.05), text)] for text in texts)


def test_few_documents_give_the_same_bytes_with_any_number_of_workers(tmp_path, vocab, capsys):
    docs = write_documents(tmp_path / "docs", novels(6, 200), per_file=2)
    one = made(docs, vocab, tmp_path / "one", length=32)
    output = " ".join(capsys.readouterr().out.split())
    assert "few documents, so the ends of" in output
    assert digests(made(docs, vocab, tmp_path / "two", length=32, workers="2")) == digests(one)
    manifest = Shards(one).manifest
    assert manifest["held_out_parts"]["validation"] > 0
    assert manifest["splits"]["validation"]["examples"] > 0
    assert manifest["splits"]["test"]["examples"] > 0
    none = Shards(made(docs, vocab, tmp_path / "none", validation=0, test=0)).manifest
    assert not none["splits"]["validation"]["documents"]
    assert "held_out_parts" not in none


def test_a_documents_examples_do_not_depend_on_the_others(tmp_path, vocab):
    documents = make_documents(30)
    alone = write_documents(tmp_path / "alone", documents[7:8])
    together = write_documents(tmp_path / "together", documents)
    of_one, of_all = (
        examples(made(docs, vocab, tmp_path / name, validation=0, test=0), "train")
        for docs, name in ((alone, "a"), (together, "b"))
    )
    start = of_all.index(of_one[0])
    assert of_all[start : start + len(of_one)] == of_one


def test_a_seed_is_reproducible_and_seeds_differ(docs, vocab, tmp_path):
    first = examples(made(docs, vocab, tmp_path / "a", seed=1), "train")
    assert examples(made(docs, vocab, tmp_path / "b", seed=1), "train") == first
    assert examples(made(docs, vocab, tmp_path / "c", seed=2), "train") != first


SMALL_SHARDS = """
import time
import electrify.tokens.prepare as p
p.ROW_GROUPS_PER_SHARD = 1
write = p.store.write_shard
p.store.write_shard = lambda *a, **k: (write(*a, **k), time.sleep(0.02))  # so that a kill can hit
"""


def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path, docs, vocab, warm):
    complete = digests(made(docs, vocab, tmp_path / "complete"))
    out = tmp_path / "killed"
    command = ("prepare", docs, "--tokenizer", vocab, "--out", out, "--workers", 1)
    rng = Random(0)
    kills = 0
    while True:
        pid = warm.start(*command, log=tmp_path / "log", before=SMALL_SHARDS)
        while warm.running() and not (out / ".parts/shards").exists():
            time.sleep(0.001)
        if kills < 12 and warm.running(rng.uniform(0, 0.3)):
            os.kill(pid, signal.SIGKILL)
        code = warm.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        if (out / "manifest.json").exists():  # killed after the last commit
            assert digests(out).items() >= complete.items(), "a manifest of an incomplete folder"
    assert kills >= 3
    assert digests(out) == complete


def test_finished_parts_are_not_made_again(docs, vocab, tmp_path, monkeypatch):
    out = tmp_path / "s"
    made(docs, vocab, tmp_path / "complete")
    calls = []
    import electrify.tokens.prepare as module

    original = module._make_shards

    def stops_at_four(job, part, index, folder):
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(index)
        return original(job, part, index, folder)

    monkeypatch.setattr(module, "_make_shards", stops_at_four)
    with pytest.raises(KeyboardInterrupt):
        made(docs, vocab, out)
    again = []
    monkeypatch.setattr(module, "_make_shards", lambda *a: again.append(a[2]) or original(*a))
    made(docs, vocab, out)
    assert calls == [0, 1, 2, 3]
    assert 0 not in again
    assert again[0] == 4
    assert digests(out) == digests(tmp_path / "complete")


def test_a_rerun_does_nothing_and_other_settings_are_refused(docs, vocab, tmp_path, capsys):
    out = made(docs, vocab, tmp_path / "s")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    made(docs, vocab, out)
    assert "nothing to do" in capsys.readouterr().out
    with pytest.raises(UserError, match="other settings") as error:
        made(docs, vocab, out, length=64)
    assert "length: the folder has 128, the command says 64" in str(error.value)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_refused_command_releases_the_lock(docs, vocab, tmp_path, monkeypatch):
    """In one process that keeps the errors, as a notebook keeps the last one."""
    from electrify.tokens import prepare as module

    out, kept = tmp_path / "s", []
    with monkeypatch.context() as patch:
        patch.setattr(module, "_summary", stopped)
        with pytest.raises(KeyboardInterrupt) as error:
            made(docs, vocab, out)
    kept.append(error)
    with pytest.raises(UserError, match="was started with other settings") as error:
        made(docs, vocab, out, length=64)
    kept.append(error)
    made(docs, vocab, out)
    assert (out / "manifest.json").exists()


def stopped(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"length": 4}, "--length is too small"),
        ({"validation": 0.9, "test": 0.2}, "must be fractions"),
        ({"validation": -0.1}, "must be fractions"),
        ({"test": float("nan")}, "must be fractions"),
        ({"workers": "-3"}, "workers"),
    ],
)
def test_invalid_settings_are_refused(docs, vocab, tmp_path, options, what):
    with pytest.raises(UserError, match=what):
        made(docs, vocab, tmp_path / "s", **options)


def test_two_processes_cannot_build_one_folder(docs, vocab, tmp_path):
    from electrify.storage.build import Build

    out = tmp_path / "s"
    build = Build(out, "shards", {"x": 1})
    program = "import sys; from pathlib import Path; from electrify.storage.build import Build; Build(Path(sys.argv[1]), 'shards', {'x': 1})"
    other = subprocess.run([sys.executable, "-c", program, out], capture_output=True, text=True)
    assert "another process is building" in other.stderr
    build.finish({"files": []})


def test_hash_seed_locale_and_time_zone_change_nothing(docs, vocab, tmp_path, electrify):
    outs = []
    for number, extra in enumerate(
        [{"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo"}]
    ):
        out = tmp_path / str(number)
        electrify(
            "prepare", docs, "--tokenizer", vocab, "--out", out, "--workers", "1",
            env={**os.environ, **extra}, cwd=tmp_path, fresh=True,
        )  # fmt: skip
        outs.append(digests(out))
    assert outs[0] == outs[1]


def test_the_packed_layout_prints_a_note(docs, vocab, tmp_path, capsys):
    made(docs, vocab, tmp_path / "packed", layout="packed")
    assert "attention crosses the documents" in capsys.readouterr().out
    made(docs, vocab, tmp_path / "electra")
    assert "attention crosses" not in capsys.readouterr().out

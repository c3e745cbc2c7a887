"""Mutate intact folders and files by a seed, and read them as the commands do.

A case must end well or in a `UserError`, within `SECONDS` and `MEMORY`. `run` is called in a process
of its own, which imports what it needs; a case that hangs ends that process.
"""

import io
import json
import resource
import shutil
import signal
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from electrify.errors import UserError

SECONDS = 20
MEMORY = 2 << 30  # bytes that a case may allocate
VALUES: list[Any] = [
    None, True, 0, -1, 1, 7, 2**16, 2**31, 2**63, 10**400, 0.5, -1e308, float("nan"), float("inf"),
    "", "x", "[UNK]", "\x1b[31m", "\ud800", "\0", "../../outside", "/etc/passwd", "a" * 100_000,
    [], {}, [[]], [{}], [0] * 1_000, ["x"], {"": None}, {"type": "nope"}, json.loads("[" * 200 + "]" * 200),
]  # fmt: skip
SNIPPETS = [
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\r\n", b"\n\n", b"\t", b",", b'"', b"{", b"}", b"[", b"\\ud800",
    b"\xef\xbb\xbf", b"9" * 5_000, b"(" * 1_000, b" " * 10_000, b"a" * 200_000, "\u2028".encode(), b"nan",
]  # fmt: skip


class Subject(NamedTuple):
    """What is mutated: a function that writes an intact folder, and one that reads it."""

    write: Callable[[Path], None]
    read: Callable[[Path], None]


def mutated_tree(tree: Any, rng: Random) -> Any:
    """Change, remove, copy or rename one value of a JSON tree."""
    if isinstance(tree, dict | list) and tree and rng.random() < 0.9:
        key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        change = rng.choice(["inside"] * 5 + ["remove", "copy"])
        if change == "inside":
            tree[key] = mutated_tree(tree[key], rng)
        elif change == "remove":
            del tree[key]
        elif isinstance(tree, dict):
            tree[rng.choice(["", "x", "\x1b[31m", "\ud800"])] = tree[key]
        else:
            tree.insert(0, tree[key])
        return tree
    if isinstance(tree, int | float) and rng.random() < 0.3:
        return rng.choice([tree + 1, tree - 1, -tree, tree * 10, str(tree)])
    return rng.choice(VALUES)


def mutated_bytes(data: bytes, rng: Random) -> bytes:
    """Flip, cut, repeat or insert bytes in one to three places."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice([1, 1, 8, 100, len(data)]))
        change = rng.choice(["flip", "cut", "repeat", "insert", "insert"])
        flipped = bytes(byte ^ rng.randrange(1, 256) for byte in data[start : start + 1])
        data = {
            "flip": data[:start] + flipped + data[start + 1 :],
            "cut": data[:start] + data[stop:],
            "repeat": data[:stop] + data[start:],
            "insert": data[:start] + rng.choice(SNIPPETS) + data[start:],
        }[change]
    return data


def mutated(path: Path, rng: Random) -> bytes:
    """Return the content of a file with mutated values, by its format, or mutated bytes."""
    data = path.read_bytes()
    if rng.random() < 0.3:
        return mutated_bytes(data, rng)
    if path.suffix == ".json":
        return json.dumps(mutated_tree(json.loads(data), rng)).encode()
    if path.suffix == ".jsonl":
        lines = data.splitlines(keepends=True)
        number = rng.randrange(len(lines))
        lines[number] = json.dumps(mutated_tree(json.loads(lines[number]), rng)).encode() + b"\n"
        return b"".join(lines)
    if path.suffix == ".safetensors":
        stop = 8 + int.from_bytes(data[:8], "little")
        header = json.dumps(mutated_tree(json.loads(data[8:stop]), rng)).encode()
        return len(header).to_bytes(8, "little") + header + data[stop:]
    return mutated_bytes(data, rng)


def list_again(folder: Path) -> None:
    """Correct sizes and checksums in a manifest, as an attacker would."""
    from electrify.storage.commit import sha256_of

    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for entry in manifest["files"]:
        file = folder / entry["name"]
        entry |= {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
    path.write_text(json.dumps(manifest))


def run(name: str, folder: Path, seeds: range) -> int:
    """Read one case for each seed; print those that fail, and return their number."""
    subject, failures = SUBJECTS[name], 0
    intact, case = folder / "intact", folder / "case"
    intact.mkdir()
    subject.write(intact)
    subject.read(shutil.copytree(intact, case))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for seed in seeds:
        rng = Random(f"{name} {seed}")
        shutil.rmtree(case)
        shutil.copytree(intact, case)
        path = rng.choice(sorted(path for path in case.rglob("*") if path.is_file()))
        path.write_bytes(mutated(path, rng))
        if (
            (case / "manifest.json").exists()
            and path.name != "manifest.json"
            and rng.random() < 0.7
        ):
            list_again(case)
        (folder / "seed").write_text(f"{seed}: {path.relative_to(case)}")
        signal.alarm(SECONDS)  # kills this process
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                subject.read(case)
        except UserError as error:
            if not (error.what and error.got and error.fix) or "\x1b" in str(error):
                failures += 1
                print(f"seed {seed}, {path.name}: an error without help\n{error}")
        except BaseException:
            failures += 1
            print(f"seed {seed}, {path.name}:\n{traceback.format_exc()[-1_500:]}")
        finally:
            signal.alarm(0)
    return failures


# --- folders of documents and shards ---


def _write_vocabulary(folder: Path) -> Path:
    from electrify.tokens.tokenizer import OUR_NAMES
    from tests.conftest import WORDS

    syllables = sorted({w[:2] for w in WORDS} | {f"##{w[2:]}" for w in WORDS})
    path = folder / "vocab.txt"
    path.write_text("\n".join([*OUR_NAMES.values(), *syllables, *WORDS[::2]]))
    return path


def write_docs(folder: Path) -> None:
    from tests.conftest import make_documents, write_documents

    write_documents(folder, make_documents(30))


def read_docs(folder: Path) -> None:
    from electrify.tokens.prepare import Prepare, prepare
    from electrify.tokens.show import Show, show_folder

    vocabulary, out = _write_vocabulary(folder.parent), folder.parent / "out"
    show_folder(Show(folder, count=40))
    shutil.rmtree(out, ignore_errors=True)
    prepare(Prepare((folder,), str(vocabulary), out, length=32, workers="1"))


def write_shards(folder: Path) -> None:
    from electrify.tokens.prepare import Prepare, prepare

    docs = folder.parent / "docs"
    write_docs(docs)
    vocabulary = _write_vocabulary(folder.parent)
    prepare(Prepare((docs,), str(vocabulary), folder, length=32, validation=0.2, workers="1"))


def read_shards(folder: Path) -> None:
    from electrify.batches.loader import Batches
    from electrify.batches.masking import Masking
    from electrify.tokens.show import Show, show_folder
    from electrify.tokens.store import check_split

    show_folder(Show(folder, count=3, ids=True))
    shards = check_split(folder, "train")
    batches = Batches(shards, shards.tokenizer(), Masking(0.15, shards.length), 4, seed=0)
    for step in range(3):
        batches[step]


# --- tokenizers and models ---


def write_tokenizer(folder: Path) -> None:
    from electrify.tokens.tokenizer import load_tokenizer, save_tokenizer

    save_tokenizer(load_tokenizer(_write_vocabulary(folder.parent)), folder)


def read_tokenizer(folder: Path) -> None:
    from electrify.batches.loader import begins_word
    from electrify.tokens.encoder import LineEncoder
    from electrify.tokens.tokenizer import description, load_tokenizer, save_tokenizer

    loaded = load_tokenizer(folder)
    description(loaded)
    for lines in LineEncoder(loaded.backend).lines("kata losodi, Mifu!\n漢字 \x00 é 😀"):
        assert all(0 <= number < loaded.vocab_size for number in lines)
    save_tokenizer(loaded, folder.parent / "saved")
    begins_word(loaded)


def write_model(folder: Path) -> None:
    from transformers import BertConfig, BertModel

    from electrify.tokens.tokenizer import load_tokenizer

    write_tokenizer(folder)
    size = load_tokenizer(folder).vocab_size
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=size, intermediate_size=64, max_position_embeddings=64, **sizes)
    BertModel(config).save_pretrained(folder)


def read_model(folder: Path) -> None:
    from electrify.finetuning.encoder import new_network, open_encoder
    from electrify.finetuning.fit import outputs
    from electrify.finetuning.own.data import Texts
    from electrify.finetuning.own.target import (
        AUTO_CLASSES,
        MODEL_CLASSES,
        Target,
        config_fields,
        prepare_rows,
    )

    encoder = open_encoder(str(folder))
    target = Target("classes", ("a", "b"))
    texts = Texts(folder, ["kata losodi", "x é 😀"], None, ["a", "b"], [1, 2])
    rows = prepare_rows(target, texts, encoder, min(16, encoder.longest))
    network = new_network(AUTO_CLASSES["classes"], str(folder), **config_fields(target))
    outputs(MODEL_CLASSES["classes"](network), rows.lengths, rows.collate)


# --- files to fine-tune on ---


@cache
def _encoder(folder: Path) -> Any:
    from electrify.finetuning.encoder import open_encoder

    folder.mkdir()
    write_model(folder)
    return open_encoder(str(folder))


def write_tables(folder: Path) -> None:
    from tests.finetuning.own_files import WRITERS

    for kind, write in WRITERS.items():
        (folder / kind).mkdir()
        write(folder / kind)
    for path in list(folder.rglob("dev.*")):
        path.unlink()
    for path in folder.rglob("train.*"):  # fewer rows, so that a mutation matters
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:41]))


def read_tables(folder: Path) -> None:
    from electrify.finetuning.own.data import Columns
    from electrify.finetuning.own.target import prepare_rows, read_matching, read_training

    encoder = _encoder(folder.parent / "model")
    for path in sorted(folder.rglob("train.*")):
        try:
            training = read_training(path, "auto", Columns())
        except UserError:
            continue
        prepare_rows(training.target, training.data, encoder, 16)
        read_matching(path, training.target, training.columns)


def write_squad_files(folder: Path) -> None:
    from tests.finetuning.squad_files import paragraphs, write_squad

    write_squad(folder / "dev.json", paragraphs(3))


def read_squad_files(folder: Path) -> None:
    from electrify.finetuning.squad.data import read_questions
    from electrify.finetuning.squad.windows import build_windows

    encoder = _encoder(folder.parent / "model")
    questions = read_questions(folder / "dev.json", "1.1")
    for learn in (True, False):
        windows = build_windows(encoder, questions, 32, 8, learn)
        windows.collate(range(min(4, len(windows.windows))))


SUBJECTS = {
    "documents": Subject(write_docs, read_docs),
    "shards": Subject(write_shards, read_shards),
    "tokenizer": Subject(write_tokenizer, read_tokenizer),
    "model": Subject(write_model, read_model),
    "tables": Subject(write_tables, read_tables),
    "squad": Subject(write_squad_files, read_squad_files),
}

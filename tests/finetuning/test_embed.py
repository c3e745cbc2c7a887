"""`electrify embed`: sentence vectors of the rows of a file."""

import gzip
import json
import lzma
import shutil
import sys

import numpy as np
import pytest
import torch
from tests.finetuning.conftest import rows
from tests.models.tiny import tiny_fields
from transformers import CONFIG_MAPPING, AutoModel, AutoTokenizer, BertTokenizer

import electrify as package
from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.options import Embed
from electrify.finetuning.vectors import embed as commands
from electrify.finetuning.vectors.embed import embed
from electrify.models.sentence_folder import (
    SentenceModel,
    read_sentence_folder,
    write_sentence_folder,
)

ARCHITECTURES = ("electra", "albert", "modernbert")
TEXTS = [text for pair in rows(20, 3) for text in pair[:2]]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory, vocab):
    """Small encoders by architecture."""
    folders = {}
    for architecture in ARCHITECTURES:
        folder = tmp_path_factory.mktemp(architecture) / "encoder"
        tokenizer = BertTokenizer(vocab=str(vocab))
        fields = tiny_fields(architecture) | {"vocab_size": len(tokenizer), "pad_token_id": 0}
        torch.manual_seed(0)
        AutoModel.from_config(CONFIG_MAPPING[architecture](**fields)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders[architecture] = folder
    return folders


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def run(model, file, out, **options):
    return embed(Embed(str(model), file, out, **{"device": "cpu", **options}))


def naive(folder, pooling, length=128):
    """Vectors of one text at a time, as transformers gives them."""
    model, tokenizer = (
        AutoModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    found = []
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=length)
        with torch.no_grad():
            hidden = model(input_ids=inputs["input_ids"])[0][0]
        how = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}
        found.append(how[pooling].numpy())
    return np.stack(found)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_vectors_equal_those_of_transformers_without_the_package(
    architecture, pooling, encoders, texts, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    vectors = run(encoders[architecture], texts, tmp_path / "v.npy", pooling=pooling, batch_size=7)
    np.testing.assert_allclose(vectors, naive(encoders[architecture], pooling), atol=1e-5)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), vectors)
    assert vectors.dtype == np.float32
    assert not (tmp_path / "v.npy.parts").exists()


@pytest.mark.parametrize(
    ("architecture", "pooling", "normalize", "prompt"),
    [
        ("electra", "mean", True, ""),
        ("albert", "cls", False, "kata: "),
        ("modernbert", "max", True, ""),
    ],
)
def test_a_folder_of_the_package_gives_the_same_vectors_there(
    architecture, pooling, normalize, prompt, encoders, texts, tmp_path
):
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "model"
    shutil.copytree(encoders[architecture], folder)
    said = SentenceModel(str(folder), pooling, normalize, 6, True, prompt)
    write_sentence_folder(folder, said, 32)
    assert read_sentence_folder(str(folder)) == said
    loaded = library.SentenceTransformer(str(folder), device="cpu")
    vectors = run(folder, texts, tmp_path / "v.npy")
    np.testing.assert_allclose(vectors, loaded.encode(TEXTS), atol=1e-5)
    again = tmp_path / "again"
    loaded.save(str(again), create_model_card=False)  # the names of this version of the package
    assert read_sentence_folder(str(again))[1:3] == said[1:3]
    np.testing.assert_allclose(run(again, texts, tmp_path / "w.npy"), vectors, atol=1e-5)


def test_normalized_vectors_have_length_one(encoders, texts, tmp_path):
    vectors = run(encoders["electra"], texts, tmp_path / "v.npy", normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_every_format_has_the_same_vectors(encoders, tmp_path, capsys):
    import pyarrow.parquet as pq

    lines = [{"id": n, "body": text, "n": None} for n, text in enumerate(TEXTS)]
    packed = tmp_path / "texts.jsonl.xz"
    packed.write_bytes(lzma.compress("".join(json.dumps(x) + "\n" for x in lines).encode()))
    columns = {"text": "body", "length": 9}
    vectors = run(encoders["electra"], packed, tmp_path / "v.npy", **columns)
    run(encoders["electra"], packed, tmp_path / "v.jsonl", **columns)
    run(encoders["electra"], packed, tmp_path / "v.parquet", **columns)
    read = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [(x["id"], x["body"]) for x in read] == list(enumerate(TEXTS))
    np.testing.assert_array_equal(np.array([x["vector"] for x in read], np.float32), vectors)
    table = pq.read_table(tmp_path / "v.parquet").to_pydict()
    assert table["body"] == TEXTS
    np.testing.assert_array_equal(np.array(table["vector"], np.float32), vectors)
    assert "texts do not fit into 9 tokens" in capsys.readouterr().out


def test_the_command_reads_pairs_and_exports(encoders, tmp_path, capsys):
    export = tmp_path / "export"
    shutil.copytree(encoders["electra"], export / "encoder")
    table = "sentence1\tsentence2\n" + "".join(f"{a}\t{b}\n" for a, b, _ in rows(5, 1))
    (tmp_path / "pairs.tsv.gz").write_bytes(gzip.compress(table.encode()))
    out = tmp_path / "v.npy"
    assert main(["embed", str(export), str(tmp_path / "pairs.tsv.gz"), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "column 'sentence1'; for the others, --text 'sentence2'" in said
    assert "5 vectors of 32 dimensions, mean pooling" in said
    second = package.embed(str(export), tmp_path / "pairs.tsv.gz", out, text="sentence2")
    assert second.shape == (5, 32)


def test_a_killed_command_resumes_to_the_same_bytes(encoders, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "ROWS_PER_PART", 8)
    run(encoders["electra"], texts, tmp_path / "whole.npy")
    calls, real = [], commands.Embedder.vectors

    def fails_later(self, *arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *arguments)

    out = tmp_path / "v.npy"
    with monkeypatch.context() as patch:
        patch.setattr(commands.Embedder, "vectors", fails_later)
        with pytest.raises(KeyboardInterrupt):
            run(encoders["electra"], texts, out)
    assert not out.exists()
    with pytest.raises(UserError, match="other settings"):
        run(encoders["electra"], texts, out, pooling="max")
    calls.append(None)
    monkeypatch.setattr(commands.Embedder, "vectors", fails_later)
    run(encoders["electra"], texts, out)
    assert len(calls) == 4 + 3  # the first two of five parts are kept
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert not (tmp_path / "v.npy.parts").exists()


def test_bad_input_leaves_nothing_behind(encoders, texts, tmp_path):
    model, out = encoders["electra"], tmp_path / "v.npy"

    def refused(message, **changes):
        given = {"model": model, "file": texts, "out": out, **changes}
        with pytest.raises(UserError, match=message):
            run(**given)
        assert not out.exists()
        assert not out.with_name("v.npy.parts").exists()

    refused("unknown format", out=tmp_path / "v.pt")
    refused("leaves no room", length=2)
    refused("--batch-size", batch_size=0)
    refused("no folder", model=tmp_path / "absent")
    other = tmp_path / "notes.jsonl"
    other.write_text('{"text": "mine"}\n')
    refused("does not contain vectors", out=other)
    assert other.read_text() == '{"text": "mine"}\n'
    two = tmp_path / "two.csv"
    two.write_text("a,b\nkata,\n")
    refused("which column", file=two)
    refused("no text in column", file=two, text="b")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text("{}")
    refused("is a run", model=tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Dense", "path": "1"}]),
        ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Pooling", "path": "../1"}]),
        ("modules.json", {"a": 1}),
        ("modules.json", ["x"]),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]}),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}),
    ],
)
def test_folders_that_would_give_other_vectors_are_refused(name, content, encoders, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(encoders["electra"], folder)
    write_sentence_folder(folder, SentenceModel(str(folder), length=64), 32)
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match="not an encoder with mean, cls or max pooling"):
        read_sentence_folder(str(folder))

"""`export --sentence-transformers`: the library's vectors are ours, and our commands load it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from tests.finetuning.own_files import write_classes
from tests.publishing.conftest import ARCHITECTURES
from transformers import AutoModel, AutoTokenizer

import electrify
from electrify.cli import main
from electrify.finetuning.encoder import fingerprint
from electrify.finetuning.options import Fit
from electrify.models.sentence_folder import read_sentence_folder
from electrify.publishing import sentence_vectors
from electrify.publishing.sentence_vectors import SENTENCES_FOLDER, export_sentence_vectors
from electrify.storage.commit import read_manifest, verify

TEXTS = ["kata", "", "mira kata sol", "sol " * 300, *("kata mira " * n for n in range(1, 9))]


def pooled(encoder: Path, how: str) -> np.ndarray:
    """Return the vectors that transformers and the definitions of pooling give, one at a time."""
    network = AutoModel.from_pretrained(encoder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    vectors = []
    for text in TEXTS:
        tokens = tokenizer(text, truncation=True, return_tensors="pt")
        with torch.no_grad():
            hidden_LD = network(**tokens)[0][0]
        kinds = {"mean": hidden_LD.mean(0), "cls": hidden_LD[0], "max": hidden_LD.amax(0)}
        vectors.append(kinds[how].numpy())
    return np.stack(vectors)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_library_gives_the_pooled_vectors(architecture, pooling, sentences_of, tmp_path):
    encoder = sentences_of(architecture) / "encoder"
    folder = export_sentence_vectors(encoder, tmp_path / "folder", pooling)
    model = SentenceTransformer(str(folder), device="cpu")
    wanted = pooled(encoder, pooling)
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=5), wanted, rtol=0, atol=1e-5)
    found = read_sentence_folder(str(folder))
    assert (found.pooling, found.length, found.normalize) == (pooling, 32, False)
    assert verify(folder, read_manifest(folder, SENTENCES_FOLDER)) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_embed_and_finetune_load_the_folder(architecture, sentences_of, tmp_path):
    folder = sentences_of(architecture) / SENTENCES_FOLDER
    texts = [text.strip() for text in TEXTS if text.strip()]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    vectors = electrify.embed(str(folder), tmp_path / "texts.txt", tmp_path / "vectors.npy")
    library = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(vectors, library.encode(texts), rtol=0, atol=1e-5)
    write_classes(tmp_path)
    files = {"train": tmp_path / "train.csv", "dev": tmp_path / "dev.csv", "out": tmp_path / "out"}
    found = electrify.finetune(str(folder), **files, fit=Fit(epochs=1.0), device="cpu")
    assert found["seeds"][0]["scores"]["accuracy"] >= 0


def test_adding_scores_to_the_card_does_not_change_the_model(sentences_of):
    out = sentences_of("electra")
    folder = out / SENTENCES_FOLDER
    before, card = fingerprint(str(folder)), (folder / "README.md").read_text()
    electrify.export(run=out.parent / "run", out=out, language=("en",))
    assert ModelCard.load(folder / "README.md").data.language == ["en"]
    assert "library_name: sentence-transformers" in card
    assert fingerprint(str(folder)) == before


def test_other_vectors_are_refused(sentences_of, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sentence_vectors, "own_vectors", lambda model, texts: np.ones((len(texts), 32))
    )
    run, out = sentences_of("electra").parent / "run", tmp_path / "model"
    assert main(["export", str(run), "--out", str(out), "--sentence-transformers"]) == 2
    assert "does not give the vectors of the encoder" in capsys.readouterr().err
    assert not (out / SENTENCES_FOLDER / "manifest.json").exists()
    monkeypatch.undo()
    assert main(["export", str(run), "--out", str(out), "--sentence-transformers"]) == 0


def test_another_pooling_needs_another_folder(sentences_of, capsys):
    out = sentences_of("electra")
    command = ["export", str(out.parent / "run"), "--out", str(out), "--sentence-transformers"]
    assert main([*command, "--pooling", "cls"]) == 2
    error = capsys.readouterr().err
    assert "pooling: the folder has mean, the command says cls" in error
    assert "fix:" in error

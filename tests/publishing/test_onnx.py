"""`export --onnx`: ONNX Runtime gives torch's outputs for every head, length and batch size."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from transformers import AutoTokenizer

import electrify
from electrify.errors import UserError
from electrify.publishing import onnx_export
from electrify.publishing.onnx_export import (
    OnnxDifference,
    compare_onnx,
    export_onnx,
    load_for_onnx,
)

OUTPUTS = {
    "discriminator": ["logits", "replaced"],
    "generator": ["logits"],
    "encoder": ["last_hidden_state"],
}


@pytest.fixture(scope="module")
def exported(run_of, tmp_path_factory):
    """Return a function that exports an architecture for ONNX Runtime, once."""
    found: dict[str, Path] = {}

    def export(architecture: str) -> Path:
        if architecture not in found:
            out = tmp_path_factory.mktemp(architecture) / "model"
            folders = electrify.export(run=run_of(architecture), out=out, onnx=True)
            assert set(folders) == {*OUTPUTS, *(f"onnx/{role}" for role in OUTPUTS)}
            found[architecture] = out
        return found[architecture]

    return export


@pytest.fixture(scope="module")
def discriminator(sentences_of, tmp_path_factory) -> Path:
    """An export of which only the discriminator is written for ONNX Runtime, which is faster."""
    folder, out = sentences_of("electra") / "discriminator", tmp_path_factory.mktemp("one")
    (out / "discriminator").symlink_to(folder)
    export_onnx({"discriminator": folder}, out / "onnx")
    return out


def vocabulary_size(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


def compare(out: Path, role: str, shapes: list[tuple[int, int]]) -> OnnxDifference:
    network = load_for_onnx(out / role, role)
    path = out / "onnx" / role / "model.onnx"
    return compare_onnx(onnxruntime, network, path, shapes, vocabulary_size(out / role))


def test_onnx_runtime_equals_torch(discriminator):
    shapes = [(batch, length) for length in (1, 3, 100, 511, 512) for batch in (1, 2, 5, 8)]
    assert compare(discriminator, "discriminator", shapes).difference <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["electra", "albert", "modernbert"])
def test_every_length_and_batch_size_of_every_network(architecture, exported):
    out = exported(architecture)
    shapes = [(1 + length % 8, length) for length in range(1, 513)]
    shapes += [(batch, length) for batch in range(1, 9) for length in (1, 2, 16, 33, 512)]
    for role, outputs in OUTPUTS.items():
        session = onnxruntime.InferenceSession(out / "onnx" / role / "model.onnx")
        assert [output.name for output in session.get_outputs()] == outputs
        assert {tuple(given.shape) for given in session.get_inputs()} == {("batch", "length")}
        assert compare(out, role, shapes).difference <= 1e-4


def test_the_folder_can_be_served_alone(discriminator):
    folder = discriminator / "onnx" / "discriminator"
    tokens = AutoTokenizer.from_pretrained(folder)(["kata mira", "sol"], padding=True)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs = {given.name: np.array(tokens[given.name]) for given in session.get_inputs()}
    assert {tuple(given.shape) for given in session.get_inputs()} == {("batch", "length")}
    logits, replaced = session.run(["logits", "replaced"], inputs)
    assert replaced.shape == inputs["input_ids"].shape
    np.testing.assert_allclose(replaced, 1 / (1 + np.exp(-logits)), atol=1e-6)
    assert not list(folder.glob("*.safetensors"))


def test_other_outputs_are_refused(sentences_of, tmp_path, monkeypatch):
    wrong = OnnxDifference(0.5, (3, 7), "logits")
    monkeypatch.setattr(onnx_export, "write_onnx", lambda *_: None)
    monkeypatch.setattr(onnx_export, "compare_onnx", lambda *_: wrong)
    folders = {"discriminator": sentences_of("electra") / "discriminator"}
    with pytest.raises(UserError, match="outputs of the electra discriminator") as caught:
        export_onnx(folders, tmp_path / "onnx")
    assert caught.value.got == "logits differs by 0.5 for 3 × 7 tokens"
    assert not (tmp_path / "onnx" / "manifest.json").exists()

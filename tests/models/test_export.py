"""Exported networks load in transformers without electrify and give the same outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.models.test_architectures import WORKING
from tests.models.tiny import VOCABULARY, tiny_recipe
from tokenizers import Tokenizer, models, pre_tokenizers

from electrify.errors import UserError
from electrify.models.export import (
    export_networks,
    in_evaluation,
    network_outputs,
    plain_embeddings,
    probe_ids,
)
from electrify.models.pair import build_masked_lm, build_pair
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, Sharing
from electrify.storage.commit import read_manifest, verify
from electrify.tokens.tokenizer import LoadedTokenizer, with_special_tokens

ROLES = ("discriminator", "generator")


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    words = [*names.values(), *(f"w{n}" for n in range(VOCABULARY.size - len(names)))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return with_special_tokens(backend, names)


def export_pair(recipe: Recipe, tokenizer: LoadedTokenizer, out: Path) -> dict:
    """Export a pair with perturbed weights; returns its networks."""
    pair = build_pair(recipe, VOCABULARY)
    networks = {"discriminator": pair.discriminator, "generator": pair.generator}
    torch.manual_seed(1)
    with torch.no_grad():
        for network in networks.values():
            for parameter in network.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
    cards = dict.fromkeys(networks, "---\n---\n# a model\n")
    export_networks(networks, cards, tokenizer, out, {"of": "test"}, longest=64)
    return networks


@torch.no_grad()
def outputs(network, tokenizer: LoadedTokenizer) -> torch.Tensor:
    with plain_embeddings(network), in_evaluation(network):
        return network_outputs(network, probe_ids(tokenizer))


FRESH_PROCESS = """
import json, sys
import torch
from transformers import AutoConfig, AutoTokenizer
import transformers
ids = torch.tensor(json.loads(sys.argv[1]))
for folder in sys.argv[2:]:
    kind = getattr(transformers, AutoConfig.from_pretrained(folder).architectures[0])
    model, loaded = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(loaded[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model(**tokenizer("w1 w2 " * 7, return_tensors="pt"))
    with torch.no_grad():
        out = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    print(json.dumps(out.flatten().tolist()))
assert "electrify" not in sys.modules
"""


@pytest.mark.parametrize(
    "architectures",
    [
        ["electra", "bert", "albert", "deberta-v2", "modernbert", "rembert"],
        pytest.param(WORKING, marks=pytest.mark.slow, id="all"),
    ],
)
def test_a_fresh_process_without_us_gets_the_same_logits(architectures, tokenizer, tmp_path):
    expected, folders = [], []
    for architecture in architectures:
        networks = export_pair(tiny_recipe(architecture), tokenizer, tmp_path / architecture)
        for role in ROLES:
            expected.append((architecture, role, outputs(networks[role], tokenizer)))
            folders.append(str(tmp_path / architecture / role))
    ids = json.dumps(probe_ids(tokenizer).tolist())
    done = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, ids, *folders],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for (architecture, role, logits), line in zip(expected, done.stdout.splitlines(), strict=True):
        reloaded = torch.tensor(json.loads(line))
        torch.testing.assert_close(
            reloaded,
            logits.flatten(),
            rtol=0,
            atol=1e-5,
            msg=lambda m, w=f"{architecture} {role}": f"{w}: {m}",
        )


def test_disentangled_embeddings_are_exported_as_the_sum(tokenizer, tmp_path):
    recipe = tiny_recipe("deberta-v2", Sharing(embeddings="gdes"))
    networks = export_pair(recipe, tokenizer, tmp_path / "out")
    reloaded = type(networks["discriminator"]).from_pretrained(tmp_path / "out" / "discriminator")
    embeddings = networks["discriminator"].get_input_embeddings()
    assert type(embeddings).__name__ == "DisentangledEmbedding", "training continues with it"
    assert torch.equal(reloaded.get_input_embeddings().weight, embeddings.weight)
    assert not torch.equal(embeddings.weight, networks["generator"].get_input_embeddings().weight)


def test_the_folder_is_complete_and_a_second_export_writes_nothing(tokenizer, tmp_path):
    export_pair(tiny_recipe("electra"), tokenizer, tmp_path / "out")
    manifest = read_manifest(tmp_path / "out", "model")
    assert verify(tmp_path / "out", manifest) == []
    names = {entry["name"] for entry in manifest["files"]}
    for role in ROLES:
        needed = ("config.json", "model.safetensors", "tokenizer.json", "README.md")
        assert {f"{role}/{name}" for name in needed} <= names
    before = (tmp_path / "out" / "discriminator" / "model.safetensors").stat().st_mtime_ns
    export_pair(tiny_recipe("electra"), tokenizer, tmp_path / "out")
    assert (tmp_path / "out/discriminator/model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="other settings"):
        export_networks({}, {}, tokenizer, tmp_path / "out", {"of": "another run"}, 64)


def test_weights_that_do_not_reload_are_not_exported(tokenizer, tmp_path, monkeypatch):
    pair = build_pair(tiny_recipe("bert"), VOCABULARY)
    kind = type(pair.discriminator)
    save_pretrained = kind.save_pretrained

    def save_other_weights(self, folder, **tensors):
        with torch.no_grad():
            self.classifier.bias += 1.0
        save_pretrained(self, folder, **tensors)
        with torch.no_grad():
            self.classifier.bias -= 1.0

    monkeypatch.setattr(kind, "save_pretrained", save_other_weights)
    networks, cards = {"discriminator": pair.discriminator}, {"discriminator": ""}
    with pytest.raises(UserError, match="does not survive export"):
        export_networks(networks, cards, tokenizer, tmp_path / "out", {}, 64)
    assert not (tmp_path / "out" / "manifest.json").exists()


# --- starting from a released pair


def continued(source: Path, architecture: str = "electra", **fields: object) -> Recipe:
    return Recipe(
        Discriminator(architecture, dict(fields), init_from=str(source / "discriminator")),
        Generator(init_from=str(source / "generator")),
        run=Run(init="official"),
    )


@pytest.mark.parametrize("architecture", ["electra", "bert", "modernbert", "deberta-v2"])
def test_a_pair_goes_on_from_what_was_exported(architecture, tokenizer, tmp_path):
    networks = export_pair(tiny_recipe(architecture), tokenizer, tmp_path)
    pair = build_pair(continued(tmp_path, architecture), VOCABULARY)
    assert pair.notes == []
    for role in ROLES:
        assert torch.equal(
            outputs(getattr(pair, role), tokenizer), outputs(networks[role], tokenizer)
        )
    words = pair.discriminator.get_input_embeddings()
    assert pair.generator.get_input_embeddings().weight is words.weight
    assert words.padding_idx is None


def test_a_masked_lm_can_become_a_pair_with_a_new_head(tokenizer, tmp_path):
    network, notes = build_masked_lm(tiny_recipe("bert"), VOCABULARY)
    assert notes == []
    export_networks({"model": network}, {"model": ""}, tokenizer, tmp_path, {}, 64)
    source = str(tmp_path / "model")
    recipe = Recipe(Discriminator("bert", init_from=source), Generator(init_from=source))
    pair = build_pair(recipe, VOCABULARY)
    assert pair.notes == [
        "discriminator: classifier.bias is newly initialised",
        "discriminator: classifier.weight is newly initialised",
    ]
    state = network.state_dict()
    for name, tensor in pair.discriminator.base_model.named_parameters():
        assert torch.equal(tensor, state[f"bert.{name}"]), name


def test_a_note_says_that_the_generators_embeddings_are_replaced(tokenizer, tmp_path):
    export_pair(tiny_recipe("bert", Sharing(embeddings="none")), tokenizer, tmp_path)
    pair = build_pair(continued(tmp_path, "bert"), VOCABULARY)
    assert [note.split(":")[0] for note in pair.notes] == ["word embeddings"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"hidden_size": 64}, "discriminator.init_from has different sizes than the recipe"),
        ({"architecture": "bert"}, "has a different architecture than the recipe"),
        ({"num_hidden_layers": 1}, "has more weights than the recipe's network"),
        (
            {"num_attention_heads": 4},
            "discriminator.init_from has a different number of attention heads",
        ),
    ],
)
def test_released_weights_that_do_not_fit_are_refused(change, what, tokenizer, tmp_path):
    export_pair(tiny_recipe("electra"), tokenizer, tmp_path)
    with pytest.raises(UserError, match=what):
        build_pair(continued(tmp_path, **change), VOCABULARY)
    with pytest.raises(UserError, match="not prepared with the tokenizer of the released model"):
        build_pair(continued(tmp_path), VOCABULARY._replace(size=300))


def test_an_error_names_a_missing_source(tmp_path):
    with pytest.raises(
        UserError, match=r"cannot load the model of discriminator\.init_from"
    ) as error:
        build_pair(continued(tmp_path / "nowhere"), VOCABULARY)
    assert "nowhere" in error.value.got


def test_a_new_generator_takes_its_sizes_from_a_released_discriminator(tokenizer, tmp_path):
    export_pair(tiny_recipe("electra"), tokenizer, tmp_path)
    settings = tmp_path / "discriminator" / "config.json"
    old_field = {"gradient_checkpointing": False}  # as in older files
    settings.write_text(json.dumps(json.loads(settings.read_text()) | old_field))
    released = Discriminator("electra", init_from=str(tmp_path / "discriminator"))
    pair = build_pair(Recipe(released, Generator(width=0.5)), VOCABULARY)
    generator, discriminator = pair.generator.config, pair.discriminator.config
    assert generator.num_hidden_layers == discriminator.num_hidden_layers == 2
    assert generator.hidden_size * 2 == discriminator.hidden_size
    [note] = pair.notes
    assert note == "generator: from scratch; the released discriminator has another hidden_size"

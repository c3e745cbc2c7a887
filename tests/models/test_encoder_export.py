"""The exported encoder loads the way other projects and run_glue.py load it."""

from functools import cache
from logging import getLogger

import pytest
import torch
import transformers
from tests.models.tiny import VOCABULARY, tiny_recipe, tiny_tokenizer
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from electrify.models.export import encoder_alone, encoder_folder, export_networks
from electrify.models.pair import build_masked_lm, build_pair
from electrify.recipes.schema import Sharing

OWN_CLASS = {
    "bert": "BertForSequenceClassification",
    "albert": "AlbertForSequenceClassification",
    "electra": "ElectraForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification",
}
TEXT = "w1 w2 [unused] w3"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that exports a pair of an architecture and returns it with the folder."""

    @cache
    def export(architecture):
        pair = build_pair(tiny_recipe(architecture), VOCABULARY)
        networks = {
            "discriminator": pair.discriminator,
            "generator": pair.generator,
            "encoder": encoder_alone(pair.discriminator),
        }
        out = tmp_path_factory.mktemp("export") / architecture
        cards = dict.fromkeys(networks, "---\n---\n")
        export_networks(networks, cards, tiny_tokenizer(), out, {}, longest=64)
        return encoder_folder(out), pair.discriminator.eval()

    return export


def with_its_class(architecture, folder, labels):
    """Load as in the READMEs of lmtuners and its models on the Hub."""
    kind = getattr(transformers, OWN_CLASS[architecture])
    return kind.from_pretrained(folder, num_labels=labels)


def as_run_glue(architecture, folder, labels):
    config = AutoConfig.from_pretrained(folder, num_labels=labels, finetuning_task="mnli")
    return AutoModelForSequenceClassification.from_pretrained(folder, config=config)


@pytest.mark.parametrize("labels", [1, 2, 3])
@pytest.mark.parametrize("how", [with_its_class, as_run_glue])
@pytest.mark.parametrize("architecture", OWN_CLASS)
def test_any_number_of_labels_gets_a_new_head(architecture, how, labels, exported):
    folder, discriminator = exported(architecture)
    torch.manual_seed(1)
    first = how(architecture, folder, labels)
    torch.manual_seed(2)
    other = how(architecture, folder, labels)
    tokens = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    assert first(**tokens).logits.shape == (1, labels)
    prefix, trained = f"{first.base_model_prefix}.", discriminator.state_dict()
    for name, tensor in first.state_dict().items():
        if name.startswith(prefix) and name in trained:
            assert torch.equal(tensor, trained[name]), name
        elif tensor.ndim > 1:
            assert not torch.equal(tensor, other.state_dict()[name]), name
            assert (
                name not in trained
                or tensor.shape != trained[name].shape
                or not torch.equal(tensor, trained[name])
            ), name
    assert first.config.num_labels == labels
    assert "replaced" not in first.config.label2id


@pytest.mark.parametrize("architecture", OWN_CLASS)
def test_the_encoder_alone_gives_the_discriminators_hidden_states(architecture, exported):
    folder, discriminator = exported(architecture)
    encoder = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    with torch.no_grad():
        found, wanted = encoder(**tokens)[0], discriminator.base_model(**tokens)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert encoder.config.architectures == [type(encoder).__name__]


def test_exporting_an_encoder_without_a_pooler_reports_no_missing_weights(tmp_path, caplog):
    encoder = encoder_alone(build_pair(tiny_recipe("albert"), VOCABULARY).discriminator)
    getLogger("transformers").addHandler(caplog.handler)
    try:
        export_networks({"encoder": encoder}, {"encoder": ""}, tiny_tokenizer(), tmp_path, {}, 64)
    finally:
        getLogger("transformers").removeHandler(caplog.handler)
    assert "pooler" not in caplog.text


def test_older_exports_are_fine_tuned_from_their_discriminator(tmp_path):
    for role in ("generator", "discriminator"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").touch()
    assert encoder_folder(tmp_path) == tmp_path / "discriminator"


@pytest.mark.parametrize("role", ["model", "discriminator"])
def test_the_encoder_of_a_baseline_and_of_disentangled_embeddings(role, tmp_path):
    if role == "model":
        network, _ = build_masked_lm(tiny_recipe("bert"), VOCABULARY)
    else:
        recipe = tiny_recipe("bert", Sharing(embeddings="gdes"))
        network = build_pair(recipe, VOCABULARY).discriminator
    embeddings = network.get_input_embeddings()
    networks = {role: network, "encoder": encoder_alone(network)}
    export_networks(
        networks, dict.fromkeys(networks, ""), tiny_tokenizer(), tmp_path, {}, longest=64
    )
    assert network.get_input_embeddings() is embeddings
    encoder = AutoModel.from_pretrained(encoder_folder(tmp_path))
    assert torch.equal(encoder.get_input_embeddings().weight, embeddings.weight)
    config = AutoConfig.from_pretrained(tmp_path / role)
    assert config.architectures == [type(network).__name__]

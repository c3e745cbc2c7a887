"""Fine-tuning heads are initialized from the seed, whatever head the pre-trained model has."""

import shutil
from functools import cache

import pytest
import torch
from tests.finetuning.own_files import WRITERS
from tests.finetuning.squad_files import paragraphs, write_squad
from tests.models.test_architectures import WORKING, each
from tests.models.tiny import VOCABULARY, tiny_recipe
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES as ANSWERING,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSIFYING,
)

from electrify.cli import main
from electrify.errors import GuardError, UserError
from electrify.finetuning import experiment
from electrify.finetuning.encoder import load_network, new_network
from electrify.models.export import own_tensors
from electrify.models.pair import build_pair

MARK = 7.0
"""The value of every weight of the exported head, which initialization never gives."""


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """Return a function that exports an architecture's discriminator with a marked head."""

    @cache
    def exported(architecture):
        network = build_pair(tiny_recipe(architecture), VOCABULARY).discriminator
        for name, parameter in network.named_parameters():
            if not name.startswith(f"{network.base_model_prefix}."):
                torch.nn.init.constant_(parameter, MARK)
        folder = tmp_path_factory.mktemp(architecture) / "discriminator"
        network.save_pretrained(folder, state_dict=own_tensors(network))
        return str(folder), network.state_dict()

    return exported


def opened(kind, folder, seed, labels, **how):
    torch.manual_seed(seed)
    return new_network(kind, folder, num_labels=labels, **how)


def check_initialized(kind, folder, exported, labels):
    first, again, other = (opened(kind, folder, seed, labels).state_dict() for seed in (1, 1, 2))
    prefix = f"{opened(kind, folder, 1, labels).base_model_prefix}."
    heads = [name for name in first if not name.startswith(prefix)]
    assert heads
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]), name
        if name in heads:
            assert not (tensor == MARK).any(), f"{name} is the exported head's"
            if tensor.ndim > 1:
                assert not torch.equal(tensor, other[name]), f"{name} is the same for all seeds"
        elif name in exported:
            assert torch.equal(tensor, exported[name]), f"{name} was not loaded"


@pytest.mark.parametrize("architecture", each([name for name in WORKING if name in CLASSIFYING]))
def test_a_classifier_is_initialized_from_the_seed(architecture, marked):
    folder, exported = marked(architecture)
    for labels in (1, 2, 3):
        check_initialized(AutoModelForSequenceClassification, folder, exported, labels)


@pytest.mark.parametrize("architecture", each(WORKING))
def test_a_tagger_is_initialized_from_the_seed(architecture, marked):
    check_initialized(AutoModelForTokenClassification, *marked(architecture), labels=2)


@pytest.mark.parametrize("architecture", each([name for name in WORKING if name in ANSWERING]))
def test_a_question_answering_head_is_initialized_from_the_seed(architecture, marked):
    check_initialized(AutoModelForQuestionAnswering, *marked(architecture), labels=2)


def test_a_pooler_is_loaded_if_there_is_one_and_initialized_otherwise(marked, tmp_path):
    folder, _ = marked("bert")
    first, other = (opened(AutoModelForSequenceClassification, folder, seed, 2) for seed in (1, 2))
    assert not torch.equal(first.bert.pooler.dense.weight, other.bert.pooler.dense.weight)
    first.save_pretrained(tmp_path)
    again = opened(AutoModelForSequenceClassification, str(tmp_path), 2, 2)
    assert torch.equal(first.bert.pooler.dense.weight, again.bert.pooler.dense.weight)
    assert not torch.equal(first.classifier.weight, again.classifier.weight)


def test_a_pretrained_head_is_kept_on_request(marked):
    folder, _ = marked("modernbert")
    kept = opened(AutoModelForSequenceClassification, folder, 1, 2, init_head="pretrained")
    assert (kept.classifier.weight == MARK).all()
    assert (kept.head.dense.weight == MARK).all()


def test_a_finetuned_model_keeps_its_head_and_must_have_one(marked):
    folder, _ = marked("bert")
    assert (load_network(AutoModelForTokenClassification, folder).classifier.weight == MARK).all()
    with pytest.raises(UserError, match="lacks weights of its BertForQuestionAnswering"):
        load_network(AutoModelForQuestionAnswering, folder)


def test_a_network_without_a_base_model_inside_is_refused(marked):
    """Every name would start with the empty prefix, so that no head would be initialized."""
    folder, _ = marked("bert")
    with pytest.raises(UserError, match="cannot tell the head of BertModel from its encoder"):
        new_network(AutoModel, folder)
    assert new_network(AutoModel, folder, init_head="pretrained").config.model_type == "bert"


# ---- the models that the commands train


@pytest.fixture(scope="module")
def discriminator(marked, encoder_folder, tmp_path_factory):
    """A marked ModernBERT, whose head has the shape for two classes, two tags and answer spans."""
    folder = tmp_path_factory.mktemp("marked") / "discriminator"
    shutil.copytree(encoder_folder, folder)  # for the tokenizer
    shutil.copytree(marked("modernbert")[0], folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def trained(monkeypatch):
    """Return a function that runs a command and returns the tensors of each model it trains."""

    def trained(*command):
        found = []

        def no_training(model, *others, **named):
            found.append({n: t.detach().clone() for n, t in model.network.named_parameters()})
            raise GuardError("stopped by the test", got="", fix="")

        monkeypatch.setattr(experiment, "fit", no_training)
        main([str(word) for word in command])
        return found

    return trained


def check_heads(seeds, exported, kept=False):
    first, other = seeds
    heads = [name for name in first if not name.startswith("model.")]
    assert {"head.dense.weight", "classifier.weight"} <= set(heads)
    for name, tensor in first.items():
        if name not in heads:
            assert torch.equal(tensor, exported[name]), f"{name} was not loaded"
            continue
        assert bool((tensor == MARK).all()) == bool((tensor == MARK).any()) == kept, name
        if tensor.ndim > 1:
            assert torch.equal(tensor, other[name]) == kept, f"{name} of two seeds"


@pytest.mark.parametrize("init_head", ["", "pretrained"])
def test_glue_trains_the_requested_head(
    init_head, marked, discriminator, glue_folder, tmp_path, trained
):
    where = ["--data", glue_folder, "--out", tmp_path / "out", "--tasks=rte", "--seeds=2"]
    how = ["--head=own", "--length=32", "--train-limit=8"]
    how += [f"--init-head={init_head}"] if init_head else []
    found = trained("glue", discriminator, *where, *how)
    check_heads(found, marked("modernbert")[1], kept=bool(init_head))


@pytest.mark.parametrize("init_head", ["", "pretrained"])
@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_finetune_trains_the_requested_head(
    kind, init_head, marked, discriminator, tmp_path, trained
):
    suffix = WRITERS[kind](tmp_path)
    files = ["--train", tmp_path / f"train{suffix}", "--dev", tmp_path / f"dev{suffix}"]
    how = ["--out", tmp_path / "out", "--length=32", "--seeds=2"]
    how += [f"--init-head={init_head}"] if init_head else []
    found = trained("finetune", discriminator, *files, *how)
    check_heads(found, marked("modernbert")[1], kept=bool(init_head))


def test_squad_trains_a_new_simple_head(marked, discriminator, tmp_path, trained):
    for split in ("train", "dev"):
        write_squad(tmp_path / f"{split}-v1.1.json", paragraphs(2))
    command = ["squad", discriminator, "--data", tmp_path, "--head=simple", "--length=24"]
    command += ["--stride=6"]
    [first], [other] = (
        trained(*command, "--out", tmp_path / f"{seed}", f"--seed={seed}") for seed in (1, 2)
    )
    check_heads([first, other], marked("modernbert")[1])

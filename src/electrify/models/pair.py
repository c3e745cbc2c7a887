"""A generator and a discriminator of any architecture that transformers has both classes for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM, AutoModelForTokenClassification
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.models.electra import ElectraForPreTraining

from electrify.config import unknown
from electrify.errors import UserError
from electrify.models.initialise import initialise
from electrify.models.sharing import share
from electrify.recipe import Discriminator, Generator, Recipe, Value

ARCHITECTURES = sorted(
    set(MODEL_FOR_MASKED_LM_MAPPING_NAMES) & set(MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES)
)
# Architectures whose tables may have another width than the body, and what that field is called.
TABLE_WIDTH = {
    "electra": "embedding_size",
    "albert": "embedding_size",
    "convbert": "embedding_size",
    "deberta-v2": "embedding_size",
    "roformer": "embedding_size",
    "rembert": "input_embedding_size",
}
# Fields that a model reads though its configuration does not declare them.
UNDECLARED = {
    "deberta-v2": {
        "attention_head_size",
        "conv_act",
        "conv_kernel_size",
        "embedding_size",
        "norm_rel_ebd",
        "position_buckets",
        "share_att_key",
    }
}
FEED_FORWARD = ("intermediate_size", "hidden_dim", "d_inner", "ffn_dim")
LABELS = {0: "original", 1: "replaced"}


class Vocabulary(NamedTuple):
    """What a model must know of the tokenizer."""

    size: int
    pad: int
    cls: int
    sep: int


class Pair(NamedTuple):
    """Two networks that share what the recipe says, and what they could not share."""

    generator: Any
    discriminator: Any
    apart: list[str]


def build_pair(recipe: Recipe, vocabulary: Vocabulary) -> Pair:
    """Generator and discriminator with the recipe's starting weights."""
    torch.manual_seed(recipe.run.seed)  # for what the architectures draw by themselves
    discriminator = build_discriminator(recipe, vocabulary)
    settings = generator_config(recipe.discriminator, recipe.generator, vocabulary)
    generator = _build(AutoModelForMaskedLM, settings, settings.model_type)
    if recipe.run.init == "official":
        initialise(generator, torch.Generator().manual_seed(recipe.run.seed + 1))
    apart = share(generator, discriminator, recipe.sharing)
    for network in (generator, discriminator):
        train_every_row(network)
    return Pair(generator, discriminator, apart)


def build_discriminator(recipe: Recipe, vocabulary: Vocabulary) -> Any:
    """The network that is kept: with ELECTRA's own head, else with one of two labels a token."""
    settings = discriminator_config(recipe.discriminator, vocabulary)
    if settings.model_type == "electra":
        network = _build(ElectraForPreTraining, settings, "electra")
    else:
        settings.num_labels, settings.id2label = len(LABELS), LABELS
        settings.label2id = {label: number for number, label in LABELS.items()}
        network = _build(AutoModelForTokenClassification, settings, settings.model_type)
    if recipe.run.init == "official":
        initialise(network, torch.Generator().manual_seed(recipe.run.seed))
    return network


def build_masked_lm(recipe: Recipe, vocabulary: Vocabulary) -> Any:
    """The masked-LM baseline: the discriminator's body with a masked-LM head."""
    settings = discriminator_config(recipe.discriminator, vocabulary)
    network = _build(AutoModelForMaskedLM, settings, settings.model_type)
    if recipe.run.init == "official":
        initialise(network, torch.Generator().manual_seed(recipe.run.seed))
    network.tie_weights()
    train_every_row(network)
    return network


def discriminator_config(network: Discriminator, vocabulary: Vocabulary) -> Any:
    """The discriminator's configuration."""
    return _config(network.architecture, network.config, vocabulary, "discriminator")


def generator_config(
    discriminator: Discriminator, network: Generator, vocabulary: Vocabulary
) -> Any:
    """The generator's configuration: the discriminator's, made smaller, with its own fields on top.

    Width, heads and feed-forward shrink together and the depth by itself, as officially. Another
    architecture takes nothing over.
    """
    architecture = network.architecture or discriminator.architecture
    if architecture != discriminator.architecture:
        return _config(architecture, network.config, vocabulary, "generator")
    large = discriminator_config(discriminator, vocabulary)
    fields = dict(discriminator.config)
    names = {name: large.attribute_map.get(name, name) for name in _SIZES}
    if network.width != 1.0:
        hidden = round(large.hidden_size * network.width)
        fields[names["hidden_size"]] = hidden
        for feed_forward in FEED_FORWARD:
            if isinstance(wide := getattr(large, feed_forward, None), int):
                fields[feed_forward] = round(wide * hidden / large.hidden_size)
        if heads := getattr(large, "num_attention_heads", None):
            size = large.hidden_size // heads
            fields[names["num_attention_heads"]] = max(1, hidden // size)
        if (table := TABLE_WIDTH.get(architecture)) is not None:
            fields.setdefault(table, getattr(large, table, None) or large.hidden_size)
    if network.depth != 1.0:
        layers = max(1, round(large.num_hidden_layers * network.depth))
        fields[names["num_hidden_layers"]] = layers
    return _config(architecture, fields | network.config, vocabulary, "generator")


_SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers")


def _config(
    architecture: str, fields: Mapping[str, Value], vocabulary: Vocabulary, role: str
) -> Any:
    if architecture not in ARCHITECTURES:
        known = dict.fromkeys(ARCHITECTURES)
        raise unknown(f"{role}: {architecture}", architecture, known, "pairable architecture")
    kind: Any = CONFIG_MAPPING[architecture]
    default = kind()
    if getattr(default, "hidden_size", None) is None:
        raise UserError(
            f"{architecture} is made of several models, not of text alone",
            got=f"{role}.architecture = {architecture} ({', '.join(kind.sub_configs)})",
            fix="take the architecture of its text model",
        )
    undeclared = UNDECLARED.get(architecture, set())
    names = {name for name in dir(default) if not name.startswith("_")} | undeclared
    for name in fields:
        if name not in names:
            settable = set(vars(default)) | undeclared
            place = f"{role}.config.{name}"
            raise unknown(place, name, dict.fromkeys(sorted(settable)), f"field of {architecture}")
    special = {
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
        "cls_token_id": vocabulary.cls,
        "sep_token_id": vocabulary.sep,
    }
    known = {name: value for name, value in special.items() if hasattr(default, name)}
    return kind(**{"vocab_size": vocabulary.size, **known, **fields})


def _build(kind: Any, settings: Any, architecture: str) -> Any:
    try:
        if hasattr(kind, "from_config"):
            return kind.from_config(settings)
        return kind(settings)
    except (ValueError, TypeError, AttributeError, RuntimeError, KeyError, ImportError) as error:
        raise UserError(
            f"{architecture} cannot be built from this recipe",
            got=f"{type(error).__name__}: {error}",
            fix="mend the fields of its configuration, or take another architecture",
        ) from error


def train_every_row(network: nn.Module) -> None:
    """Let the row of [PAD] learn like any other: the generator can sample it.

    Hugging Face freezes it at 0, which the official code does not: the loss drifts by 2 to 3 %
    within 20 steps.
    """
    for module in network.modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None

"""Build a generator and a discriminator of any architecture that transformers has both for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM, AutoModelForTokenClassification
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.models.electra import ElectraForPreTraining
from transformers.utils import logging

from electrify.config import unknown
from electrify.errors import UserError
from electrify.models.initialise import initialise
from electrify.models.limits import check_names, check_values
from electrify.models.released import (
    Start,
    check_vocabulary,
    load_released,
    released_config,
    released_fields,
)
from electrify.models.sharing import share, tie_output, unequal_embeddings
from electrify.recipes.schema import Discriminator, FieldValue, Generator, Recipe, Run
from electrify.tokens.tokenizer import LoadedTokenizer

logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it prints one per load and save

ARCHITECTURES = sorted(
    set(MODEL_FOR_MASKED_LM_MAPPING_NAMES) & set(MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES)
)
# The field for the width of the embeddings, where it may differ from that of the encoder.
EMBEDDING_WIDTH_FIELD = {
    **dict.fromkeys(("electra", "albert", "convbert", "deberta-v2", "roformer"), "embedding_size"),
    "rembert": "input_embedding_size",
}
# Fields that a model reads though its configuration does not declare them.
UNDECLARED = {
    "deberta-v2": {
        *("attention_head_size", "conv_act", "conv_kernel_size", "embedding_size"),
        *("norm_rel_ebd", "position_buckets", "share_att_key"),
    }
}
# Here from_pretrained zeroes the embedding of the padding id, so the configuration gets none.
RESETS_PADDING = {"funnel"}
WIDTHS = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
FEED_FORWARD = ("intermediate_size", "hidden_dim", "d_inner", "ffn_dim")
REPLACED_LABELS = {0: "original", 1: "replaced"}


class Vocabulary(NamedTuple):
    """The vocabulary size and special token ids that a model needs."""

    size: int
    pad: int
    cls: int
    sep: int
    tokenizer: LoadedTokenizer | None = None
    """The tokenizer, which a released network needs if it was extended."""


class Pair(NamedTuple):
    """Two networks that share weights as the recipe says."""

    generator: Any
    discriminator: Any
    notes: list[str]
    """Messages about weights that could not be shared or were not in released weights."""


def build_pair(recipe: Recipe, vocabulary: Vocabulary) -> Pair:
    """Build the generator and the discriminator of a recipe with their initial weights.

    If weights are released for one of them only, the other is made from these where it fits.
    """
    torch.manual_seed(recipe.run.seed)  # for what transformers initialises
    recipe, notes = _with_released_discriminator(recipe)
    discriminator, discriminator_notes = build_discriminator(recipe, vocabulary)
    settings = generator_config(recipe.discriminator, recipe.generator, vocabulary)
    source, made = _generator_source(recipe, settings, discriminator.config)
    generator, generator_notes = _network(
        AutoModelForMaskedLM, settings, source, recipe.run, vocabulary, recipe.run.seed + 1
    )
    notes += [*discriminator_notes, *made, *generator_notes]
    if recipe.generator.init_from:
        notes += unequal_embeddings(generator, discriminator, recipe.sharing)
    unshared = share(generator, discriminator, recipe.sharing)
    notes += [f"not shared: {note}" for note in unshared]
    for network in (generator, discriminator):
        train_every_row(network)
    return Pair(generator, discriminator, notes)


def _with_released_discriminator(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """Return the recipe with the masked LM's weights for a discriminator that has none; and notes.

    They fit if the architectures are the same and the recipe asks for no other sizes.
    """
    source, part = recipe.generator.init_from, recipe.discriminator
    if not source or part.init_from:
        return recipe, []
    architecture = recipe.generator.architecture or part.architecture
    config = released_config(source, architecture, {}, role_of(recipe.generator))
    name = Path(source).name
    wanted = {field: (value, getattr(config, field, None)) for field, value in part.config.items()}
    other = [f"{field} {a} ({b} in {name})" for field, (a, b) in wanted.items() if a != b]
    if config.model_type != part.architecture:
        other = [f"{part.architecture} ({config.model_type} in {name})"]
    if other:
        return recipe, [f"discriminator: from scratch, because the recipe asks for {other[0]}"]
    part = replace(part, init_from=source)
    note = "discriminator: made from the generator's released encoder, with a new head"
    return replace(recipe, discriminator=part), [note]


def _generator_source(
    recipe: Recipe, settings: Any, discriminator: Any
) -> tuple[Start | None, list[str]]:
    """Return where the generator's weights come from, and notes.

    Without its own, it has the first layers of a released discriminator if it is as wide.
    """
    part, source = recipe.generator, recipe.discriminator.init_from
    if part.init_from or not source:
        return _start(part, recipe.run), []
    depth, depths = settings.num_hidden_layers, discriminator.num_hidden_layers
    sizes = [
        name for name in WIDTHS if getattr(settings, name, 0) != getattr(discriminator, name, 0)
    ]
    if settings.model_type != discriminator.model_type or sizes or depth > depths:
        what = sizes[0] if sizes else "depth" if depth > depths else "architecture"
        return None, [f"generator: from scratch; the released discriminator has another {what}"]
    start = Start(source, role_of(part), new_embeddings=recipe.run.new_embeddings)
    note = f"generator: made from the discriminator's first {depth} of {depths} released layers"
    return start._replace(first_layers=True), [note]


def _start(part: Discriminator | Generator, run: Run) -> Start | None:
    if not part.init_from:
        return None
    return Start(part.init_from, role_of(part), new_embeddings=run.new_embeddings)


def build_discriminator(recipe: Recipe, vocabulary: Vocabulary) -> tuple[Any, list[str]]:
    """Build the discriminator, with ELECTRA's head or a token-classification head; and notes."""
    settings = discriminator_config(recipe.discriminator, vocabulary)
    kind: Any = ElectraForPreTraining
    if settings.model_type != "electra":
        kind = AutoModelForTokenClassification
        settings.num_labels, settings.id2label = len(REPLACED_LABELS), REPLACED_LABELS
        settings.label2id = {label: number for number, label in REPLACED_LABELS.items()}
    start = _start(recipe.discriminator, recipe.run)
    return _network(kind, settings, start, recipe.run, vocabulary, recipe.run.seed)


def build_masked_lm(recipe: Recipe, vocabulary: Vocabulary) -> tuple[Any, list[str]]:
    """Build the masked-LM baseline with the discriminator's encoder; and notes."""
    torch.manual_seed(recipe.run.seed)
    settings = discriminator_config(recipe.discriminator, vocabulary)
    start = _start(recipe.discriminator, recipe.run)
    network, notes = _network(
        AutoModelForMaskedLM, settings, start, recipe.run, vocabulary, recipe.run.seed
    )
    notes += [f"not shared: {note}" for note in tie_output(network)]
    train_every_row(network)
    return network, notes


def _network(
    kind: Any, settings: Any, start: Start | None, run: Run, vocabulary: Vocabulary, seed: int
) -> tuple[Any, list[str]]:
    """Build a network with released weights or the recipe's initial weights; and notes."""
    without_weights = torch.get_default_device().type == "meta"
    if start is not None and not without_weights:
        return load_released(kind, settings, start._replace(tokenizer=vocabulary.tokenizer))
    with _build_errors(settings.model_type):
        network = kind.from_config(settings) if hasattr(kind, "from_config") else kind(settings)
    if run.init == "official":
        initialise(network, torch.Generator().manual_seed(seed))
    return network, []


def role_of(part: Discriminator | Generator) -> str:
    """Return the name of a network's section in a recipe."""
    return type(part).__name__.lower()


def discriminator_config(network: Discriminator, vocabulary: Vocabulary) -> Any:
    """Return the configuration of the discriminator."""
    return _config(network, network.architecture, network.config, vocabulary)


def generator_config(
    discriminator: Discriminator, network: Generator, vocabulary: Vocabulary
) -> Any:
    """Return the configuration of the generator: the discriminator's, scaled, plus its own fields.

    Width, heads and feed-forward size are scaled together and depth separately, as in the official
    code. A generator of another architecture inherits nothing.
    """
    architecture = network.architecture or discriminator.architecture
    if network.init_from or architecture != discriminator.architecture:
        return _config(network, architecture, network.config, vocabulary)
    large = discriminator_config(discriminator, vocabulary)
    fields = dict(discriminator.config)
    if discriminator.init_from:  # old files have fields that transformers no longer knows
        known = _field_names(architecture)
        fields = {name: value for name, value in released_fields(large).items() if name in known}
    sizes = ("hidden_size", "num_attention_heads", "num_hidden_layers")
    names = {name: large.attribute_map.get(name, name) for name in sizes}
    if network.width != 1.0:
        hidden = round(large.hidden_size * network.width)
        fields[names["hidden_size"]] = hidden
        for feed_forward in FEED_FORWARD:
            if isinstance(size := getattr(large, feed_forward, None), int):
                fields[feed_forward] = round(size * hidden / large.hidden_size)
        if heads := getattr(large, "num_attention_heads", None):
            head_size = large.hidden_size // heads
            fields[names["num_attention_heads"]] = max(1, hidden // head_size)
        if (field := EMBEDDING_WIDTH_FIELD.get(architecture)) is not None:
            fields.setdefault(field, getattr(large, field, None) or large.hidden_size)
    if network.depth != 1.0:
        layers = max(1, round(large.num_hidden_layers * network.depth))
        fields[names["num_hidden_layers"]] = layers
        for name, value in fields.items():  # released files may list the kind of every layer
            if isinstance(value, list) and len(value) == large.num_hidden_layers:
                fields[name] = value[:layers]
    return _config(network, architecture, fields | network.config, vocabulary)


def _config(
    network: Discriminator | Generator,
    architecture: str,
    fields: Mapping[str, FieldValue],
    vocabulary: Vocabulary,
) -> Any:
    """Check the fields of a network and return its configuration."""
    role = role_of(network)
    check_names(network.config, role)
    if network.init_from:
        settings = released_config(network.init_from, architecture, network.config, role)
        check_values(vars(settings), CONFIG_MAPPING[architecture](), f"{role}.config.")
        check_vocabulary(settings, vocabulary.size, vocabulary.tokenizer, network.init_from)
        settings.vocab_size = vocabulary.size
        return settings
    if architecture not in ARCHITECTURES:
        known = dict.fromkeys(ARCHITECTURES)
        raise unknown(f"{role}: {architecture}", architecture, known, "supported architecture")
    kind: Any = CONFIG_MAPPING[architecture]
    default = kind()
    if getattr(default, "hidden_size", None) is None:
        raise UserError(
            f"{architecture} is not a text-only architecture",
            got=f"{role}.architecture = {architecture} ({', '.join(kind.sub_configs)})",
            fix="use the architecture of its text model",
        )
    names = _field_names(architecture)
    for name in fields:
        if name not in names:
            known = dict.fromkeys(sorted({*vars(default), *UNDECLARED.get(architecture, ())}))
            raise unknown(f"{role}.config.{name}", name, known, f"field of {architecture}")
    check_values(fields, default, f"{role}.config.")
    special = {
        "pad_token_id": None if architecture in RESETS_PADDING else vocabulary.pad,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), vocabulary.cls),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), vocabulary.sep),
    }
    special = {name: value for name, value in special.items() if hasattr(default, name)}
    with _build_errors(architecture):
        return kind(**{"vocab_size": vocabulary.size, **special, **fields})


def _field_names(architecture: str) -> set[str]:
    default = CONFIG_MAPPING[architecture]()
    computed = {n for n in dir(default) if isinstance(getattr(type(default), n, None), property)}
    declared = {*vars(default), *default.attribute_map, *computed}
    return {n for n in declared if n[0] != "_"} | UNDECLARED.get(architecture, set())


BUILD_ERRORS = (
    *(ArithmeticError, AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError),
    *(AssertionError, StrictDataclassError),
)


@contextmanager
def _build_errors(architecture: str) -> Iterator[None]:
    try:
        yield
    except BUILD_ERRORS as error:
        raise UserError(
            f"transformers cannot build {architecture} from this recipe",
            got=f"{type(error).__name__}: {error}",
            fix="change the fields of its configuration, or use another architecture",
        ) from error


def train_every_row(network: nn.Module) -> None:
    """Train the embedding of [PAD] like any other, because the generator can sample it.

    Hugging Face freezes it at 0 and the official code does not; frozen, the loss deviates by 2 to
    3 % within 20 steps.
    """
    module: Any
    for module in network.modules():
        weight = getattr(module, "weight", None)  # I-BERT has an embedding class of its own
        if hasattr(module, "padding_idx") and isinstance(weight, nn.Parameter):
            module.padding_idx = None

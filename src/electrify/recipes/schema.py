"""Recipes: all settings of a pre-training run in one file, so that a diff compares two runs."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from electrify import config
from electrify.errors import UserError
from electrify.recipes.ranges import RANGES
from electrify.recipes.schedules import Schedules, check_schedules, check_shapes, check_trained
from electrify.storage.commit import flat


class ObjectiveKind(NamedTuple):
    """What is known about an objective before torch is imported."""

    title: str
    where: str
    """The import path of its class; see objectives/objective.py."""
    unused: tuple[str, ...] = ()
    """Sections and fields of a recipe that it does not use."""


OBJECTIVES = {
    "rtd": ObjectiveKind(
        "replaced token detection", "electrify.objectives.rtd:ReplacedTokenDetection"
    ),
    "mlm": ObjectiveKind(
        "masked language modelling",
        "electrify.objectives.mlm:MaskedLanguageModel",
        unused=(
            "generator",
            "sharing",
            "objective.generator_weight",
            "objective.discriminator_weight",
            "objective.temperature",
            "objective.disallow_correct",
            "optimizer.generator_lr",
            "schedules.temperature",
            "schedules.generator_weight",
            "schedules.discriminator_weight",
        ),
    ),
}

ATTENTION = dict.fromkeys(("auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3"))
Attention = Annotated[str, tyro.conf.arg(metavar="{" + ",".join(ATTENTION) + "}")]
"""Implementations of attention in transformers; auto is the architecture's default."""

FieldValue = bool | int | float | str
# The fields depend on the architecture, so `with_config_flags` parses their flags, not tyro.
Fields = Annotated[dict[str, FieldValue], tyro.conf.Suppress]


@dataclass(frozen=True)
class Discriminator:
    """The network that is pre-trained for fine-tuning."""

    architecture: str = "electra"
    """Model type in transformers with masked-LM and token-classification classes, such as bert."""
    config: Fields = field(default_factory=dict)
    """Fields of the architecture's configuration; others have its default values."""
    init_from: str = ""
    """Folder or Hub name of a model to initialize from (its sizes apply); empty: from scratch."""


@dataclass(frozen=True)
class Generator:
    """The network that fills masked positions with sampled tokens."""

    architecture: str = ""
    """Model type in transformers; empty uses the discriminator's."""
    width: float = 1.0
    """Hidden size as a fraction of the discriminator's; heads and feed-forward scale with it."""
    depth: float = 1.0
    """Number of layers as a fraction of the discriminator's."""
    config: Fields = field(default_factory=dict)
    """Fields of its configuration that differ from the scaled discriminator's."""
    init_from: str = ""
    """Folder or Hub name of a model to initialize from; its sizes replace width and depth."""


@dataclass(frozen=True)
class Sharing:
    """Weights that generator and discriminator share."""

    embeddings: Literal["tied", "words", "gdes", "none"] = "tied"
    """tied: all, with LayerNorm; words: token embeddings; gdes: as DeBERTa-v3; none: separate."""
    projection: bool = False
    """Also share the projection after the embeddings, if the architecture has one."""
    encoder: bool = False
    """Also share all layers of the encoder."""


@dataclass(frozen=True)
class ObjectiveSettings:
    """The pre-training objective."""

    kind: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(OBJECTIVES) + "}")] = "rtd"
    """rtd: replaced token detection; mlm: masked language modelling, without a generator."""
    mask_rate: float = 0.15
    """Fraction of tokens to mask."""
    shown_as_mask: float = 0.85
    """Fraction of masked positions replaced by [MASK]; the others keep their token."""
    with_replacement: bool = False
    """Draw the masked positions with replacement, as the official code does."""
    whole_words: bool = False
    """Mask all tokens of a word together."""
    generator_weight: float = 1.0
    """Weight of the generator's loss."""
    discriminator_weight: float = 50.0
    """Weight of the discriminator's loss."""
    temperature: float = 1.0
    """Sampling temperature of the generator."""
    disallow_correct: bool = False
    """Never sample the original token as a replacement."""


@dataclass(frozen=True)
class Optimizer:
    """Optimizer and learning-rate schedule."""

    kind: Literal["electra-adam", "adamw", "lamb", "muon"] = "electra-adam"
    """electra-adam: without bias correction (official); muon: for matrices, AdamW for the rest."""
    lr: float = 5e-4
    """Peak learning rate."""
    beta1: float = 0.9
    """Adam beta1: decay of the first moment."""
    beta2: float = 0.999
    """Adam beta2: decay of the second moment."""
    eps: float = 1e-6
    """Adam epsilon."""
    weight_decay: float = 0.01
    """Weight decay of matrices and embeddings; biases and norms have none."""
    clip: float = 1.0
    """Maximum gradient norm over all parameters; 0 disables clipping."""
    schedule: Literal["electra", "linear", "cosine", "wsd", "constant"] = "electra"
    """Learning-rate schedule; electra: warm-up multiplied by decay; wsd: warm-up, stable, decay."""
    warmup: int = 10_000
    """Number of warm-up steps."""
    generator_lr: float = 1.0
    """Learning rate of weights that only the generator has, as a factor of lr."""


@dataclass(frozen=True)
class Run:
    """Length of the run, batches, evaluation and checkpoints."""

    steps: int = 1_000_000
    """Number of optimizer steps."""
    batch_size: int = 128
    """Examples per optimizer step, over all processes."""
    length: int = 128
    """Maximum number of tokens per example."""
    packing: bool = False
    """Fill each row of a batch with several examples, each of which attends only to itself."""
    attn_implementation: Attention = "auto"
    """Attention in transformers; auto: sdpa if the architecture has it, else eager."""
    seed: int = 0
    """Random seed of initial weights, data order, masks and samples."""
    init: Literal["official", "huggingface"] = "official"
    """Weight initialization: official (ELECTRA's code) or huggingface (transformers' default)."""
    output_bias: Literal["zero", "frequencies"] = "zero"
    """Initial biases of new heads: zero, or from token frequencies (LM) and mask rate (RTD)."""
    new_embeddings: Literal["mean", "random"] = "mean"
    """Embeddings of tokens that released weights lack: mean of the word's old tokens, or random."""
    precision: Literal["auto", "float32", "bf16", "fp16"] = "float32"
    """Precision of matmuls; auto: bf16 if faster, else float32. Losses and weights stay float32."""
    log_every: int = 100
    """Steps between logged metrics."""
    eval_every: int = 5_000
    """Steps between evaluations on the validation set; 0 disables them."""
    eval_batches: int = 16
    """Validation batches per evaluation; every evaluation uses the same ones."""
    save_every: int = 10_000
    """Steps between checkpoints, in addition to those saved by time."""
    keep_last: int = 2
    """Number of newest checkpoints to keep."""
    keep_percent: tuple[float, ...] = ()
    """Keep the checkpoints at these percentages of the run permanently."""


@dataclass(frozen=True)
class Recipe:
    """All settings of a pre-training run."""

    discriminator: Discriminator = field(default_factory=Discriminator)
    generator: Generator = field(default_factory=Generator)
    sharing: Sharing = field(default_factory=Sharing)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: Run = field(default_factory=Run)
    schedules: Schedules = field(default_factory=Schedules)


@dataclass(frozen=True, kw_only=True)
class FromRecipe(config.AcceptsTextPaths):
    """The settings of a command whose first argument is a recipe and whose options change it.

    From Python, `recipe` may be a name or a path: `Plan(recipe="tiny")`.
    """

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    """The recipe to run."""
    name: tyro.conf.Suppress[str] = ""
    """The name or path of the recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.recipe, str | Path):
            given = str(self.recipe)
            object.__setattr__(self, "name", given)
            object.__setattr__(self, "recipe", load(given))


def names() -> list[str]:
    """Return the names of the recipes in the package."""
    folder = resources.files("electrify") / "recipes"
    return sorted(path.name[:-5] for path in folder.iterdir() if path.name.endswith(".toml"))


def recipe_path(name: str) -> Path:
    """Return the path of a recipe, given its name or path."""
    if Path(name).suffix == ".toml":
        return Path(name)
    if name not in names():
        fix = config.nearest(name, names(), "`electrify recipes` lists them by purpose")
        raise UserError(f"there is no recipe named {name}", got=name, fix=fix)
    return Path(str(resources.files("electrify") / "recipes" / f"{name}.toml"))


def load(name: str) -> Recipe:
    """Load a recipe of the package by name, or your own by path."""
    return config.read_settings(Recipe, recipe_path(name))


def override(recipe: Recipe, changes: Mapping[str, Any], others: Sequence[str] = ()) -> Recipe:
    """Return a recipe with some values changed.

    Names are dotted (`{"run.steps": 200}`), nested (`{"run": {"steps": 200}}`) or, where only one
    section has such a field, bare (`{"steps": 200}`). An unknown name is refused with the nearest
    known one, of a recipe or of `others`.
    """
    table = config.to_dict(recipe)
    for name, value in _flattened(changes):
        *sections, field_name = _dotted(name, table, others).split(".")
        values = table
        for section in sections:
            if not isinstance(values.get(section), dict):
                raise config.unknown(f"recipe: {name}", section, values, "section")
            values = values[section]
        values[field_name] = value
    return config.fill(Recipe, table, "recipe", MISSING)


def _flattened(changes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in changes.items():
        if isinstance(value, Mapping) and (value or not name.endswith("config")):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _dotted(name: str, table: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return the full name of a field whose section may be left out.

    The schedule of a setting has the setting's name, so it always needs its section.
    """
    if "." in name:
        return name
    found = [section for section, values in table.items() if name in values]
    sections = [section for section in found if section != "schedules"] or found
    if len(sections) == 1:
        return f"{sections[0]}.{name}"
    if sections:
        raise UserError(
            f"{name} is a field of several sections",
            got=name,
            fix="use " + " or ".join(f"{section}.{name}" for section in sections),
        )
    known = dict.fromkeys([*others, *table, *(n for part in table.values() for n in part)])
    raise config.unknown(f"recipe: {name}", name, known, "setting")


def with_config_flags(recipe: Recipe, arguments: Sequence[str]) -> tuple[Recipe, list[str]]:
    """Apply the flags `--discriminator.config.FIELD VALUE` and the generator's to a recipe.

    Returns the recipe and the other arguments. The fields depend on the architecture, so they are
    checked later.
    """
    others: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        role, _, flag = argument.removeprefix("--").partition(".config.")
        if not flag or role not in ("discriminator", "generator"):
            others.append(argument)
            continue
        name, equals, value = flag.partition("=")
        value = value if equals else next(remaining, "--")
        if not equals and value.startswith("--"):
            raise UserError(f"{argument} needs a value", got="none", fix=f"use {argument} VALUE")
        network = getattr(recipe, role)
        changed = network.config | {name.replace("-", "_"): _value(value)}
        recipe = replace(recipe, **{role: replace(network, config=changed)})
    return recipe, others


def _value(text: str) -> FieldValue:
    """Return the number or boolean that a text stands for, else the text."""
    try:
        value = json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | str) else text


def check(recipe: Recipe) -> None:
    """Refuse invalid values, as far as they can be checked without the architecture."""
    kind = recipe.objective.kind
    if kind not in OBJECTIVES:
        raise config.unknown("objective.kind", kind, OBJECTIVES, "objective")
    if (attention := recipe.run.attn_implementation) not in ATTENTION:
        raise config.unknown("run.attn_implementation", attention, ATTENTION, "known attention")
    for name, allowed in RANGES.items():
        section, field_name = name.split(".")
        value = getattr(getattr(recipe, section), field_name)
        for number in value if isinstance(value, tuple) else (value,):
            if number not in allowed:
                flag = f"--{name.replace('_', '-')}"
                raise UserError(
                    f"{name} must be {allowed}",
                    got=config.shown(number),
                    fix=f"use a value in that range for {flag}",
                )
    check_schedules(recipe.schedules)
    check_shapes(recipe)
    if kind == "rtd":
        check_trained(recipe.schedules, recipe.objective)
    for role in ("discriminator", "generator"):
        fields_set = getattr(recipe, role).config
        for name in sorted(TOKENIZER_FIELDS & fields_set.keys()):
            raise UserError(
                f"{role}.config.{name} is set from the tokenizer",
                got=f"{fields_set[name]}",
                fix="leave it out of the recipe",
            )
    if recipe.objective.with_replacement and recipe.objective.whole_words:
        raise UserError(
            "whole words cannot be masked with replacement",
            got="objective.with_replacement = true and objective.whole_words = true",
            fix="set one of them to false",
        )
    _check_nothing_ignored(recipe)


def _check_nothing_ignored(recipe: Recipe) -> None:
    """Refuse settings that the objective does not use."""
    kind = OBJECTIVES[recipe.objective.kind]
    values, defaults = flat(config.to_dict(recipe)), flat(config.to_dict(Recipe()))
    ignored = {
        name: value
        for unused in kind.unused
        for name, value in values.items()
        if f"{name}.".startswith(f"{unused}.") and value != defaults.get(name)
    }
    if not ignored:
        return
    fix = f"add {' '.join(_flag(name, defaults[name]) for name in ignored if name in defaults)}"
    if not ignored.keys() <= defaults.keys():  # a field of a configuration has no default
        fix = "copy the recipe (electrify recipes copy NAME), remove these lines and use the copy"
    raise UserError(
        f"{', '.join(ignored)} would be ignored: {kind.title} does not use "
        f"{'it' if len(ignored) == 1 else 'them'}",
        got=", ".join(f"{name} = {json.dumps(value)}" for name, value in ignored.items())
        + f" with objective.kind = {recipe.objective.kind}",
        fix=f"{fix}; or use another objective.kind",
    )


def _flag(name: str, value: FieldValue) -> str:
    """Return the flag that sets a field of a recipe.

    >>> _flag("objective.mask_rate", 0.15), _flag("sharing.encoder", False)
    ('--objective.mask-rate 0.15', '--sharing.no-encoder')
    """
    section, _, field_name = name.replace("_", "-").partition(".")
    if isinstance(value, bool):
        return f"--{section}.{field_name if value else f'no-{field_name}'}"
    return f"--{section}.{field_name} {shlex.quote(str(value))}"


TOKENIZER_FIELDS = {"vocab_size"} | {
    f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep", "mask")
}

"""A recipe: everything a pre-training run does, in one file, so that two runs differ by a diff."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from electrify import config
from electrify.errors import UserError
from electrify.recipes.ranges import RANGES


class ObjectiveKind(NamedTuple):
    """What is known of an objective before torch is imported."""

    title: str
    where: str
    """Its class, see objectives/objective.py."""
    unused: tuple[str, ...] = ()
    """Sections and fields of a recipe that it has no use for."""


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
        ),
    ),
}

FieldValue = bool | int | float | str
# Which fields there are the architecture says, so `with_config_flags` reads their flags, not tyro.
Fields = Annotated[dict[str, FieldValue], tyro.conf.Suppress]


@dataclass(frozen=True)
class Discriminator:
    """The network that is kept."""

    architecture: str = "electra"
    """A model type of transformers that has a masked-LM and a token-classification class."""
    config: Fields = field(default_factory=dict)
    """Fields of the architecture's configuration; the rest has the architecture's defaults."""
    init_from: str = ""
    """A folder or Hub name to take weights from, and the fields that `config` leaves open."""


@dataclass(frozen=True)
class Generator:
    """The network that corrupts."""

    architecture: str = ""
    """A model type; empty: the discriminator's."""
    width: float = 1.0
    """Its width as a share of the discriminator's; heads and feed-forward shrink along."""
    depth: float = 1.0
    """Its number of layers as a share of the discriminator's."""
    config: Fields = field(default_factory=dict)
    """Fields of its configuration that differ from the discriminator's otherwise."""
    init_from: str = ""
    """A folder or Hub name to take weights and sizes from; width and depth do not count then."""


@dataclass(frozen=True)
class Sharing:
    """What generator and discriminator have in common."""

    embeddings: Literal["tied", "words", "gdes", "none"] = "tied"
    """tied: all tables and their LayerNorm. words: the word table. gdes: as DeBERTa-v3. none."""
    projection: bool = False
    """Also the projection after the tables, in architectures that have one."""
    encoder: bool = False
    """Also the whole encoder."""


@dataclass(frozen=True)
class ObjectiveSettings:
    """What is learned."""

    kind: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(OBJECTIVES) + "}")] = "rtd"
    """Replaced token detection, or masked language modelling with the discriminator's encoder."""
    mask_rate: float = 0.15
    """Share of tokens that are hidden."""
    shown_as_mask: float = 0.85
    """Share of the hidden tokens that show [MASK]; the others show themselves."""
    with_replacement: bool = False
    """Draw positions with replacement, as the official code does."""
    whole_words: bool = False
    """Hide whole words."""
    generator_weight: float = 1.0
    """Weight of the generator's loss."""
    discriminator_weight: float = 50.0
    """Weight of the discriminator's loss."""
    temperature: float = 1.0
    """Of the generator's samples."""
    disallow_correct: bool = False
    """Never sample the original token."""


@dataclass(frozen=True)
class Optimizer:
    """How weights move."""

    kind: Literal["electra-adam", "adamw", "lamb", "muon"] = "electra-adam"
    """electra-adam: no bias correction, as officially. muon: for matrices, AdamW for the rest."""
    lr: float = 5e-4
    """Peak learning rate."""
    beta1: float = 0.9
    """Memory of the mean."""
    beta2: float = 0.999
    """Memory of the square."""
    eps: float = 1e-6
    """Added to the root."""
    weight_decay: float = 0.01
    """Decay of matrices and tables; biases and normalisations do not decay."""
    clip: float = 1.0
    """Largest joint norm of all gradients; 0 for no limit."""
    schedule: Literal["electra", "linear", "cosine", "wsd", "constant"] = "electra"
    """electra: warm-up times decay. The others rise first and then fall."""
    warmup: int = 10_000
    """Steps in which the rate rises."""


@dataclass(frozen=True)
class Run:
    """How long, how much, from where."""

    steps: int = 1_000_000
    """Updates."""
    batch_size: int = 128
    """Examples an update, over all processes."""
    length: int = 128
    """Tokens an example has at most."""
    seed: int = 0
    """Of the starting weights, the order, the masks and the samples."""
    init: Literal["official", "huggingface"] = "official"
    """Starting weights: as ELECTRA's code, or as the architecture has them."""
    output_bias: Literal["zero", "frequencies"] = "zero"
    """Where heads start: nowhere, or at how often tokens occur and are replaced."""
    precision: Literal["auto", "float32", "bf16", "fp16"] = "float32"
    """Of matmuls; auto: bf16 where it is faster, else float32. Losses and weights stay float32."""
    log_every: int = 100
    """Steps between two lines of metrics."""
    eval_every: int = 5_000
    """Steps between two measurements on held-out text; 0 for none."""
    eval_batches: int = 16
    """Batches of held-out text to measure on, always the same."""
    save_every: int = 10_000
    """Steps between two checkpoints; there are others by the clock."""
    keep_last: int = 2
    """How many of the newest checkpoints stay."""
    keep_percent: tuple[float, ...] = ()
    """Percents of the training whose checkpoints stay for good."""


@dataclass(frozen=True)
class Recipe:
    """One complete run."""

    discriminator: Discriminator = field(default_factory=Discriminator)
    generator: Generator = field(default_factory=Generator)
    sharing: Sharing = field(default_factory=Sharing)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: Run = field(default_factory=Run)


@dataclass(frozen=True, kw_only=True)
class FromRecipe(config.AcceptsTextPaths):
    """The settings of a command whose first argument is a recipe, and whose flags change it.

    From Python, `recipe` may be a name or a path: `Plan(recipe="tiny")`.
    """

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    """What to run."""
    name: tyro.conf.Suppress[str] = ""
    """What the recipe is called."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.recipe, str | Path):
            given = str(self.recipe)
            object.__setattr__(self, "name", given)
            object.__setattr__(self, "recipe", load(given))


def names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("electrify") / "recipes"
    return sorted(path.name[:-5] for path in folder.iterdir() if path.name.endswith(".toml"))


def path_of(name: str) -> Path:
    """Where a recipe is, given its name or path."""
    if Path(name).suffix == ".toml":
        return Path(name)
    if name not in names():
        raise config.unknown(f"recipe {name}", name, dict.fromkeys(names()), "recipe")
    return Path(str(resources.files("electrify") / "recipes" / f"{name}.toml"))


def load(name: str) -> Recipe:
    """A recipe of the package by name, or one's own by path."""
    return config.read_settings(Recipe, path_of(name))


def override(recipe: Recipe, changes: Mapping[str, Any], others: Sequence[str] = ()) -> Recipe:
    """Return a recipe with some values changed.

    Names are dotted (`{"run.steps": 200}`), nested (`{"run": {"steps": 200}}`) or, where only one
    section has such a field, bare (`{"steps": 200}`). A name that does not exist is refused with
    the nearest one, of a recipe or of `others` that could have been meant.
    """
    table = config.to_dict(recipe)
    for name, value in _flattened(changes):
        *sections, field_name = _dotted(name, table, others).split(".")
        place = table
        for section in sections:
            if not isinstance(place.get(section), dict):
                raise config.unknown(f"recipe: {name}", section, place, "section")
            place = place[section]
        place[field_name] = value
    return config.fill(Recipe, table, "recipe", MISSING)


def _flattened(changes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in changes.items():
        if isinstance(value, Mapping) and (value or not name.endswith("config")):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _dotted(name: str, table: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return the full name of a field whose section may be left out."""
    if "." in name:
        return name
    homes = [section for section, fields_set in table.items() if name in fields_set]
    if len(homes) == 1:
        return f"{homes[0]}.{name}"
    if homes:
        raise UserError(
            f"{name} is a field of several sections",
            got=name,
            fix=" or ".join(f"{section}.{name}" for section in homes),
        )
    known = dict.fromkeys([*others, *table, *(n for part in table.values() for n in part)])
    raise config.unknown(f"recipe: {name}", name, known, "setting")


def with_config_flags(recipe: Recipe, arguments: Sequence[str]) -> tuple[Recipe, list[str]]:
    """Return a recipe with the flags `--discriminator.config.FIELD VALUE` and the generator's.

    Returns the other arguments too. Which fields there are depends on the architecture, so it is
    seen later whether they exist.
    """
    others: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        role, _, flag = argument.removeprefix("--").partition(".config.")
        if not flag or role not in ("discriminator", "generator"):
            others.append(argument)
            continue
        name, equals, value = flag.partition("=")
        value = value if equals else next(waiting, "--")
        if not equals and value.startswith("--"):
            raise UserError(f"{argument} needs a value", got="none", fix=f"{argument} VALUE")
        network = getattr(recipe, role)
        changed = network.config | {name.replace("-", "_"): _value(value)}
        recipe = replace(recipe, **{role: replace(network, config=changed)})
    return recipe, others


def _value(text: str) -> FieldValue:
    """A number or truth value where the text is one, else the text."""
    try:
        value = json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | str) else text


def check(recipe: Recipe) -> None:
    """Refuse values that cannot be meant, as far as they show without the architecture."""
    kind = recipe.objective.kind
    if kind not in OBJECTIVES:
        raise config.unknown("objective.kind", kind, OBJECTIVES, "objective")
    for name, allowed in RANGES.items():
        section, field_name = name.split(".")
        value = getattr(getattr(recipe, section), field_name)
        for number in value if isinstance(value, tuple) else (value,):
            if number not in allowed:
                raise UserError(
                    f"{name} is out of range",
                    got=config.shown(number),
                    fix=f"{_flag(name)} takes {allowed}",
                )
    for role in ("discriminator", "generator"):
        fields_set = getattr(recipe, role).config
        for name in sorted(TOKENIZER_FIELDS & fields_set.keys()):
            raise UserError(
                f"{role}.config.{name} comes from the tokenizer",
                got=f"{fields_set[name]}",
                fix="leave it out",
            )
    if recipe.objective.with_replacement and recipe.objective.whole_words:
        raise UserError(
            "whole words cannot be drawn with replacement",
            got="objective.with_replacement and objective.whole_words",
            fix="set one of them to false",
        )
    released = recipe.discriminator.init_from or recipe.generator.init_from
    if recipe.run.output_bias != "zero" and released:
        raise UserError(
            "released weights have learned their biases",
            got=f"run.output_bias = {recipe.run.output_bias}, weights from {released}",
            fix="--run.output-bias zero",
        )
    _check_nothing_ignored(recipe)


def _check_nothing_ignored(recipe: Recipe) -> None:
    """Refuse settings that the objective has no use for."""
    kind = OBJECTIVES[recipe.objective.kind]
    for name in kind.unused:
        section, _, field_name = name.partition(".")
        given, default = getattr(recipe, section), getattr(Recipe(), section)
        if field_name:
            given, default = getattr(given, field_name), getattr(default, field_name)
        if given != default:
            raise UserError(
                f"{name} would be ignored: {kind.title} does not use it",
                got=f"{given} with objective.kind = {recipe.objective.kind}",
                fix=f"leave {name} out, or choose another objective.kind",
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


TOKENIZER_FIELDS = {"vocab_size"} | {
    f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep", "mask")
}

"""A recipe: everything a pre-training run does, in one file, so that two runs differ by a diff."""

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from electrify import config

Value = bool | int | float | str


@dataclass(frozen=True)
class Discriminator:
    """The network that is kept."""

    architecture: str = "electra"
    """A model type of transformers that has a masked-LM and a token-classification class."""
    config: dict[str, Value] = field(default_factory=dict)
    """Fields of the architecture's configuration; the rest has the architecture's defaults."""


@dataclass(frozen=True)
class Generator:
    """The network that corrupts."""

    architecture: str = ""
    """A model type; empty: the discriminator's."""
    width: float = 1.0
    """Its width as a share of the discriminator's; heads and feed-forward shrink along."""
    depth: float = 1.0
    """Its number of layers as a share of the discriminator's."""
    config: dict[str, Value] = field(default_factory=dict)
    """Fields of its configuration that differ from the discriminator's otherwise."""


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
class Objective:
    """What is learned."""

    kind: Literal["rtd", "mlm"] = "rtd"
    """Replaced token detection, or masked language modelling with the discriminator's body."""
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


@dataclass(frozen=True)
class Recipe:
    """One complete run."""

    discriminator: Discriminator = field(default_factory=Discriminator)
    generator: Generator = field(default_factory=Generator)
    sharing: Sharing = field(default_factory=Sharing)
    objective: Objective = field(default_factory=Objective)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: Run = field(default_factory=Run)


def names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("electrify") / "recipes"
    return sorted(path.name[:-5] for path in folder.iterdir() if path.name.endswith(".toml"))


def load(name: str) -> Recipe:
    """A recipe of the package by name, or one's own by path."""
    if Path(name).suffix == ".toml":
        return config.read(Recipe, Path(name))
    if name not in names():
        raise config.unknown(f"recipe {name}", name, dict.fromkeys(names()), "recipe")
    return config.read(Recipe, Path(str(resources.files("electrify") / "recipes" / f"{name}.toml")))

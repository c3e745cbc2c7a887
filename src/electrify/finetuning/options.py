"""What the commands that fine-tune can be told. Apart from what they do: help comes at once."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electrify.config import AcceptsTextPaths
from electrify.training.layers import LayerDecayKind

PresetName = Literal["paper", "official-code", "seed-003", "seed-004"]
HeadKind = Literal["official", "own"]
InitHead = Literal["new", "pretrained"]
LabelKind = Literal["classes", "score"]
Reduction = Literal["sum", "mean"]
"""Of the losses of a batch."""


@dataclass(frozen=True)
class Fit:
    """How a model is fitted."""

    lr: float = 1e-4
    """Peak learning rate, of the head."""
    epochs: float = 3.0
    """How often every example is seen."""
    batch_size: int = 32
    """Examples an update."""
    layer_decay: float = 0.8
    """What the rate is multiplied by from each layer to the one below; 1: the same for all."""
    layers: LayerDecayKind = "intended"
    """Exponents of the layer decay: as intended, or official, with the slip in ELECTRA's code."""
    optimizer: Literal["electra-adam", "adamw"] = "electra-adam"
    """electra-adam: no bias correction, as officially."""
    weight_decay: float = 0.0
    """Decay of matrices and tables."""
    schedule: Literal["electra", "linear", "constant"] = "electra"
    """electra: warm-up times decay."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises."""
    clip: float = 1.0
    """Largest joint norm of all gradients; 0 for no limit."""
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """Of matrix products."""


@dataclass(frozen=True, kw_only=True)
class Tuning(AcceptsTextPaths):
    """What commands that fine-tune on GLUE have in common."""

    data: Path
    """The GLUE folder: CoLA, SST-2, …; or a copy of the Hub's nyu-mll/glue."""
    out: Path
    """The folder of the results; the same command again adds what is missing."""
    preset: PresetName = "paper"
    """Known settings; what a result was made with is shown beside it."""
    head: HeadKind | None = None
    """official: dropout and a linear layer on [CLS]; own: the architecture's."""
    init_head: InitHead = "new"
    """new: draw the head by the seed; pretrained: keep the model's weights that fit an own head."""
    lr: float | None = None
    """Peak learning rate in place of the preset's."""
    epochs: float | None = None
    """Epochs in place of the preset's, for every task."""
    batch_size: int | None = None
    """Examples an update in place of the preset's 32."""
    layer_decay: float | None = None
    """Layer-wise decay of the rate in place of the preset's; 1 for none."""
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """Of matrix products; bf16 is faster where the processor has it."""
    from_mnli: str = ""
    """Tasks, with commas, that start from an MNLI model, besides the preset's."""
    length: int = 128
    """Tokens an example has at most."""
    train_limit: int = 0
    """Only the first examples of each training file; 0 for all."""
    workers: int = 1
    """Jobs at the same time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: CUDA if there is one, else the CPU."""


@dataclass(frozen=True, kw_only=True)
class Glue(Tuning):
    """Fine-tune on GLUE tasks with several seeds, and show the scores beside published ones."""

    model: tyro.conf.Positional[str]
    """An encoder that transformers loads: a folder or a name on the Hub."""
    tasks: str = "all"
    """cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, with commas; all is without wnli."""
    seeds: int = 0
    """Seeds of every task; 0 takes the preset's number."""


@dataclass(frozen=True)
class GlueSubmit(AcceptsTextPaths):
    """Predict the test files with the best run of each task by its development score."""

    results: tyro.conf.Positional[Path]
    """The --out of `electrify glue`."""
    data: Path
    """The GLUE folder, with test files."""
    out: Path = Path("submission.zip")
    """FILE.zip with all tasks, for the server; or a folder, for single .tsv files of any tasks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to predict; auto: CUDA if there is one, else the CPU."""


@dataclass(frozen=True, kw_only=True)
class Search(Tuning):
    """Search for the learning rate, epochs, layer decay and batch size of one task."""

    model: tyro.conf.Positional[str]
    """An encoder that transformers loads: a folder or a name on the Hub."""
    task: str
    """One GLUE task."""
    trials: int = 20
    """How many settings to try in all, those of earlier runs of the command included."""


@dataclass(frozen=True, kw_only=True)
class Probe(Tuning):
    """Fine-tune every checkpoint of a pre-training run, to see scores along the training."""

    run: tyro.conf.Positional[Path]
    """The folder of a pre-training run."""
    tasks: str = "cola,stsb"
    """GLUE tasks, with commas."""
    seeds: int = 2
    """Seeds of every task."""


@dataclass(frozen=True)
class Squad(AcceptsTextPaths):
    """Fine-tune an encoder on SQuAD and answer the development file's questions."""

    model: tyro.conf.Positional[str]
    """A folder that transformers loads, or a model on the Hub."""
    data: Path
    """The folder with train-v1.1*.json and dev-v1.1*.json, or 2.0, plain or .xz."""
    out: Path
    """The folder to make."""
    version: Literal["auto", "1.1", "2.0"] = "auto"
    """Of SQuAD; auto: the one that the folder has."""
    head: Literal["simple", "official"] = "simple"
    """simple: of transformers, so that it loads the result; official: ELECTRA's joint one."""
    fit: Annotated[Fit, tyro.conf.arg(name="")] = field(
        default_factory=lambda: Fit(epochs=2.0, weight_decay=0.01)
    )
    length: int = 512
    """Most tokens in a window; less if the encoder reads less."""
    stride: int = 128
    """Tokens of the context from one window to the next."""
    train_share: float = 1.0
    """Learn from a share of the questions, the same ones every time."""
    dev_limit: int = 0
    """Answer the first so many questions; 0: all."""
    null_threshold: float | None = None
    """2.0: no answer above these odds; by default 0, or -2.75 with the official head."""
    seed: int = 0
    """Of new weights, order and dropout."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: CUDA if there is one, else the CPU."""


@dataclass(frozen=True)
class Finetune(AcceptsTextPaths):
    """Fine-tune an encoder on one's own CSV, TSV, JSON lines or CoNLL-style files."""

    model: tyro.conf.Positional[str]
    """An encoder that transformers loads: a folder or a name on the Hub."""
    train: Path
    """What to learn from: .csv, .tsv, .jsonl, or CoNLL-style; also packed (.gz, …)."""
    dev: Path
    """What to measure on, of the same form."""
    out: Path
    """The folder to make; the same command again goes on, or shows the result."""
    kind: Literal["auto", "classes", "score", "tags"] = "auto"
    """What to learn; auto finds it from the data and says so."""
    text: str = ""
    """Column of the text, if its name is not a usual one; a number in CoNLL-style files."""
    pair: str = ""
    """Column of a second text."""
    label: str = ""
    """Column of classes, scores or tags."""
    length: int = 256
    """Tokens a text has at most; what is longer is cut, and counted."""
    seed: int = 0
    """Of the new head, the order of examples and dropout."""
    seeds: int = 1
    """How many seeds, from --seed on; the best on the development file is kept."""
    init_head: InitHead = "new"
    """new: draw the head by the seed; pretrained: keep the model's weights that fit it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: CUDA if there is one, else the CPU."""
    fit: tyro.conf.OmitArgPrefixes[Fit] = field(default_factory=Fit)
    """How a model is fitted."""


@dataclass(frozen=True)
class Predict(AcceptsTextPaths):
    """Predict classes, scores or tags for the rows of a file, and measure them if it has labels."""

    model: tyro.conf.Positional[Path]
    """The --out of `electrify finetune`, or another folder with a sequence or token classifier."""
    file: tyro.conf.Positional[Path]
    """Texts: .csv, .tsv, .jsonl, or CoNLL-style; also packed (.gz, …)."""
    out: Path | None = None
    """File to write: .csv, .tsv, .jsonl (.gz); otherwise, to the terminal in the form of FILE."""
    text: str = ""
    """Column of the text, if its name is not a usual one; a number in CoNLL-style files."""
    pair: str = ""
    """Column of a second text."""
    label: str = ""
    """Column of the labels to measure with."""
    length: int = 0
    """Tokens a text has at most; 0: what the model was fine-tuned with."""
    batch_size: int = 64
    """Texts at a time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: CUDA if there is one, else the CPU."""

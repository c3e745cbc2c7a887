"""Options of the fine-tuning commands, apart from their code so that --help stays fast."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electrify.config import AcceptsTextPaths
from electrify.training.layers import LayerDecayKind
from electrify.training.precision import Asked

PresetName = Literal["paper", "official-code", "seed-003", "seed-004"]
HeadKind = Literal["official", "own"]
InitHead = Literal["new", "pretrained"]
LabelKind = Literal["classes", "score"]
ScoreKind = Literal["original", "pseudo-likelihood"]
Reduction = Literal["sum", "mean"]
"""How the losses of a batch are reduced."""
PoolingChoice = Literal["auto", "mean", "cls", "max"]
ModelArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]


@dataclass(frozen=True)
class Fit:
    """Hyperparameters of a fine-tuning run."""

    lr: float = 1e-4
    """Peak learning rate; with layer decay, the rate of the head."""
    epochs: float = 3.0
    """Passes over the training set."""
    batch_size: int = 32
    """Examples per step."""
    layer_decay: float = 0.8
    """Layer-wise learning-rate decay: factor from each layer to the one below; 1 disables it."""
    layers: LayerDecayKind = "intended"
    """Layer-decay exponents: as intended, or official, with the off-by-one in ELECTRA's code."""
    optimizer: Literal["electra-adam", "adamw"] = "electra-adam"
    """electra-adam: Adam without bias correction, as in the official code."""
    weight_decay: float = 0.0
    """Weight decay of weight matrices and embeddings."""
    schedule: Literal["electra", "linear", "constant"] = "electra"
    """electra: warm-up multiplied by linear decay, as in the official code."""
    warmup: float = 0.1
    """Fraction of the steps used for learning-rate warm-up."""
    clip: float = 1.0
    """Maximum global gradient norm; 0 disables clipping."""
    precision: Asked = "auto"
    """Precision of matmuls; auto: bf16 on a GPU that has it, float32 on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Tuning(AcceptsTextPaths):
    """Options that all commands for fine-tuning on GLUE share."""

    data: Path
    """GLUE folder with CoLA, SST-2, …, or from `electrify data glue`, which downloads it."""
    out: Path
    """Folder for the results; rerun to add what is missing."""
    preset: PresetName = "paper"
    """Published hyperparameters; seed-003: lmtuners, seed-004: electra_pytorch."""
    head: HeadKind | None = None
    """official: dropout, linear on [CLS]; own: the architecture's head; default: the preset's."""
    init_head: InitHead = "new"
    """new: random head from the seed; pretrained: load matching weights (needs --head own)."""
    lr: float | None = None
    """Peak learning rate; by default the preset's."""
    epochs: float | None = None
    """Epochs of every task; by default the preset's."""
    batch_size: int | None = None
    """Examples per step; by default the preset's 32."""
    layer_decay: float | None = None
    """Layer-wise learning-rate decay; by default the preset's; 1 disables it."""
    precision: Asked = "auto"
    """Precision of matmuls; auto: bf16 on a GPU that has it, float32 on a CPU."""
    from_mnli: str = ""
    """Comma-separated tasks to initialize from the MNLI run, besides those of the preset."""
    length: int = 128
    """Maximum tokens per example."""
    train_limit: int = 0
    """Use only the first N examples of each training file; 0 uses all."""
    workers: int | str | None = None
    """Jobs to run in parallel, one on each GPU in turn; by default one per GPU; 0: one per core.
    Or the address of a Dask scheduler.
    """
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True, kw_only=True)
class Glue(Tuning):
    """Fine-tune on GLUE tasks with several seeds, and compare the scores with published ones."""

    model: ModelArgument
    """Encoder that transformers can load: a folder or a name on the Hub."""
    tasks: str = "all"
    """Comma-separated: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli; all excludes wnli."""
    seeds: int = 0
    """Seeds per task; 0 uses the preset's number."""
    footnotes: bool = False
    """Print the sources and caveats of the published rows, which glue.md always has."""


@dataclass(frozen=True, kw_only=True)
class GlueData(AcceptsTextPaths):
    """Download GLUE from the Hugging Face Hub (nyu-mll/glue), to use as --data."""

    out: Path
    """Folder for the files; rerun to resume, or to add tasks."""
    tasks: str = "all"
    """Comma-separated: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli; all excludes wnli."""
    revision: str = "main"
    """Branch, tag or commit of the dataset."""


@dataclass(frozen=True)
class GlueSubmit(AcceptsTextPaths):
    """Predict the test sets with each task's best run, chosen by development score."""

    results: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RESULTS")]
    """Results folder: the --out of `electrify glue`."""
    data: Path
    """GLUE folder, including the test files."""
    out: Path = Path("submission.zip")
    """A .zip with all tasks for the GLUE server, or a folder for .tsv files of any tasks."""
    tasks: str = ""
    """Comma-separated tasks to predict, with a folder as --out; by default all finished tasks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to predict on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True, kw_only=True)
class Search(Tuning):
    """Search for the best learning rate, layer decay, epochs and batch size of a task."""

    model: ModelArgument
    """Encoder that transformers can load: a folder or a name on the Hub."""
    task: str
    """GLUE task to tune."""
    trials: int = 20
    """Total number of trials, including those of earlier runs of this command."""
    # These are searched, so they are not options of the command.
    lr: tyro.conf.Suppress[float | None] = None
    epochs: tyro.conf.Suppress[float | None] = None
    batch_size: tyro.conf.Suppress[int | None] = None
    layer_decay: tyro.conf.Suppress[float | None] = None


@dataclass(frozen=True, kw_only=True)
class Probe(Tuning):
    """Fine-tune every checkpoint of a pre-training run to see how its scores develop."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the pre-training run."""
    tasks: str = "cola,stsb"
    """Comma-separated GLUE tasks, and blimp: minimal pairs in DATA/blimp or DATA."""
    seeds: int = 2
    """Seeds per task."""


@dataclass(frozen=True)
class Blimp(AcceptsTextPaths):
    """Measure how often a model prefers the acceptable sentence of a minimal pair (BLiMP)."""

    model: ModelArgument
    """Discriminator or masked language model: a folder or a name on the Hub."""
    data: Path
    """Folder of minimal pairs: one .jsonl file per paradigm, in BLiMP's format."""
    out: Path = Path("blimp")
    """Folder for the results; rerun to resume."""
    score: Literal["auto"] | ScoreKind = "auto"
    """original: sum of log P(original) over the tokens, for discriminators; pseudo-likelihood: sum
    of log P(token) with each token masked in turn, for masked LMs; auto: what the model is."""
    limit: int = 0
    """Score only the first N pairs of each paradigm; 0 scores all."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to score on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True)
class Squad(AcceptsTextPaths):
    """Fine-tune an encoder on SQuAD and answer the questions of the development file."""

    model: ModelArgument
    """Encoder that transformers can load: a folder or a name on the Hub."""
    data: Path
    """Folder with train-v1.1*.json and dev-v1.1*.json (or v2.0), plain or .xz."""
    out: Path
    """Output folder; rerun to resume."""
    version: Literal["auto", "1.1", "2.0"] = "auto"
    """Version of SQuAD; auto uses the one in the folder."""
    head: Literal["simple", "official"] = "simple"
    """simple: transformers' head, so that it can load the result; official: ELECTRA's head."""
    fit: Annotated[Fit, tyro.conf.arg(name="")] = field(
        default_factory=lambda: Fit(epochs=2.0, weight_decay=0.01)
    )
    length: int = 512
    """Maximum tokens per window, capped at the encoder's maximum."""
    stride: int = 128
    """Context tokens between the starts of consecutive windows."""
    train_share: float = 1.0
    """Fraction of the training questions to use; the subset is fixed."""
    dev_limit: int = 0
    """Answer only the first N development questions; 0 answers all."""
    null_threshold: float | None = None
    """SQuAD 2.0 no-answer threshold; by default 0, or -2.75 with --head official."""
    seed: int = 0
    """Seed of new weights, data order and dropout."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True)
class Finetune(AcceptsTextPaths):
    """Fine-tune an encoder on your CSV, TSV, JSON lines or CoNLL-style files.

    --kind sentences trains sentence vectors: from pairs of texts with scores, or, if the file has
    no scores, from pairs that belong together.
    """

    model: ModelArgument
    """Encoder that transformers can load: a folder or a name on the Hub."""
    train: Path
    """Training file: .csv, .tsv, .jsonl or CoNLL-style; may be compressed (.gz, …)."""
    dev: Path
    """Development file to evaluate on, in the same format."""
    out: Path
    """Output folder; rerun to resume, or to show the result again."""
    kind: Literal["auto", "classes", "score", "tags", "sentences"] = "auto"
    """What to predict, or sentences for vectors; auto infers what to predict from the data."""
    text: str = ""
    """Text column, if its name is unusual; a column number in CoNLL-style files."""
    pair: str = ""
    """Column of a second text."""
    label: str = ""
    """Column of the classes, scores or tags."""
    length: int = 256
    """Maximum tokens per text; longer texts are truncated and their number is reported."""
    seed: int = 0
    """Seed of the new head, data order and dropout."""
    seeds: int = 1
    """Number of seeds, starting at --seed; the best on the development file is kept."""
    init_head: InitHead = "new"
    """new: random head from the seed; pretrained: load the model's matching head weights."""
    pooling: PoolingChoice = "auto"
    """Pooling of --kind sentences; auto: that of a sentence-transformers folder, otherwise mean."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto uses CUDA if available, otherwise the CPU."""
    fit: tyro.conf.OmitArgPrefixes[Fit] = field(default_factory=Fit)
    """Hyperparameters of the fine-tuning run."""


@dataclass(frozen=True)
class Suite(AcceptsTextPaths):
    """Fine-tune several models on the tasks of one TOML file, with several seeds, and compare them.

    The tasks may be GLUE tasks, your files (classes, pairs, scores, tags), SQuAD and BLiMP.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE.toml")]
    """The tasks and how to fine-tune on them."""
    models: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="MODEL…", help_behavior_hint="(required)"),
    ]
    """Folders or Hub names; random:MODEL: the same model with random weights; NAME=MODEL: its name
    in tables."""
    out: Path
    """Folder for the results; rerun to resume, or to add tasks, models and seeds."""
    data: Path | None = None
    """Folder that relative paths in the file start from; by default the folder of the file."""
    seeds: int | None = None
    """Seeds per task and model; by default those of the file, or 3."""
    train_limit: int | None = None
    """Use only the first N examples of every training file, to try a suite out; 0 uses all."""
    workers: str = "0"
    """Processes (0: one per GPU, or else per core), or the address of a Dask scheduler."""
    threads: int = 1
    """CPU threads of each run; scores do not depend on --workers, but may on this."""
    precision: Asked = "auto"
    """Precision of matmuls; auto: bf16 on a GPU that has it, float32 on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True)
class Predict(AcceptsTextPaths):
    """Predict classes, scores or tags for a sentence or a file; evaluate if the file has labels."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The --out of `electrify finetune`, or any folder with a sequence or token classifier."""
    file: Annotated[str | Path, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT|FILE")]
    """A sentence, or a file: .txt (one text per line), .csv, .tsv, .jsonl, CoNLL-style, .gz."""
    out: Path | None = None
    """Output file (.csv, .tsv, .jsonl, .gz); by default standard output, in the format of FILE."""
    text: str = ""
    """Text column, if its name is unusual; a column number in CoNLL-style files."""
    pair: str = ""
    """Column of a second text; with a sentence, the second text itself."""
    label: str = ""
    """Column of the labels to evaluate against."""
    length: int = 0
    """Maximum tokens per text; 0 uses the length that the model was fine-tuned with."""
    batch_size: int = 64
    """Texts per batch."""
    precision: Asked = "auto"
    """Precision of matmuls; auto: that of fine-tuning, or float32 where that is slow."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to predict on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True)
class Embed(AcceptsTextPaths):
    """Write one vector for every text of a file, from any encoder."""

    model: ModelArgument
    """Encoder, export or sentence-transformers folder, or a name on the Hub."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Texts: .txt (one per line), .csv, .tsv or .jsonl; may be compressed (.gz, .xz, …)."""
    out: Path
    """Output file: .npy (array), .parquet or .jsonl (the input's columns and `vector`)."""
    text: str = ""
    """Text column, if its name is unusual; its number in a file without a header."""
    pooling: PoolingChoice = "auto"
    """How token vectors become one: mean, cls (the first token) or max; auto: that of a
    sentence-transformers folder, otherwise mean."""
    normalize: bool = False
    """Scale the vectors to length 1, so that dot products are cosine similarities."""
    length: int = 0
    """Maximum tokens per text; 0 uses the model's own, or 512 if it names none."""
    batch_size: int = 64
    """Texts per batch."""
    precision: Asked = "float32"
    """Precision of matmuls; auto: bf16 on a GPU that has it, float32 on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on; auto uses CUDA if available, otherwise the CPU."""


@dataclass(frozen=True)
class Classify(AcceptsTextPaths):
    """Classify texts without training, by the label that looks most original in a template.

    The score of a label is the mean log-probability of its tokens: that they are original, for
    discriminators; of the tokens themselves, each masked in turn, for masked language models.
    """

    model: ModelArgument
    """Discriminator or masked language model: a folder or a name on the Hub."""
    file: Annotated[str | Path, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT|FILE")]
    """A sentence, or a file: .txt (one text per line), .csv, .tsv or .jsonl; may be compressed."""
    template: str
    """What follows the text, such as "It was {label}."; with {text}, the complete input."""
    labels: str
    """Comma-separated words to try in the template: great,terrible."""
    gold: str = ""
    """What the label column contains in place of each label, in the same order: 1,0."""
    out: Path | None = None
    """Output file (.csv, .tsv, .jsonl, .gz) with predictions and scores; by default none."""
    text: str = ""
    """Text column, if its name is unusual; its number in a file without a header."""
    label: str = ""
    """Column of the labels to evaluate against."""
    score: Literal["auto"] | ScoreKind = "auto"
    """original: P(original), for discriminators; pseudo-likelihood: P(token), for masked LMs;
    auto: what the model is."""
    calibrate: bool = False
    """Subtract each label's score in the template without text, because some words are likelier
    than others whatever the text."""
    length: int = 0
    """Maximum tokens per text with its template; 0 uses the model's own."""
    limit: int = 0
    """Classify only the first N rows of a file; 0 classifies all."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on; auto uses CUDA if available, otherwise the CPU."""

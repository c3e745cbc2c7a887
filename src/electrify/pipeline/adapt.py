"""`electrify adapt MODEL --docs DOCS --budget 30m --out DIR`: a released model on your text.

It extends the tokenizer, prepares shards, continues pre-training, exports, and compares the model
before and after on pages that were set aside. What was chosen is stored before it is used, so the
same command resumes after a kill.

DIR/docs           documents, if --docs are texts
DIR/tokenizer      the extended tokenizer
DIR/shards         your text; DIR/general: general text
DIR/recipe.toml    the recipe of the run
DIR/run            the pre-training run
DIR/model          the exported networks
DIR/scores         a suite of tasks, before and after
DIR/comparison     before and after on validation pages, and the verdict
DIR/report.html    all of it on one page
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tyro

from electrify import config
from electrify.corpora.corpus import refuse_output_in_source
from electrify.errors import UserError, needs
from electrify.pipeline.choices import Setting, choose_reading
from electrify.pipeline.command import CHOICES_FILE, Choices, check_validation, describe_machine
from electrify.pipeline.stages import Stages, announce
from electrify.pipeline.survey import survey_files
from electrify.recipes import schema
from electrify.storage.commit import committed, read_manifest
from electrify.tokens.held_out import texts_of_split
from electrify.tokens.new_words import WordFinder
from electrify.tokens.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from electrify.finetuning.adaptation.compare import AdaptationResult
    from electrify.models.base import BaseModel

FOLDER_OF_CHOICE = {
    "kind": "docs",
    "split": "docs",
    "test": "tokenizer",
    "length": "shards",
    "objective": "run",
    "batch_size": "run",
    "lr": "run",
}
"""The folder of the stage that uses a choice first."""
VALIDATION_SHARE = 0.01
"""Fraction of the documents set aside to evaluate the run on; the tokenizer does not see them."""
LEAST_TEST, MOST_TEST = 0.01, 0.1
"""Range of the fraction of the documents that is set aside to compare models on."""
CHARACTERS_PER_WORD = 50
"""Text for each masked word: 15 % of the words are masked."""
BEFORE, AFTER = "before", "after"
"""Names of the models in the suite."""
SHORTEST_LIST = 12  # new words in the report


@dataclass(frozen=True)
class Adapt(config.AcceptsTextPaths):
    """Adapt a released model to your text in one command. Run it again to resume.

    It adds the words of your text to the tokenizer, continues pre-training for a time, exports the
    model, compares it with the released one on pages that were set aside, and writes a report.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder of `electrify export`, any encoder that transformers loads, or a name on the Hub."""
    docs: tuple[Path, ...]
    """Your text: folders of documents made by `electrify corpus`, or files as `train` takes."""
    out: Path
    """Folder to write tokenizer, shards, run, model, comparison and report to."""
    budget: str = "30m"
    """Time for pre-training, such as 45m or 8h."""
    add: int = 2_000
    """Number of new words to add to the tokenizer; 0 keeps it."""
    generator: str = ""
    """The generator that was released with a discriminator; by default made from its layers."""
    general: tuple[Path, ...] = ()
    """Folders of general documents: some are mixed in, and forgetting is reported."""
    general_share: float = 0.1
    """Fraction of the training examples taken from --general."""
    tasks: Path | None = None
    """Labelled tasks to compare on: the TOML file of a suite, see `electrify suite`."""
    words: int = 2_000
    """Number of words to compare losses on, from pages that were set aside."""
    test: float | None = None
    """Fraction of the documents set aside to compare on; by default enough for --words."""
    objective: Literal["rtd", "mlm"] | None = None
    """By default rtd if MODEL has a discriminator, otherwise mlm (masked language modelling)."""
    length: int | None = None
    """Maximum tokens per example; by default as MODEL was trained, or 64 (128 on a GPU)."""
    batch_size: int | None = None
    """Examples per step; by default as MODEL was trained, or 16 (64 on a GPU)."""
    lr: float | None = None
    """Peak learning rate, reached after 6 % of the steps; by default chosen for MODEL."""
    kind: Literal["text", "jsonl", "csv", "parquet", "wikipedia", "gutenberg"] | None = None
    """Format of the texts; by default detected from file names and content."""
    split: Literal["blank", "file"] | None = None
    """Where a document of plain text ends: at blank lines, or at the end of its file."""
    text: str = "text"
    """Field or column that holds the text, in JSON lines, CSV and Parquet."""
    seed: int = 0
    """Seed of the pre-training run."""


class AdaptResult(NamedTuple):
    """What adapting has made: folders, the page, and the comparison."""

    run: Path
    model: Path
    """The exported networks, each in a folder of its own."""
    encoder: Path
    """The network to fine-tune, for transformers' AutoModel."""
    comparison: Path
    report: Path
    """The page to open in a browser."""
    result: "AdaptationResult"
    """Before and after, and the verdict."""


def adapt(settings: Adapt) -> AdaptResult:
    """Run every stage, and return what they made."""
    from electrify.models.base import open_base
    from electrify.training.signals import parse_duration

    needs("matplotlib", extra="report", why="the report at the end")  # better to know immediately
    parse_duration(settings.budget, "--budget")
    config.check_minimum(settings, add=0, words=1, length=8, batch_size=1)
    _check_inputs(settings)
    if settings.lr is not None:
        schema.check(schema.override(schema.Recipe(), {"optimizer.lr": settings.lr}))
    base = open_base(settings.model, settings.generator)
    tokenizer = load_tokenizer(base.encoder)
    if settings.add:
        WordFinder(tokenizer)  # refuses tokenizers that words cannot be added to
    stages = Stages(settings.out)
    refuse_output_in_source(stages.out, settings.docs)
    with stages.claim(CHOICES_FILE):
        return _adapt(settings, stages, base)


def _check_inputs(settings: Adapt) -> None:
    """Refuse documents and tasks that cannot be read, before anything is made."""
    if not settings.docs:
        raise UserError("no text was given", got="no --docs", fix="--docs DOCS, or --docs FILES")
    for folder in settings.general:
        read_manifest(folder, "documents")
    if not 0 <= settings.general_share < 1:
        raise UserError(
            "--general-share must be at least 0 and less than 1",
            got=f"{settings.general_share}",
            fix="use 0.1 to take 10 % of the examples from --general",
        )
    if settings.tasks is not None:
        from electrify.finetuning.suite.file import read_suite
        from electrify.finetuning.suite.plans import check_task

        for row in read_suite(settings.tasks).tasks:
            check_task(row, settings.tasks.parent)


def _adapt(settings: Adapt, stages: Stages, base: "BaseModel") -> AdaptResult:
    from electrify.finetuning.encoder import open_encoder
    from electrify.pipeline.released_recipe import choose_continuation, continuation

    machine = describe_machine()
    print(f"model: {base.config.model_type}, {base.description}\nmachine: {machine.description}")
    choices = Choices(settings, FOLDER_OF_CHOICE)
    docs = _documents(settings, stages, choices)
    longest = open_encoder(base.encoder).longest
    choices.make(
        lambda: [
            _choose_test(docs, settings.words),
            *choose_continuation(base, machine.cuda, longest),
        ],
        *("test", "length", "objective", "batch_size", "lr"),
    )
    aside = {"validation": VALIDATION_SHARE, "test": choices["test"]}
    tokenizer = base.encoder
    if settings.add:
        stages.extend_tokenizer(base.encoder, docs, add=settings.add, **aside)
        tokenizer = str(stages.tokenizer)
    stages.make_shards(docs, tokenizer, length=choices["length"], **aside)
    check_validation(stages.shards)
    options: dict[str, Any] = {}
    if settings.general:
        options = {"general": stages.out / "general", "general_share": settings.general_share}
        stages.make_shards(
            settings.general, tokenizer, options["general"], length=choices["length"]
        )
    recipe = stages.out / "recipe.toml"
    with committed(recipe) as temporary:
        text = config.to_toml(continuation(base, choices, settings.seed))
        temporary.write_text(text, encoding="utf-8")
    stages.pretrain(str(recipe), settings.budget, **options)
    comparison, scores = stages.out / "comparison", stages.out / "scores"
    encoder = stages.export(comparison, scores / "jobs" / AFTER)
    if settings.tasks is not None:
        _score(settings.tasks, base.encoder, encoder, scores)
    result = _compare(settings, stages, base, docs, choices, comparison, scores)
    results = [comparison, *([scores] if settings.tasks is not None else [])]
    page = stages.report(*results)
    _say(result, stages, encoder, page)
    return AdaptResult(stages.run, stages.model, encoder, comparison, page, result)


def _documents(settings: Adapt, stages: Stages, choices: Choices) -> tuple[Path, ...]:
    """Return the folders of documents: those given, or one that is made from the texts given."""
    made = [path for path in settings.docs if _are_documents(path)]
    if made and len(made) < len(settings.docs):
        other = next(path for path in settings.docs if path not in made)
        raise UserError(
            "--docs mixes documents and texts",
            got=f"{made[0]} has documents, {other} has not",
            fix=f"make documents of all texts: electrify corpus --help; {other} is not a folder "
            "of documents",
        )
    if made:
        for path in made:
            read_manifest(path, "documents")
        return settings.docs
    choices.make(
        lambda: choose_reading(survey_files(settings.docs, settings.kind)), "kind", "split"
    )
    stages.read(choices["kind"], settings.docs, choices["split"], settings.text)
    return (stages.docs,)


def _choose_test(docs: Sequence[Path], words: int) -> Setting:
    """Choose a fraction of the documents that is enough for some words to be masked."""
    characters = sum(read_manifest(folder, "documents")["characters"] for folder in docs)
    wanted = words * CHARACTERS_PER_WORD / max(1, characters)
    fraction = round(min(MOST_TEST, max(LEAST_TEST, wanted)), 3)
    why = f"of {characters:,} characters, to mask {words:,} words in"
    return Setting("test", fraction, why if wanted <= MOST_TEST else f"{why} as far as possible")


def _are_documents(path: Path) -> bool:
    return (path / "manifest.json").is_file() or (path / ".parts").is_dir()


def _score(tasks: Path, before: str, after: Path, out: Path) -> None:
    """Fine-tune the released and the adapted encoder on the tasks of a suite."""
    from electrify.finetuning.options import Suite
    from electrify.finetuning.suite.command import suite

    models = (f"{BEFORE}={before}", f"{AFTER}={after}")
    announce("suite", tasks, *models, out=out)
    suite(Suite(file=tasks, models=models, out=out))


def _compare(
    settings: Adapt,
    stages: Stages,
    base: "BaseModel",
    docs: tuple[Path, ...],
    choices: Choices,
    out: Path,
    scores: Path,
) -> "AdaptationResult":
    from electrify.finetuning.adaptation.compare import (
        Comparing,
        Findings,
        MeasuredModel,
        compare_models,
    )
    from electrify.finetuning.adaptation.tasks import task_changes
    from electrify.finetuning.suite.record import read_record
    from electrify.pipeline.released_recipe import network_before
    from electrify.tokens.store import Shards
    from electrify.training.data import token_counts
    from electrify.training.summary import general_change

    shards = Shards(stages.shards, "train")
    tokenizer = shards.tokenizer()
    new = []
    if settings.add:
        new = read_manifest(stages.tokenizer, "tokenizer")["extension"]["new"][:SHORTEST_LIST]
    role = "generator" if choices["objective"] == "rtd" else "model"
    print("\ncomparing the model before and after on pages that were set aside", flush=True)
    return compare_models(
        Comparing(
            model=settings.model,
            objective=choices["objective"],
            before=MeasuredModel(network_before(base, choices["objective"]), base.encoder),
            after=MeasuredModel(*[str(stages.model / role)] * 2),
            length=choices["length"],
            words=settings.words,
        ),
        list(texts_of_split(docs, "test", VALIDATION_SHARE, choices["test"])),
        Findings(
            new_words=new,
            general=general_change(stages.run),
            tasks=task_changes(read_record(scores), BEFORE, AFTER) if settings.tasks else [],
            counts_V=token_counts(shards, tokenizer),
        ),
        out,
    )


def _say(result: "AdaptationResult", stages: Stages, encoder: Path, page: Path) -> None:
    from electrify.finetuning.adaptation.verdict import AdaptationVerdict

    print(f"""
{AdaptationVerdict(**result["verdict"])}

Next steps:
  look at the report     open {page} in a browser
  train longer           electrify pretrain --resume {shlex.quote(f"{stages.run}")} --more 1h
                         and then this command again
  train on your labels   electrify finetune {shlex.quote(f"{encoder}")} \
--train train.csv --dev dev.csv --out tuned""")

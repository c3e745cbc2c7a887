"""`electrify train TEXTS… --budget 1h --out DIR`: from text to a model and a report.

What was chosen is stored before it is used, so the same command resumes after a kill.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import tyro

from electrify import config
from electrify.corpora.corpus import refuse_output_in_source
from electrify.errors import UserError
from electrify.jobs import available_cores
from electrify.pipeline.choices import Machine, Setting, choose_reading, choose_training
from electrify.pipeline.stages import Stages, check_packages
from electrify.pipeline.survey import survey_documents, survey_files
from electrify.recipes import schema
from electrify.storage.commit import damaged, read_json, read_manifest, write_json

CHOICES_FILE = "choices.json"
STAGE_OF_CHOICE = {
    "kind": "docs",
    "split": "docs",
    "tokenizer": "tokenizer",
    "keep_accents": "tokenizer",
    "vocab_size": "tokenizer",
    "length": "shards",
    "recipe": "run",
}
"""The folder of the stage that uses a choice first."""


@dataclass(frozen=True)
class TrainFromText(config.AcceptsTextPaths):
    """Train a model on a folder of text in one command. Run it again to resume.

    It inspects the text and the machine, chooses the format, tokenizer and recipe, explains each
    choice, trains, and writes an exported model and a report. An option overrides each choice.
    """

    texts: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TEXT…", help_behavior_hint="(required)"),
    ]
    """Files or folders: text, JSON lines, CSV, Parquet or a MediaWiki dump, compressed or not."""
    out: Path
    """Folder to write documents, tokenizer, shards, run, model and report to."""
    budget: str = "1h"
    """Time for pre-training, such as 45m or 8h."""
    kind: Literal["text", "jsonl", "csv", "parquet", "wikipedia", "gutenberg"] | None = None
    """Format of the texts; by default detected from file names and content."""
    split: Literal["blank", "file"] | None = None
    """Where a document of plain text ends: at blank lines, or at the end of its file."""
    text: str = "text"
    """Field or column that holds the text, in JSON lines, CSV and Parquet."""
    tokenizer: Literal["wordpiece", "bpe", "unigram"] | None = None
    """Tokenizer; by default WordPiece, or Unigram for text without spaces between words."""
    vocab_size: int | None = None
    """Vocabulary size, including special tokens; by default chosen from the text."""
    keep_accents: bool | None = None
    """Keep accents; by default if more than 0.2 % of the letters are accented."""
    cased: bool = False
    """Distinguish upper and lower case."""
    recipe: str | None = None
    """Recipe by name or path; by default one that suits the machine and the budget."""
    length: int | None = None
    """Maximum number of tokens per example; by default the recipe's."""
    seed: int = 0
    """Seed of the pre-training run."""


class TrainResult(NamedTuple):
    """What training on text has made: folders, the page, and how good the model is."""

    docs: Path
    tokenizer: Path
    shards: Path
    run: Path
    model: Path
    """The exported networks, each in a folder of its own."""
    encoder: Path
    """The network to fine-tune, for transformers' AutoModel."""
    report: Path
    """The page to open in a browser."""
    metrics: dict[str, float]
    """The final validation metrics."""


def train_from_text(settings: TrainFromText) -> TrainResult:
    """Run every stage, and return what they made."""
    from electrify.training.signals import parse_duration

    check_packages()
    seconds = parse_duration(settings.budget, "--budget")
    if not settings.texts:
        raise UserError("no texts were given", got="no file or folder", fix="name at least one")
    if settings.recipe:
        schema.check(schema.load(settings.recipe))
    stages = Stages(settings.out)
    refuse_output_in_source(stages.out, settings.texts)
    with stages.claim(CHOICES_FILE):
        return _train(settings, stages, seconds)


def _train(settings: TrainFromText, stages: Stages, seconds: float) -> TrainResult:
    from electrify.training.export_run import validation_metrics
    from electrify.training.folder import RunFolder
    from electrify.training.summary import verdict_text

    def reading() -> list[Setting]:
        return choose_reading(survey_files(settings.texts, settings.kind))

    def training() -> list[Setting]:
        text, machine = survey_documents(stages.docs), describe_machine()
        print(f"text: {text.description}\nmachine: {machine.description}")
        return choose_training(text, machine, seconds, settings.recipe)

    choices = Choices(settings, STAGE_OF_CHOICE)
    choices.make(reading, "kind", "split")
    stages.read(choices["kind"], settings.texts, choices["split"], settings.text)
    choices.make(training, "tokenizer", "keep_accents", "vocab_size", "recipe", "length")
    stages.make_tokenizer(
        kind=choices["tokenizer"],
        vocab_size=choices["vocab_size"],
        cased=settings.cased,
        keep_accents=choices["keep_accents"],
    )
    stages.make_shards(length=choices["length"])
    check_validation(stages.shards)
    changes = {"run.length": choices["length"]} | ({"run.seed": s} if (s := settings.seed) else {})
    stages.pretrain(choices["recipe"], settings.budget, changes)
    encoder, page = stages.export(), stages.report()
    print(f"""
{verdict_text(stages.run)}

Next steps:
  look at the run        open {page} in a browser
  train longer           electrify pretrain --resume {shlex.quote(f"{stages.run}")} --more 1h
                         and then this command again
  try sentences          electrify inspect {shlex.quote(f"{stages.model}")} --serve
  train on your labels   electrify finetune {shlex.quote(f"{encoder}")} \
--train train.csv --dev dev.csv --out tuned""")
    metrics = validation_metrics(stages.run, RunFolder(stages.run).saved()[0].step)
    return TrainResult(
        *(stages.docs, stages.tokenizer, stages.shards, stages.run, stages.model),
        *(encoder, page, metrics),
    )


class Choices:
    """What was chosen for a folder: by its options, by an earlier run of the command, or now.

    A choice is final once the folder of the stage that uses it exists; until then, options and the
    survey may change it. A choice that does not apply to the text is None.
    """

    def __init__(self, settings: Any, stages: Mapping[str, str]) -> None:
        self._path, self._settings, self._stages = settings.out / CHOICES_FILE, settings, stages
        self._stored: dict[str, Any] = {}
        if self._path.exists():
            stored = read_json(self._path)
            if not isinstance(stored, dict) or not stored.keys() <= stages.keys():
                raise damaged(self._path, f"not the choices of this command: {str(stored)[:60]}")
            self._stored = stored
        hints = get_type_hints(type(settings))
        for name in stages:
            for value in (self._stored.get(name), getattr(settings, name)):
                config.checked(hints[name], value, name)

    def __getitem__(self, name: str) -> Any:
        return self._stored.get(name)

    def make(self, survey: Callable[[], list[Setting]], *names: str) -> None:
        """Choose what is not final yet, and print each choice with its reason."""
        given = {name: getattr(self._settings, name) for name in names}
        final = [name for name in names if name in self._stored and self._is_final(name)]
        for name in final:
            self._refuse_other(name, given[name], self._stored[name])
        chosen = [Setting(n, self._stored[n], f"chosen before, see {self._path}") for n in final]
        if len(final) < len(names):
            for setting in survey():
                if setting.name in final:
                    continue
                if given[setting.name] is not None:
                    setting = Setting(setting.name, given[setting.name], "given by its option")
                chosen.append(setting)
            made = dict.fromkeys(names) | {setting.name: setting.value for setting in chosen}
            for name in names:
                self._refuse_other(name, given[name], made[name])
            self._stored |= made
            write_json(self._path, self._stored)
        for setting in chosen:
            if setting.value is not None:
                print(f"{setting.name.replace('_', ' ')}: {_text(setting.value)} ({setting.why})")

    def _is_final(self, name: str) -> bool:
        folder: Path = self._path.parent / self._stages[name]
        return folder.exists()

    def _refuse_other(self, name: str, given: Any, made: Any) -> None:
        flag = f"--{name.replace('_', '-')}"
        if given is not None and made is None:
            got, fix = f"{flag} {given}", "leave it out"
            raise UserError(f"{flag} does not apply to these texts", got=got, fix=fix)
        if given is not None and given != made:
            raise UserError(
                f"{self._path.parent} was made with another {flag}",
                got=f"the folder has {made}, the command says {given}",
                fix="use the same one, or another --out; nothing was changed",
            )


def describe_machine() -> Machine:
    """Describe what training can use here: device, memory and precision."""
    import torch

    from electrify.planning.hardware import bytes_text, memory_of
    from electrify.training.precision import choose_precision

    cuda = torch.cuda.is_available()
    device, cores = "cuda" if cuda else "cpu", available_cores()
    name = torch.cuda.get_device_name() if cuda else f"{cores} CPU core{'s' if cores > 1 else ''}"
    fast = choose_precision("auto", device).precision == "bf16"
    precision = "bfloat16 is faster than float32" if fast else "bfloat16 is not faster than float32"
    return Machine(cuda, f"{name}, {bytes_text(memory_of(device))} of memory, {precision}")


def check_validation(shards: Path) -> None:
    """Raise an error unless there are validation examples to judge the training by."""
    splits = read_manifest(shards, "shards")["splits"]
    if not splits.get("validation", {}).get("examples"):
        raise UserError(
            f"{shards} has no validation examples",
            got="too little text to set some aside",
            fix="give more text: without a validation set nobody can tell whether training worked",
        )


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"

"""`electrify train TEXTS… --budget 1h --out DIR`: from text to a model and a report.

Every stage is one of the other commands, printed so that you can repeat it by hand; its folder is
kept. What was chosen is stored before it is used, so the same command resumes after a kill.
"""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from electrify import config
from electrify.corpora.clean import Filters
from electrify.corpora.corpus import Corpus, corpus, refuse_output_in_source, settings_type
from electrify.errors import UserError, needs
from electrify.jobs import available_cores
from electrify.pipeline.choices import Machine, Setting, choose_reading, choose_training
from electrify.pipeline.survey import survey_documents, survey_files
from electrify.recipes import schema
from electrify.storage.commit import damaged, read_json, read_manifest, write_json
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.vocabulary import MakeTokenizer, make_tokenizer

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
    """Files or folders: plain text, JSON lines, Parquet or a MediaWiki dump, compressed or not."""
    out: Path
    """Folder to write documents, tokenizer, shards, run, model and report to."""
    budget: str = "1h"
    """Time for pre-training, such as 45m or 8h."""
    kind: Literal["text", "jsonl", "parquet", "wikipedia", "gutenberg"] | None = None
    """Format of the texts; by default detected from file names and content."""
    split: Literal["blank", "file"] | None = None
    """Where a document of plain text ends: at blank lines, or at the end of its file."""
    text: str = "text"
    """Field or column that holds the text, in JSON lines and Parquet."""
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


def train_from_text(settings: TrainFromText) -> int:
    """Run every stage, and return the exit code."""
    from electrify.training.signals import parse_duration

    needs("matplotlib", extra="report", why="the report at the end")  # better to know immediately
    seconds = parse_duration(settings.budget, "--budget")
    if not settings.texts:
        raise UserError("no texts were given", got="no file or folder", fix="name at least one")
    if settings.recipe:
        schema.check(schema.load(settings.recipe))
    out = settings.out
    docs, tokenizer, shards, run = (out / n for n in ("docs", "tokenizer", "shards", "run"))
    make_folder(out, settings.texts)
    choices = Choices(settings)

    choices.make(
        lambda: choose_reading(survey_files(settings.texts, settings.kind)), "kind", "split"
    )
    make_documents(settings, choices, docs)
    choices.make(
        lambda: choose_training(
            survey_documents(docs), describe_machine(), seconds, settings.recipe
        ),
        *("tokenizer", "keep_accents", "vocab_size", "recipe", "length"),
    )
    made = MakeTokenizer(
        docs=(docs,),
        out=tokenizer,
        kind=choices["tokenizer"],
        vocab_size=choices["vocab_size"],
        cased=settings.cased,
        keep_accents=choices["keep_accents"],
    )
    announce("tokenizer", docs, **flags_of(made, without=("docs",)))
    make_tokenizer(made)
    prepared = Prepare(docs=(docs,), tokenizer=str(tokenizer), out=shards, length=choices["length"])
    announce("prepare", docs, **flags_of(prepared, without=("docs",)))
    prepare(prepared)
    check_validation(shards)
    return train_and_report(settings, choices, shards, run)


def make_documents(settings: TrainFromText, choices: "Choices", docs: Path) -> None:
    """Turn the texts into documents, duplicates removed."""
    kind = choices["kind"]
    reader_options: dict[str, Any] = {}
    if kind == "text" and choices["split"]:
        reader_options["split"] = choices["split"]
    if kind in ("jsonl", "parquet"):
        reader_options["text"] = settings.text
    reader = type(settings_type(kind)(sources=(), out=docs).reader)(**reader_options)
    flags = {f"--{name}": value for name, value in reader_options.items()}
    announce("corpus", kind, *settings.texts, **flags, **{"--dedup": True, "--out": docs})
    sources = tuple(str(path) for path in settings.texts)
    corpus(Corpus(sources=sources, out=docs, reader=reader, filters=Filters(dedup=True)))


def train_and_report(settings: TrainFromText, choices: "Choices", shards: Path, run: Path) -> int:
    """Pre-train for the budget, export, and write the report."""
    from electrify.reports.options import Report
    from electrify.reports.report import report
    from electrify.training.export_run import export_run
    from electrify.training.options import Export, Pretrain
    from electrify.training.pretrain import pretrain
    from electrify.training.summary import verdict_text

    out = settings.out
    recipe = schema.override(
        schema.load(choices["recipe"]),
        {"run.length": choices["length"], "run.seed": settings.seed},
    )
    flags = {"--data": shards, "--out": run, "--run.length": choices["length"]}
    flags |= {"--run.seed": settings.seed} if settings.seed else {}
    announce("pretrain", choices["recipe"], **flags, **{"--budget": settings.budget})
    code = pretrain(Pretrain(recipe=recipe, data=shards, out=run, budget=settings.budget))
    if code:
        return code
    model, page = out / "model", out / "report.html"
    announce("export", run, **{"--out": model})
    export_run(Export(run, model))
    announce("report", run, **{"--out": page})
    report(Report(folders=(run,), out=page))
    encoder, labels = shlex.quote(f"{model / 'encoder'}"), "--train train.csv --dev dev.csv"
    print(f"""
{verdict_text(run)}

Next steps:
  look at the run        open {page} in a browser
  try sentences          electrify inspect {shlex.quote(str(model))} --serve
  train on your labels   electrify finetune {encoder} {labels} --out tuned""")
    return 0


class Choices:
    """What was chosen for a folder: by its options, by an earlier run of the command, or now.

    A choice is final once the folder of the stage that uses it exists; until then, options and the
    survey may change it.
    """

    def __init__(self, settings: TrainFromText) -> None:
        self._path, self._settings = settings.out / CHOICES_FILE, settings
        self._stored: dict[str, Any] = {}
        if self._path.exists():
            stored = read_json(self._path)
            if not isinstance(stored, dict) or not stored.keys() <= STAGE_OF_CHOICE.keys():
                raise damaged(self._path, f"not the choices of this command: {str(stored)[:60]}")
            self._stored = stored
            hints = get_type_hints(TrainFromText)
            for name, value in stored.items():
                config.checked(hints[name], value, name)

    def __getitem__(self, name: str) -> Any:
        return self._stored.get(name)

    def make(self, survey: Callable[[], list[Setting]], *names: str) -> None:
        """Choose what is not final yet, and print each choice with its reason."""
        given = {name: getattr(self._settings, name) for name in names}
        final = {name for name in names if name in self._stored and self._is_final(name)}
        for name in final:
            if given[name] is not None and given[name] != self._stored[name]:
                raise UserError(
                    f"{self._path.parent} was made with another --{name.replace('_', '-')}",
                    got=f"the folder has {self._stored[name]}, the command says {given[name]}",
                    fix="use the same one, or another --out; nothing was changed",
                )
        chosen = [Setting(n, self._stored[n], f"chosen before, see {self._path}") for n in final]
        if final < set(names):
            for setting in survey():
                if setting.name in final:
                    continue
                if given[setting.name] is not None:
                    setting = Setting(setting.name, given[setting.name], "given by its option")
                chosen.append(setting)
            self._stored |= {setting.name: setting.value for setting in chosen}
            write_json(self._path, self._stored)
        for setting in chosen:
            print(f"{setting.name.replace('_', ' ')}: {_text(setting.value)} ({setting.why})")

    def _is_final(self, name: str) -> bool:
        return (self._path.parent / STAGE_OF_CHOICE[name]).exists()


def make_folder(out: Path, texts: Iterable[Path]) -> None:
    """Make the output folder, which must not lie inside the texts."""
    refuse_output_in_source(out, list(texts))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "use a folder for --out that can be created"
        raise UserError(f"{out} cannot be created", got=f"{error}", fix=fix) from error


def describe_machine() -> Machine:
    """Describe what training can use here."""
    import torch

    if torch.cuda.is_available():
        return Machine(True, torch.cuda.get_device_name())
    cores = available_cores()
    return Machine(False, f"{cores} core{'s' if cores > 1 else ''}")


def check_validation(shards: Path) -> None:
    """Raise an error unless there are validation examples to judge the training by."""
    splits = read_manifest(shards, "shards")["splits"]
    if not splits.get("validation", {}).get("examples"):
        raise UserError(
            f"{shards} has no validation examples",
            got="too little text to set some aside",
            fix="give more text: without a validation set nobody can tell whether training worked",
        )


def flags_of(settings: Any, without: Iterable[str]) -> dict[str, Any]:
    """Return the options of a command that differ from their defaults."""
    return {
        f"--{field.name.replace('_', '-')}": getattr(settings, field.name)
        for field in fields(settings)
        if field.name not in without
        and (field.default is MISSING or getattr(settings, field.name) != field.default)
        and field.default_factory is MISSING
    }


def announce(*words: object, **flags: object) -> None:
    """Print a command as it can be typed."""
    typed = ["electrify", *(str(word) for word in words)]
    for name, value in flags.items():
        typed += [name] if value is True else [name, str(value)]
    print(f"\n$ {shlex.join(typed)}", flush=True)


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"

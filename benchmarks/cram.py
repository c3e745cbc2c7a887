"""What 45 minutes of two cores are worth: `python benchmarks/cram.py CORPORA GLUE --out cram`.

CORPORA is a folder with enwik8.gz, openstax_textbooks.txt.xz and wikipedia_squad_contexts.txt.xz.
All rows have the same text, vocabulary, width, depth and time, and are fine-tuned with the same
settings; ModernBERT's head reads the mean of all tokens, ELECTRA's reads [CLS], as theirs do:

none       starting weights
mlm        masked language modelling, the rest of the recipe the same
official   ELECTRA-small's recipe at these sizes: post-norm, two bodies, weight 50, its own Adam
ours       recipe cram-cpu

Every step is a command that goes on where it stopped, so the same command again adds what is
missing. Nothing else should run beside it: the budget is time.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from rich.console import Console
from rich.table import Table
from side_by_side import where

from electrify.config import to_toml
from electrify.finetuning.glue.results import main_score, read_results
from electrify.finetuning.glue.tasks import TASKS
from electrify.models.export import encoder_folder
from electrify.quickstart.command import untrained
from electrify.recipes import schema
from electrify.recipes.schema import Generator, ObjectiveSettings, Recipe, Sharing, check
from electrify.training.journal import read_metrics, seconds_trained

VOCABULARY = 8_192
TASK_NAMES = ("stsb", "mrpc", "sst2", "cola", "qnli")
FINETUNING = {
    "--train-limit": 10_000,
    "--epochs": 3,
    "--lr": 3e-4,
    "--layer-decay": 1,
    "--head": "own",
}
SOURCES = {
    "enwik8.gz": "wikipedia",
    "openstax_textbooks.txt.xz": "text",
    "wikipedia_squad_contexts.txt.xz": "text",
}


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("corpora", type=Path)
    asked.add_argument("glue", type=Path)
    asked.add_argument("--out", type=Path, default=Path("cram"))
    asked.add_argument("--budget", default="45m")
    asked.add_argument("--rows", default="none,mlm,official,ours")
    asked.add_argument("--seeds", type=int, default=3)
    given = asked.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ours = schema.load("cram-cpu")
    rows = given.rows.split(",")
    for row in rows:
        check(RECIPES[row](ours))
    shards = prepared(given.corpora, given.out, ours.run.length)
    for row in rows:
        model = pretrained(row, ours, shards, given.out / row, given.budget)
        flags = {"--data": given.glue, "--out": given.out / row / "glue", "--seeds": given.seeds}
        tasks = {"--tasks": ",".join(TASK_NAMES), "--workers": 2, "--length": ours.run.length}
        electrify("glue", model, **flags, **tasks, **FINETUNING)
    print(where())
    Console(width=120).print(scores({row: given.out / row / "glue" for row in rows}))
    for row in rows:
        if row != "none":
            print(f"{row:10} {learned(given.out / row / 'run')}")


def electrify(*words: object, **flags: object) -> None:
    """Run one of our commands, saying it."""
    said = [str(word) for word in (*words, *(part for flag in flags.items() for part in flag))]
    print(f"\n$ electrify {' '.join(said)}", flush=True)
    subprocess.run([sys.executable, "-m", "electrify", *said], check=True)


def prepared(corpora: Path, out: Path, length: int) -> Path:
    """Shards of the three corpora."""
    docs = []
    for name, kind in SOURCES.items():
        docs.append(out / "docs" / name.split(".")[0])
        electrify("corpus", kind, corpora / name, **{"--out": docs[-1]})
    tokenizer, shards = out / "tokenizer", out / "shards"
    electrify("tokenizer", *docs, **{"--vocab-size": VOCABULARY, "--out": tokenizer})
    electrify("prepare", *docs, **{"--tokenizer": tokenizer, "--length": length, "--out": shards})
    return shards


def pretrained(row: str, ours: Recipe, shards: Path, out: Path, budget: str) -> Path:
    """The model of a row, ready to be fine-tuned."""
    recipe = RECIPES[row](ours)
    if row == "none":
        return untrained(recipe, shards / "tokenizer", out / "model")
    out.mkdir(exist_ok=True)
    (out / "recipe.toml").write_text(to_toml(recipe))
    flags = {"--data": shards, "--out": out / "run", "--budget": budget}
    electrify("pretrain", out / "recipe.toml", **flags)
    electrify("export", out / "run", **{"--out": out / "model"})
    return encoder_folder(out / "model")


def masked_lm(ours: Recipe) -> Recipe:
    """Our recipe without what only a generator has."""
    masks = ("mask_rate", "shown_as_mask", "with_replacement", "whole_words")
    kept = {name: getattr(ours.objective, name) for name in masks}
    objective = ObjectiveSettings(kind="mlm", **kept)
    return replace(ours, objective=objective, generator=Generator(), sharing=Sharing())


def official(ours: Recipe) -> Recipe:
    """ELECTRA-small at our sizes, batch and length, with its own share of warm-up."""
    theirs, config = schema.load("electra-small"), ours.discriminator.config
    width = int(config["hidden_size"])
    sizes = {
        "hidden_size": width,
        "embedding_size": width,
        "num_hidden_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "intermediate_size": 4 * width,
    }
    body = replace(theirs.discriminator, config={**theirs.discriminator.config, **sizes})
    cadences = {name: getattr(ours.run, name) for name in ("log_every", "eval_every", "save_every")}
    shape = {name: getattr(ours.run, name) for name in ("batch_size", "length", "precision")}
    run = replace(theirs.run, **shape, **cadences)
    return replace(theirs, discriminator=body, run=run)


RECIPES = {
    "none": lambda ours: ours,
    "mlm": masked_lm,
    "official": official,
    "ours": lambda ours: ours,
}


def scores(folders: dict[str, Path]) -> Table:
    """Mean and standard deviation of every task's first score, and ours less each other row."""
    table = Table("", *(TASKS[name].title for name in TASK_NAMES))
    found = {row: by_task(folder) for row, folder in folders.items()}
    for row, tasks in found.items():
        table.add_row(row, *map(mean_said, tasks.values()))
    for row in found if "ours" in found else ():
        if row != "ours":
            cells = (gain(found["ours"][name], found[row][name]) for name in TASK_NAMES)
            table.add_row(f"ours − {row}", *cells)
    return table


def by_task(folder: Path) -> dict[str, list[float]]:
    """The first score of every seed: 0 where a training failed or the score is undefined."""
    found: dict[str, list[float]] = {name: [] for name in TASK_NAMES}
    for one in read_results(folder):
        scored = not one.failed and math.isfinite(main_score(one))
        found[one.task].append(main_score(one) if scored else 0.0)
    return found


def mean_said(some: Sequence[float]) -> str:
    """A mean, with the standard deviation if there is one.

    >>> mean_said([0.5, 0.7]), mean_said([0.5])
    ('0.600 ± 0.141', '0.500')
    """
    return f"{fmean(some):.3f}" + (f" ± {stdev(some):.3f}" if len(some) > 1 else "")


def gain(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The difference of two means and its standard error.

    The error is that of the seeds of fine-tuning: every row is one pre-training.

    >>> gain([0.5, 0.7], [0.2, 0.4]), gain([0.5], [0.2])
    ('+0.300 ± 0.141', '+0.300')
    """
    said = f"{fmean(ours) - fmean(theirs):+.3f}"
    if min(len(ours), len(theirs)) < 2:
        return said
    error = sum(stdev(some) ** 2 / len(some) for some in (ours, theirs)) ** 0.5
    return f"{said} ± {error:.3f}"


def learned(run: Path) -> str:
    """How long a training took, and its last measurement on held-out text."""
    last = [line for line in read_metrics(run) if line["split"] == "validation"][-1]
    values = {name: last[name] for name in ("generator_loss", "auc") if name in last}
    said = "".join(f", {name} {value:.3f}" for name, value in values.items())
    return f"{last['step']:,} steps in {seconds_trained(run) / 60:.1f} min{said}"


if __name__ == "__main__":
    main()

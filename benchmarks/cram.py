"""Compare recipes for 45 minutes on two cores: `python benchmarks/cram.py CORPORA GLUE --out cram`.

CORPORA is a folder with enwik8.gz, openstax_textbooks.txt.xz and wikipedia_squad_contexts.txt.xz.
All rows have the same text, vocabulary, width, depth and time, and are fine-tuned with the same
settings; ModernBERT's head uses the mean of all tokens, ELECTRA's uses [CLS], as in transformers:

none       random initial weights
mlm        masked language modelling, otherwise the same recipe
official   ELECTRA-small's recipe at these sizes: post-norm, separate encoders, weight 50, its Adam
ours       the recipe cram-cpu

Every step is a command that resumes where it stopped, so running this again completes what is
missing. Nothing else should run at the same time, because the budget is wall time.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

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
CURVES = ("generator_loss", "mlm_loss", "auc")
BATCH_TOKENS = 32 * 64
SOURCES = {
    "enwik8.gz": "wikipedia",
    "openstax_textbooks.txt.xz": "text",
    "wikipedia_squad_contexts.txt.xz": "text",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpora", type=Path)
    parser.add_argument("glue", type=Path)
    parser.add_argument("--out", type=Path, default=Path("cram"))
    parser.add_argument("--budget", default="45m")
    parser.add_argument("--rows", default="none,mlm,official,ours")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", type=Path, help="write rows, curves and scores as JSON")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    ours = schema.load("cram-cpu")
    rows = args.rows.split(",")
    for row in rows:
        check(RECIPES[row](ours))
    shards = prepare_shards(args.corpora, args.out, ours.run.length)
    for row in rows:
        model = pretrain(row, ours, shards, args.out / row, args.budget)
        flags = {
            "--data": args.glue,
            "--out": args.out / row / "glue",
            "--seeds": args.seeds,
        }
        tasks = {"--tasks": ",".join(TASK_NAMES), "--workers": 2, "--length": ours.run.length}
        electrify("glue", model, **flags, **tasks, **FINETUNING)
    print(where())
    Console(width=120).print(scores({row: args.out / row / "glue" for row in rows}))
    for row in rows:
        if row != "none":
            print(f"{row:10} {learned(args.out / row / 'run')}")
    if args.record:
        args.record.write_text(json.dumps(record(args.out, rows, args.seeds), indent=1) + "\n")


def electrify(*args: object, **flags: object) -> None:
    """Print and run an electrify command."""
    command = [str(word) for word in (*args, *(part for flag in flags.items() for part in flag))]
    print(f"\n$ electrify {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "electrify", *command], check=True)


def prepare_shards(corpora: Path, out: Path, length: int) -> Path:
    """Prepare shards of the three corpora and return their folder."""
    docs = []
    for name, kind in SOURCES.items():
        docs.append(out / "docs" / name.split(".")[0])
        electrify("corpus", kind, corpora / name, **{"--out": docs[-1]})
    tokenizer, shards = out / "tokenizer", out / "shards"
    electrify("tokenizer", *docs, **{"--vocab-size": VOCABULARY, "--out": tokenizer})
    electrify("prepare", *docs, **{"--tokenizer": tokenizer, "--length": length, "--out": shards})
    return shards


def pretrain(row: str, ours: Recipe, shards: Path, out: Path, budget: str) -> Path:
    """Pre-train the model of a row and return the folder to fine-tune."""
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
    """Return our recipe with the masked-LM objective and without a generator."""
    masks = ("mask_rate", "shown_as_mask", "with_replacement", "whole_words")
    kept = {name: getattr(ours.objective, name) for name in masks}
    objective = ObjectiveSettings(kind="mlm", **kept)
    return replace(ours, objective=objective, generator=Generator(), sharing=Sharing())


def official(ours: Recipe) -> Recipe:
    """Return ELECTRA-small's recipe with our sizes, batch size and length."""
    theirs, config = schema.load("electra-small"), ours.discriminator.config
    width = int(config["hidden_size"])
    sizes = {
        "hidden_size": width,
        "embedding_size": width,
        "num_hidden_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "intermediate_size": 4 * width,
    }
    discriminator = replace(theirs.discriminator, config={**theirs.discriminator.config, **sizes})
    cadences = {name: getattr(ours.run, name) for name in ("log_every", "eval_every", "save_every")}
    shape = {name: getattr(ours.run, name) for name in ("batch_size", "length", "precision")}
    run = replace(theirs.run, **shape, **cadences)
    return replace(theirs, discriminator=discriminator, run=run)


RECIPES = {
    "none": lambda ours: ours,
    "mlm": masked_lm,
    "official": official,
    "ours": lambda ours: ours,
}


def scores(folders: dict[str, Path]) -> Table:
    """Return a table of main scores (mean and deviation) and of our gain over each row."""
    table = Table("", *(TASKS[name].title for name in TASK_NAMES))
    found = {row: by_task(folder) for row, folder in folders.items()}
    for row, tasks in found.items():
        table.add_row(row, *map(mean_and_deviation, tasks.values()))
    for row in found if "ours" in found else ():
        if row != "ours":
            cells = (gain(found["ours"][name], found[row][name]) for name in TASK_NAMES)
            table.add_row(f"ours − {row}", *cells)
    return table


def by_task(folder: Path) -> dict[str, list[float]]:
    """Return the main score of every seed: 0 if training failed or the score is undefined."""
    found: dict[str, list[float]] = {name: [] for name in TASK_NAMES}
    for result in read_results(folder):
        scored = not result.failed and math.isfinite(main_score(result))
        found[result.task].append(main_score(result) if scored else 0.0)
    return found


def mean_and_deviation(values: Sequence[float]) -> str:
    """Return a mean, with the standard deviation if there are several values.

    >>> mean_and_deviation([0.5, 0.7]), mean_and_deviation([0.5])
    ('0.600 ± 0.141', '0.500')
    """
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def gain(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the difference of two means and its standard error.

    The error is over fine-tuning seeds: every row is one pre-training run.

    >>> gain([0.5, 0.7], [0.2, 0.4]), gain([0.5], [0.2])
    ('+0.300 ± 0.141', '+0.300')
    """
    difference = f"{fmean(ours) - fmean(theirs):+.3f}"
    if min(len(ours), len(theirs)) < 2:
        return difference
    error = sum(stdev(scores) ** 2 / len(scores) for scores in (ours, theirs)) ** 0.5
    return f"{difference} ± {error:.3f}"


def record(out: Path, rows: Sequence[str], seeds: int) -> dict[str, Any]:
    """Return what docs/figures.py draws: scores of every seed, and validation curves.

    Tasks that some row has not finished with all seeds are left out.
    """
    by_row = {row: by_task(out / row / "glue") for row in rows}
    done = [name for name in TASK_NAMES if all(len(by_row[row][name]) == seeds for row in rows)]
    tasks = [TASKS[name] for name in done]
    found: dict[str, Any] = {}
    for row in rows:
        found[row] = {"scores": {task.name: by_row[row][task.name] for task in tasks}}
        if row != "none":
            found[row]["curve"] = [
                {"tokens": line["step"] * BATCH_TOKENS} | {k: line[k] for k in CURVES if k in line}
                for line in read_metrics(out / row / "run")
                if line["split"] == "validation"
            ]
    return {
        "tasks": {t.name: {"title": t.title, "metric": t.metrics[0]} for t in tasks},
        "rows": found,
        "uniform_loss": math.log(VOCABULARY),
    }


def learned(run: Path) -> str:
    """Return the steps and time of a run, and its last validation metrics."""
    last = [line for line in read_metrics(run) if line["split"] == "validation"][-1]
    values = {name: last[name] for name in ("generator_loss", "auc") if name in last}
    metrics = "".join(f", {name} {value:.3f}" for name, value in values.items())
    return f"{last['step']:,} steps in {seconds_trained(run) / 60:.1f} min{metrics}"


if __name__ == "__main__":
    main()

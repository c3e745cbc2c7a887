"""Time to BERT-tiny: what minutes of two CPU cores teach an encoder. The rules are in board.md.

    python benchmarks/board.py data CORPORA GLUE    # clean text, tokenizer and shards
    python benchmarks/board.py speed               # steps per second; nothing else may run
    python benchmarks/board.py run ROW SEED --glue GLUE --blimp BLIMP
    python benchmarks/board.py table                # the board, from benchmarks/records/board

Everything is a command that resumes where it stopped, so running it again completes what is
missing. A run is a number of steps, namely those that fit into its minutes at the measured speed:
so it may share the machine with others, and its result does not depend on it.
"""

import argparse
import hashlib
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from side_by_side import where

from electrify.config import to_toml
from electrify.finetuning.glue.results import main_score, read_results
from electrify.finetuning.glue.tasks import TASKS
from electrify.models.export import encoder_folder
from electrify.quickstart.command import untrained
from electrify.recipes import schema
from electrify.recipes.schema import Generator, ObjectiveSettings, Recipe, Sharing, check
from electrify.training.journal import TIMING_FILE, read_records

HERE = Path(__file__).parent
RECORDS = HERE / "records" / "board"
VOCABULARY = 8_192
SOURCES = {
    "enwik8.gz": "wikipedia",
    "openstax_textbooks.txt.xz": "text",
    "wikipedia_squad_contexts.txt.xz": "text",
    "english_novels.jsonl.xz": "jsonl",
}
EPOCHS = {"stsb": 5, "mrpc": 5, "rte": 5, "cola": 5, "sst2": 2, "qnli": 2}
FINETUNING = {"--lr": 3e-4, "--layer-decay": 1, "--head": "own", "--length": 64}
FINETUNING_SEEDS = 3
ROUNDS, MEASURED_STEPS, SKIPPED_STEPS = 3, 100, 40
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Two-sided 95 % quantiles of Student's t by the number of values."""
PUBLISHED = {
    "BERT-tiny, default": {"stsb": 0.665, "qnli": 0.779, "mrpc": 0.699},
    "BERT-tiny, best": {"stsb": 0.806, "qnli": 0.812, "mrpc": 0.729},
    "BERT-tiny, test files": {"sst2": 0.832, "cola": 0.0, "rte": 0.572},
    "BERT-mini": {"stsb": 0.826, "qnli": 0.839, "mrpc": 0.766, "sst2": 0.855},
}


class Row(NamedTuple):
    """A row of the board."""

    title: str
    recipe: Callable[[Recipe], Recipe]
    minutes: int
    script: str = ""
    """A script beside this one that pre-trains, instead of `electrify pretrain`."""


def masked_lm(ours: Recipe) -> Recipe:
    """Return our recipe with the masked-LM objective and without a generator."""
    masks = ("mask_rate", "shown_as_mask", "with_replacement", "whole_words")
    kept = {name: getattr(ours.objective, name) for name in masks}
    objective = ObjectiveSettings(kind="mlm", **kept)
    return replace(ours, objective=objective, generator=Generator(), sharing=Sharing())


def electra(ours: Recipe) -> Recipe:
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
    shape = {name: getattr(ours.run, name) for name in ("batch_size", "length", "precision")}
    return replace(theirs, discriminator=discriminator, run=replace(theirs.run, **shape))


ROWS = {
    "random": Row("random weights", lambda ours: ours, 0),
    "mlm-45": Row("masked LM", masked_lm, 45),
    "electra-45": Row("ELECTRA's recipe", electra, 45),
    "electra-pytorch-45": Row("electra-pytorch", electra, 45, "electra_pytorch_run.py"),
    "ours-15": Row("`cram-cpu`", lambda ours: ours, 15),
    "ours-45": Row("`cram-cpu`", lambda ours: ours, 45),
    "ours-120": Row("`cram-cpu`", lambda ours: ours, 120),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("board"))
    commands = parser.add_subparsers(dest="command", required=True)
    data = commands.add_parser("data")
    data.add_argument("corpora", type=Path)
    data.add_argument("glue", type=Path)
    speed = commands.add_parser("speed")
    speed.add_argument("--rows", default=",".join(r for r in ROWS if ROWS[r].minutes == 45))
    entry = commands.add_parser("run")
    entry.add_argument("row", choices=ROWS)
    entry.add_argument("seed", type=int)
    entry.add_argument("--glue", type=Path, required=True)
    entry.add_argument("--blimp", type=Path, required=True)
    entry.add_argument("--steps", type=int, default=0, help="instead of the minutes of the row")
    entry.add_argument("--record", type=Path, default=RECORDS)
    shown = commands.add_parser("table")
    shown.add_argument("--record", type=Path, default=RECORDS)
    args = parser.parse_args()
    if args.command == "run" and args.steps and args.record == RECORDS:
        parser.error("--steps is for trials, which do not belong on the board: add --record FOLDER")
    if args.command == "data":
        prepare_shards(args.corpora, args.glue, args.out)
    elif args.command == "speed":
        measure_speed(args.rows.split(","), args.out)
    elif args.command == "run":
        run(args)
    else:
        print(table(read_entries(args.record)))


def electrify(*args: object, **flags: object) -> None:
    """Print and run an electrify command."""
    command = [str(word) for word in (*args, *(part for flag in flags.items() for part in flag))]
    print(f"\n$ electrify {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "electrify", *command], check=True)


def script(name: str, *args: object) -> None:
    """Run a script beside this one."""
    subprocess.run([sys.executable, HERE / name, *map(str, args)], check=True)


def prepare_shards(corpora: Path, glue: Path, out: Path) -> None:
    """Prepare shards of the corpora, without documents that overlap with evaluation files."""
    raw, clean = out / "raw", out / "clean"
    folders = [raw / name.split(".")[0] for name in SOURCES]
    for folder, (name, kind) in zip(folders, SOURCES.items(), strict=True):
        electrify("corpus", kind, corpora / name, **{"--out": folder})
    script("overlap.py", *folders, "--glue", glue, "--tasks", ",".join(EPOCHS), "--out", clean)
    files = [clean / f"{folder.name}.jsonl" for folder in folders]
    electrify("corpus", "jsonl", *files, **{"--out": out / "docs"})
    tokenizer = out / "tokenizer"
    electrify("tokenizer", out / "docs", **{"--vocab-size": VOCABULARY, "--out": tokenizer})
    length = {"--length": schema.load("cram-cpu").run.length, "--out": out / "shards"}
    electrify("prepare", out / "docs", **{"--tokenizer": tokenizer}, **length)


def recipe_of(row: str, seed: int, steps: int) -> Recipe:
    """Return the recipe of an entry; the warm-up keeps its share of the steps."""
    recipe = ROWS[row].recipe(schema.load("cram-cpu"))
    warmup = round(recipe.optimizer.warmup * steps / recipe.run.steps)
    cadences = {"log_every": 100, "eval_every": max(1, steps // 8), "save_every": 1_000}
    recipe = replace(
        recipe,
        optimizer=replace(recipe.optimizer, warmup=warmup),
        run=replace(recipe.run, steps=steps, seed=seed, precision="float32", **cadences),
    )
    check(recipe)
    return recipe


def pretrain(row: str, recipe: Recipe, out: Path) -> None:
    """Pre-train a row in `out`/run, with our command or with its script."""
    folder = out / "entry"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(to_toml(recipe))
    data = {"--data": out.parent / "shards"}
    if ROWS[row].script:
        if (out / "model" / TIMING_FILE).is_file():  # written last
            return
        flags = {**data, "--out": out / "model"}
        words = [word for flag in flags.items() for word in flag]
        script(ROWS[row].script, folder / "recipe.toml", *words)
    else:
        electrify("pretrain", folder / "recipe.toml", **data, **{"--out": out / "run"})


def measure_speed(rows: Sequence[str], out: Path) -> None:
    """Write the steps per second of every row: the median of interleaved rounds."""
    found: dict[str, list[float]] = {row: [] for row in rows}
    for number in range(ROUNDS):
        for row in rows:
            folder = out / f"speed-{row}-{number}"
            shutil.rmtree(folder, ignore_errors=True)  # a finished run would not be timed again
            recipe = recipe_of(row, 0, MEASURED_STEPS)
            every = {"log_every": SKIPPED_STEPS // 2, "eval_every": 0}
            pretrain(row, replace(recipe, run=replace(recipe.run, **every)), folder)
            timing = folder / ("model" if ROWS[row].script else "run") / TIMING_FILE
            records = [r for r in read_records(timing) if r["step"] > SKIPPED_STEPS]
            found[row].append(fmean(record["steps_per_second"] for record in records))
            print(f"{row}: {found[row][-1]:.2f} steps/s", flush=True)
    medians = {row: median(values) for row, values in found.items()}
    text = json.dumps({"steps_per_second": medians, "rounds": found, "where": where()}, indent=1)
    (out / "speed.json").write_text(text + "\n")


def steps_in(minutes: int, row: str, out: Path) -> int:
    """Return the steps of a row that fit into some minutes at the measured speed."""
    speeds = json.loads((out / "speed.json").read_text())["steps_per_second"]
    kind = row.rsplit("-", 1)[0]
    return int(
        60 * minutes * next(speeds[name] for name in speeds if name.rsplit("-", 1)[0] == kind)
    )


def run(args: argparse.Namespace) -> None:
    """Pre-train, fine-tune and evaluate one entry, and record it."""
    row, folder = ROWS[args.row], args.out / f"{args.row}-{args.seed}"
    steps = args.steps or (steps_in(row.minutes, args.row, args.out) if row.minutes else 1)
    recipe = recipe_of(args.row, args.seed, steps)
    if row.minutes:
        pretrain(args.row, recipe, folder)
        if not row.script:
            electrify("export", folder / "run", **{"--out": folder / "model"})
        model = encoder_folder(folder / "model")
    else:
        model = untrained(recipe, args.out / "shards" / "tokenizer", folder / "model")
    for epochs in sorted(set(EPOCHS.values())):
        names = ",".join(name for name in EPOCHS if EPOCHS[name] == epochs)
        flags = {"--data": args.glue, "--out": folder / f"glue-{epochs}", "--tasks": names}
        counts = {"--epochs": epochs, "--seeds": FINETUNING_SEEDS, "--workers": 1}
        electrify("glue", model, **flags, **counts, **FINETUNING)
    scored = next(
        p for p in (folder / "model" / n for n in ("discriminator", "model")) if p.exists()
    )
    electrify("blimp", scored, **{"--data": args.blimp, "--out": folder / "blimp"})
    args.record.mkdir(parents=True, exist_ok=True)
    entry = {
        "row": args.row,
        "seed": args.seed,
        "steps": steps if row.minutes else 0,
        "made_from": made_from(recipe, args.out / "shards"),
        "scores": scores(folder),
        "blimp": json.loads((folder / "blimp" / "result.json").read_text())["overall"]["accuracy"],
        "where": where(),
    }
    path = args.record / f"{args.row}-{args.seed}.json"
    path.write_text(json.dumps(entry, indent=1) + "\n")
    print(f"recorded in {path}")


def made_from(recipe: Recipe, shards: Path) -> str:
    """Return a hash of the recipe, apart from its seed, and of the shards."""
    same_seed = to_toml(replace(recipe, run=replace(recipe.run, seed=0)))
    content = same_seed.encode() + (shards / "manifest.json").read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]


def scores(folder: Path) -> dict[str, list[float]]:
    """Return the main score of every fine-tuning seed; 0 if it failed or is undefined."""
    found: dict[str, list[float]] = {name: [] for name in EPOCHS}
    for epochs in set(EPOCHS.values()):
        for result in read_results(folder / f"glue-{epochs}"):
            score = main_score(result)
            found[result.task].append(0.0 if result.failed or not math.isfinite(score) else score)
    return found


Entry = dict[str, Any]


def read_entries(folder: Path) -> list[Entry]:
    """Return the recorded entries."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def table(entries: Sequence[Entry]) -> str:
    """Return the board in Markdown: means and 95 % intervals over pre-training seeds."""
    columns = [*EPOCHS, "blimp"]
    titles = [*(f"{TASKS[name].title}, {TASKS[name].metrics[0]}" for name in EPOCHS), "BLiMP, %"]
    head = ["", "minutes", "pre-training seeds", *titles]
    lines = [head, ["---"] * len(head)]
    for name, row in ROWS.items():
        own = [entry for entry in entries if entry["row"] == name]
        if len({entry["made_from"] for entry in own}) > 1:
            raise SystemExit(f"the entries of {name} have different recipes or shards")
        if own:
            cells = [mean_and_interval([column_of(entry, c) for entry in own]) for c in columns]
            lines.append([row.title, str(row.minutes), str(len(own)), *cells])
    for title, published in PUBLISHED.items():
        cells = [f"{published[c]:.3f}" if c in published else "" for c in columns]
        lines.append([title, "published", "", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def column_of(entry: Entry, column: str) -> float:
    """Return the mean over fine-tuning seeds, or the accuracy on minimal pairs in percent."""
    return 100 * entry["blimp"] if column == "blimp" else fmean(entry["scores"][column])


def mean_and_interval(values: Sequence[float]) -> str:
    """Return a mean with the half-width of its 95 % interval (Student's t).

    >>> mean_and_interval([0.5, 0.6, 0.7]), mean_and_interval([0.5])
    ('0.600 ± 0.248', '0.500')
    """
    digits = 1 if fmean(values) > 1 else 3
    if len(values) < 2:
        return f"{fmean(values):.{digits}f}"
    half = STUDENT[len(values)] * stdev(values) / len(values) ** 0.5
    return f"{fmean(values):.{digits}f} ± {half:.{digits}f}"


if __name__ == "__main__":
    main()

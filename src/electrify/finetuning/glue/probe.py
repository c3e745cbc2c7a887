"""`electrify probe RUN --data GLUE`: fine-tune the checkpoints of a run to get a learning curve.

Every existing checkpoint is exported and fine-tuned. Set `run.keep_percent` to keep checkpoints, as
seed 004 does at 6.25, 12.5, 25, 50 and 100 % of the training. The task `blimp` scores minimal pairs
with each checkpoint instead, without fine-tuning.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from electrify.errors import UserError
from electrify.finetuning.blimp.command import measure_blimp
from electrify.finetuning.blimp.pairs import find_paradigms
from electrify.finetuning.blimp.results import BlimpResult
from electrify.finetuning.devices import worker_count
from electrify.finetuning.glue.command import (
    drop_models,
    plan_jobs,
    run_missing,
    settled,
    task_names,
)
from electrify.finetuning.glue.results import read_results, summarise
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import Blimp, Probe
from electrify.finetuning.results import Result, result_json
from electrify.finetuning.seeds import run_notes
from electrify.models.export import encoder_folder
from electrify.storage.commit import committed, read_json
from electrify.storage.lock import hold
from electrify.training.export_run import export_run
from electrify.training.folder import RunFolder
from electrify.training.options import Export


def probe(settings: Probe) -> dict[int, list[dict[str, Any]]]:
    """Run the missing jobs, then print and write the learning curve; returns the results."""
    names, pairs = _tasks(settings)
    settings = settled(settings)
    steps = sorted(c.step for c in RunFolder(settings.run).saved())
    if not steps:
        raise UserError(
            f"{settings.run} has no checkpoints",
            got=f"{settings.run}",
            fix="use the folder of a pre-training run",
        )
    settings.out.mkdir(parents=True, exist_ok=True)
    with hold(settings.out / "lock", f"probing in {settings.out}"):
        for step in steps:
            out = settings.out / f"step-{step:08d}"
            export_run(Export(run=settings.run, out=out / "model", step=step))
            if pairs:
                print(f"step {step:,}: scoring the minimal pairs in {pairs}", flush=True)
                model = str(out / "model")
                measure_blimp(Blimp(model, pairs, out / "blimp", device=settings.device))
            if names:
                encoder = str(encoder_folder(out / "model"))
                jobs = plan_jobs(replace(settings, out=out), encoder, names, range(settings.seeds))
                run_missing(jobs, worker_count(settings.workers, settings.device))
                drop_models(out, keep=set())
    folders = sorted(settings.out.glob("step-*"))  # including checkpoints that were deleted since
    results = {int(folder.name.removeprefix("step-")): read_results(folder) for folder in folders}
    preferred = read_preferences(settings.out)
    print(curve(results, names, preferred if pairs else {}))
    path = settings.out / "curve.csv"
    with committed(path) as temporary:
        temporary.write_text(as_csv(results, preferred), encoding="utf-8")
    print(path)
    return {
        step: [*map(result_json, runs), *_blimp_json(preferred, step)]
        for step, runs in sorted(results.items())
    }


def _tasks(settings: Probe) -> tuple[list[str], Path | None]:
    """Return the GLUE tasks, and the folder of minimal pairs if the task blimp is among them."""
    parts = [part.strip() for part in settings.tasks.split(",")]
    others = ",".join(part for part in parts if part.lower() != BLIMP)
    if BLIMP not in map(str.lower, parts):
        return task_names(settings.tasks), None
    inside = settings.data / BLIMP
    folder = inside if inside.is_dir() else settings.data
    find_paradigms(folder)  # refuse another folder before a model is exported
    return task_names(others) if others else [], folder


BLIMP = "blimp"
STEP_RESULTS = f"step-*/{BLIMP}/result.json"
"""The results on minimal pairs in the folder of a probe."""


def read_preferences(folder: Path) -> dict[int, BlimpResult]:
    """Return the results on minimal pairs in a folder of `electrify probe`, by step."""
    return {step_of(file): read_json(file) for file in sorted(folder.glob(STEP_RESULTS))}


def step_of(file: Path) -> int:
    """Return the step of a result on minimal pairs in a folder of `electrify probe`."""
    return int(file.parts[-3].removeprefix("step-"))


def _blimp_json(preferred: Mapping[int, BlimpResult], step: int) -> Iterator[dict[str, Any]]:
    if step in preferred:
        yield {"task": BLIMP, **preferred[step]}


def curve(
    by_step: dict[int, list[Result]], names: list[str], preferred: Mapping[int, BlimpResult]
) -> str:
    """Format the mean score of every task at every step, with the deviation over seeds.

    Accuracies on minimal pairs have their interval.
    """
    titles = [f"{TASKS[name].title} {TASKS[name].metrics[0]}" for name in names]
    titles += ["BLiMP accuracy"] if preferred else []
    notes: list[str] = ["BLiMP: 95 % Wilson interval over pairs"] if preferred else []
    lines = [f"{'step':>10}  " + "  ".join(f"{title:>18}" for title in titles)]
    for step, results in sorted(by_step.items()):
        cells = []
        for name in names:
            summary = summarise(results, name)
            notes += [f"step {step:,}, {TASKS[name].title}: {note}" for note in run_notes(summary)]
            spread = f" ± {summary.deviation:.3f}" if summary.n > 1 else ""
            cells.append(f"{summary.aggregate('mean'):.3f}{spread}" if summary.n else "none")
        if preferred:
            cells.append(_blimp_cell(preferred.get(step)))
        lines.append(f"{step:>10,}  " + "  ".join(f"{cell:>18}" for cell in cells))
    return "\n".join([*lines, *notes])


def _blimp_cell(result: BlimpResult | None) -> str:
    if result is None:
        return "none"
    low, high = result["overall"]["interval"]
    return f"{result['overall']['accuracy']:.3f} {low:.3f}–{high:.3f}"


def as_csv(by_step: dict[int, list[Result]], preferred: Mapping[int, BlimpResult]) -> str:
    """Format results as CSV with a row for every step, task, seed and metric.

    The split of minimal pairs is the phenomenon, or all.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "task", "seed", "split", "metric", "value", "degenerate", "failed"])
    for step, results in sorted(by_step.items()):
        for result in results:
            run, reasons = [step, result.task, result.seed], [result.degenerate, result.failed]
            if result.failed:
                writer.writerow([*run, "", "", "", *reasons])
            for split, metrics in result.scores.items():
                for metric, value in metrics.items():
                    writer.writerow([*run, split, metric, value, *reasons])
        if pairs := preferred.get(step):
            for score in [pairs["overall"], *pairs["phenomena"]]:
                found = [score["name"], "accuracy", score["accuracy"]]
                writer.writerow([step, BLIMP, "", *found, "", ""])
    return text.getvalue()

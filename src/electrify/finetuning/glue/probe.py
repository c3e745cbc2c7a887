"""`electrify probe RUN --data GLUE`: fine-tune the checkpoints of a run to get a learning curve.

Every existing checkpoint is exported and fine-tuned. Set `run.keep_percent` to keep checkpoints, as
seed 004 does at 6.25, 12.5, 25, 50 and 100 % of the training.
"""

import csv
import io
from dataclasses import replace
from typing import Any

from electrify.errors import UserError
from electrify.finetuning.devices import worker_count
from electrify.finetuning.glue.command import (
    drop_models,
    plan_jobs,
    run_missing,
    settled,
    task_names,
)
from electrify.finetuning.glue.results import read_results, run_notes, summarise
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import Probe
from electrify.finetuning.results import Result, result_json
from electrify.models.export import encoder_folder
from electrify.storage.commit import committed
from electrify.storage.lock import hold
from electrify.training.export_run import export_run
from electrify.training.folder import RunFolder
from electrify.training.options import Export


def probe(settings: Probe) -> dict[int, list[dict[str, Any]]]:
    """Run the missing jobs, then print and write the learning curve; returns the results."""
    names = task_names(settings.tasks)
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
            encoder = encoder_folder(out / "model")
            jobs = plan_jobs(replace(settings, out=out), str(encoder), names, range(settings.seeds))
            run_missing(jobs, worker_count(settings.workers, settings.device))
            drop_models(out, keep=set())
    results = {  # including checkpoints that were deleted since
        int(folder.name.removeprefix("step-")): read_results(folder)
        for folder in settings.out.glob("step-*")
    }
    print(curve(results, names))
    path = settings.out / "curve.csv"
    with committed(path) as temporary:
        temporary.write_text(as_csv(results), encoding="utf-8")
    print(path)
    return {step: [*map(result_json, runs)] for step, runs in sorted(results.items())}


def curve(by_step: dict[int, list[Result]], names: list[str]) -> str:
    """Format the mean score of every task at every step, with the deviation over seeds."""
    titles = [f"{TASKS[name].title} {TASKS[name].metrics[0]}" for name in names]
    notes: list[str] = []
    lines = [f"{'step':>10}  " + "  ".join(f"{title:>18}" for title in titles)]
    for step, results in sorted(by_step.items()):
        cells = []
        for name in names:
            summary = summarise(results, name)
            notes += [f"step {step:,}, {TASKS[name].title}: {note}" for note in run_notes(summary)]
            spread = f" ± {summary.deviation:.3f}" if summary.n > 1 else ""
            cells.append(f"{summary.aggregate('mean'):.3f}{spread}" if summary.n else "none")
        lines.append(f"{step:>10,}  " + "  ".join(f"{cell:>18}" for cell in cells))
    return "\n".join([*lines, *notes])


def as_csv(by_step: dict[int, list[Result]]) -> str:
    """Format results as CSV with a row for every step, task, seed and metric."""
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
    return text.getvalue()

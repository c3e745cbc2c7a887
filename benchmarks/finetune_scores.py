"""Our scores beside a plain loop's: `python benchmarks/finetune_scores.py MODEL GLUE --task stsb`.

The plain loop is what anybody would write with transformers: its own head and tokenizer, batches at
random padded to the longest, torch's AdamW, linear warm-up and decay, clipping at 1. Ours is
`electrify glue --preset seed-003` at the same rate and epochs. The same examples, several seeds
each; the means should be within two standard errors of their difference.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from side_by_side import asked_for_glue, where
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)

from electrify.finetuning.glue.command import plan_jobs, run_job
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.results import main_score
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.metrics import scores
from electrify.finetuning.options import Glue

BATCH, LENGTH = 32, 128


def main() -> None:
    asked = asked_for_glue(task="stsb")
    asked.add_argument("--limit", type=int, default=2000)
    asked.add_argument("--epochs", type=int, default=1)
    asked.add_argument("--lr", type=float, default=1e-4)
    asked.add_argument("--seeds", type=int, default=4)
    given = asked.parse_args()
    task = TASKS[given.task]
    found: dict[str, list[float]] = {"ours": [], "plain": []}
    took = dict.fromkeys(found, 0.0)
    for seed in range(given.seeds):
        for name, run in (("ours", ours), ("plain", plain)):
            begin = time.perf_counter()
            found[name].append(run(given, task, seed))
            took[name] += time.perf_counter() - begin
    print(f"{task.title} {task.metrics[0]}, {given}, {where()}")
    for name, some in found.items():
        spread = statistics.stdev(some)
        print(
            f"{name:6} {statistics.fmean(some):.4f} ± {spread:.4f}  "
            f"{[round(s, 4) for s in some]}  {took[name]:.0f} s"
        )
    error = (sum(statistics.variance(some) for some in found.values()) / given.seeds) ** 0.5
    difference = statistics.fmean(found["ours"]) - statistics.fmean(found["plain"])
    print(
        f"difference {difference:+.4f}, standard error {error:.4f}: {difference / error:+.1f} of it"
    )


def ours(given, task, seed: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        settings = Glue(
            model=given.model,
            data=given.glue,
            out=Path(out),
            preset="seed-003",
            lr=given.lr,
            epochs=float(given.epochs),
            train_limit=given.limit,
        )
        *_, job = plan_jobs(settings, given.model, [task.name], [seed])
        alone = replace(
            job.problem, starts_from=None, plan=job.problem.plan._replace(starts_from="")
        )
        job = job._replace(problem=alone)
        return main_score(run_job(job))


def plain(given, task, seed: int) -> float:
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        given.model, num_labels=len(task.labels) or 1
    )
    train, dev = (read_split(given.glue, task, split) for split in ("train", "dev"))
    count = min(given.limit, len(train))
    steps = given.epochs * -(-count // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    dtype = torch.long if task.labels else torch.float32

    def inputs(examples, some):
        texts = [[examples.first[i] for i in some]]
        if examples.second is not None:
            texts.append([examples.second[i] for i in some])
        return tokenizer(
            *texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        )

    draw = np.random.default_rng(seed)
    model.train()
    for _ in range(given.epochs):
        order = draw.permutation(count)
        for start in range(0, count, BATCH):
            some = order[start : start + BATCH]
            labels = torch.tensor([train.labels[i] for i in some], dtype=dtype)
            loss = model(**inputs(train, some), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()
    said = []
    with torch.no_grad():
        for start in range(0, len(dev), 64):
            some = range(start, min(start + 64, len(dev)))
            said.append(model(**inputs(dev, some)).logits.numpy())
    logits = np.concatenate(said)
    answers = logits.argmax(axis=1) if task.labels else logits[:, 0]
    return scores(task.title, task.metrics, answers, np.asarray(dev.labels))[task.metrics[0]]


if __name__ == "__main__":
    main()

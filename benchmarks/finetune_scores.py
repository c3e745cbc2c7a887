"""Compare scores with a plain loop: `python benchmarks/finetune_scores.py MODEL GLUE --task stsb`.

The plain loop is the usual one with transformers: its head and tokenizer, random batches padded to
the longest, torch's AdamW, linear warm-up and decay, clipping at 1. Ours is
`electrify glue --preset seed-003` with the same learning rate and epochs. Both use the same
examples and several seeds; the difference of the means should be within two standard errors.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from side_by_side import glue_parser, where
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
    parser = glue_parser(task="stsb")
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    task = TASKS[args.task]
    found: dict[str, list[float]] = {"ours": [], "plain": []}
    seconds = dict.fromkeys(found, 0.0)
    for seed in range(args.seeds):
        for name, run in (("ours", ours), ("plain", plain)):
            started = time.perf_counter()
            found[name].append(run(args, task, seed))
            seconds[name] += time.perf_counter() - started
    print(f"{task.title} {task.metrics[0]}, {args}, {where()}")
    for name, values in found.items():
        print(
            f"{name:6} {statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}  "
            f"{[round(value, 4) for value in values]}  {seconds[name]:.0f} s"
        )
    error = (sum(statistics.variance(values) for values in found.values()) / args.seeds) ** 0.5
    difference = statistics.fmean(found["ours"]) - statistics.fmean(found["plain"])
    print(
        f"difference {difference:+.4f}, standard error {error:.4f}: "
        f"{difference / error:+.1f} standard errors"
    )


def ours(args, task, seed: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        settings = Glue(
            model=args.model,
            data=args.glue,
            out=Path(out),
            preset="seed-003",
            lr=args.lr,
            epochs=float(args.epochs),
            train_limit=args.limit,
        )
        *_, job = plan_jobs(settings, args.model, [task.name], [seed])
        problem = replace(
            job.problem, starts_from=None, plan=job.problem.plan._replace(starts_from="")
        )
        job = job._replace(problem=problem)
        return main_score(run_job(job))


def plain(args, task, seed: int) -> float:
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model, num_labels=len(task.labels) or 1
    )
    train, dev = (read_split(args.glue, task, split) for split in ("train", "dev"))
    count = min(args.limit, len(train))
    steps = args.epochs * -(-count // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    dtype = torch.long if task.labels else torch.float32

    def inputs(examples, indices):
        texts = [[examples.first[i] for i in indices]]
        if examples.second is not None:
            texts.append([examples.second[i] for i in indices])
        return tokenizer(
            *texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        )

    rng = np.random.default_rng(seed)
    model.train()
    for _ in range(args.epochs):
        order = rng.permutation(count)
        for start in range(0, count, BATCH):
            indices = order[start : start + BATCH]
            labels = torch.tensor([train.labels[i] for i in indices], dtype=dtype)
            loss = model(**inputs(train, indices), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()
    outputs = []
    with torch.no_grad():
        for start in range(0, len(dev), 64):
            indices = range(start, min(start + 64, len(dev)))
            outputs.append(model(**inputs(dev, indices)).logits.numpy())
    logits = np.concatenate(outputs)
    predictions = logits.argmax(axis=1) if task.labels else logits[:, 0]
    return scores(task.title, task.metrics, predictions, np.asarray(dev.labels))[task.metrics[0]]


if __name__ == "__main__":
    main()

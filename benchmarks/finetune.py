"""Compare fine-tuning with a plain loop: `python benchmarks/finetune.py MODEL GLUE [--task cola]`.

ours           batches of similar length, padded to the longest, with our head and optimizer
plain          transformers' head, random batches padded to the longest, torch's AdamW
plain, 128     the same, with all examples padded to 128 tokens

All have the same encoder, examples (tokenized in advance), dropout and number of threads. They run
interleaved in one process that keeps freed memory, which helps the plain loops too.
"""

import numpy as np
import torch
from side_by_side import glue_parser, measure, report, where
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from electrify.finetuning.batches import Shuffled
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.experiment import new_model
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.presets import PRESETS, plan_for
from electrify.finetuning.glue.problem import GlueProblem
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.heads import Examples
from electrify.recipes.schema import Optimizer
from electrify.training.layers import layer_scale
from electrify.training.optim import build_optimizer
from electrify.training.update import accumulate, apply_update

BATCH = 32


def main() -> None:
    parser = glue_parser(task="cola")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    task = TASKS[args.task]
    rivals = {
        "ours": ours(args, task),
        "plain": plain(args, task, padding="longest"),
        "plain, 128": plain(args, task, padding="max_length"),
    }
    for run in rivals.values():  # warm up
        run(2)
    rates = measure(
        {name: lambda run=run: run(args.batches) for name, run in rivals.items()},
        args.rounds,
    )
    print(f"{task.title}, {torch.get_num_threads()} threads, {where()}")
    report(rates, "ours", "examples/s")


def ours(args, task):
    encoder = open_encoder(args.model)
    how = plan_for(PRESETS["paper"], task, encoder.config.hidden_size)
    problem = GlueProblem(args.glue, task, how, "paper")
    rows = problem.prepare(problem.read("train"), encoder, learn=True)
    model = new_model(problem, encoder, seed=0).train()
    shuffled = Shuffled(rows.lengths, BATCH, seed=0)
    scale = layer_scale(model, how.fit.layer_decay, how.fit.layers)
    optimizer = build_optimizer(model, Optimizer(lr=1e-5, weight_decay=0.0), scale)
    state = {"next": 0}

    def run(batches: int) -> float:
        seen = 0
        for _ in range(batches):
            batch = rows.collate(shuffled[state["next"]].examples)
            accumulate(model, optimizer, [batch], Examples(len(batch.labels_B)), 1.0)
            apply_update(optimizer, 1e-5)
            state["next"] += 1
            seen += len(batch.labels_B)
        return seen

    return run


def plain(args, task, padding):
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    examples = read_split(args.glue, task, "train")
    texts = [column for column in (examples.first, examples.second) if column is not None]
    rows = tokenizer(*map(list, texts), truncation=True, max_length=128)
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model, num_labels=len(task.labels) or 1
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    rng = np.random.default_rng(0)
    dtype = torch.long if task.labels else torch.float32

    def run(batches: int) -> float:
        for _ in range(batches):
            indices = rng.integers(0, len(examples), BATCH)
            chosen = {name: [values[i] for i in indices] for name, values in rows.items()}
            inputs = tokenizer.pad(chosen, padding=padding, max_length=128, return_tensors="pt")
            labels = torch.tensor([examples.labels[i] for i in indices], dtype=dtype)
            loss = model(**inputs, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return batches * BATCH

    return run


if __name__ == "__main__":
    main()

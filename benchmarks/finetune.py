"""Fine-tuning against a plain loop: `python benchmarks/finetune.py MODEL GLUE [--task cola]`.

ours           examples of like length together, padded to the longest of the batch, our head, our
               optimizer
plain          transformers' own head, batches at random, padded to the longest, torch's AdamW
plain, 128     the same, everything padded to 128 tokens

The same encoder, the same examples, tokenized before, the same dropout, the same number of threads;
interleaved, in one process, which keeps freed memory: that helps the plain loops too.
"""

import numpy as np
import torch
from side_by_side import asked_for_glue, measure, report, where
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
    asked = asked_for_glue(task="cola")
    asked.add_argument("--batches", type=int, default=20)
    asked.add_argument("--rounds", type=int, default=5)
    given = asked.parse_args()
    task = TASKS[given.task]
    rivals = {
        "ours": ours(given, task),
        "plain": plain(given, task, padding="longest"),
        "plain, 128": plain(given, task, padding="max_length"),
    }
    for run in rivals.values():  # warm
        run(2)
    rates = measure(
        {name: lambda run=run: run(given.batches) for name, run in rivals.items()}, given.rounds
    )
    print(f"{task.title}, {torch.get_num_threads()} threads, {where()}")
    report(rates, "ours", "examples/s")


def ours(given, task):
    encoder = open_encoder(given.model)
    how = plan_for(PRESETS["paper"], task, encoder.config.hidden_size)
    problem = GlueProblem(given.glue, task, how, "paper")
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


def plain(given, task, padding):
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    examples = read_split(given.glue, task, "train")
    texts = [some for some in (examples.first, examples.second) if some is not None]
    rows = tokenizer(*map(list, texts), truncation=True, max_length=128)
    model = AutoModelForSequenceClassification.from_pretrained(
        given.model, num_labels=len(task.labels) or 1
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    draw = np.random.default_rng(0)
    dtype = torch.long if task.labels else torch.float32

    def run(batches: int) -> float:
        for _ in range(batches):
            some = draw.integers(0, len(examples), BATCH)
            chosen = {name: [values[i] for i in some] for name, values in rows.items()}
            inputs = tokenizer.pad(chosen, padding=padding, max_length=128, return_tensors="pt")
            labels = torch.tensor([examples.labels[i] for i in some], dtype=dtype)
            loss = model(**inputs, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return batches * BATCH

    return run


if __name__ == "__main__":
    main()

"""Pre-train with the package electra-pytorch, for a row of the board (benchmarks/board.py).

The loop is the one of that package's README: its `Electra` around two Hugging Face networks, AdamW
with a linear warm-up and decay as in its example for OpenWebText. Networks, shards and batches are
those of the row with ELECTRA's recipe. `pip install --no-deps electra-pytorch`.
"""

import argparse
import time
from pathlib import Path

import torch
from electra_pytorch import Electra
from pretrain import Logits

from electrify.models.export import export_networks
from electrify.models.pair import build_pair
from electrify.recipes import schema
from electrify.training.data import open_data, training_task, vocabulary_of
from electrify.training.engine import single_process
from electrify.training.journal import TIMING_FILE, as_line
from electrify.training.schedule import factor


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    recipe = schema.load(args.recipe)
    run, optimizer = recipe.run, recipe.optimizer
    tokenizer, shards = open_data(args.data, recipe)
    torch.manual_seed(run.seed)
    pair, special = build_pair(recipe, vocabulary_of(tokenizer)), tokenizer.special
    model = Electra(
        Logits(pair.generator),
        Logits(pair.discriminator),
        mask_token_id=special.mask,
        pad_token_id=special.pad,
        mask_prob=recipe.objective.mask_rate,
        mask_ignore_token_ids=[special.cls, special.sep],
    )
    plain = [p for name, p in model.named_parameters() if "bias" in name or "LayerNorm" in name]
    others = [
        p for name, p in model.named_parameters() if not ("bias" in name or "LayerNorm" in name)
    ]
    groups = [{"params": others, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=optimizer.lr, betas=(0.9, 0.999), eps=1e-6)
    batches = training_task(recipe, shards, tokenizer, single_process()).batches
    begin, timings = time.monotonic(), []
    for step in range(run.steps):
        batch = batches[step]
        ids_BL, types_BL = (torch.from_numpy(a) for a in (batch.ids_BL, batch.types_BL))
        attention_BL = (ids_BL != special.pad).long()
        loss = model(ids_BL, attention_mask=attention_BL, token_type_ids=types_BL).loss
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer.clip)
        for group in adam.param_groups:
            group["lr"] = optimizer.lr * factor("linear", step, run.steps, optimizer.warmup)
        adam.step()
        if (step + 1) % run.log_every == 0:
            now = time.monotonic()
            timings.append({"step": step + 1, "steps_per_second": run.log_every / (now - begin)})
            begin = now
            print(f"step {step + 1:,}/{run.steps:,}  loss {float(loss):.3f}", flush=True)
    networks = {"discriminator": pair.discriminator.eval()}
    card = {"discriminator": "# Pre-trained with electra-pytorch, for comparison\n"}
    identity = {"tokenizer": tokenizer.backend.to_str(), "recipe": args.recipe, "peer": True}
    export_networks(networks, card, tokenizer, args.out, identity, run.length)
    (args.out / TIMING_FILE).write_text("".join(map(as_line, timings)))


if __name__ == "__main__":
    main()

"""Compare pre-training steps with alternatives: `python benchmarks/pretrain.py`.

ours              the objective, the fast layers and the update of `electrify pretrain`
electra-pytorch   that package's `Electra` with the same Hugging Face networks, as in its README
plain             the usual loop over transformers: logits at every position, Gumbel noise for all
                  of them, AdamW
sgemm             as many FLOPs as our step, in matmuls of all tokens with one matrix

Each runs in its own process, one at a time, on the same batches of random tokens, with networks of
the same sizes, tied embeddings and the same dropout; the order changes every round. Memory is the
growth of the process's peak resident memory from before the networks are built.
electra-pytorch is not a dependency of the project: `pip install --no-deps electra-pytorch`.
"""

# B batch, L length, N slots per row, V vocabulary

import argparse
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import Pipe, get_context
from statistics import median
from typing import Any

import torch
from side_by_side import measure, report, where
from torch import nn
from transformers import CONFIG_MAPPING

from electrify.batches.batch import Batch
from electrify.batches.masking import max_slots
from electrify.models.fast import keep_freed_memory
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import build_objective
from electrify.recipes import schema
from electrify.recipes.schema import Recipe
from electrify.training.networks import objective_flops
from electrify.training.optim import build_optimizer
from electrify.training.screen import peak_memory
from electrify.training.update import accumulate, apply_update

VOCABULARY = Vocabulary(30_522, 0, 101, 102)
MASK = 103
Steps = Callable[[int], float]
"""Runs some steps and returns their number."""


def main() -> None:
    args = _parse_args()
    recipe = sized(args)
    names = list(RIVALS)
    if mlm(recipe) or find_spec("electra_pytorch") is None:
        names.remove("electra-pytorch")
        print("without electra-pytorch: " + ("it has no MLM" if mlm(recipe) else "not installed"))
    print(f"{args.recipe}, length {recipe.run.length}, batch {recipe.run.batch_size}, ", end="")
    print(f"dropout {args.dropout}, {torch.get_num_threads()} threads, {where()}")
    rivals = {name: Rival(name, args) for name in names}
    rates = measure(
        {name: lambda rival=rival: rival.run(args.steps) for name, rival in rivals.items()},
        args.rounds,
    )
    report(rates, "ours", "steps/s")
    memory = {name: rival.end() for name, rival in rivals.items()}
    tokens = recipe.run.length * recipe.run.batch_size
    for name in names[:-1]:
        fractions = [a / b for a, b in zip(rates[name], rates["sgemm"], strict=True)]
        print(f"{name:16} {tokens * median(rates[name]):6.0f} tokens/s, ", end="")
        print(f"{median(fractions):.0%} of GEMM peak; ", end="")
        print(f"{memory[name] / 1e6:,.0f} MB, ours needs {memory['ours'] / memory[name]:.2f} of it")


class Rival:
    """A program in a process of its own that runs when it is parser to."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.pipe, child_pipe = Pipe()
        process = get_context("spawn").Process(target=_serve, args=(name, args, child_pipe))
        process.start()
        child_pipe.close()  # so that recv fails if the process ends
        self.pipe.recv()  # wait until it has warmed up

    def run(self, steps: int) -> float:
        """Run some steps."""
        self.pipe.send(steps)
        return float(self.pipe.recv())

    def end(self) -> int:
        """End the process and return the growth of its memory in bytes."""
        self.pipe.send(0)
        return int(self.pipe.recv())


def _serve(name: str, args: argparse.Namespace, pipe: Any) -> None:
    cpu = torch.device("cpu")
    before = peak_memory(cpu)
    run = RIVALS[name](sized(args))
    pipe.send(run(1))
    while steps := pipe.recv():
        pipe.send(run(steps))
    pipe.send(peak_memory(cpu) - before)


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="electra-small")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=2, help="steps of each rival per round")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def sized(args: argparse.Namespace) -> Recipe:
    """Return a recipe with another length, batch size and dropout."""
    recipe = schema.load(args.recipe)
    dropout = dict.fromkeys(dropouts(recipe.discriminator.architecture), args.dropout)
    discriminator = replace(recipe.discriminator, config={**recipe.discriminator.config, **dropout})
    generator = recipe.generator
    if not mlm(recipe):
        architecture = generator.architecture or recipe.discriminator.architecture
        dropout = dict.fromkeys(dropouts(architecture), args.dropout)
        generator = replace(generator, config={**generator.config, **dropout})
    run = replace(recipe.run, length=args.length, batch_size=args.batch_size)
    return replace(recipe, discriminator=discriminator, generator=generator, run=run)


def dropouts(architecture: str) -> list[str]:
    """Return the dropout fields of an architecture's configuration."""
    fields = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # of BERT and similar models
    fields += ("embedding_dropout", "attention_dropout", "mlp_dropout")  # of ModernBERT
    config = CONFIG_MAPPING[architecture]()
    return [name for name in fields if hasattr(config, name)]


def mlm(recipe: Recipe) -> bool:
    return recipe.objective.kind == "mlm"


def batch(recipe: Recipe, step: int, vocabulary: Vocabulary = VOCABULARY) -> Batch:
    """Return a full batch of random tokens with 15 % of its positions masked."""
    rng = torch.Generator().manual_seed(step)
    size, length = recipe.run.batch_size, recipe.run.length
    slots = max_slots(recipe.objective.mask_rate, length)
    ids_BL = torch.randint(1000, vocabulary.size, (size, length), generator=rng)
    ids_BL[:, 0], ids_BL[:, -1] = vocabulary.cls, vocabulary.sep
    positions_BN = torch.rand(size, length - 2, generator=rng).topk(slots).indices + 1
    masked_BL = ids_BL.scatter(1, positions_BN, MASK)
    uniforms_BN = torch.rand(size, slots, generator=rng)
    ones_BL, types_BL = torch.ones_like(ids_BL), torch.zeros_like(ids_BL)
    weights_BN = torch.ones(size, slots)
    return Batch(ids_BL, masked_BL, ones_BL, types_BL, positions_BN, weights_BN, uniforms_BN)


def ours(recipe: Recipe) -> Steps:
    keep_freed_memory()
    objective = build_objective(recipe, VOCABULARY)
    model = objective.train()
    optimizer = build_optimizer(model, recipe.optimizer)

    def run(steps: int) -> float:
        for step in range(steps):
            inputs = batch(recipe, step)
            accumulate(model, optimizer, [inputs], inputs.totals(), 1.0)
            apply_update(optimizer, 1e-5)
        return steps

    return run


def networks(recipe: Recipe) -> list[nn.Module]:
    """Build the recipe's networks with tied embeddings, without our fast layers."""
    objective = build_objective(recipe, VOCABULARY, fast=False)
    return [network.train() for network in objective.networks.values()]


def trained(models: list[nn.Module], recipe: Recipe, loss_of: Callable[[Batch], torch.Tensor]):
    """Return a function that runs AdamW steps on a loss."""
    parameters = list({p for model in models for p in model.parameters()})
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, eps=1e-6, weight_decay=0.01)

    def run(steps: int) -> float:
        for step in range(steps):
            loss_of(batch(recipe, step)).backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return steps

    return run


class Logits(nn.Module):
    """A network that returns only its logits, as in electra-pytorch's README."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids_BL: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        """Return the logits; for two classes, the second minus the first."""
        logits = self.network(ids_BL, **more).logits
        return logits[..., 1] - logits[..., 0] if logits.shape[-1] == 2 else logits


def electra_pytorch(recipe: Recipe) -> Steps:
    from electra_pytorch import Electra

    discriminator, generator = networks(recipe)
    model = Electra(
        Logits(generator),
        Logits(discriminator),
        mask_token_id=MASK,
        pad_token_id=VOCABULARY.pad,
        mask_prob=0.15,
        mask_ignore_token_ids=[VOCABULARY.cls, VOCABULARY.sep],
    )
    return trained([model], recipe, lambda inputs: model(inputs.ids_BL).loss)


def plain(recipe: Recipe) -> Steps:
    models = networks(recipe)
    entropy = nn.functional.cross_entropy

    def masked_lm(inputs: Batch, network: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        chosen_BL = inputs.masked_BL == MASK
        labels_BL = inputs.ids_BL.masked_fill(~chosen_BL, -100)
        logits_BLV = network(inputs.masked_BL, attention_mask=inputs.attention_BL).logits
        return logits_BLV, entropy(logits_BLV.flatten(0, 1), labels_BL.flatten())

    def rtd(inputs: Batch) -> torch.Tensor:
        discriminator, generator = models
        logits_BLV, generator_loss = masked_lm(inputs, generator)
        with torch.no_grad():
            noise_BLV = -torch.log(-torch.log(torch.rand_like(logits_BLV) + 1e-9) + 1e-9)
            sampled_BL = (logits_BLV + noise_BLV).argmax(dim=-1)
        ids_BL = torch.where(inputs.masked_BL == MASK, sampled_BL, inputs.ids_BL)
        labels_BL = (ids_BL != inputs.ids_BL).float()
        logits_BL = Logits(discriminator)(ids_BL, attention_mask=inputs.attention_BL)
        logits_BL = logits_BL.view_as(labels_BL)
        loss = nn.functional.binary_cross_entropy_with_logits(logits_BL, labels_BL)
        return generator_loss + 50 * loss

    if mlm(recipe):
        return trained(models, recipe, lambda inputs: masked_lm(inputs, models[0])[1])
    return trained(models, recipe, rtd)


def sgemm(recipe: Recipe) -> Steps:
    """Run matmuls as large as those of the widest network, with as many FLOPs as a step."""
    objective = build_objective(recipe, VOCABULARY)
    flops = objective_flops(objective, recipe)
    rows = recipe.run.length * recipe.run.batch_size
    config = next(iter(objective.networks.values())).config
    wide = getattr(config, "intermediate_size", 4 * config.hidden_size)
    a, b = torch.randn(rows, config.hidden_size), torch.randn(config.hidden_size, wide)
    out = torch.empty(rows, wide)
    times = max(1, round(flops / (2 * rows * config.hidden_size * wide)))

    def run(steps: int) -> float:
        for _ in range(times * steps):
            torch.mm(a, b, out=out)
        return steps

    return run


RIVALS: dict[str, Callable[[Recipe], Steps]] = {
    "ours": ours,
    "electra-pytorch": electra_pytorch,
    "plain": plain,
    "sgemm": sgemm,
}

if __name__ == "__main__":
    main()

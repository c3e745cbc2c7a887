"""Pre-training steps beside what a user could pick instead: `python benchmarks/pretrain.py`.

ours              the objective, the fast layers and the update of `electrify pretrain`
electra-pytorch   that package's `Electra` round the same Hugging Face networks, as its README shows
plain             a loop over transformers as people write it: logits at every place, Gumbel noise
                  over all of them, AdamW
sgemm             as many operations as our step has, in products of all tokens with one matrix

Each in a process that waits for its turn, on the same batches of random tokens, with networks of
the same sizes, tied embeddings and the same dropout, in rounds that change their order; memory is
by how much the largest resident memory of its process grew from before the networks.
electra-pytorch is not among the project's dependencies: `pip install --no-deps electra-pytorch`.
"""

# B batch, L length, N slots a row, V vocabulary

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
from electrify.batches.masking import most_slots
from electrify.models.fast import keep_memory
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
"""Takes so many steps and returns how many."""


def main() -> None:
    given = _asked()
    recipe = sized(given)
    names = list(RIVALS)
    if mlm(recipe) or find_spec("electra_pytorch") is None:
        names.remove("electra-pytorch")
        print("without electra-pytorch: " + ("it has no MLM" if mlm(recipe) else "not installed"))
    print(f"{given.recipe}, length {recipe.run.length}, batch {recipe.run.batch_size}, ", end="")
    print(f"dropout {given.dropout}, {torch.get_num_threads()} threads, {where()}")
    rivals = {name: Rival(name, given) for name in names}
    rates = measure(
        {name: lambda rival=rival: rival.run(given.steps) for name, rival in rivals.items()},
        given.rounds,
    )
    report(rates, "ours", "steps/s")
    grown = {name: rival.end() for name, rival in rivals.items()}
    tokens = recipe.run.length * recipe.run.batch_size
    for name in names[:-1]:
        shares = [a / b for a, b in zip(rates[name], rates["sgemm"], strict=True)]
        print(f"{name:16} {tokens * median(rates[name]):6.0f} tokens/s, ", end="")
        print(f"{median(shares):.0%} of the speed of our matrix products alone; ", end="")
        print(f"{grown[name] / 1e6:,.0f} MB, of which ours is {grown['ours'] / grown[name]:.2f}")


class Rival:
    """A program in a process of its own, which waits until it is its turn."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        here, there = Pipe()
        process = get_context("spawn").Process(target=_turns, args=(name, given, there))
        process.start()
        there.close()  # so that the end of the process ends the waiting
        self.pipe = here
        self.pipe.recv()  # it is warm

    def run(self, steps: int) -> float:
        """Take so many steps."""
        self.pipe.send(steps)
        return float(self.pipe.recv())

    def end(self) -> int:
        """By how many bytes its memory grew."""
        self.pipe.send(0)
        return int(self.pipe.recv())


def _turns(name: str, given: argparse.Namespace, pipe: Any) -> None:
    here = torch.device("cpu")
    before = peak_memory(here)
    run = RIVALS[name](sized(given))
    pipe.send(run(1))
    while steps := pipe.recv():
        pipe.send(run(steps))
    pipe.send(peak_memory(here) - before)


def _asked() -> argparse.Namespace:
    asked = argparse.ArgumentParser()
    asked.add_argument("--recipe", default="electra-small")
    asked.add_argument("--length", type=int, default=128)
    asked.add_argument("--batch-size", type=int, default=32)
    asked.add_argument("--dropout", type=float, default=0.1)
    asked.add_argument("--steps", type=int, default=2, help="of each rival in a round")
    asked.add_argument("--rounds", type=int, default=5)
    return asked.parse_args()


def sized(given: argparse.Namespace) -> Recipe:
    """A shipped recipe at another length, batch and dropout."""
    recipe = schema.load(given.recipe)
    dropout = dict.fromkeys(dropouts(recipe.discriminator.architecture), given.dropout)
    discriminator = replace(recipe.discriminator, config={**recipe.discriminator.config, **dropout})
    generator = recipe.generator
    if not mlm(recipe):
        own = generator.architecture or recipe.discriminator.architecture
        dropout = dict.fromkeys(dropouts(own), given.dropout)
        generator = replace(generator, config={**generator.config, **dropout})
    run = replace(recipe.run, length=given.length, batch_size=given.batch_size)
    return replace(recipe, discriminator=discriminator, generator=generator, run=run)


def dropouts(architecture: str) -> list[str]:
    """The fields of an architecture's configuration that say how much its body drops."""
    fields = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # of BERT and its kin
    fields += ("embedding_dropout", "attention_dropout", "mlp_dropout")  # of ModernBERT
    config = CONFIG_MAPPING[architecture]()
    return [name for name in fields if hasattr(config, name)]


def mlm(recipe: Recipe) -> bool:
    return recipe.objective.kind == "mlm"


def batch(recipe: Recipe, step: int, vocabulary: Vocabulary = VOCABULARY) -> Batch:
    """A full batch of random tokens with 15 % of its places chosen."""
    rng = torch.Generator().manual_seed(step)
    size, length = recipe.run.batch_size, recipe.run.length
    slots = most_slots(recipe.objective.mask_rate, length)
    ids_BL = torch.randint(1000, vocabulary.size, (size, length), generator=rng)
    ids_BL[:, 0], ids_BL[:, -1] = vocabulary.cls, vocabulary.sep
    positions_BN = torch.rand(size, length - 2, generator=rng).topk(slots).indices + 1
    masked_BL = ids_BL.scatter(1, positions_BN, MASK)
    uniforms_BN = torch.rand(size, slots, generator=rng)
    ones_BL, types_BL = torch.ones_like(ids_BL), torch.zeros_like(ids_BL)
    weights_BN = torch.ones(size, slots)
    return Batch(ids_BL, masked_BL, ones_BL, types_BL, positions_BN, weights_BN, uniforms_BN)


def ours(recipe: Recipe) -> Steps:
    keep_memory()
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
    """The same networks without anything of ours in them, embeddings tied as recipes tie them."""
    objective = build_objective(recipe, VOCABULARY, fast=False)
    return [network.train() for network in objective.networks.values()]


def trained(models: list[nn.Module], recipe: Recipe, loss_of: Callable[[Batch], torch.Tensor]):
    """Steps of AdamW on a loss."""
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
    """A network that returns its logits alone, as electra-pytorch's README has it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids_BL: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        """Logits; of two classes, how much the second exceeds the first."""
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
        said_BL = Logits(discriminator)(ids_BL, attention_mask=inputs.attention_BL)
        loss = nn.functional.binary_cross_entropy_with_logits(said_BL.view_as(labels_BL), labels_BL)
        return generator_loss + 50 * loss

    if mlm(recipe):
        return trained(models, recipe, lambda inputs: masked_lm(inputs, models[0])[1])
    return trained(models, recipe, rtd)


def sgemm(recipe: Recipe) -> Steps:
    """Products as large as those of the widest network, for as many operations as a step has."""
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

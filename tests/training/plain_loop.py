"""Train a recipe in a plain loop, with every value passed by name.

It is the reference for `pretrain`: it shares the formulas, which are tested elsewhere, but none of
the code that passes a recipe's values to them.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.batches.loader import Batches, BatchPlan
from electrify.batches.masking import Masking
from electrify.batches.packing import PackedRows
from electrify.models.pair import Vocabulary, build_masked_lm, build_pair
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.objective import Objective
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Recipe
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.store import Shards
from electrify.training.data import VALIDATION_SEED
from electrify.training.optim import ElectraAdam, Lamb
from electrify.training.state import model_tensors


class Plain:
    """A model with its starting weights; `train` and `evaluate` do what a run does."""

    def __init__(self, recipe: Recipe, shards: Path) -> None:
        objective, run = recipe.objective, recipe.run
        self.recipe = recipe
        self.tokenizer = tokenizers.load_tokenizer(shards / "tokenizer")
        self.data = shards
        special = self.tokenizer.special
        vocabulary = Vocabulary(
            size=self.tokenizer.vocab_size, pad=special.pad, cls=special.cls, sep=special.sep
        )
        if objective.kind == "mlm":
            network, _ = build_masked_lm(recipe, vocabulary)
            self.model: Objective = MaskedLanguageModel(network)
        else:
            pair = build_pair(recipe, vocabulary)
            weights = Weights(
                generator=objective.generator_weight,
                discriminator=objective.discriminator_weight,
                temperature=objective.temperature,
                disallow_correct=objective.disallow_correct,
            )
            self.model = ReplacedTokenDetection(
                generator=pair.generator, discriminator=pair.discriminator, weights=weights
            )
        if run.output_bias == "frequencies":
            counts_V = np.zeros(self.tokenizer.vocab_size, dtype=np.int64)
            for example in Shards(shards, "train"):
                np.add.at(counts_V, example.ids, 1)
            counts_V[[special.pad, special.cls, special.sep, special.mask]] = 0
            self.model.set_output_biases(torch.from_numpy(counts_V), objective.mask_rate)
        self.start = {name: t.clone() for name, t in model_tensors(self.model).items()}

    def scheduled_count(self, name: str, step: int) -> int:
        """Return a batch size or a length at a step of training."""
        unit = math.gcd(*(int(value) for _, value in getattr(self.recipe.schedules, name)))
        return round(self.scheduled(name, step) / (unit or 1)) * (unit or 1)

    def scheduled(self, name: str, step: int) -> float:
        """Return the value of a setting at a step of training."""
        points = getattr(self.recipe.schedules, name)
        if not points:
            section = self.recipe.run if name in ("batch_size", "length") else self.recipe.objective
            return getattr(section, name)
        done = step / self.recipe.run.steps
        past = [value for fraction, value in points if fraction <= done]
        if past and len(past) == len(points):
            return past[-1]
        return float(np.interp(done, *zip(*points, strict=True)))

    def batches(self, split: str) -> Iterator[Batch]:
        objective, run = self.recipe.objective, self.recipe.run
        examples, validation = Shards(self.data, split), split == "validation"
        if run.packing:
            examples = PackedRows(examples)
        batches = Batches(
            examples,
            self.tokenizer,
            masking=Masking(
                rate=objective.mask_rate,
                length=32,
                shown_as_mask=objective.shown_as_mask,
                with_replacement=objective.with_replacement,
                whole_words=objective.whole_words,
            ),
            batch_size=min(run.batch_size, len(examples)),
            seed=VALIDATION_SEED if validation else run.seed,
            shuffled=not validation,
        )
        first = 0
        for number in range(run.eval_batches if validation else run.steps):
            if not validation:
                size, length = (self.scheduled_count(n, number) for n in ("batch_size", "length"))
                plan = BatchPlan(first, size, length, self.scheduled("mask_rate", number))
                batches.plan = lambda step, plan=plan: plan
                first += size
            yield batches[number].map(torch.from_numpy)

    def optimizer(self) -> torch.optim.Optimizer:
        settings = self.recipe.optimizer
        kinds = {"electra-adam": ElectraAdam, "adamw": torch.optim.AdamW, "lamb": Lamb}
        norms = [m for m in self.model.modules() if type(m).__name__.endswith("Norm")]
        norm_params = {id(p) for norm in norms for p in norm.parameters()}
        main = {id(p) for p in self.model.networks[self.model.main].parameters()}
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for parameter in self.model.parameters():
            factor = 1.0 if id(parameter) in main else settings.generator_lr
            decays = parameter.ndim > 1 and id(parameter) not in norm_params
            groups.setdefault((factor, decays), []).append(parameter)
        return kinds[settings.kind](
            [
                {
                    "params": params,
                    "factor": factor,
                    "weight_decay": settings.weight_decay if decays else 0.0,
                }
                for (factor, decays), params in groups.items()
            ],
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
        )

    def rate(self, step: int) -> float:
        settings = self.recipe.optimizer
        rise = min(1.0, step / settings.warmup)
        if settings.schedule == "electra":
            rise *= 1 - step / self.recipe.run.steps
        return settings.lr * rise

    def train(self) -> dict[str, Tensor]:
        optimizer, max_norm = self.optimizer(), self.recipe.optimizer.clip
        self.model.train()
        for step, inputs in enumerate(self.batches("train")):
            optimizer.zero_grad()
            if isinstance(self.model, ReplacedTokenDetection):
                self.model.scheduled = {
                    "generator": self.scheduled("generator_weight", step),
                    "discriminator": self.scheduled("discriminator_weight", step),
                    "temperature": self.scheduled("temperature", step),
                }
            loss, _ = self.model(inputs, inputs.totals())
            loss.backward()
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            for gradient in gradients:
                gradient *= min(1.0, max_norm / float(norm)) if max_norm else 1.0
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step) * group["factor"]
            optimizer.step()
        return model_tensors(self.model)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        self.model.eval()
        sums = [self.model(inputs, inputs.totals())[1] for inputs in self.batches("validation")]
        total = {name: sum(batch_sums[name] for batch_sums in sums) for name in sums[0]}
        return self.model.metrics(total, len(sums))

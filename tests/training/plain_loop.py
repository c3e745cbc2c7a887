"""Train a recipe in a plain loop, with every value passed by name.

It is the reference for `pretrain`: it shares the formulas, which are tested elsewhere, but none of
the code that passes a recipe's values to them.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.batches.loader import Batches
from electrify.batches.masking import Masking
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

    def batches(self, split: str) -> Iterator[Batch]:
        objective, run = self.recipe.objective, self.recipe.run
        examples, validation = Shards(self.data, split), split == "validation"
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
        for number in range(run.eval_batches if validation else run.steps):
            yield Batch(*map(torch.from_numpy, batches[number]))

    def optimizer(self) -> torch.optim.Optimizer:
        settings = self.recipe.optimizer
        kinds = {"electra-adam": ElectraAdam, "adamw": torch.optim.AdamW, "lamb": Lamb}
        norms = [m for m in self.model.modules() if type(m).__name__.endswith("Norm")]
        norm_params = {id(p) for norm in norms for p in norm.parameters()}
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for parameter in self.model.parameters():
            groups[parameter.ndim > 1 and id(parameter) not in norm_params].append(parameter)
        return kinds[settings.kind](
            [
                {"params": groups[True], "weight_decay": settings.weight_decay},
                {"params": groups[False], "weight_decay": 0.0},
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
            loss, _ = self.model(inputs, inputs.totals())
            loss.backward()
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            for gradient in gradients:
                gradient *= min(1.0, max_norm / float(norm)) if max_norm else 1.0
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step)
            optimizer.step()
        return model_tensors(self.model)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        self.model.eval()
        sums = [self.model(inputs, inputs.totals())[1] for inputs in self.batches("validation")]
        total = {name: sum(batch_sums[name] for batch_sums in sums) for name in sums[0]}
        return self.model.metrics(total, len(sums))

"""Twenty steps of the official code, reproduced by our pair, losses, optimizer and schedule.

The tolerances are tight enough to detect every mistake in SLIPS, which is tested too.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.one_update import update
from torch import nn

from electrify.batches.batch import Batch
from electrify.models.pair import Vocabulary, build_pair
from electrify.objectives import rtd
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Discriminator, Generator, Recipe, Sharing
from electrify.training.optim import ElectraAdam, parameter_groups
from electrify.training.schedule import factor

GOLDEN = Path(__file__).parent.parent / "golden"
TOLERANCES = {"loss": 1e-6, "norm": 1e-5, "logits": 1e-5, "lr": 1e-9, "weights": 3e-6}


OFFICIAL_RATE = partial(factor, "electra")


class Fixture:
    """One golden run: its settings, its arrays, and a pair that starts from its weights."""

    def __init__(self, tag: str, sharing: Sharing | None = None, **fields: Any) -> None:
        self.facts = json.loads((GOLDEN / f"pretrain_{tag}.json").read_text())
        self.arrays = dict(np.load(GOLDEN / f"pretrain_{tag}.npz"))
        self.config = self.facts["config"]
        table = {"embedding_size": self.facts["embedding_size"], **fields}
        special = self.facts["special_ids"]
        vocabulary = Vocabulary(
            self.config["vocab_size"], special["pad"], special["cls"], special["sep"]
        )
        recipe = Recipe(
            Discriminator("electra", {**self.facts["discriminator"], **table}),
            Generator(config={**self.facts["generator"], **table}),
            sharing or Sharing(),
        )
        self.pair = build_pair(recipe, vocabulary)
        weights = Weights(self.config["gen_weight"], self.config["disc_weight"])
        self.model = ReplacedTokenDetection(self.pair.generator, self.pair.discriminator, weights)
        self.model.train()
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for variable, tensor in self.weights(0):
                for name in variable["hf"]:
                    parameters[name].copy_(tensor)

    def weights(self, step: int):
        for variable in self.facts["variables"]:
            tensor = torch.from_numpy(self.arrays[f"weights{step}/{variable['name']}"])
            yield variable, tensor.T if variable["transpose"] else tensor

    def inputs(self, step: int) -> Batch:
        array = lambda name: torch.from_numpy(self.arrays[name][step])  # noqa: E731
        return Batch(
            array("input_ids").long(),
            array("masked_input_ids").long(),
            array("input_mask").long(),
            array("segment_ids").long(),
            array("masked_lm_positions").long(),
            array("masked_lm_weights").float(),
            torch.zeros(array("masked_lm_weights").shape),
        )


class WithNoise(nn.Module):
    """A model that draws the samples of the official run."""

    def __init__(self, model: nn.Module, losses: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.losses = model, losses

    def forward(self, batch, totals):
        return self.losses(batch, totals)


def trajectory(
    fixture: Fixture,
    optimizer: Callable[..., torch.optim.Optimizer] = ElectraAdam,
    rate: Callable[[int, int, int], float] = OFFICIAL_RATE,
    clip: float = 1.0,
    groups: Callable[[list[dict]], list[dict]] = lambda groups: groups,
    losses: Callable[..., Any] | None = None,
) -> dict[str, float]:
    """Run all steps and return the largest gap of each kind."""
    config, arrays, model = fixture.config, fixture.arrays, fixture.model
    made = groups(parameter_groups(model, config["learning_rate"], config["weight_decay_rate"]))
    adam = optimizer(made, lr=config["learning_rate"])
    gaps = dict.fromkeys(TOLERANCES, 0.0)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for step in range(config["num_train_steps"]):
        inputs = fixture.inputs(step)
        noise = torch.from_numpy(arrays["gumbel_noise"][step]).flatten(0, 1)
        logits: list[torch.Tensor] = []
        handle = fixture.pair.discriminator.register_forward_hook(
            lambda module, arguments, output, logits=logits: logits.append(output.logits.detach())
        )
        scale = rate(step, config["num_train_steps"], config["num_warmup_steps"])
        noisy = WithNoise(model, partial(losses or model, noise_MV=noise))
        done = update(noisy, adam, [inputs], inputs.totals(), config["learning_rate"] * scale, clip)
        handle.remove()
        real = inputs.attention_BL > 0
        wanted = torch.from_numpy(arrays["disc_logits"][step])
        found = {
            "loss": abs(done.loss / arrays["total_loss"][step] - 1),
            "norm": abs(done.norm / arrays["grad_norm"][step] - 1),
            "logits": (logits[0] - wanted)[real].abs().max().item(),
            "lr": abs(config["learning_rate"] * scale - arrays["lr"][step]),
        }
        if step + 1 in fixture.facts["snapshots_after_updates"]:
            found["weights"] = max(
                (parameters[variable["hf"][0]].detach() - tensor).abs().max().item()
                for variable, tensor in fixture.weights(step + 1)
            )
        gaps = {kind: max(gap, float(found.get(kind, 0.0))) for kind, gap in gaps.items()}
    return gaps


@pytest.mark.parametrize("tag", ["a", "c"])
def test_the_official_trajectory(tag):
    fixture = Fixture(tag)
    assert fixture.pair.notes == []
    count = sum(parameter.numel() for parameter in fixture.model.parameters())
    assert count == fixture.facts["n_parameters"]
    gaps = trajectory(fixture)
    assert all(gap <= TOLERANCES[kind] for kind, gap in gaps.items()), gaps


@pytest.mark.parametrize("tag", ["a", "c"])
def test_sampled_tokens_and_labels_are_the_official_ones(tag, monkeypatch):
    fixture = Fixture(tag)
    seen = []
    original = rtd.corrupt
    monkeypatch.setattr(rtd, "corrupt", lambda *a: seen.append((a[1], original(*a))) or seen[-1][1])
    trajectory(fixture)
    for step, (sampled, corrupted) in enumerate(seen):
        used = fixture.inputs(step).weights_BN > 0
        golden = {n: torch.from_numpy(fixture.arrays[n][step]).long() for n in (
            "sampled_ids", "corrupted_input_ids", "disc_labels")}  # fmt: skip
        assert torch.equal(sampled[used], golden["sampled_ids"][used])
        assert torch.equal(corrupted.ids_BL, golden["corrupted_input_ids"])
        assert torch.equal(corrupted.labels_BL, golden["disc_labels"])
    assert len(seen) == fixture.config["num_train_steps"]


def frozen_padding(fixture: Fixture) -> None:
    fixture.pair.discriminator.get_input_embeddings().padding_idx = 0


def untied_output(fixture: Fixture) -> None:
    head = fixture.pair.generator.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())


def per_sequence_mean(inputs, totals, model, noise_MV):
    rows = [inputs.rows(i, i + 1) for i in range(len(inputs.ids_BL))]
    noise = noise_MV.view(len(rows), -1, noise_MV.shape[1])
    parts = [model(row, row.totals(), noise_MV=noise[i]) for i, row in enumerate(rows)]
    return sum(loss for loss, _ in parts) / len(rows), parts[0][1]


class EpsilonInside(ElectraAdam):
    """A common variant of Adam."""

    def _update(self, params, group):
        beta1, beta2 = group["betas"]
        for param in params:
            mean, square = self.state[param]["exp_avg"], self.state[param]["exp_avg_sq"]
            mean.mul_(beta1).add_(param.grad, alpha=1 - beta1)
            square.mul_(beta2).addcmul_(param.grad, param.grad, value=1 - beta2)
            change = mean / (square + group["eps"]).sqrt() + group["weight_decay"] * param
            param.sub_(change, alpha=group["lr"])


def everything_decays(groups):
    return [{**group, "weight_decay": 0.01} for group in groups]


def embeddings_do_not_decay(groups):
    split = []
    for group in groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            decay = (
                0.0
                if "embeddings.word" in name or "embeddings.pos" in name
                else group["weight_decay"]
            )
            split.append({**group, "names": [name], "params": [parameter], "weight_decay": decay})
    return split


SLIPS = {
    "[PAD] row frozen": {"break": frozen_padding},
    "tanh GELU": {"fields": {"hidden_act": "gelu_pytorch_tanh"}},
    "LayerNorm ε 1e-5": {"fields": {"layer_norm_eps": 1e-5}},
    "only the word embeddings shared": {"sharing": Sharing("words")},
    "nothing shared": {"sharing": Sharing("none")},
    "output embeddings untied": {"break": untied_output},
    "decay on everything": {"groups": everything_decays},
    "embeddings not decayed": {"groups": embeddings_do_not_decay},
    "rate of the next step": {"rate": lambda k, n, w: factor("electra", k + 1, n, w)},
    "warm-up, then linear decay": {"rate": partial(factor, "linear")},
    "no clipping": {"clip": 0.0},
    "ε 1e-8": {"optimizer": partial(ElectraAdam, eps=1e-8)},
    "ε inside the root": {"optimizer": EpsilonInside},
    "bias correction": {"optimizer": partial(torch.optim.AdamW, eps=1e-6)},
}


@pytest.mark.parametrize("slip", SLIPS)
def test_each_slip_is_seen(slip):
    """A check of the check: mistakes of other implementations fail the test above."""
    options = dict(SLIPS[slip])
    fixture = Fixture("c", options.pop("sharing", None), **options.pop("fields", {}))
    options.pop("break", lambda fixture: None)(fixture)
    gaps = trajectory(fixture, **options)
    assert any(gap > TOLERANCES[kind] for kind, gap in gaps.items()), gaps


@pytest.mark.parametrize("what", ["generator", "discriminator", "padding", "specials"])
def test_slips_of_the_losses_are_seen(what, monkeypatch):
    fixture = Fixture("c")
    options = {}
    if what == "generator":
        options = {"losses": partial(per_sequence_mean, model=fixture.model)}
    elif what == "discriminator":
        monkeypatch.setattr(rtd, "EPSILON", 1.0)
    else:
        original = Fixture.inputs

        def inputs(self, step):
            found = original(self, step)
            real = torch.ones_like(found.attention_BL)
            if what == "specials":
                real = found.attention_BL * (found.ids_BL != 2) * (found.ids_BL != 3)
            return found._replace(attention_BL=real)

        monkeypatch.setattr(Fixture, "inputs", inputs)
    gaps = trajectory(fixture, **options)
    assert any(gap > TOLERANCES[kind] for kind, gap in gaps.items()), gaps

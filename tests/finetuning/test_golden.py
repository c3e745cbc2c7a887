"""Twelve steps of the official fine-tuning, reproduced with our head, optimizer and schedule.

The gradient of the word embeddings is summed by row before the norm is taken, as autograd does. As
in pre-training, the tolerances are tight enough to detect every deviation in SLIPS, and every CPU
meets them, whatever vector instructions its kernels use.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.one_update import examples_of, update
from transformers import ElectraConfig, ElectraModel

from electrify.finetuning.heads import Classifier, Labelled
from electrify.training.layers import layer_scale
from electrify.training.optim import ElectraAdam, parameter_groups
from electrify.training.schedule import factor

GOLDEN = Path(__file__).parent.parent / "golden"
FACTS = json.loads((GOLDEN / "finetune_cls.json").read_text())
ARRAYS = dict(np.load(GOLDEN / "finetune_cls.npz"))
CONFIG, STEPS = FACTS["config"], FACTS["config"]["num_train_steps"]
# Kernels of different instruction sets round differently. The summed loss has gradients of norm 100
# to 500, so a change δ of the weights changes it by up to norm · |δ|. Its gap is divided by the norm,
# which gives the length of the δ that explains it. Rounding the weights (norm 34.6) to float32 is a
# δ of up to 2e-6; half of that is allowed. Largest gaps of AVX512, AVX2 and SSE kernels, micro-
# batches of 8, 4, 2 and 1: loss 1.6e-7, norm 9.5e-6, logits 1.2e-5, weights 3.6e-7.
TOLERANCES = {"loss": 1e-6, "norm": 3e-5, "logits": 3e-5, "lr": 5e-7, "weights": 3e-6}
GROUPS = {  # the name patterns of the official code -> ours
    "/embeddings/": "body.embeddings.",
    "/embeddings_project/": "body.embeddings_project.",
    "task_specific/": "classifier.",
    "encoder/layer_0/": "body.encoder.layer.0.",
    "encoder/layer_1/": "body.encoder.layer.1.",
    "encoder/layer_2/": "body.encoder.layer.2.",
}
PREFIX = "discriminator.electra."


def classifier(**options: Any) -> Classifier:
    """Return the official model with its initial weights."""
    sizes = {**FACTS["model"], "embedding_size": FACTS["embedding_size"]}
    fields = {"hidden_act": "gelu", **options.pop("fields", {})}
    backbone = ElectraModel(ElectraConfig(**sizes | fields))
    options = {"kind": "classes", "reduction": "sum", "dropout": 0.0} | options
    model = Classifier(backbone, FACTS["n_outputs"], **options).train()
    parameters = dict(model.named_parameters())
    initial = dict(snapshot(0))
    assert initial.keys() == parameters.keys()
    with torch.no_grad():
        for name, tensor in initial.items():
            parameters[name].copy_(tensor)
    return model


def snapshot(updates: int):
    """Yield the official weights after some steps, under our names."""
    updates = 0 if updates == 1 else updates  # the first step has learning rate 0
    for variable in FACTS["variables"]:
        tensor = torch.from_numpy(ARRAYS[f"weights{updates}/{variable['name']}"])
        yield our_name(variable), tensor.T if variable["transpose"] else tensor


def our_name(variable: dict[str, Any]) -> str:
    (name,) = variable["hf"]
    return name.replace(PREFIX, "body.")


def batch(step: int) -> Labelled:
    array = lambda name: torch.from_numpy(ARRAYS[name][step].astype(np.int64))  # noqa: E731
    return Labelled(
        array("input_ids"),
        array("input_mask"),
        array("segment_ids"),
        array("labels"),
        array("example_weight").float(),
    )


def trajectory(
    model: Classifier,
    optimizer: Callable[..., torch.optim.Optimizer] = ElectraAdam,
    kind: str = "official",
    decay: float = CONFIG["layerwise_lr_decay"],
    warmup: float = CONFIG["warmup_steps"],
    rate: str = "electra",
    clip: float = CONFIG["clip_norm"],
    groups: Callable[[list[dict]], list[dict]] = lambda groups: groups,
    batches: Callable[[int], Labelled] = batch,
    split: int = 8,
    ahead: int = 0,
) -> dict[str, float]:
    """Run all steps; returns the largest deviation of each kind."""
    lr, wd = CONFIG["learning_rate"], CONFIG["weight_decay_rate"]
    made = groups(parameter_groups(model, lr, wd, layer_scale(model, decay, kind)))
    adam = optimizer(made, lr=lr)
    parameters = dict(model.named_parameters())
    gaps = dict.fromkeys(TOLERANCES, 0.0)
    logits: list[torch.Tensor] = []
    model.classifier.register_forward_hook(lambda m, a, output: logits.append(output.detach()))
    for step in range(STEPS):
        logits.clear()
        full = batches(step)
        parts = [Labelled(*(t[i : i + split] for t in full)) for i in range(0, 8, split)]
        now = lr * factor(rate, step + ahead, STEPS, warmup)
        done = update(model, adam, parts, examples_of(full), now, clip)
        real = torch.from_numpy(ARRAYS["example_weight"][step] > 0)
        wanted = torch.from_numpy(ARRAYS["outputs"][step])
        found = {
            "loss": abs(done.loss - ARRAYS["loss"][step]) / ARRAYS["grad_norm"][step],
            "norm": abs(done.norm / ARRAYS["grad_norm"][step] - 1),
            "logits": (torch.cat(logits) - wanted)[real].abs().max().item(),
            "lr": rate_gap(adam, step),
        }
        if step + 1 in FACTS["snapshots_after_updates"]:
            found["weights"] = max(
                (parameters[name].detach() - tensor).abs().max().item()
                for name, tensor in snapshot(step + 1)
            )
        for name, gap in found.items():
            assert np.isfinite(gap), f"step {step}: {name} is {gap}"
            gaps[name] = max(gaps[name], float(gap))
    return gaps


def rate_gap(adam: torch.optim.Optimizer, step: int) -> float:
    """Return the largest relative gap between learning rates and those of the official groups."""
    official = dict(zip(FACTS["lr_groups"], ARRAYS["lr_groups"][step].tolist(), strict=True))
    gaps = []
    for group in adam.param_groups:
        for name in group["names"]:
            (wanted,) = [official[o] for o, ours in GROUPS.items() if name.startswith(ours)]
            gaps.append(abs(group["lr"] - wanted) / wanted if wanted else group["lr"])
    return max(gaps)


def test_groups_are_the_official_ones():
    """Every parameter occurs once, with its official layer decay and weight decay."""
    model = classifier()
    groups = parameter_groups(model, 1.0, 0.01, layer_scale(model, 0.8, "official"))
    ours = {n: (g["scale"], g["weight_decay"] > 0) for g in groups for n in g["names"]}
    assert ours == {
        our_name(variable): (0.8 ** variable["lr_exponent"], variable["decayed"])
        for variable in FACTS["variables"]
    }


@pytest.mark.parametrize("split", [8, 2])
def test_the_official_trajectory(split):
    """Full batches, and micro-batches of 2 rows, the last of which has only padding rows."""
    gaps = trajectory(classifier(), split=split)
    assert all(gap <= TOLERANCES[kind] for kind, gap in gaps.items()), gaps


def everything_decays(groups):
    return [{**group, "weight_decay": CONFIG["weight_decay_rate"]} for group in groups]


def nothing_decays(groups):
    return [{**group, "weight_decay": 0.0} for group in groups]


def padding_rows_counted(step):
    full = batch(step)
    return full._replace(weights_B=torch.ones_like(full.weights_B))


def no_token_types(step):
    full = batch(step)
    return full._replace(types_BL=torch.zeros_like(full.types_BL))


class EpsilonInside(ElectraAdam):
    """Adam with epsilon inside the square root, as in some implementations."""

    def _update(self, params, group):
        beta1, beta2 = group["betas"]
        for param in params:
            mean, square = self.state[param]["exp_avg"], self.state[param]["exp_avg_sq"]
            mean.mul_(beta1).add_(param.grad, alpha=1 - beta1)
            square.mul_(beta2).addcmul_(param.grad, param.grad, value=1 - beta2)
            change = mean / (square + group["eps"]).sqrt() + group["weight_decay"] * param
            param.sub_(change, alpha=group["lr"])


def last_layer_as_the_head(groups):
    return [{**g, "scale": 1.0} if "encoder.layer.2." in g["names"][0] else g for g in groups]


SLIPS = {
    "mean loss": {"reduction": "mean"},
    "dropout": {"dropout": 0.1},
    "tanh GELU": {"fields": {"hidden_act": "gelu_pytorch_tanh"}},
    "LayerNorm ε 1e-5": {"fields": {"layer_norm_eps": 1e-5}},
    "exponents as intended": {"kind": "intended"},
    "one learning rate for all layers": {"decay": 1.0},
    "warm-up of integer steps": {"warmup": 1.0},
    "warm-up, then linear decay": {"rate": "linear"},
    "no clipping": {"clip": 0.0},
    "bias correction": {"optimizer": partial(torch.optim.AdamW, eps=1e-6)},
    "ε 1e-8": {"optimizer": partial(ElectraAdam, eps=1e-8)},
    "ε inside the square root": {"optimizer": EpsilonInside},
    "learning rate of the next step": {"ahead": 1},
    "last layer at the head's learning rate": {"groups": last_layer_as_the_head},
    "weight decay on everything": {"groups": everything_decays},
    "no weight decay": {"groups": nothing_decays},
    "padding rows counted": {"batches": padding_rows_counted},
    "no token types": {"batches": no_token_types},
}


@pytest.mark.parametrize("slip", SLIPS)
def test_each_deviation_is_detected(slip):
    """Check the check: common deviations from the official code fail the test above."""
    options = dict(SLIPS[slip])
    own = {n: options.pop(n) for n in ("reduction", "dropout", "fields") if n in options}
    gaps = trajectory(classifier(**own), **options)
    assert any(gap > TOLERANCES[kind] for kind, gap in gaps.items()), gaps

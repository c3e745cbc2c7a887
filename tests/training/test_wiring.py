"""Every field of a recipe reaches the code of `pretrain` that uses it.

The formulas are tested elsewhere; these tests cover the way from the recipe to the run. A run of
three steps, in which no relevant field has its default, is repeated by a plain loop (`Plain`) that
gets every value by name. Then one field changes at a time, and must change exactly what it should.
"""

import gc
import json
import shutil
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from tests.training.plain_loop import Plain
from torch import Tensor, nn
from transformers import ElectraForMaskedLM, ElectraForPreTraining

from electrify.batches.keyed_random import key_of
from electrify.batches.loader import Batch
from electrify.batches.masking import choose_slots, mask_tokens
from electrify.errors import UserError
from electrify.objectives.objective import build_objective
from electrify.recipes.schema import (
    Discriminator,
    Generator,
    ObjectiveSettings,
    Optimizer,
    Recipe,
    Run,
    Sharing,
)
from electrify.storage.commit import read_json, write_json
from electrify.tokens import tokenizer as tokenizers
from electrify.training import checkpoint, training
from electrify.training.data import masking_of, open_data, training_task, vocabulary_of
from electrify.training.engine import single_process
from electrify.training.export_run import export_run
from electrify.training.optim import build_optimizer
from electrify.training.options import Export, Pretrain
from electrify.training.pretrain import pretrain, schedule_of
from electrify.training.schedule import factor
from electrify.training.state import model_tensors

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "embedding_size": 16,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# No default values where a default could hide that a value is not passed on.
BASE = Recipe(
    Discriminator(config=SIZES),
    Generator(width=0.5),
    Sharing(),
    ObjectiveSettings(
        mask_rate=0.25,
        shown_as_mask=0.7,
        generator_weight=2.0,
        discriminator_weight=20.0,
        temperature=1.5,
    ),
    Optimizer(lr=1e-2, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=0.5, clip=0.5, warmup=2),
    Run(
        steps=3,
        batch_size=6,
        length=32,
        seed=3,
        precision="float32",
        log_every=1,
        eval_every=2,
        eval_batches=2,
        save_every=2,
        keep_last=9,
    ),
)
SHAPES, START, END, TRAIN, VALIDATION, SAVED = (
    *("shapes of the weights", "starting weights", "final weights"),
    *("training log", "validation log", "checkpoints"),
)
LEARNED = {END, TRAIN, VALIDATION}
NEW_START = {START, *LEARNED}
NEW_SHAPES = {SHAPES, *NEW_START}
EXPORTED = "the exported base run"

# For each field: another value, and everything that it changes.
CHANGES: dict[str, tuple[Any, set[str]]] = {
    "discriminator.architecture": ("convbert", NEW_SHAPES),
    "discriminator.config": ({**SIZES, "intermediate_size": 48}, NEW_SHAPES),
    "discriminator.init_from": (EXPORTED, NEW_START),
    "generator.architecture": ("convbert", NEW_SHAPES),
    "generator.width": (1.0, NEW_SHAPES),
    "generator.depth": (0.5, NEW_SHAPES),
    "generator.config": ({"intermediate_size": 16}, NEW_SHAPES),
    "generator.init_from": (EXPORTED, NEW_START),
    "sharing.embeddings": ("words", NEW_SHAPES),
    "sharing.projection": (True, NEW_SHAPES),
    "sharing.encoder": (True, NEW_SHAPES),
    "objective.kind": ("mlm", NEW_SHAPES),
    "objective.mask_rate": (0.4, LEARNED),
    "objective.shown_as_mask": (1.0, LEARNED),
    "objective.with_replacement": (True, LEARNED),
    "objective.whole_words": (True, LEARNED),
    "objective.generator_weight": (5.0, LEARNED),
    "objective.discriminator_weight": (5.0, LEARNED),
    "objective.temperature": (0.3, LEARNED),
    "objective.disallow_correct": (True, LEARNED),
    "optimizer.kind": ("adamw", LEARNED),
    "optimizer.lr": (2e-2, LEARNED),
    "optimizer.beta1": (0.5, LEARNED),
    "optimizer.beta2": (0.5, LEARNED),
    "optimizer.eps": (1e-2, LEARNED),
    "optimizer.weight_decay": (0.0, LEARNED),
    "optimizer.clip": (0.0, LEARNED),
    "optimizer.schedule": ("constant", LEARNED),
    "optimizer.warmup": (3, LEARNED),
    "run.steps": (2, {*LEARNED, SAVED}),
    "run.batch_size": (4, LEARNED),
    "run.length": (16, set()),  # refused, because the shards have another length
    "run.seed": (4, NEW_START),
    "run.init": ("huggingface", NEW_START),
    "run.output_bias": ("frequencies", NEW_START),
    "run.new_embeddings": ("random", set()),  # tests/models/test_new_rows.py has new tokens
    "run.precision": ("bf16", LEARNED),
    "run.log_every": (2, {TRAIN}),
    "run.eval_every": (3, {VALIDATION}),
    "run.eval_batches": (1, {VALIDATION}),
    "run.save_every": (1, {SAVED}),
    "run.keep_last": (1, {SAVED}),
    "run.keep_percent": ((33.0,), {SAVED}),
    "run.packing": (True, LEARNED),
    "run.attn_implementation": ("eager", {TRAIN, VALIDATION}),  # at most: it is rounding
    "optimizer.generator_lr": (0.5, LEARNED),
    "schedules.mask_rate": (((0.0, 0.4), (1.0, 0.2)), LEARNED),
    "schedules.length": (((0.0, 16.0), (0.5, 16.0), (0.5, 32.0)), LEARNED),
    "schedules.batch_size": (((0.0, 2.0), (1.0, 6.0)), LEARNED),
    "schedules.temperature": (((0.0, 3.0), (1.0, 0.5)), LEARNED),
    "schedules.generator_weight": (((0.0, 1.0), (0.5, 0.0)), LEARNED),
    "schedules.discriminator_weight": (((0.0, 0.0), (0.5, 0.0), (0.5, 20.0)), LEARNED),
}
# Other fields that a changed value requires.
BESIDES = {
    "objective.kind": {
        "generator.width": 1.0,
        "objective.generator_weight": 1.0,
        "objective.discriminator_weight": 50.0,
        "objective.temperature": 1.0,
    },
    "discriminator.architecture": {"generator.architecture": "electra", "generator.config": SIZES},
    "generator.architecture": {"generator.config": SIZES},
    "sharing.projection": {"generator.width": 1.0},
    "sharing.encoder": {"generator.width": 1.0},
}


class Trained(NamedTuple):
    """The results of a run."""

    folder: Path
    weights: dict[int, dict[str, Tensor]]
    """By step."""
    lines: dict[str, list[dict[str, float]]]
    """By split."""
    saved: list[tuple[int, bool]]
    """Steps with a checkpoint, and whether it is never pruned."""

    @property
    def end(self) -> dict[str, Tensor]:
        return self.weights[max(self.weights)]


def train(recipe: Recipe, shards: Path, out: Path, **options: Any) -> Trained:
    """Run the command."""
    AcceleratorState._reset_state(reset_partial_state=True)  # it has one precision per process
    settings = Pretrain(
        recipe=recipe, data=shards, out=out, save_minutes=0, device="cpu", **options
    )
    assert pretrain(settings) == 0
    found = sorted(checkpoint.stored(out / "checkpoints"), key=lambda one: one.step)
    lines: dict[str, list[dict[str, float]]] = {"train": [], "validation": []}
    for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()):
        lines[line.pop("split")].append(line)
    return Trained(
        out,
        {one.step: checkpoint.read_checkpoint(one).model for one in found},
        lines,
        [(one.step, (one.folder / "keep").exists()) for one in found],
    )


def changed(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    for name, value in values.items():
        section, field_name = name.split(".")
        part = replace(getattr(recipe, section), **{field_name: value})
        recipe = replace(recipe, **{section: part})
    return recipe


def gap(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Return the largest difference of two sets of weights; infinite if their shapes differ."""
    shapes = [{name: tensor.shape for name, tensor in ts.items()} for ts in (ours, theirs)]
    if shapes[0] != shapes[1]:
        return float("inf")
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def differences(run: Trained, base: Trained) -> set[str]:
    shapes = [{n: t.shape for n, t in one.end.items()} for one in (run, base)]
    different = {
        SHAPES: shapes[0] != shapes[1],
        START: 0 in run.weights and gap(run.weights[0], base.weights[0]) > 0,
        END: gap(run.end, base.end) > SEEN,
        TRAIN: run.lines["train"] != base.lines["train"],
        VALIDATION: run.lines["validation"] != base.lines["validation"],
        SAVED: run.saved != base.saved,
    }
    return {what for what, differs in different.items() if differs}


SAME, SEEN = 2e-6, 2e-5  # of weights that move by about 1e-2


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Make runs faster: no benchmark of the machine, no fsync, less garbage collection."""
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("electrify.training.screen.matmul_peak", lambda *what: 1e12)
        patch.setattr("os.fsync", lambda file: None)
        yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def base(shards, tmp_path_factory) -> Trained:
    return train(BASE, shards, tmp_path_factory.mktemp("base") / "run")


@pytest.fixture(scope="module")
def exported(base, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "model"
    export_run(Export(run=base.folder, out=out))
    return out


def test_every_field_has_a_row():
    parts = {part.name: getattr(Recipe(), part.name) for part in fields(Recipe)}
    assert all(is_dataclass(part) for part in parts.values())
    assert CHANGES.keys() == {f"{n}.{f.name}" for n, part in parts.items() for f in fields(part)}


def repeats(run: Trained, recipe: Recipe, shards: Path) -> None:
    """Check that the plain loop has the same starting weights, final weights and metrics."""
    plain = Plain(recipe, shards)
    assert gap(run.weights[0], plain.start) == 0
    assert gap(run.end, plain.train()) < SAME
    *_, line = run.lines["validation"]
    ours = {name: float("nan") if value is None else value for name, value in line.items()}
    theirs = plain.evaluate() | {"step": recipe.run.steps}
    # The plain loop repeats the metrics of training; validation adds baselines and calibration.
    assert {n: ours[n] for n in theirs} == pytest.approx(theirs, abs=1e-5, nan_ok=True)


def test_a_plain_loop_repeats_the_base_run(base, shards):
    repeats(base, BASE, shards)
    rates = [line["learning_rate"] for line in base.lines["train"]]
    assert rates == pytest.approx([0.0, 1e-2 * 1 / 2 * 2 / 3, 1e-2 * 1 / 3])


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_field_reaches_where_it_acts(name, base, exported, shards, tmp_path):
    value, expected = CHANGES[name]
    if value == EXPORTED:
        value = str(exported / name.split(".")[0])
    recipe = changed(BASE, {name: value, **BESIDES.get(name, {})})
    if name == "run.length":
        with pytest.raises(UserError, match="another length"):
            train(recipe, shards, tmp_path / "run")
        return
    run = train(recipe, shards, tmp_path / "run")
    if name == "run.attn_implementation":
        assert differences(run, base) <= expected
        return
    assert differences(run, base) == expected
    if END in expected and name != "run.precision":
        repeats(run, recipe, shards)


@pytest.mark.parametrize("kind", ["electra-adam", "adamw", "lamb", "muon"])
def test_every_optimizer_gets_its_settings(kind):
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    optimizer = build_optimizer(model, replace(BASE.optimizer, kind=kind))
    decay = {n: g["weight_decay"] for g in optimizer.param_groups for n in g["names"]}
    assert decay == {"0.weight": 0.5, "0.bias": 0.0, "1.weight": 0.0, "1.bias": 0.0}
    for group in optimizer.param_groups:
        assert group["lr"] == 1e-2
        if "betas" in group:  # Muon's matrices have none
            assert (tuple(group["betas"]), group["eps"]) == ((0.8, 0.95), 1e-3)


@pytest.mark.parametrize("schedule", ["electra", "linear", "cosine", "wsd", "constant"])
def test_every_schedule_gets_its_settings(schedule):
    recipe = changed(BASE, {"optimizer.schedule": schedule, "run.steps": 20, "optimizer.warmup": 5})
    rate = schedule_of(recipe)
    assert [rate(step) for step in range(20)] == [
        1e-2 * factor(kind=schedule, step=step, steps=20, warmup=5) for step in range(20)
    ]


def batch_of(recipe: Recipe, shards: Path, number: int = 0) -> Batch:
    tokenizer, examples = open_data(shards, recipe)
    return training_task(recipe, examples, tokenizer, single_process()).batches[number]


def test_special_tokens_count_in_the_number_of_slots(shards):
    """As in the official code: a quarter of all real tokens, not of those that may be masked."""
    batch = batch_of(changed(BASE, {"run.batch_size": 64}), shards)
    tokens_B = batch.attention_BL.sum(axis=1)
    wanted_B = np.clip(np.round(tokens_B * 0.25), 1, int(0.255 * 32))
    assert (batch.weights_BN.sum(axis=1) == wanted_B).all()
    assert (wanted_B != np.round((tokens_B - 3) * 0.25)).any()  # the two rules differ here


def test_the_seed_reaches_every_starting_weight(shards):
    """And two networks of the same shape that share nothing start with different weights."""
    tokenizer, _ = open_data(shards, BASE)
    apart = changed(BASE, {"generator.width": 1.0, "sharing.embeddings": "none"})
    ours, other = (
        model_tensors(build_objective(changed(apart, {"run.seed": seed}), vocabulary_of(tokenizer)))
        for seed in (3, 4)
    )
    drawn = [name for name in ours if ours[name].ndim > 1 and ours[name].is_floating_point()]
    assert not [name for name in drawn if torch.equal(ours[name], other[name])]
    twins = {name.removeprefix("generator."): name for name in drawn if name[:9] == "generator"}
    both = [name for name in twins if f"discriminator.{name}" in drawn]
    assert both
    assert not [n for n in both if torch.equal(ours[twins[n]], ours[f"discriminator.{n}"])]


def test_the_seed_reaches_order_masks_samples_and_dropout(shards, tmp_path, monkeypatch):
    ours, other = (batch_of(changed(BASE, {"run.seed": seed}), shards) for seed in (3, 4))
    for name in ("ids_BL", "positions_BN", "uniforms_BN"):
        assert not np.array_equal(getattr(ours, name), getattr(other, name)), name
    # On the same rows: which positions are masked, and which of them are replaced by [MASK].
    rows_B, maskable_BL = np.arange(6), np.ones((6, 32), dtype=bool)
    lengths_B, masking = np.full(6, 32), masking_of(BASE)
    slots = [choose_slots(maskable_BL, lengths_B, masking, (seed, 0), rows_B) for seed in (3, 4)]
    assert not np.array_equal(slots[0].positions_BN, slots[1].positions_BN)
    masked = [
        mask_tokens(np.zeros((6, 32), int), slots[0], 1, masking, (seed, 0), rows_B)
        for seed in (3, 4)
    ]
    assert not np.array_equal(*masked)
    seeds: list[int] = []
    monkeypatch.setattr(training.torch, "manual_seed", seeds.append)
    train(changed(BASE, {"run.eval_every": 0}), shards, tmp_path / "run", micro_batch=4)
    expected = [key_of(3, f"dropout {row}", step) >> 1 for step in range(3) for row in (0, 4)]
    assert [seed for seed in seeds if seed != BASE.run.seed] == [int(one) for one in expected]


def test_dropout_is_on_in_training_and_off_in_evaluation(base, shards, tmp_path):
    dropout = {**SIZES, "hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    values = {"discriminator.config": dropout, "optimizer.lr": 1e-30, "optimizer.weight_decay": 0.0}
    run, still = (
        train(changed(BASE, values | more), shards, tmp_path / name)
        for name, more in (("a", {}), ("b", {"discriminator.config": SIZES}))
    )
    assert run.lines["train"] != still.lines["train"]
    assert run.lines["validation"] == still.lines["validation"]


@pytest.mark.parametrize("options", [{"micro_batch": 4}, {"workers": 0}], ids=str)
def test_how_a_batch_is_computed_does_not_change_the_run(options, base, shards, tmp_path):
    run = train(BASE, shards, tmp_path / "run", **options)
    assert gap(run.end, base.end) < SAME
    assert run.saved == base.saved


def test_an_old_export_without_encoder_says_how_to_get_one(base, exported, tmp_path, capsys):
    out = tmp_path / "model"
    shutil.copytree(exported, out, ignore=shutil.ignore_patterns("encoder"))
    manifest = read_json(out / "manifest.json")
    manifest["files"] = [e for e in manifest["files"] if not e["name"].startswith("encoder/")]
    write_json(out / "manifest.json", manifest)
    export_run(Export(run=base.folder, out=out))
    output = capsys.readouterr().out
    assert f"{out / 'discriminator'}: ElectraForPreTraining" in output
    assert f"note: {out} has no encoder" in output
    assert "use another --out" in output
    assert not (out / "encoder").exists()


def test_an_export_is_the_checkpoint_it_names(base, exported, tmp_path):
    export_run(Export(run=base.folder, out=tmp_path / "early", step=2))
    for folder, step in ((exported, 3), (tmp_path / "early", 2)):
        for role, kind in (
            ("discriminator", ElectraForPreTraining),
            ("generator", ElectraForMaskedLM),
        ):
            weights = kind.from_pretrained(folder / role).state_dict()
            saved = {
                name.removeprefix(f"{role}."): tensor
                for name, tensor in base.weights[step].items()
                if name.startswith(f"{role}.")
            }
            assert saved
            assert gap({name: weights[name] for name in saved}, saved) == 0
            assert (
                tokenizers.load_tokenizer(folder / role).vocab_size == weights[EMBEDDINGS].shape[0]
            )
            (line,) = [one for one in base.lines["validation"] if one["step"] == step]
            assert f"| {line['generator_loss']:.4f} |" in (folder / role / "README.md").read_text()


EMBEDDINGS = "electra.embeddings.word_embeddings.weight"

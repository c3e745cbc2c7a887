"""Compiled networks: two graphs each without breaks, fixed shapes, and the losses of eager mode."""

import json
import shutil

import pytest
import torch
from tests.models.test_architectures import WORKING
from tests.models.tiny import tiny_fields
from tests.training.test_networks import gradients, objective_of
from torch._dynamo.utils import counters

from electrify.errors import UserError
from electrify.recipes.schema import (
    Discriminator,
    Generator,
    ObjectiveSettings,
    Optimizer,
    Recipe,
    Run,
    Sharing,
)
from electrify.training import budget
from electrify.training.data import open_data, validation_task
from electrify.training.engine import Engine
from electrify.training.folder import RunFolder
from electrify.training.networks import check_micro_batches, compile_networks
from electrify.training.options import Pretrain
from electrify.training.pretrain import pretrain
from electrify.training.setup import set_up
from electrify.training.signals import Stop

GRAPHS_PER_NETWORK = 2  # one for training, one for evaluation
# Their code depends on the values of tensors, or uses what torch cannot trace.
IN_PARTS = {"big_bird", "flaubert", "ibert", "longformer", "mra", "xlm", "xmod", "yoso"}


@pytest.fixture
def graphs(monkeypatch) -> list:
    """Return the inputs of every graph that is compiled; a graph is then run as it is."""
    inputs: list = []
    compile = torch.compile

    def backend(module, examples):
        inputs.append(examples)
        return module

    monkeypatch.setattr(torch, "compile", lambda *a, **kw: compile(*a, **kw, backend=backend))
    counters.clear()
    return inputs


def small_recipe(architecture: str, kind: str = "rtd", steps: int = 6, layers: int = 2) -> Recipe:
    rtd = kind == "rtd"
    return Recipe(
        Discriminator(architecture, tiny_fields(architecture) | {"num_hidden_layers": layers}),
        Generator(width=0.5) if rtd else Generator(),
        Sharing(embeddings="tied"),
        ObjectiveSettings(kind=kind),
        optimizer=Optimizer(lr=1e-3, warmup=5),
        run=Run(
            init="huggingface",
            precision="float32",
            steps=steps,
            batch_size=4,
            length=32,
            log_every=1,
            eval_every=steps // 2,
            eval_batches=2,
        ),
    )


def losses(recipe: Recipe, shards, out, **options) -> list[float]:
    """Train; returns the training and validation losses."""
    shutil.rmtree(out, ignore_errors=True)
    assert pretrain(Pretrain(recipe=recipe, data=shards, out=out, device="cpu", **options)) == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [value for line in lines for name, value in line.items() if name.endswith("r_loss")]


@pytest.mark.parametrize(
    ("architecture", "kind", "layers", "options"),
    [
        ("electra", "rtd", 1, {"checkpoint_activations": True, "micro_batch": 2}),
        pytest.param("modernbert", "mlm", 2, {}, marks=pytest.mark.slow),
        pytest.param("bert", "rtd", 2, {"checkpoint_activations": True}, marks=pytest.mark.slow),
    ],
)
def test_two_graphs_per_network_without_breaks(
    architecture, kind, layers, options, graphs, shards, tmp_path
):
    recipe = small_recipe(architecture, kind, layers=layers)
    expected = losses(recipe, shards, tmp_path / "eager", **options)
    assert not graphs
    compiled = losses(recipe, shards, tmp_path / "compiled", compile=True, **options)
    assert len(graphs) == GRAPHS_PER_NETWORK * (2 if kind == "rtd" else 1)
    assert not counters["graph_break"]
    # CUDA graphs need fixed shapes.
    assert all(isinstance(value, torch.Tensor) for inputs in graphs for value in inputs)
    assert compiled == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow  # a minute or two each, nearly all in the compiler
@pytest.mark.parametrize(
    ("architecture", "same_steps", "options"),
    [
        # After 58 steps, eager runs with and without micro-batches differ just as much (3e-3).
        ("electra", 50, {"checkpoint_activations": True}),
        ("modernbert", 200, {}),
        ("bert", 200, {}),
    ],
)
def test_inductor_compiles_twice_in_200_steps(architecture, same_steps, options, shards, tmp_path):
    recipe = small_recipe(architecture, steps=200)
    expected = losses(recipe, shards, tmp_path / "eager", **options)
    counters.clear()
    compiled = losses(recipe, shards, tmp_path / "compiled", compile=True, **options)
    assert counters["stats"]["unique_graphs"] == GRAPHS_PER_NETWORK * 2
    assert not counters["graph_break"]
    same = 2 * same_steps  # the losses of both networks; those of evaluations come after
    assert compiled[:same] == pytest.approx(expected[:same], rel=1e-5)
    assert expected[-2] < 0.9 * expected[0], "it learned"


def test_nothing_is_compiled_while_a_budget_is_measured(graphs, shards, tmp_path, monkeypatch):
    recipe = small_recipe("electra", "mlm", layers=1)
    engine, compiled = Engine(device="cpu"), []
    tokenizer, examples = open_data(shards, recipe)
    settings = Pretrain(recipe=recipe, data=shards, out=tmp_path / "run", compile=True)
    opened = RunFolder(settings.out), engine, tokenizer, examples, examples
    _, stepper = set_up(settings, recipe, *opened)
    validation = validation_task(recipe, shards, tokenizer, engine, fixed_shapes=True)
    measure = budget._seconds_per_step

    def counting(*arguments):
        compiled.append(len(graphs))
        return measure(*arguments)

    monkeypatch.setattr(budget, "_seconds_per_step", counting)
    budget.fit_to_budget(recipe, stepper, [validation], 10.0, Stop(None), print)
    assert compiled == [len(graphs)] == [GRAPHS_PER_NETWORK]


def test_micro_batches_of_different_sizes_are_refused():
    for rows, micro_batch in ((128, 0), (128, 32), (8, 32)):
        check_micro_batches(rows, micro_batch)
    with pytest.raises(UserError, match="micro-batches of the same size") as refused:
        check_micro_batches(128, 48)
    assert "--micro-batch 32" in refused.value.fix


@pytest.mark.slow
@pytest.mark.parametrize("architecture", WORKING)
def test_nearly_every_architecture_becomes_one_graph(architecture, graphs):
    plain, compiled = (objective_of(architecture) for _ in range(2))
    compile_networks(compiled)
    expected, found = gradients(plain), gradients(compiled)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)
    assert (len(graphs) > len(compiled.networks)) is (architecture in IN_PARTS)
    assert bool(counters["graph_break"]) is (architecture in IN_PARTS)

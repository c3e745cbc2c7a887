"""Weight sharing between generator and discriminator, and that ties stay intact."""

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model, save_model
from tests.models.tiny import VOCABULARY, tiny_fields, tiny_inputs, tiny_recipe
from torch import distributed, nn

from electrify.batches.batch import Batch
from electrify.models.inputs import call
from electrify.models.pair import build_pair
from electrify.models.sharing import DisentangledEmbedding, shared_parameters
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, Sharing
from electrify.training.optim import ElectraAdam, clip, parameter_groups

EMBEDDINGS = "electra.embeddings."


def pair_and_model(recipe: Recipe):
    pair = build_pair(recipe, VOCABULARY)
    return pair, ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())


def electra(sharing: Sharing) -> Recipe:
    return tiny_recipe("electra", sharing, width=0.5)


@pytest.mark.parametrize(
    ("sharing", "wanted"),
    [
        (
            Sharing(),
            {
                "word_embeddings.weight",
                "position_embeddings.weight",
                "token_type_embeddings.weight",
                "LayerNorm.weight",
                "LayerNorm.bias",
            },
        ),
        (Sharing("words"), {"word_embeddings.weight"}),
        (Sharing("none"), set()),
        (Sharing("gdes"), set()),
    ],
)
def test_what_is_shared(sharing, wanted):
    pair, _ = pair_and_model(electra(sharing))
    assert pair.notes == []
    found = set(shared_parameters(pair.generator, pair.discriminator))
    assert found == {EMBEDDINGS + name for name in wanted}
    words = pair.generator.get_input_embeddings().weight
    assert pair.generator.get_output_embeddings().weight is words


def tied(model: nn.Module) -> bool:
    """Return whether the word embeddings are one object in all three uses, and the LayerNorm in both."""
    words = model.discriminator.get_input_embeddings().weight
    mine, theirs = (n.electra.embeddings.LayerNorm for n in (model.generator, model.discriminator))
    return (
        model.generator.get_input_embeddings().weight is words
        and model.generator.get_output_embeddings().weight is words
        and mine.weight is theirs.weight
        and mine.bias is theirs.bias
    )


def test_an_optimizer_sees_what_is_shared_once():
    _, model = pair_and_model(electra(Sharing()))
    groups = parameter_groups(model, 1.0, 0.01)
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(listed) == len(set(listed))
    assert sum(p.numel() for g in groups for p in g["params"]) == sum(
        p.numel() for p in model.parameters()
    )


def by_torch(model: nn.Module, other: nn.Module, path: Path) -> None:
    torch.save(model.state_dict(), path)
    other.load_state_dict(torch.load(path, weights_only=True))


def by_safetensors(model: nn.Module, other: nn.Module, path: Path) -> None:
    save_model(model, str(path))
    load_model(other, str(path))


@pytest.mark.parametrize("save_and_load", [by_torch, by_safetensors])
def test_ties_survive_saving_and_loading(save_and_load, tmp_path):
    _, model = pair_and_model(electra(Sharing()))
    _, other = pair_and_model(electra(Sharing()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1.0
    save_and_load(model, other, tmp_path / "weights")
    assert tied(other)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


@pytest.mark.parametrize(
    "change",
    [copy.deepcopy, lambda m: m.to(torch.float64), lambda m: m.bfloat16(), lambda m: m.cpu()],
    ids=["deepcopy", "float64", "bfloat16", "cpu"],
)
def test_ties_survive_copying_and_moving(change):
    _, model = pair_and_model(electra(Sharing()))
    assert tied(model)
    assert tied(change(model))


def one_update(model: nn.Module, inputs: Batch, scale: float, losses: nn.Module) -> None:
    """Do one update as training/update.py does, with a wrapped model and a scaled loss."""
    (losses(inputs, tiny_inputs(rows=4, padding=7).totals())[0] * scale).backward()
    clip(model.parameters(), 1.0)
    ElectraAdam(parameter_groups(model, 1e-3, 0.01), lr=1e-3).step()


def run_rank(rank: int, folder: Path) -> None:
    """Update with half of the rows; gradients are averaged over ranks, so the loss is doubled."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    _, model = pair_and_model(electra(Sharing()))
    wrapped = nn.parallel.DistributedDataParallel(model.eval())
    assert tied(wrapped.module)
    half = Batch(*(t[2 * rank : 2 * rank + 2] for t in tiny_inputs(rows=4, padding=7)))
    one_update(model, half, 2.0, wrapped)
    assert tied(wrapped.module)
    torch.save(model.state_dict(), folder / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_ties_and_the_update_survive_two_processes(tmp_path):
    """Both ranks end with the weights that one process reaches with the whole batch."""
    torch.multiprocessing.spawn(run_rank, (tmp_path,), nprocs=2)
    _, single = pair_and_model(electra(Sharing()))
    one_update(single, tiny_inputs(rows=4, padding=7), 1.0, single.eval())
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, wanted in single.state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], wanted, rtol=0, atol=2e-6)


@pytest.mark.slow  # ten seconds, nearly all in torch's compiler
def test_ties_and_gradients_survive_compiling():
    inputs = tiny_inputs()
    found = []
    for wrap in (lambda m: m, lambda m: torch.compile(m, backend="aot_eager")):
        _, model = pair_and_model(electra(Sharing()))
        loss = wrap(model.eval())(inputs, inputs.totals())[0]
        loss.backward()
        assert tied(model)
        found.append([loss, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_the_shared_norm_is_felt_by_both():
    """Changing the discriminator's LayerNorm changes the generator's output too."""
    pair, _ = pair_and_model(electra(Sharing()))
    inputs = tiny_inputs()
    networks = (pair.generator.eval(), pair.discriminator.eval())
    with torch.no_grad():
        before = [call(network, inputs.ids_BL, inputs).logits for network in networks]
        pair.discriminator.electra.embeddings.LayerNorm.bias[0] += 1.0
        after = [call(network, inputs.ids_BL, inputs).logits for network in networks]
    assert not any(map(torch.equal, before, after))


def test_gdes_sends_no_gradient_of_the_discriminator_to_the_generators_embeddings():
    pair, model = pair_and_model(electra(Sharing("gdes")))
    embeddings = pair.discriminator.get_input_embeddings()
    assert isinstance(embeddings, DisentangledEmbedding)
    inputs = tiny_inputs()
    model.weights = Weights(generator=0.0)
    model(inputs, inputs.totals())[0].backward()
    base = pair.generator.get_input_embeddings().weight
    assert base.grad is None or base.grad.abs().sum() == 0
    assert embeddings.delta.grad.abs().sum() > 0
    torch.testing.assert_close(embeddings(inputs.ids_BL), embeddings.weight[inputs.ids_BL])
    with torch.no_grad():
        base += 1.0  # the discriminator sees what the generator learns
    torch.testing.assert_close(embeddings.weight, base.detach() + embeddings.delta)


def test_only_the_discriminator_learns_from_its_loss():
    """No gradient flows through the samples; only tied embeddings connect the two networks."""
    pair, model = pair_and_model(electra(Sharing()))
    model.weights = Weights(generator=0.0)
    inputs = tiny_inputs()
    model(inputs, inputs.totals())[0].backward()
    shared = {id(p) for p in pair.discriminator.parameters()}
    own = [p for p in pair.generator.parameters() if id(p) not in shared]
    assert all(p.grad is None or p.grad.abs().sum() == 0 for p in own)
    assert all(p.grad is not None for p in pair.discriminator.parameters())


def test_a_mixed_pair_ties_what_fits_and_says_what_does_not():
    """Seed 003: an ALBERT discriminator with a BERT generator as wide as its embeddings."""
    fields = tiny_fields("bert") | {"hidden_size": 16}
    recipe = Recipe(
        Discriminator("albert", tiny_fields("albert")),
        Generator("bert", config=fields),
        run=Run(init="huggingface"),
    )
    pair, _ = pair_and_model(recipe)
    assert pair.notes == []
    assert len(set(shared_parameters(pair.generator, pair.discriminator))) == 5
    wide = Recipe(
        Discriminator("albert", tiny_fields("albert")),
        Generator("bert", config=tiny_fields("bert")),
        run=Run(init="huggingface"),
    )
    pair, _ = pair_and_model(wide)
    assert "not shared: embeddings.word_embeddings.weight: (200, 32) and (200, 16)" in pair.notes


@pytest.mark.parametrize("sharing", [Sharing(projection=True), Sharing(encoder=True)])
def test_albert_may_share_its_projection_or_its_encoder(sharing):
    pair, model = pair_and_model(tiny_recipe("albert", sharing))
    shared = set(shared_parameters(pair.generator, pair.discriminator))
    assert "albert.encoder.embedding_hidden_mapping_in.weight" in shared
    layers = {name for name in shared if "albert_layer_groups" in name}
    assert bool(layers) == sharing.encoder
    assert pair.notes == []
    inputs = tiny_inputs()
    model(inputs, inputs.totals())[0].backward()

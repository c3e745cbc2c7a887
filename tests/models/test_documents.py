"""Documents in a packed row have the outputs that they have in rows of their own."""

import itertools
from dataclasses import replace

import pytest
import torch
from docs.architectures import COLUMNS, TABLE, TOLERANCE, packed_difference, rows_of
from tests.models.test_architectures import each
from tests.models.tiny import VOCABULARY, packed_inputs, tiny_recipe
from transformers import modeling_flash_attention_utils as flash

from electrify.errors import UserError
from electrify.models import inputs as calling
from electrify.models.fast import use_attention
from electrify.models.inputs import call
from electrify.objectives.objective import build_objective
from electrify.training.self_check import check_packing

WRITTEN = rows_of(TABLE.read_text(encoding="utf-8"))
PACKS = {
    name: cells[list(COLUMNS).index("packs")] == "yes"
    for name, cells in WRITTEN.items()
    if len(cells) == len(COLUMNS)
}


def networks(architecture: str, **fields) -> list:
    recipe = tiny_recipe(architecture)
    changed = recipe.discriminator.config | fields
    recipe = replace(recipe, discriminator=replace(recipe.discriminator, config=changed))
    return list(build_objective(recipe, VOCABULARY).eval().networks.values())


def test_at_least_25_architectures_can_be_packed():
    assert sum(PACKS.values()) >= 25


@pytest.mark.parametrize("architecture", each([name for name in PACKS if PACKS[name]]))
def test_packed_logits_equal_separate_ones(architecture):
    for network in networks(architecture):
        assert packed_difference(network) <= TOLERANCE
        check_packing(network, VOCABULARY, length=48)


REFUSED = [name for name in PACKS if not PACKS[name]]


@pytest.mark.parametrize(
    "architecture",
    [n if n in ("convbert", "xlm") else pytest.param(n, marks=pytest.mark.slow) for n in REFUSED],
)
def test_the_others_are_refused_by_name(architecture):
    for network in networks(architecture):
        with pytest.raises(UserError, match=f"{architecture} cannot keep the documents"):
            check_packing(network, VOCABULARY, length=48)


@pytest.mark.parametrize(
    ("architecture", "window"),
    [("modernbert", {"local_attention": 8}), ("ultrabert", {"sliding_window": 4})],
)
def test_sliding_windows_stay_inside_documents(architecture, window):
    for network in networks(architecture, **window):
        assert packed_difference(network) <= TOLERANCE
        use_attention(network, "eager", "float32")
        with pytest.raises(UserError, match="loses its sliding windows"):
            call(network, packed_inputs().ids_BL, packed_inputs())


def test_position_ids_that_do_not_restart_are_refused(monkeypatch):
    def one_after_another(starts_BK, length):
        return torch.arange(length).expand(len(starts_BK), length)

    monkeypatch.setattr(calling, "document_positions", one_after_another)
    with pytest.raises(UserError, match="bert cannot keep"):
        check_packing(networks("bert")[0], VOCABULARY, length=48)


@pytest.mark.parametrize("architecture", ["electra", "deberta-v2"])
def test_no_gradient_crosses_from_one_document_to_another(architecture):
    """In training, with dropout in attention, which has its own backward pass on a CPU."""
    fields = {"attention_probs_dropout_prob": 0.1}
    discriminator = networks(architecture, **fields)[0].train()
    batch = packed_inputs()
    ids_BL = batch.ids_BL % 90 + 5
    ids_BL[1, :16] += 100  # the first document of the second row has tokens of its own
    call(discriminator, ids_BL, batch).logits[1, :16].square().sum().backward()
    gradient_V = discriminator.get_input_embeddings().weight.grad.abs().sum(dim=1)
    assert gradient_V[105:].any()
    assert not gradient_V[5:95].any()


# --- flash attention, with a stub in place of the kernel


def varlen_stub(calls):
    """Return a function with the signature of flash_attn_varlen_func that torch computes."""

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        deterministic=False,
    ):
        assert cu_seqlens_q.dtype == torch.int32
        assert torch.equal(cu_seqlens_q, cu_seqlens_k)
        assert cu_seqlens_q[0] == 0
        assert cu_seqlens_q[-1] == len(q)
        assert not causal
        bounds = cu_seqlens_q.tolist()
        sizes = [end - start for start, end in itertools.pairwise(bounds)]
        assert min(sizes) >= 0
        assert max(sizes) <= max_seqlen_q == max_seqlen_k
        calls.append(bounds)
        outputs = []
        for part in zip(*(tensor.split(sizes) for tensor in (q, k, v)), strict=True):
            query, key, value = (tensor.transpose(0, 1) for tensor in part)
            distance = torch.arange(query.shape[1])[:, None] - torch.arange(query.shape[1])
            mask = distance.abs() <= window_size[0] if window_size[0] >= 0 else None
            outputs.append(
                torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, attn_mask=mask, scale=softmax_scale
                ).transpose(0, 1)
            )
        return torch.cat(outputs)

    return flash_attn_varlen_func


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [("electra", {}), ("roberta", {}), ("modernbert", {"local_attention": 8})],
)
def test_flash_attention_gets_the_bounds_of_the_documents(architecture, fields, monkeypatch):
    calls: list = []
    functions = (None, varlen_stub(calls), None, None, None)
    monkeypatch.setattr(flash, "_lazy_imports", lambda *arguments, **options: functions)
    for name in ("_loaded_implementation", "_flash_varlen_fn", "_process_flash_kwargs_fn"):
        monkeypatch.setattr(flash, name, None)
    batch = packed_inputs()
    for network in networks(architecture, **fields):
        with torch.no_grad():
            wanted = call(network, batch.ids_BL, batch).logits
            network.config._attn_implementation_internal = "flash_attention_2"
            found = call(network, batch.ids_BL, batch).logits
        assert (found - wanted).abs().max() <= TOLERANCE * wanted.abs().max()
    assert calls[0] == [0, 9, 25, 37, 40, 56, 68, 80, 80]
    assert all(bounds == calls[0] for bounds in calls)


# --- the recipe's attention


def test_attention_that_cannot_be_used_is_refused_with_the_reason():
    bert, deberta = networks("bert")[0], networks("deberta-v2")[0]
    use_attention(bert, "eager", "float32")
    assert bert.config._attn_implementation == "eager"
    with pytest.raises(UserError, match="computes in 16 bits"):
        use_attention(bert, "flash_attention_2", "float32")
    for network, name in ((bert, "flash_attention_2"), (deberta, "sdpa")):
        with pytest.raises(UserError, match=f"cannot use {name} here"):
            use_attention(network, name, "bf16")

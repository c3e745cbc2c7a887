"""Tiny pairs of every architecture, and a batch and a tokenizer for them."""

import torch
from transformers import CONFIG_MAPPING

from electrify.batches.batch import Batch
from electrify.models.pair import EMBEDDING_WIDTH_FIELD, FEED_FORWARD, Vocabulary
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, Sharing
from electrify.tokens.tokenizer import LoadedTokenizer, from_vocabulary

VOCABULARY = Vocabulary(size=200, pad=0, cls=2, sep=3)
MASK = 4
# Further fields that a tiny configuration needs.
OWN_FIELDS = {
    "funnel": {"d_head": 16},
    "fnet": {"tpu_short_seq_length": 32},
    "mobilebert": {"intra_bottleneck_size": 16, "embedding_size": 16},
    "rembert": {"output_embedding_size": 16},
    "squeezebert": {"embedding_size": 32},
    "longformer": {"attention_window": 8},
    "luke": {"entity_vocab_size": 10},
    "roc_bert": {"pronunciation_vocab_size": 10, "shape_vocab_size": 10},
    # torch 2.13 writes out of bounds if one head's kernel of 65 is longer than the text.
    "nystromformer": {"conv_kernel_size": 5},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}


def tiny_fields(architecture: str) -> dict:
    """Return small sizes and no dropout under the architecture's names for them."""
    default = CONFIG_MAPPING[architecture]()
    names = default.attribute_map
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    fields = {names.get(n, n): v for n, v in sizes.items() if hasattr(default, names.get(n, n))}
    if architecture == "funnel":
        fields.pop("num_hidden_layers", None)
    fields |= {name: 64 for name in FEED_FORWARD if isinstance(getattr(default, name, None), int)}
    if isinstance(getattr(default, "max_position_embeddings", None), int):
        fields["max_position_embeddings"] = 128
    if architecture in EMBEDDING_WIDTH_FIELD:
        fields[EMBEDDING_WIDTH_FIELD[architecture]] = 16
    for name, value in vars(default).items():
        if "dropout" in name and isinstance(value, float):
            fields[name] = 0.0
    return fields | OWN_FIELDS.get(architecture, {})


def tiny_recipe(architecture: str, sharing: Sharing | None = None, **generator: object) -> Recipe:
    return Recipe(
        Discriminator(architecture, tiny_fields(architecture)),
        Generator(**generator),
        sharing or Sharing(),
        run=Run(init="huggingface"),
    )


def tiny_inputs(rows: int = 3, length: int = 32, slots: int = 4, padding: int = 0) -> Batch:
    """Return a batch of random tokens; the last `padding` tokens of the last row are padding."""
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(5, VOCABULARY.size, (rows, length), generator=rng)
    ids[:, 0], ids[:, -1] = VOCABULARY.cls, VOCABULARY.sep
    attention = torch.ones_like(ids)
    if padding:
        ids[-1, -padding:], attention[-1, -padding:] = VOCABULARY.pad, 0
        ids[-1, -padding - 1] = VOCABULARY.sep
    most = length - padding - 3
    positions = torch.stack([torch.randperm(most, generator=rng)[:slots] + 1 for _ in range(rows)])
    return Batch(
        ids,
        ids.scatter(1, positions, MASK),
        attention,
        (torch.arange(length) >= length // 2).long().expand(rows, length).contiguous() * attention,
        positions,
        torch.ones(rows, slots),
        torch.rand(rows, slots, generator=rng),
    )


def packed_inputs() -> Batch:
    """Return two packed rows of three documents each; padding is at the end of the first."""
    inputs = tiny_inputs(rows=2, length=40)
    starts = torch.tensor([[0, 9, 25, 37], [0, 16, 28, 40]])
    attention = torch.ones_like(inputs.ids_BL)
    attention[0, 37:] = 0
    types = torch.randint(0, 2, (2, 40), generator=torch.Generator().manual_seed(1))
    return inputs._replace(attention_BL=attention, types_BL=types, starts_BK=starts)


def tiny_tokenizer() -> LoadedTokenizer:
    """Return a tokenizer with the ids of `VOCABULARY`."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return from_vocabulary([*special, *(f"w{n}" for n in range(VOCABULARY.size - len(special)))])

"""Count the FLOPs of training: as electrify runs it, and as the ELECTRA paper's script counts it.

ours    the multiply-adds of matmuls, 2 FLOPs each, three times: forward, and two matmuls for each
        of them backward. A masked-LM head runs on the masked positions only, and an embedding
        lookup costs nothing. Element-wise operations and the optimizer are not counted.
paper   google-research/electra flops_computation.py: twice the forward pass, including
        element-wise operations, with embedding lookups as one-hot matmuls, a masked-LM head on
        15.625 % of the tokens whatever the masking rate, and the LayerNorm after attention counted
        once per token where the other is once per element. Every encoder is counted as BERT's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from electrify.objectives.objective import Objective, Role

TRAINING = 3  # forward, the gradient of the input, the gradient of the weights
PAPER_TRAINING = 2
PAPER_OUTPUTS = 0.15625
DROPOUT, LAYER_NORM, GELU, SOFTMAX = 4, 5, 8, 5  # FLOPs per element, as the paper counts

# Their convolutions, windows, hashing, pooling or second streams are not counted exactly.
INEXACT = (
    *("convbert", "fnet", "funnel", "ibert", "longformer"),
    *("luke", "mra", "nystromformer", "squeezebert"),
)
ONCE_PER_EXAMPLE = ("pooler", "pos_key_proj", "pos_query_proj")
REPEATED = "albert_layer_groups"  # layers that run several times with the same weights


class Work(NamedTuple):
    """The multiply-adds of one network's forward pass."""

    per_token: int
    """In the encoder's matmuls, per token."""
    per_pair: int
    """In attention, per pair of tokens: scores and weighted sum, over all layers."""
    per_output: int
    """In the head, per position that it runs on."""


def work_of(model: Any) -> Work:
    """Count the multiply-adds of a network from its modules, which may be on the meta device."""
    config, encoder = model.config, model.base_model
    in_encoder = {id(module) for module in encoder.modules()}
    per_token = sum(
        _weights(name, module) * (_repeats(config) if REPEATED in name else 1)
        for name, module in encoder.named_modules()
    )
    per_output = sum(
        _weights(name, module)
        for name, module in model.named_modules()
        if id(module) not in in_encoder
    )
    heads = getattr(config, "num_attention_heads", 0)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // max(1, heads)
    attention = config.num_hidden_layers * heads * head_dim
    return Work(per_token + attention * _distances(config), 2 * attention, per_output)


def _weights(name: str, module: nn.Module) -> int:
    if not isinstance(module, nn.Linear) or any(part in name for part in ONCE_PER_EXAMPLE):
        return 0
    return module.weight.numel()


def _repeats(config: Any) -> int:
    return int(config.num_hidden_layers) // int(config.num_hidden_groups)


def _distances(config: Any) -> int:
    """Return how many relative positions DeBERTa-v2's attention compares each token with."""
    if config.model_type != "deberta-v2" or not config.relative_attention:
        return 0
    spans = (getattr(config, "position_buckets", -1), config.max_relative_positions)
    span = next((span for span in spans if span > 0), config.max_position_embeddings)
    return 2 * span * sum(kind in config.pos_att_type for kind in ("c2p", "p2c"))


def training_flops(work: Work, length: int, outputs: int) -> int:
    """Return the training FLOPs of one example whose head runs on `outputs` positions."""
    encoder = work.per_token * length + work.per_pair * length**2
    return TRAINING * 2 * (encoder + work.per_output * outputs)


def flops_per_step(objective: Objective, batch_size: int, length: int, slots: int) -> int:
    """Return the FLOPs of one optimizer step as it runs; masked-LM heads see the slots only."""
    return batch_size * sum(
        training_flops(
            work_of(network), length, length if objective.roles[role].every_token else slots
        )
        for role, network in objective.networks.items()
    )


class Shape(NamedTuple):
    """The sizes of a network that the paper's script uses."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    embeddings: int
    """Width of the embeddings."""
    vocabulary: int


def paper_forward(shape: Shape, length: int, one_hot: bool = True) -> float:
    """Return the FLOPs of the encoder for one example: embeddings, projection and layers."""
    width, embeddings = shape.width, shape.embeddings
    attention = (
        3 * (2 * width * width + width)
        + 4 * width * length
        + (SOFTMAX + DROPOUT + 1) * length * shape.heads
        + 2 * width * width
        + (1 + DROPOUT + 1) * width
        + LAYER_NORM  # a bug of the script, which should be LAYER_NORM * width
    )
    feed_forward = (
        4 * width * shape.feed_forward
        + (GELU + 1) * shape.feed_forward
        + (1 + DROPOUT + 1 + LAYER_NORM) * width
    )
    lookup = 2 * embeddings * shape.vocabulary if one_hot else 0
    positions_and_types = 2 * embeddings * (length + 2)
    after_lookup = (2 + LAYER_NORM + DROPOUT) * embeddings
    projection = 2 * width * embeddings + width if embeddings != width else 0
    inputs = lookup + positions_and_types + after_lookup + projection
    return length * (shape.layers * (attention + feed_forward) + inputs)


def paper_mlm_head(shape: Shape, length: int) -> float:
    """Return the FLOPs of the masked-LM head for one example."""
    hidden = 2 * shape.width * shape.embeddings + (1 + GELU + LAYER_NORM) * shape.embeddings
    output = 2 * shape.embeddings * shape.vocabulary + (SOFTMAX + 2) * shape.vocabulary
    return PAPER_OUTPUTS * length * (hidden + output)


def paper_rtd_head(shape: Shape, length: int) -> float:
    """Return the FLOPs of the discriminator's head for one example."""
    return length * (2 * shape.width * shape.width + (1 + GELU + 2) * shape.width)


def paper_flops_per_step(
    shapes: Mapping[str, Shape], roles: Mapping[str, Role], batch_size: int, length: int
) -> float:
    """Return the FLOPs of one optimizer step as the paper's script counts them."""
    forward = 0.0
    for role, shape in shapes.items():
        head = paper_rtd_head if roles[role].every_token else paper_mlm_head
        forward += paper_forward(shape, length) + head(shape, length)
    return PAPER_TRAINING * batch_size * forward

"""FLOPs of training: what runs here, and what the script of the ELECTRA paper counts.

ours    the multiply-adds of matrices, 2 FLOPs each, three times over: forward, and two products
        for each of them backward. A masked-LM head runs on the slots alone, a look-up costs
        nothing. Work by element and the optimizer's are left out.
paper   google-research/electra flops_computation.py: twice the forward pass, work by element
        included, tables multiplied as one-hot matrices, a masked-LM head on 15.625 % of the
        tokens whatever the masking rate, and the LayerNorm after attention counted once a token
        where the other is once an element. Every body is counted as if it were BERT's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from electrify.objectives.objective import Objective, Role

TRAINING = 3  # forward, the gradient of the input, the gradient of the weights
PAPER_TRAINING = 2
PAPER_OUTPUTS = 0.15625
DROPOUT, LAYER_NORM, GELU, SOFTMAX = 4, 5, 8, 5  # FLOPs an element, in the paper's counting

# Their convolutions, windows, hashing, pooling or second streams are not counted as they run.
INEXACT = (
    *("convbert", "fnet", "funnel", "ibert", "longformer"),
    *("luke", "mra", "nystromformer", "squeezebert"),
)
ONCE_AN_EXAMPLE = ("pooler", "pos_key_proj", "pos_query_proj")
REPEATED = "albert_layer_groups"  # layers that run several times with the same weights


class Work(NamedTuple):
    """The multiply-adds of one network."""

    per_token: int
    """In the body's matrices, for each token."""
    per_pair: int
    """In attention, for each pair of tokens: the score and the mean, in all layers together."""
    per_output: int
    """In the head, for each token it sees."""


def work_of(model: Any) -> Work:
    """What a network does, read off its modules, which may be on the meta device."""
    settings, body = model.config, model.base_model
    inside = {id(module) for module in body.modules()}
    per_token = sum(
        _weights(name, module) * (_repeats(settings) if REPEATED in name else 1)
        for name, module in body.named_modules()
    )
    per_output = sum(
        _weights(name, module) for name, module in model.named_modules() if id(module) not in inside
    )
    heads = getattr(settings, "num_attention_heads", 0)
    size = getattr(settings, "head_dim", None) or settings.hidden_size // max(1, heads)
    attention = settings.num_hidden_layers * heads * size
    return Work(per_token + attention * _distances(settings), 2 * attention, per_output)


def _weights(name: str, module: nn.Module) -> int:
    if not isinstance(module, nn.Linear) or any(part in name for part in ONCE_AN_EXAMPLE):
        return 0
    return module.weight.numel()


def _repeats(settings: Any) -> int:
    return int(settings.num_hidden_layers) // int(settings.num_hidden_groups)


def _distances(settings: Any) -> int:
    """To how many distances DeBERTa-v2's attention compares every token, to and from."""
    if settings.model_type != "deberta-v2" or not settings.relative_attention:
        return 0
    spans = (getattr(settings, "position_buckets", -1), settings.max_relative_positions)
    span = next((span for span in spans if span > 0), settings.max_position_embeddings)
    return 2 * span * sum(way in settings.pos_att_type for way in ("c2p", "p2c"))


def training_flops(work: Work, length: int, outputs: int) -> int:
    """FLOPs of training on one example of some length, of which the head sees `outputs` tokens."""
    body = work.per_token * length + work.per_pair * length**2
    return TRAINING * 2 * (body + work.per_output * outputs)


def flops_per_step(objective: Objective, batch_size: int, length: int, slots: int) -> int:
    """FLOPs of one update, as it runs here; heads see every token, or the slots."""
    return batch_size * sum(
        training_flops(
            work_of(network), length, length if objective.roles[role].every_token else slots
        )
        for role, network in objective.networks.items()
    )


class Shape(NamedTuple):
    """The sizes of a network that the paper's counting knows."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    tables: int
    """Width of the tables."""
    vocabulary: int


def paper_forward(shape: Shape, length: int, one_hot: bool = True) -> float:
    """FLOPs of the body for one example: tables, projection and layers."""
    width, tables = shape.width, shape.tables
    attention = (
        3 * (2 * width * width + width)
        + 4 * width * length
        + (SOFTMAX + DROPOUT + 1) * length * shape.heads
        + 2 * width * width
        + (1 + DROPOUT + 1) * width
        + LAYER_NORM  # a slip of the script: LAYER_NORM * width was meant
    )
    feed_forward = (
        4 * width * shape.feed_forward
        + (GELU + 1) * shape.feed_forward
        + (1 + DROPOUT + 1 + LAYER_NORM) * width
    )
    look_up = 2 * tables * shape.vocabulary if one_hot else 0
    positions_and_types = 2 * tables * (length + 2)
    after_tables = (2 + LAYER_NORM + DROPOUT) * tables
    projection = 2 * width * tables + width if tables != width else 0
    inputs = look_up + positions_and_types + after_tables + projection
    return length * (shape.layers * (attention + feed_forward) + inputs)


def paper_mlm_head(shape: Shape, length: int) -> float:
    """FLOPs of the masked-LM head for one example."""
    hidden = 2 * shape.width * shape.tables + (1 + GELU + LAYER_NORM) * shape.tables
    output = 2 * shape.tables * shape.vocabulary + (SOFTMAX + 2) * shape.vocabulary
    return PAPER_OUTPUTS * length * (hidden + output)


def paper_rtd_head(shape: Shape, length: int) -> float:
    """FLOPs of the discriminator's head for one example."""
    return length * (2 * shape.width * shape.width + (1 + GELU + 2) * shape.width)


def paper_flops_per_step(
    shapes: Mapping[str, Shape], roles: Mapping[str, Role], batch_size: int, length: int
) -> float:
    """FLOPs of one update in the paper's counting."""
    forward = 0.0
    for role, shape in shapes.items():
        head = paper_rtd_head if roles[role].every_token else paper_mlm_head
        forward += paper_forward(shape, length) + head(shape, length)
    return PAPER_TRAINING * batch_size * forward

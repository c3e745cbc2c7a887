"""Estimate the memory of training from the sizes of the networks, for planning."""

from typing import Any, Literal, NamedTuple

from electrify.objectives.objective import Objective
from electrify.planning.flops import work_of

Precision = Literal["float32", "mixed"]
"""mixed: autocast to bfloat16 or float16; weights, gradients, optimizer state in float32."""

FLOAT, HALF = 4, 2
OPTIMIZER_STATE = 2 * FLOAT  # two moments of every gradient; Muon keeps less
# Float32 values that a masked-LM head holds per logit: the logit, its probability (later its
# gradient), the sampling probability at temperatures other than 1, and a padded copy of that.
COPIES_OF_LOGITS = 4
# Values per pair of tokens and head where attention is not fused, measured with DeBERTa.
PER_PAIR = 4
# For everything besides the inputs and outputs of matmuls: activations between them, dropout masks,
# temporary buffers, fragmentation. With it, processes grew by 0.98 (ELECTRA-small), 1.08
# (ModernBERT-small) and 1.38 (ALECTRA-small, whose GELU is several operations) of the estimate,
# on a CPU in float32.
MEMORY_MARGIN = 2.0
# Normalisations stay in float32: saved tensors were 0.50 (ALBERT), 0.55 (ModernBERT) and 0.64
# (ELECTRA, BERT) of those without autocast. Our attention stays in float32 on a CPU, which makes it
# 0.59, 0.62 and 0.79 there; the number below is for GPUs.
MIXED = 0.65


class Memory(NamedTuple):
    """Bytes on one device, by use."""

    weights: int
    gradients: int
    state: int
    """Optimizer state."""
    activations: int
    """Of one micro-batch, kept for the backward pass."""


def values_kept(network: Any, length: int) -> float:
    """Count the inputs and outputs of matmuls that backward needs of one example in the encoder."""
    config, work = network.config, work_of(network)
    width, layers = config.hidden_size, config.num_hidden_layers
    kept = length * (work.per_token / width + 4 * width * layers)
    if not getattr(network, "_supports_sdpa", False):
        kept += PER_PAIR * layers * getattr(config, "num_attention_heads", 0) * length**2
    return float(kept)


def activations(network: Any, length: int, slots: int | None, precision: Precision) -> float:
    """Return the bytes that one example needs; `slots` is None without a masked-LM head."""
    encoder = values_kept(network, length) * MEMORY_MARGIN * (MIXED if precision == "mixed" else 1)
    logits = COPIES_OF_LOGITS * network.config.vocab_size * slots if slots else 0
    return FLOAT * (encoder + logits)


def of_one_example(objective: Objective, length: int, slots: int, precision: Precision) -> float:
    """Return the bytes that one example needs in all networks; masked-LM heads see the slots."""
    return sum(
        activations(
            network, length, None if objective.roles[role].every_token else slots, precision
        )
        for role, network in objective.networks.items()
    )


def memory(parameters: int, one_example: float, micro_batch: int, precision: Precision) -> Memory:
    """Return the bytes for training this many parameters with this micro-batch."""
    copies = HALF * parameters if precision == "mixed" else 0
    return Memory(
        FLOAT * parameters + copies,
        FLOAT * parameters,
        OPTIMIZER_STATE * parameters,
        round(one_example * micro_batch),
    )

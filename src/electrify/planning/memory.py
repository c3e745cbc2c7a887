"""Memory of training, estimated from what the networks are: good for planning, not to the byte."""

from typing import Any, Literal, NamedTuple

from electrify.objectives.objective import Objective
from electrify.planning.flops import work_of

Precision = Literal["float32", "mixed"]
"""mixed: autocast to bfloat16 or float16, with weights, gradients and state in float32."""

FLOAT, HALF = 4, 2
OPTIMIZER_STATE = 2 * FLOAT  # mean and square of every gradient; muon keeps less
# What a masked-LM head holds at once of each logit in float32: itself, its probability (which
# becomes its gradient), that to sample by at other temperatures than 1, and a padded copy of that.
COPIES_OF_LOGITS = 4
# Numbers held for each pair of tokens and head where attention is not fused: DeBERTa's, measured.
PER_PAIR = 4
# On top of what matrices read and write: what is kept between them, dropout masks, buffers that
# come and go, gaps. With it, processes grew by 0.98 (ELECTRA-small), 1.08 (ModernBERT-small) and
# 1.38 (ALECTRA-small, whose GELU is made of small steps) of the estimate, on a CPU in float32.
MEMORY_MARGIN = 2.0
# Normalisations stay in float32: saved tensors were 0.50 (ALBERT), 0.55 (ModernBERT) and 0.64
# (ELECTRA, BERT) of those without autocast. Our attention stays in float32 on a processor, which
# makes it 0.59, 0.62 and 0.79 there; the number below is for devices that one plans for.
MIXED = 0.65


class Memory(NamedTuple):
    """Bytes on one device, by what they hold."""

    weights: int
    gradients: int
    state: int
    """Of the optimizer."""
    activations: int
    """Of one micro-batch, kept for backward."""


def values_kept(network: Any, length: int) -> float:
    """How many numbers backward needs of one example in the body: what matrices read and write."""
    settings, work = network.config, work_of(network)
    width, layers = settings.hidden_size, settings.num_hidden_layers
    kept = length * (work.per_token / width + 4 * width * layers)
    if not getattr(network, "_supports_sdpa", False):
        kept += PER_PAIR * layers * getattr(settings, "num_attention_heads", 0) * length**2
    return float(kept)


def activations(network: Any, length: int, slots: int | None, precision: Precision) -> float:
    """Bytes that one example needs; `slots` are those of a masked-LM head, if it is one."""
    body = values_kept(network, length) * MEMORY_MARGIN * (MIXED if precision == "mixed" else 1)
    logits = COPIES_OF_LOGITS * network.config.vocab_size * slots if slots else 0
    return FLOAT * (body + logits)


def of_one_example(objective: Objective, length: int, slots: int, precision: Precision) -> float:
    """Bytes that one example needs in all networks; masked-LM heads see the slots."""
    return sum(
        activations(
            network, length, None if objective.roles[role].every_token else slots, precision
        )
        for role, network in objective.networks.items()
    )


def memory(parameters: int, one_example: float, micro_batch: int, precision: Precision) -> Memory:
    """Bytes for training some parameters with micro-batches of some size."""
    copies = HALF * parameters if precision == "mixed" else 0
    return Memory(
        FLOAT * parameters + copies,
        FLOAT * parameters,
        OPTIMIZER_STATE * parameters,
        round(one_example * micro_batch),
    )

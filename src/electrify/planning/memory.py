"""Estimate the memory of training from what is stored, for planning.

On CUDA the estimate follows dry runs of whole updates (benchmarks/plan.py). On a CPU it follows
processes that were measured: they keep freed memory, and temporary buffers count.
"""

from typing import Any, Literal, NamedTuple

from electrify.batches.masking import max_slots
from electrify.objectives.masked_lm import MOST_BYTES_OF_LOGITS
from electrify.objectives.objective import Objective
from electrify.planning.flops import work_of
from electrify.recipes.schedules import largest
from electrify.recipes.schema import Recipe

Precision = Literal["float32", "mixed"]
"""mixed: autocast to bfloat16 or float16; weights, gradients, optimizer state in float32."""

FLOAT, HALF = 4, 2
OPTIMIZER_STATE = 2 * FLOAT  # two moments of every gradient; Muon keeps less
# Of the driver, the kernels and cuBLAS; 0.5 to 0.8 GB on recent GPUs, not measured here.
CUDA_CONTEXT = 0.7e9
# Values per pair of tokens and head where attention is not fused, measured with DeBERTa.
PER_PAIR = 4
# What CUDA keeps per input and output of a matmul; others keep about 1. ModernBERT keeps rotated
# queries and keys, ALBERT's GELU is several operations.
KEPT = {"modernbert": 1.3, "albert": 2.0}
# For everything besides the inputs and outputs of matmuls on a CPU: activations between them,
# temporary buffers, fragmentation. With it, processes grew by 0.98 (ELECTRA-small), 1.08
# (ModernBERT-small) and 1.38 (ALECTRA-small, whose GELU is several operations) of the estimate,
# in float32.
CPU_MARGIN = 2.0
# Normalisations stay in float32: saved tensors were 0.50 (ALBERT), 0.55 (ModernBERT) and 0.64
# (ELECTRA, BERT) of those without autocast. Our attention stays in float32 on a CPU, which makes it
# 0.59, 0.62 and 0.79 there; the number below is for GPUs.
MIXED = 0.65


class Mode(NamedTuple):
    """How a recipe is run, as far as memory and time depend on it."""

    precision: Precision
    has_cuda: bool
    checkpointed: bool = False
    """Whether activations are recomputed in the backward pass."""
    compiled: bool = False
    unfused: bool = False
    """Whether attention computes all scores at once: run.attn_implementation = "eager"."""


class Memory(NamedTuple):
    """Bytes on one device, by use."""

    weights: int
    gradients: int
    state: int
    """Optimizer state."""
    activations: int
    """Of one micro-batch, kept for the backward pass."""
    context: int
    """What CUDA needs for itself."""


def values_kept(network: Any, length: int, unfused: bool = False) -> float:
    """Count the inputs and outputs of matmuls that backward needs of one example in the encoder."""
    config, work = network.config, work_of(network)
    width, layers = config.hidden_size, config.num_hidden_layers
    kept = length * (work.per_token / width + 4 * width * layers)
    if unfused or not getattr(network, "_supports_sdpa", False):
        kept += PER_PAIR * layers * getattr(config, "num_attention_heads", 0) * length**2
    return float(kept)


def encoder_bytes(network: Any, length: int, mode: Mode) -> float:
    """Return the bytes that backward needs of one example in the layers of a network."""
    factor = KEPT.get(network.config.model_type, 1.0) if mode.has_cuda else CPU_MARGIN
    if mode.precision == "mixed":
        factor *= MIXED
    return FLOAT * factor * values_kept(network, length, mode.unfused)


class Logits(NamedTuple):
    """Bytes of a masked-LM head's logits in one micro-batch, and when they are needed."""

    kept: int
    """Until the backward pass: the probabilities, which later hold the gradient."""
    at_loss: int
    """While the loss is computed."""


def logits_bytes(logits: int, mode: Mode) -> Logits:
    """Return the bytes that this many logits need, of which one chunk exists at a time.

    On a CPU all of them count: the logits, their probabilities, those at a temperature other than 1
    and a padded copy of them.
    """
    logits = min(logits, MOST_BYTES_OF_LOGITS // FLOAT)
    if not mode.has_cuda:
        return Logits(4 * FLOAT * logits, 4 * FLOAT * logits)
    in_half = HALF if mode.precision == "mixed" else 0  # the head's output
    return Logits(FLOAT * logits, (2 * FLOAT + in_half) * logits)


def most_slots(recipe: Recipe) -> int:
    """Return the masked positions of a row in the step that masks most."""
    rate = largest(recipe.schedules.mask_rate, recipe.objective.mask_rate)
    return max(1, max_slots(rate, recipe.run.length))


def activations(objective: Objective, rows: int, length: int, slots: int, mode: Mode) -> float:
    """Return the bytes that a micro-batch needs in all networks; masked-LM heads see the slots.

    A generator runs before the discriminator, so both have activations only after its loss.
    """
    encoders, layer = {}, 0.0
    for role, network in objective.networks.items():
        encoders[role] = rows * encoder_bytes(network, length, mode)
        if mode.checkpointed:  # only the inputs of layers are kept, and one layer is recomputed
            layers, width = network.config.num_hidden_layers, network.config.hidden_size
            layer = max(layer, encoders[role] / layers)
            encoders[role] = float(FLOAT * rows * length * width * layers)
    at_end, at_loss = layer + sum(encoders.values()), 0.0
    for role, network in objective.networks.items():
        if not objective.roles[role].every_token:
            logits = logits_bytes(rows * slots * network.config.vocab_size, mode)
            at_end += logits.kept
            at_loss = max(at_loss, encoders[role] + logits.at_loss)
    return max(at_end, at_loss)


def memory(parameters: int, activation_bytes: float, mode: Mode) -> Memory:
    """Return the bytes for training this many parameters with these activations."""
    copies = HALF * parameters if mode.precision == "mixed" else 0
    return Memory(
        FLOAT * parameters + copies,
        FLOAT * parameters,
        OPTIMIZER_STATE * parameters,
        round(activation_bytes),
        round(CUDA_CONTEXT) if mode.has_cuda else 0,
    )

"""Estimate the time of a step: matmuls, what kernels read and write, and kernel launches.

    seconds = max((FLOPs / peak x (1 + NARROW / width) + bytes / bandwidth) / reached,
                  kernels x LAUNCH)

FLOPs are counted, bytes and kernels are those of dry runs of whole updates. Three numbers are
fitted to six published speeds, from ELECTRA-small on a V100 to Ettin on an H100: the fraction of
both peaks that is reached (`Hardware.reached`), NARROW and PER_LOGIT. Half as many parameters as
points: benchmarks/plan.py prints the errors, also of speeds that are not in the fit.
"""

from math import ceil
from typing import NamedTuple

from electrify.objectives.objective import Objective
from electrify.planning.flops import training_flops, work_of
from electrify.planning.hardware import Hardware
from electrify.planning.memory import FLOAT, HALF, Mode, values_kept

NARROW = 300  # width at which matmuls take twice the time of wide ones; fitted
PER_LOGIT = 100  # bytes that the head and its loss read and write; fitted, dry runs say 40 to 60
# Bytes that matmuls and other kernels read and write per value of `values_kept`, from dry runs.
# Rotary embeddings and some versions of GELU are many operations, unless they are compiled.
PER_MATMUL_VALUE = {"float32": 3.7 * FLOAT, "mixed": 3.7 * HALF}
PER_VALUE = 20
UNFUSED = {"modernbert": 2.1, "albert": 3.1, "deberta-v2": 1.6}
PER_PARAMETER = 50  # clipping and a fused optimizer, once per step
KERNELS = {"float32": 66, "mixed": 102}  # of a layer, forward and backward
LAUNCH = 7e-6  # seconds of the host per kernel: 5 to 10 microseconds, not measured here
# Compiled, operations between matmuls are fused: fewer kernels, which read and write less. Assumed.
COMPILED_TRAFFIC, COMPILED_KERNELS = 0.5, 0.3
RECOMPUTED = 4 / 3  # of the work of a step with activation checkpointing: one more forward pass


class StepTime(NamedTuple):
    """Seconds of one step on one device, by what they are spent on."""

    matmuls: float
    traffic: float
    """Reading and writing memory."""
    launches: float
    """The host, which works at the same time as the device."""

    @property
    def seconds(self) -> float:
        """Return the seconds of the step."""
        return max(self.matmuls + self.traffic, self.launches)

    @property
    def limit(self) -> str:
        """Return what most of the time goes to."""
        if self.launches > self.matmuls + self.traffic:
            return "launches"
        return "matmuls" if self.matmuls >= self.traffic else "memory"


class StepShape(NamedTuple):
    """What one device computes in a step."""

    rows: float
    micro_batch: int
    length: int
    slots: int
    """Positions per row that masked-LM heads see."""


def step_time(
    objective: Objective, shape: StepShape, parameters: int, hardware: Hardware, mode: Mode
) -> StepTime:
    """Return the time of a step on one device."""
    flops, traffic, layers = 0.0, 0.0, 0
    for role, network in objective.networks.items():
        config, every_token = network.config, objective.roles[role].every_token
        outputs = shape.length if every_token else shape.slots
        work = training_flops(work_of(network), shape.length, outputs)
        flops += work * (1 + NARROW / config.hidden_size) if hardware.bandwidth else work
        fused = COMPILED_TRAFFIC if mode.compiled else UNFUSED.get(config.model_type, 1.0)
        per_value = PER_MATMUL_VALUE[mode.precision] + PER_VALUE * fused
        traffic += per_value * values_kept(network, shape.length, mode.unfused)
        traffic += 0 if every_token else PER_LOGIT * config.vocab_size * outputs
        layers += config.num_hidden_layers
    repeated = RECOMPUTED if mode.checkpointed else 1.0
    seconds = repeated * shape.rows * flops / getattr(hardware, mode.precision) / hardware.reached
    if not hardware.bandwidth:
        return StepTime(seconds, 0.0, 0.0)
    moved = repeated * shape.rows * traffic + PER_PARAMETER * parameters
    kernels = repeated * KERNELS[mode.precision] * layers * ceil(shape.rows / shape.micro_batch)
    launches = LAUNCH * kernels * (COMPILED_KERNELS if mode.compiled else 1.0) * hardware.has_cuda
    return StepTime(seconds, moved / hardware.bandwidth / hardware.reached, launches)

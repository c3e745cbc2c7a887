"""Compare `electrify plan` with dry runs and with published speeds: `python benchmarks/plan.py`.

speed     estimates against speeds that others published, and fits of the numbers behind them
memory    estimates against the peaks of updates traced on a pretended GPU (tests/gpu/memory.py)

Both are tables in Markdown. The traces need a C++ compiler, no GPU, and some minutes.
"""

import argparse
import json
import subprocess
import sys
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple
from unittest.mock import patch

from electrify.planning import speed
from electrify.planning.costs import costs
from electrify.planning.hardware import GIGA, KNOWN
from electrify.recipes.schema import (
    Discriminator,
    ObjectiveSettings,
    Recipe,
    Run,
    load,
    override,
)

ROOT = Path(__file__).parents[1]
DAY = 86_400


class Published(NamedTuple):
    """A published speed of pre-training, and the run it belongs to."""

    recipe: Recipe
    hardware: str
    precision: str
    rows: int
    """Examples per device and micro-batch."""
    tokens_per_second: float
    """Per device."""
    vocabulary: int = 30_522
    compiled: bool = False
    held_out: bool = False
    """Not used to fit."""


def _sizes(width: int, layers: int, wide: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": wide,
        "num_attention_heads": width // 64,
    }


def _masked_lm(
    architecture: str, sizes: dict[str, int], mask_rate: float, length: int, batch_size: int
) -> Recipe:
    return Recipe(
        Discriminator(architecture, {**sizes}),
        objective=ObjectiveSettings(kind="mlm", mask_rate=mask_rate),
        run=Run(length=length, batch_size=batch_size),
    )


def _nvidia(length: int, rows: int, per_second: float, hardware: str, precision: str, **more: bool):
    """NVIDIA/DeepLearningExamples TensorFlow2/LanguageModeling/ELECTRA/README.md, one GPU, XLA.

    Mixed precision is float16; rows are the table's batch per GPU, of which hundreds make a step.
    """
    recipe = override(load("electra-base"), {"run.length": length, "run.batch_size": 8 * rows})
    return Published(recipe, hardware, precision, rows, length * per_second, compiled=True, **more)


def _ettin(width: int, layers: int, wide: int, rows: int, hours: float, **more: bool):
    """JHU-CLSP/ettin-encoder-vs-decoder pretraining/README.md: hours on 4 H100 for 2 T tokens.

    Sizes, vocabulary, masking, precision, compiling and rows per micro-batch are those of
    pretraining/configs/standard/*/encoder_*.yaml. Rows have at most 1,024 tokens in the first 85 %
    of the run and are not padded; 512 is our guess at their mean.
    """
    sizes = _sizes(width, layers, wide)
    recipe = _masked_lm("modernbert", sizes, mask_rate=0.3, length=512, batch_size=8 * rows)
    per_second = 2e12 / (4 * hours * 3_600)
    return Published(recipe, "H100", "mixed", rows, per_second, 50_368, compiled=True, **more)


# mosaicml/examples examples/benchmarks/bert/README.md: 11.5 hours on 8 A100 of 80 GB with
# yamls/main/hf-bert-base-uncased.yaml: 286,720,000 rows of 128 tokens, micro-batches of 128, bf16.
# Hugging Face's BERT runs its head on all positions.
BERT_BASE = _masked_lm("bert", _sizes(768, 12, 3_072), mask_rate=0.995, length=128, batch_size=512)
BERT_SPEED = 128 * 286_720_000 / (8 * 11.5 * 3_600)

# google-research/electra README.md: "slightly over 4 days on a Tesla V100 GPU" for 1 M steps of
# 128 rows of 128 tokens, in float32 with TensorFlow 1.15. It also says 10 hours for 200,000 steps,
# which would be 2.1 days. Maltehb/aelaectra-danish-electra-small-cased took 4 days and 9.5 hours.
SMALL_SPEED = 128 * 128 * 1_000_000 / (4 * DAY)

SPEEDS = {
    "ELECTRA-small, Google": Published(load("electra-small"), "V100", "float32", 128, SMALL_SPEED),
    "ELECTRA-base, NVIDIA": _nvidia(128, 176, 955, "A100", "mixed"),
    "BERT-base, MosaicML": Published(BERT_BASE, "A100-80GB", "mixed", 128, BERT_SPEED),
    "Ettin 17M": _ettin(256, 7, 384, 144, 141),
    "Ettin 68M": _ettin(512, 19, 768, 96, 300),
    "Ettin 150M": _ettin(768, 22, 1_152, 72, 470),
    "Ettin 32M": _ettin(384, 10, 576, 128, 212, held_out=True),
    "Ettin 400M": _ettin(1_024, 28, 2_624, 48, 950, held_out=True),
    "Ettin 1B": _ettin(1_792, 28, 3_840, 24, 2_170, held_out=True),
    "ELECTRA-base, NVIDIA, TF32": _nvidia(128, 88, 533, "A100", "float32", held_out=True),
    "ELECTRA-base, NVIDIA, 512": _nvidia(512, 24, 171, "A100", "mixed", held_out=True),
    "ELECTRA-base, NVIDIA, TF32, 512": _nvidia(512, 12, 90, "A100", "float32", held_out=True),
    "ELECTRA-base, NVIDIA, V100": _nvidia(128, 88, 444, "V100", "mixed", held_out=True),
    "ELECTRA-base, NVIDIA, V100, float32": _nvidia(128, 40, 116, "V100", "float32", held_out=True),
    "ELECTRA-base, NVIDIA, V100, 512": _nvidia(512, 12, 84, "V100", "mixed", held_out=True),
}


def estimated_speed(point: Published) -> float:
    """Return the tokens per second that `plan` estimates for one device."""
    hardware = KNOWN[point.hardware]
    found = costs(point.recipe, point.vocabulary, hardware, 1, point.rows, compiled=point.compiled)
    return float(found["tokens_per_second"][point.precision])


class Fit(NamedTuple):
    """The numbers of planning/speed.py that are fitted."""

    reached: float
    narrow: int
    per_logit: int


def _seconds(point: Published, narrow: float, per_logit: float) -> float:
    """Return the seconds per token at the peaks, with other numbers in planning/speed.py."""
    with patch.multiple(speed, NARROW=narrow, PER_LOGIT=per_logit):
        return KNOWN[point.hardware].reached / estimated_speed(point)


class Parts(NamedTuple):
    """A point, and its time at the peaks: linear in two of the fitted numbers, if not launches."""

    published: float
    fixed: float
    per_narrow: float
    per_byte: float

    def error(self, fitted: Fit) -> float:
        """Return the logarithm of the estimated over the published speed."""
        time = self.fixed + self.per_narrow * fitted.narrow + self.per_byte * fitted.per_logit
        return log(fitted.reached / time / self.published)


def parts_of_time(point: Published) -> Parts:
    """Return the time of a point by what it depends on."""
    fixed, narrow, per_logit = (_seconds(point, *n) for n in ((0, 0), (100, 0), (0, 100)))
    parts = ((narrow - fixed) / 100, (per_logit - fixed) / 100)
    return Parts(point.tokens_per_second, fixed, *parts)


def fit(points: list[Parts]) -> Fit:
    """Return the numbers with the least squared error of the logarithms."""

    def best(narrow: int, per_logit: int) -> tuple[float, Fit]:
        errors = [point.error(Fit(1.0, narrow, per_logit)) for point in points]
        fitted = Fit(exp(-mean(errors)), narrow, per_logit)
        return sum(point.error(fitted) ** 2 for point in points), fitted

    return min(best(n, b) for n in range(0, 1_000, 25) for b in range(20, 250, 5))[1]


def speed_table() -> str:
    """Return the table of published speeds; each fitted one also without it in the fit."""
    parts = {name: parts_of_time(p) for name, p in SPEEDS.items() if not p.held_out}
    lines = [
        "| run | device | published tokens/s | plan | error | fitted to the other five |",
        "|---|---|---|---|---|---|",
    ]
    for name, point in SPEEDS.items():
        error = estimated_speed(point) / point.tokens_per_second - 1
        cell = "not in the fit"
        if name in parts:
            others = [other for key, other in parts.items() if key != name]
            cell = f"{exp(parts[name].error(fit(others))) - 1:+.0%}"
        lines.append(
            f"| {name} | {point.hardware}, {point.precision} | {point.tokens_per_second:,.0f} | "
            f"{(1 + error) * point.tokens_per_second:,.0f} | {error:+.0%} | {cell} |"
        )
    best = fit([*parts.values()])
    return "\n".join([*lines, "", f"least squares: {best}; plan uses rounder and lower numbers"])


def _case(recipe: str, rows: int, precision: str, **more: Any) -> dict[str, Any]:
    checkpointed, vocab_size = more.pop("checkpointed", False), more.pop("vocab_size", 30_522)
    return {
        "recipe": recipe,
        "rows": rows,
        "precision": precision,
        "checkpointed": checkpointed,
        "vocab_size": vocab_size,
        "changes": {name.replace("__", "."): value for name, value in more.items()},
    }


PEAKS = [
    _case("tiny", 32, "bf16", vocab_size=8_192),
    _case("bert-small", 128, "bf16"),
    _case("bert-small", 128, "float32"),
    _case("electra-small", 128, "float32"),
    _case("electra-small", 128, "bf16"),
    _case("modernbert-small", 64, "bf16"),
    _case("electra-small", 128, "bf16", checkpointed=True),
    _case("electra-small", 16, "bf16"),
    _case("electra-small", 32, "bf16", run__length=512),
    _case("electra-small", 64, "fp16", optimizer__kind="lamb"),
    _case("electra-small", 64, "bf16", optimizer__kind="muon"),
    _case("modernbert-small", 64, "float32"),
    _case("modernbert-small", 64, "bf16", checkpointed=True),
    _case("alectra-small-owt", 128, "bf16"),
    _case("alectra-small-owt", 128, "float32"),
    _case("deberta-v3-xsmall", 8, "bf16", vocab_size=128_000),
    _case("deberta-v3-xsmall", 8, "float32", vocab_size=128_000),
    _case("deberta-v3-xsmall", 8, "bf16", vocab_size=128_000, checkpointed=True),
    _case("electra-base", 32, "bf16"),
    _case("electra-base", 32, "float32"),
    _case("electra-base", 32, "bf16", checkpointed=True),
    _case("electra-base", 4, "bf16"),
    _case("electra-base", 128, "bf16", run__length=128),
    _case("electra-base", 64, "bf16", run__length=128, optimizer__kind="muon"),
    _case("electra-large", 8, "bf16"),
    _case("electra-large", 8, "bf16", checkpointed=True),
]


def traced(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Trace updates on a pretended GPU, in another process."""
    command = [sys.executable, "-m", "tests.gpu.memory", json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3_000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def estimated_memory(case: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes that `plan` estimates for a traced case, by use."""
    found = costs(
        override(load(case["recipe"]), case["changes"]),
        case["vocab_size"],
        KNOWN["A100-80GB"],
        1,
        case["rows"],
        checkpointed=case["checkpointed"],
    )
    needed: dict[str, Any] = found["memory"][
        "float32" if case["precision"] == "float32" else "mixed"
    ]
    return needed


def memory_table() -> str:
    """Return the table of peaks, without the CUDA context, which a dry run does not have."""
    lines = [
        "| run | dry run, GB | plan, GB | error | with the context |",
        "|---|---|---|---|---|",
    ]
    for case, trace in zip(PEAKS, traced(PEAKS), strict=True):
        needed = estimated_memory(case)
        context, peak = needed["context"], trace["peak"]
        tensors = needed["all"] - context
        words = [f"{case['recipe']}, {case['rows']} rows", case["precision"]]
        words += [f"{name} {value}" for name, value in case["changes"].items()]
        words += ["checkpointed"] if case["checkpointed"] else []
        lines.append(
            f"| {', '.join(words)} | {peak / GIGA:.2f} | {tensors / GIGA:.2f} | "
            f"{tensors / peak - 1:+.0%} | {needed['all'] / (peak + context) - 1:+.0%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=("speed", "memory", "all"), nargs="?", default="all")
    chosen = parser.parse_args().table
    if chosen != "memory":
        print(speed_table(), end="\n\n")
    if chosen != "speed":
        print(memory_table())

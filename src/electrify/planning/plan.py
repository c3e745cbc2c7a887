"""The `electrify plan RECIPE` command: what a run costs, before it starts."""

from dataclasses import dataclass
from typing import Any

from electrify.config import check_minimum
from electrify.errors import UserError
from electrify.planning.hardware import (
    GIGA,
    KNOWN,
    TERA,
    Hardware,
    bytes_text,
    name_of,
    near,
    this_machine,
)
from electrify.progress import duration
from electrify.recipes.schema import FromRecipe, check

THIS_MACHINE = "here"
DAY = 86_400.0
YEAR = 365 * DAY


@dataclass(frozen=True, kw_only=True)
class Plan(FromRecipe):
    """Print what a recipe's run costs: parameters, tokens, FLOPs, memory, disk and time."""

    vocab_size: int = 30_522
    """Vocabulary size; 30,522 is that of bert-base-uncased."""
    hardware: str = THIS_MACHINE
    """GPU such as L4 or "RTX 4090"; here: this machine. An unknown name prints all names."""
    devices: int = 1
    """Number of devices."""
    tflops: float | None = None
    """Peak TFLOP/s of one device, instead of the known or measured peak."""
    memory: float | None = None
    """Memory of one device in GB, instead of the known or measured memory."""
    bandwidth: float | None = None
    """Memory bandwidth of one device in GB/s, instead of the known one."""
    utilisation: float | None = None
    """Fraction of the peaks to assume; default: 0.7, 0.55 on this CPU, 0.2 on an unknown GPU."""
    micro_batch: int = 0
    """Examples per device and micro-batch; 0 for as many as fit."""
    compile: bool = False
    """Estimate a run with --compile."""
    checkpoint_activations: bool = False
    """Estimate a run with --checkpoint-activations."""


def plan(settings: Plan) -> dict[str, Any]:
    """Print the plan of a run and return it."""
    _check(settings)
    check(settings.recipe)
    name, hardware = _hardware(settings)
    from electrify.planning.costs import costs  # imports torch, which takes seconds

    table = {
        "recipe": settings.name,
        "objective": settings.recipe.objective.kind,
        "steps": settings.recipe.run.steps,
        "batch_size": settings.recipe.run.batch_size,
        "length": settings.recipe.run.length,
        "vocab_size": settings.vocab_size,
        "precision": settings.recipe.run.precision,
        "hardware": {"name": name, "devices": settings.devices, **hardware._asdict()},
        **costs(
            settings.recipe,
            settings.vocab_size,
            hardware,
            settings.devices,
            settings.micro_batch,
            settings.checkpoint_activations,
            settings.compile,
        ),
    }
    print(_text(table))
    return table


def _check(settings: Plan) -> None:
    check_minimum(settings, vocab_size=5, devices=1, micro_batch=0)
    for name in ("tflops", "memory", "bandwidth"):
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise UserError(
                f"--{name} must be above 0", got=f"{value}", fix="use a positive number"
            )
    utilisation = settings.utilisation
    if utilisation is not None and not 0 < utilisation <= 1:
        raise UserError(
            "--utilisation must be above 0 and at most 1",
            got=f"{utilisation}",
            fix="use 0.2 for 20 % of the peak",
        )


def _hardware(settings: Plan) -> tuple[str, Hardware]:
    """Return the chosen device, with the numbers that the options override."""
    name = THIS_MACHINE if settings.hardware.lower() == THIS_MACHINE else name_of(settings.hardware)
    if name is None:
        nearest = near(settings.hardware)
        raise UserError(
            f"--hardware {settings.hardware} is not a known device",
            got=settings.hardware,
            fix=f"did you mean {nearest}?"
            if nearest
            else f"use one of {', '.join(KNOWN)}, {THIS_MACHINE}; "
            "or give the numbers of another device: "
            "--hardware A100 --tflops N --memory N --bandwidth N",
        )
    found = this_machine() if name == THIS_MACHINE else KNOWN[name]
    if settings.tflops is not None:
        peak = settings.tflops * TERA
        found = found._replace(float32=peak, mixed=peak, source="given")
    if settings.memory is not None:
        found = found._replace(memory=settings.memory * GIGA)
    if settings.bandwidth is not None:
        bandwidth = settings.bandwidth * GIGA
        if found.bandwidth is None:  # a GPU that nothing else is known of
            found = Hardware(found.float32, found.mixed, found.memory, "given", has_bf16=True)
        found = found._replace(bandwidth=bandwidth)
    if settings.utilisation is not None:
        found = found._replace(reached=settings.utilisation)
    return name, found


def _text(table: dict[str, Any]) -> str:
    return "\n\n".join(
        "\n".join(line.rstrip() for line in lines)
        for lines in (
            [
                f"{table['recipe']}: {table['objective']}, {table['steps']:,} steps of "
                f"{table['batch_size']:,} × {table['length']:,} tokens, "
                f"vocabulary {table['vocab_size']:,}"
            ],
            _parameters(table["parameters"]),
            _work(table),
            _memory(table["memory"], table["hardware"]),
            _time(table, table["hardware"]),
            [
                _row("Disk space of a checkpoint", bytes_text(table["disk"]["checkpoint"])),
                _row("Disk space of the exported model", bytes_text(table["disk"]["model"])),
                *(f"note: {note}" for note in table["notes"]),
            ],
        )
    )


def _parameters(sizes: dict[str, Any]) -> list[str]:
    roles = [role for role in sizes if isinstance(sizes[role], dict)]
    return [
        _row("Parameters", *roles),
        *(
            _row(f"  {part}", *(f"{sizes[role][part]:,}" for role in roles))
            for part in ("embeddings", "encoder", "head")
        ),
        _row("  total", *(f"{sizes[role]['all']:,}" for role in roles)),
        *([_row("  shared", f"{sizes['shared']:,}")] if len(roles) > 1 else []),
        _row("  trained in total", f"{sizes['trained']:,}"),
    ]


def _work(table: dict[str, Any]) -> list[str]:
    step, run = table["step"], table["run"]
    counts = (("flops", "as run by electrify"), ("paper_flops", "as the paper counts"))
    return [
        _row("Compute", "per step", "in total"),
        _row("  tokens, including padding", _large(step["tokens"]), _large(run["tokens"])),
        *(_row(f"  FLOPs, {how}", f"{step[name]:.4g}", f"{run[name]:.4g}") for name, how in counts),
    ]


MEMORY_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "state": "optimizer state",
    "activations": "activations",
    "context": "CUDA context",
    "all": "total",
}


def _memory(needed: dict[str, Any], hardware: dict[str, Any]) -> list[str]:
    columns = needed.values()
    return [
        _row("Estimated memory per device", *needed),
        *(
            _row(f"  {label}", *(bytes_text(column[part]) for column in columns))
            for part, label in MEMORY_PARTS.items()
            if any(column[part] for column in columns)
        ),
        _row("  with a micro-batch of", *(f"{column['micro_batch']:,}" for column in columns)),
        _row(
            f"  fits in {bytes_text(hardware['memory'])}",
            *("yes" if column["fits"] else "no" for column in columns),
        ),
    ]


def _time(table: dict[str, Any], hardware: dict[str, Any]) -> list[str]:
    device = "this machine" if hardware["name"] == THIS_MACHINE else hardware["name"]
    seconds, limits = table["seconds"], table["limits"]
    peaks = " and ".join(f"{hardware[name] / TERA:.3g} ({name})" for name in seconds)
    if hardware["bandwidth"]:
        peaks += f" TFLOP/s and {hardware['bandwidth'] / GIGA:,.0f} GB/s"
    else:
        peaks += " TFLOP/s"
    return [
        _row(
            f"Estimated time on {hardware['devices']} × {device}",
            *map(_long_duration, seconds.values()),
        ),
        _row("  tokens per second", *(f"{n:,.0f}" for n in table["tokens_per_second"].values())),
        _row("  limited by", *limits.values()),
        f"  run.precision = {table['precision']} is {_column(table['precision'], hardware)} here",
        f"  assuming {hardware['reached']:.0%} of the peak of {peaks}",
        f"  ({hardware['source']})",
    ]


def _column(precision: str, hardware: dict[str, Any]) -> str:
    """Return which of the two columns a run with a precision has on a device."""
    if precision == "auto":
        return "mixed (bf16)" if hardware["has_bf16"] else "float32"
    return "float32" if precision == "float32" else "mixed"


def _row(name: str, *cells: str) -> str:
    return f"{name:<34}" + "".join(f"{cell:>16}" for cell in cells)


def _large(count: float) -> str:
    """Return a number with a unit if it is large.

    >>> _large(16_384), _large(1.6384e10), _large(1.84e12)
    ('16,384', '16.4 billion', '1.84 trillion')
    """
    for unit, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,}"


def _long_duration(seconds: float) -> str:
    """Return a duration in minutes to years.

    >>> _long_duration(200), _long_duration(4 * DAY), _long_duration(9 * YEAR)
    ('3 min', '4.0 days', '9.0 years')
    """
    if seconds < 2 * DAY:
        return duration(seconds)
    return f"{seconds / DAY:.1f} days" if seconds < 2 * YEAR else f"{seconds / YEAR:,.1f} years"

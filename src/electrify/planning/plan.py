"""What a run costs before anything is spent: `electrify plan RECIPE`."""

from dataclasses import dataclass
from typing import Any

from electrify.config import check_least
from electrify.errors import UserError
from electrify.planning.hardware import GIGA, KNOWN, TERA, Hardware, name_of, near, this_machine
from electrify.progress import duration
from electrify.recipes.schema import FromRecipe, check

HERE = "here"
DAY = 86_400.0
YEAR = 365 * DAY


@dataclass(frozen=True, kw_only=True)
class Plan(FromRecipe):
    """Print what a recipe's run costs: parameters, tokens, FLOPs, memory, disk and time."""

    vocab_size: int = 30_522
    """Tokens of the vocabulary; 30,522 is that of bert-base-uncased."""
    hardware: str = HERE
    """A GPU such as L4, A100-80GB or "RTX 4090" (a wrong name lists all); here: this machine."""
    devices: int = 1
    """How many of them."""
    tflops: float | None = None
    """Peak of one device in 10^12 FLOPs a second, in place of the hardware's."""
    memory: float | None = None
    """Memory of one device in GB, in place of the hardware's."""
    utilisation: float | None = None
    """Share of the peak that training reaches; otherwise 0.2, and 0.55 on this machine's CPU."""
    micro_batch: int = 0
    """Examples a device takes at once; 0: as many as fit."""


def plan(settings: Plan) -> dict[str, Any]:
    """Print the plan."""
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
        "hardware": {"name": name, "devices": settings.devices, **hardware._asdict()},
        **costs(
            settings.recipe,
            settings.vocab_size,
            hardware,
            settings.devices,
            settings.micro_batch,
        ),
    }
    print(_text(table))
    return table


def _check(settings: Plan) -> None:
    check_least(settings, vocab_size=5, devices=1, micro_batch=0)
    for name in ("tflops", "memory"):
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise UserError(f"--{name} is not positive", got=f"{value}", fix="give more than 0")
    share = settings.utilisation
    if share is not None and not 0 < share <= 1:
        raise UserError("--utilisation is not a share", got=f"{share}", fix="above 0, at most 1")


def _hardware(settings: Plan) -> tuple[str, Hardware]:
    """The device that is asked for, with the numbers that are given in place of its own."""
    name = HERE if settings.hardware.lower() == HERE else name_of(settings.hardware)
    if name is None:
        nearest = near(settings.hardware)
        raise UserError(
            f"--hardware {settings.hardware} is not a known device",
            got=settings.hardware,
            fix=f"did you mean {nearest}?"
            if nearest
            else f"there are: {', '.join(KNOWN)}, {HERE}; for another, give its numbers: "
            "--hardware A100 --tflops N --memory N",
        )
    found = this_machine() if name == HERE else KNOWN[name]
    if settings.tflops is not None:
        peak = settings.tflops * TERA
        found = found._replace(float32=peak, mixed=peak, source="given")
    if settings.memory is not None:
        found = found._replace(memory=settings.memory * GIGA)
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
            _time(table["seconds"], table["hardware"]),
            [
                _row("Disk of a checkpoint", _size(table["disk"]["checkpoint"])),
                _row("Disk of the exported model", _size(table["disk"]["model"])),
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
            for part in ("tables", "body", "head", "all")
        ),
        *([_row("  shared", f"{sizes['shared']:,}")] if len(roles) > 1 else []),
        _row("  trained in all", f"{sizes['trained']:,}"),
    ]


def _work(table: dict[str, Any]) -> list[str]:
    step, run = table["step"], table["run"]
    counts = (("flops", "as it runs here"), ("paper_flops", "the paper's counting"))
    return [
        _row("Work", "a step", "in all"),
        _row("  tokens, padding included", _words(step["tokens"]), _words(run["tokens"])),
        *(_row(f"  FLOPs, {said}", f"{step[c]:.4g}", f"{run[c]:.4g}") for c, said in counts),
    ]


def _memory(needed: dict[str, Any], hardware: dict[str, Any]) -> list[str]:
    both = needed.values()
    return [
        _row("Memory of a device, about", *needed),
        *(
            _row(f"  {part}", *(_size(one[part]) for one in both))
            for part in ("weights", "gradients", "state", "activations", "all")
        ),
        _row("  with micro-batches of", *(f"{one['micro_batch']:,}" for one in both)),
        _row(
            f"  fits in {_size(hardware['memory'])}",
            *("yes" if one["fits"] else "no" for one in both),
        ),
    ]


def _time(seconds: dict[str, float], hardware: dict[str, Any]) -> list[str]:
    place = "this machine" if hardware["name"] == HERE else hardware["name"]
    peaks = " and ".join(f"{hardware[name] / TERA:.3g} ({name})" for name in seconds)
    return [
        _row(f"Time on {hardware['devices']} × {place}, about", *map(_long, seconds.values())),
        f"  an estimate, at {hardware['reached']:.0%} of the peak of {peaks} TFLOP/s",
        f"  ({hardware['source']}); narrow models reach less of it in mixed precision",
    ]


def _row(name: str, *cells: str) -> str:
    return f"{name:<34}" + "".join(f"{cell:>16}" for cell in cells)


def _words(count: float) -> str:
    """A number that may be large.

    >>> _words(16_384), _words(1.6384e10), _words(1.84e12)
    ('16,384', '16.4 billion', '1.84 trillion')
    """
    for unit, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,}"


def _size(count: float) -> str:
    """Bytes as people say them.

    >>> _size(1_234_567), _size(2.5e10)
    ('1.2 MB', '25.0 GB')
    """
    return f"{count / GIGA:.1f} GB" if count >= GIGA else f"{count / 1e6:.1f} MB"


def _long(seconds: float) -> str:
    """A time that may be years.

    >>> _long(200), _long(4 * DAY), _long(9 * YEAR)
    ('3 min', '4.0 days', '9.0 years')
    """
    if seconds < 2 * DAY:
        return duration(seconds)
    return f"{seconds / DAY:.1f} days" if seconds < 2 * YEAR else f"{seconds / YEAR:,.1f} years"

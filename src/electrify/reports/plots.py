"""Plots as SVG that uses the colours and the font of the surrounding page.

matplotlib draws with placeholder colours, which are then replaced by variables of the page's
stylesheet, so that one drawing works in light and dark mode. The same plot always gives the same
bytes.
"""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from electrify.errors import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = 6
COLOURS = {
    **{"ink": "#c00001", "grid": "#c00002", "band": "#c00003"},
    **{f"series-{number}": f"#c0001{number}" for number in range(1, SERIES + 1)},
}
"""Placeholder colours by the name of the stylesheet variable."""
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
"""Dash patterns, so that lines can be told apart without colours."""

PLOT_WIDTH, HEIGHT = 360, 216  # in points; shown at about this many pixels, on phones too
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 8, 34
FONT = 10.5


class Line(NamedTuple):
    """A curve."""

    steps: Sequence[float]
    values: Sequence[float]
    series: int = 0
    """Index of the colour."""
    dashes: tuple[float, ...] = ()
    dots: bool = False
    """Whether to mark every value."""
    faint: bool = False


class Level(NamedTuple):
    """A horizontal reference line."""

    value: float
    label: str


class Band(NamedTuple):
    """A reference range."""

    low: float
    high: float
    label: str


class Point(NamedTuple):
    """A published value."""

    step: float
    value: float
    label: str


class Dots(NamedTuple):
    """Scores of several seeds: one row of a plot."""

    label: str
    values: Sequence[float]
    hollow: Sequence[bool]
    """Which of them are degenerate runs."""
    middle: float
    interval: tuple[float, float]
    series: int = 0


def in_percent(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return bounds of a fraction in percent."""
    return 100 * bounds[0], 100 * bounds[1]


def short(number: float, _: object = None) -> str:
    """Return a number as shown on axes.

    >>> [short(n) for n in (0, 250, 12_000, 1_500_000, 0.0005, 0.65)]
    ['0', '250', '12k', '1.5M', '5e-4', '0.65']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    if 0 < abs(number) < 0.01:
        digits, power = f"{number:.1e}".split("e")
        return f"{digits.removesuffix('.0')}e{int(power)}"
    return f"{number:.3g}"


def curves(
    name: str,
    lines: Sequence[Line],
    levels: Sequence[Level] = (),
    bands: Sequence[Band] = (),
    points: Sequence[Point] = (),
    tokens_per_step: float = math.nan,
) -> str:
    """Plot lines over steps, and tokens if known; ids in the drawing are derived from the name."""
    both = not math.isnan(tokens_per_step)

    def draw(axes: "Axes") -> None:
        for band in bands:
            axes.axhspan(band.low, band.high, color=COLOURS["band"], linewidth=0)
            _note(axes, (band.low + band.high) / 2, band.label)
        for level in levels:
            axes.axhline(level.value, color=COLOURS["ink"], linewidth=0.8, dashes=(2, 2))
            _note(axes, level.value, level.label, above=True)
        for line in lines:
            axes.plot(
                line.steps,
                line.values,
                color=_colour(line.series),
                linewidth=1.1 if line.faint else 1.7,
                alpha=0.55 if line.faint else 1,
                dashes=line.dashes or (None, None),
                marker="o" if line.dots or len(line.steps) == 1 else "",
                markersize=4.5 if len(line.steps) == 1 else 3.2,
            )
        for point in points:
            axes.plot([point.step], [point.value], "D", color=COLOURS["ink"], markersize=5)
        _limits(axes, lines, [*(level.value for level in levels), *(p.value for p in points)])
        if both:
            axes.xaxis.set_major_formatter(
                lambda step, _: f"{short(step)}\n{short(step * tokens_per_step)}"
            )
        axes.set_xlabel("step, and tokens seen" if both else "step")

    return _drawn(name, HEIGHT + 14 * both, draw, bottom=BOTTOM + 14 * both)


def _limits(axes: "Axes", lines: Sequence[Line], others: Sequence[float]) -> None:
    values = [*(value for line in lines for value in line.values), *others]
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.08 * abs(high) or 1.0
    axes.set_ylim(low - room, high + 1.6 * room)
    axes.set_xlim(0, max([1, *(step for line in lines for step in line.steps)]) * 1.02)


def _note(axes: "Axes", height: float, label: str, above: bool = False) -> None:
    axes.annotate(
        label,
        (0.985, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2 if above else 0),
        textcoords="offset points",
        ha="right",
        va="bottom" if above else "center",
        fontsize=FONT - 1,
        color=COLOURS["ink"],
        annotation_clip=True,
    )


def bars(name: str, counts: Sequence[int], label: str) -> str:
    """Plot a histogram of the counts of 0, 1, 2, …"""

    def draw(axes: "Axes") -> None:
        width = max(1, math.ceil(len(counts) / 32))
        starts = range(0, len(counts), width)
        sums = [sum(counts[start : start + width]) for start in starts]
        axes.bar(starts, sums, width=0.86 * width, align="edge", color=COLOURS["series-1"])
        axes.set_xlim(0, len(counts))
        axes.set_xlabel(label)

    return _drawn(name, HEIGHT, draw)


def share_bars(name: str, shares: Mapping[str, float]) -> str:
    """Plot a horizontal bar for each share, with its percentage."""

    def draw(axes: "Axes") -> None:
        heights, values = range(len(shares)), [*shares.values()]
        axes.barh(heights, values, height=0.7, color=COLOURS["series-1"])
        for height, share in enumerate(values):
            at = (share, height)
            axes.annotate(f"{share:.1%}", at, (3, 0), textcoords="offset points", va="center")
        axes.set_yticks(heights, list(shares))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.15 * max(values))
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("share of the time")

    return _drawn(name, HEIGHT, draw, left=66)


def reliability(name: str, rates: Sequence[tuple[float, float]], label: str) -> str:
    """Plot how often predictions came true as bars over the probability, beside the diagonal."""

    def draw(axes: "Axes") -> None:
        predicted, observed = zip(*rates, strict=True)
        axes.bar(predicted, observed, width=0.086, color=COLOURS["series-1"])
        axes.plot([0, 1], [0, 1], color=COLOURS["ink"], linewidth=0.8, dashes=(2, 2))
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel=label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda share, _: f"{share:.0%}")

    return _drawn(name, HEIGHT, draw)


def dots(name: str, rows: Sequence[Dots], label: str) -> str:
    """Plot a dot per seed, and the aggregate with its interval; rows of one label are grouped."""
    heights = [0.0]
    for before, row in pairwise(rows):
        heights.append(heights[-1] + (1.0 if before.label == row.label else 1.6))

    def draw(axes: "Axes") -> None:
        for row, height in zip(rows, heights, strict=True):
            colour = _colour(row.series)
            filled = ["none" if hollow else colour for hollow in row.hollow]
            if not math.isnan(row.interval[0]):
                axes.plot(row.interval, [height, height], color=colour, linewidth=5, alpha=0.3)
            axes.scatter(row.values, [height] * len(row.values), 18, filled, edgecolors=colour)
            axes.plot([row.middle], [height], "|", color=colour, markersize=13, mew=1.6)
        groups: dict[str, list[float]] = {}
        for row, height in zip(rows, heights, strict=True):
            groups.setdefault(row.label, []).append(height)
        axes.set_yticks([sum(group) / len(group) for group in groups.values()], list(groups))
        axes.set_ylim(heights[-1] + 0.8, -0.8)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(label)

    return _drawn(name, BOTTOM + TOP + 15 * (heights[-1] + 1.6), draw, left=52)


def _colour(series: int) -> str:
    return COLOURS[f"series-{series % SERIES + 1}"]


def _drawn(
    name: str,
    height: float,
    draw: Callable[["Axes"], None],
    left: float = LEFT,
    bottom: float = BOTTOM,
) -> str:
    matplotlib = needs("matplotlib", extra="report", why="plotting")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore the user's settings
        matplotlib.rcParams.update({**STYLE, "svg.hashsalt": name})
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        figure = Figure(figsize=(PLOT_WIDTH / 72, height / 72))
        width = (PLOT_WIDTH - left - RIGHT) / PLOT_WIDTH
        axes = figure.add_axes(
            (left / PLOT_WIDTH, bottom / height, width, (height - bottom - TOP) / height)
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
            axis.set_major_formatter(FuncFormatter(short))
        draw(axes)
        return _for_page(_svg(figure), name)


STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": FONT,
    "text.parse_math": False,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS["grid"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.labelpad": 3,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.7,
    "xtick.color": COLOURS["grid"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.color": COLOURS["grid"],
    "ytick.labelcolor": COLOURS["ink"],
    "ytick.major.size": 0,
    "xtick.major.size": 3,
}


def _svg(figure: "Figure") -> str:
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    return out.getvalue()


def _for_page(svg: str, name: str) -> str:
    """Return the drawing without what only a standalone file needs, in the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", svg)
    svg = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', svg)
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r"#([\w-]+)\)|href=\"#([\w-]+)\"", svg))
    names = {name for pair in used for name in pair if name}
    svg = re.sub(r'\sid="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in names else "", svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = re.sub(r"(font-size: [\d.]+px); font-family:[^;\"]*", r"\1", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*"', "", svg)
    for colour, placeholder in COLOURS.items():
        svg = svg.replace(placeholder, f"var(--{colour})")
    return re.sub(r"\s*\n\s*", "\n", svg).strip()

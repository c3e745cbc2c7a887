"""Draw the figures of the README and the documentation from recorded results: `make figures`.

Every figure is an SVG in docs/figures that names the SHA-256 of the record it was drawn from, so a
test can tell when a figure is older than its data. Colours are readable on light and dark pages.
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[1]
RECORDS, FIGURES = ROOT / "benchmarks/records", ROOT / "docs/figures"
GREY, BLUE, ORANGE, GREEN, PURPLE = "#7d8590", "#2f81f7", "#d9822b", "#2da44e", "#a371f7"
STAMP = "<!-- data {} -->\n"
STAMPED = re.compile(r"<!-- data ([0-9a-f]{64}) -->")
ROWS = {  # of learning.json: label and colour
    "none": ("random weights", GREY),
    "mlm": ("masked LM", ORANGE),
    "official": ("ELECTRA's recipe", PURPLE),
    "ours": ("cram-cpu", BLUE),
}
STYLE = {
    "svg.fonttype": "none",  # text stays text: it is searchable, and the reader's font draws it
    "svg.hashsalt": "electrify",
    "font.family": "sans-serif",
    "font.size": 11,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def pipeline(_: Any) -> None:
    """The stages from raw text to a table, with the command of each arrow."""
    stages = ["raw text", "documents", "shards", "run", "model", "scores"]
    commands = ["corpus", "prepare", "pretrain", "export", "glue · squad\nfinetune"]
    _, axes = plt.subplots(figsize=(9.6, 1.9))
    axes.set(xlim=(-0.55, len(stages) - 0.45), ylim=(-0.75, 0.62))
    axes.axis("off")
    for at, stage in enumerate(stages):
        box = FancyBboxPatch(
            (at - 0.31, -0.16),
            0.62,
            0.32,
            boxstyle="round,pad=0.04",
            facecolor="none",
            edgecolor=BLUE,
            linewidth=1.6,
        )
        axes.add_patch(box)
        axes.text(at, 0, stage, ha="center", va="center", size=10)
    for at, command in enumerate(commands):
        arrow = {"arrowstyle": "-|>", "mutation_scale": 11, "color": GREY}
        axes.add_patch(FancyArrowPatch((at + 0.36, 0), (at + 0.64, 0), **arrow))
        axes.text(at + 0.5, 0.3, command, ha="center", va="bottom", family="monospace", size=9)
    axes.text(1.5, -0.42, "tokenizer", ha="center", va="center", family="monospace", size=9)
    curve = {"arrowstyle": "-|>", "mutation_scale": 9, "color": GREY, "linestyle": ":"}
    axes.add_patch(FancyArrowPatch((1, -0.22), (1.22, -0.42), **curve))
    axes.add_patch(FancyArrowPatch((1.78, -0.42), (2, -0.22), **curve))
    axes.text(3, -0.3, "report · inspect", ha="center", va="top", family="monospace", size=9)
    axes.text(4, -0.3, "loads in\ntransformers", ha="center", va="top", size=9)


def speed(record: Any) -> None:
    """Ratios of speed against other programs, with the extremes of the rounds."""
    bars = record["bars"][::-1]
    _, axes = plt.subplots(figsize=(9.6, 2.9))
    lows = [bar["ratio"] - bar["low"] for bar in bars]
    highs = [bar["high"] - bar["ratio"] for bar in bars]
    axes.barh(
        range(len(bars)),
        [bar["ratio"] for bar in bars],
        height=0.5,
        color=BLUE,
        xerr=[lows, highs],
        error_kw={"ecolor": GREY, "capsize": 3},
    )
    axes.set_yticks(range(len(bars)), [bar["label"] for bar in bars])
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    for at, bar in enumerate(bars):
        axes.text(bar["high"] + 0.15, at, f"{bar['ratio']:.1f} ×", va="center")
    axes.set_xlabel(f"times as fast (line: range over rounds; {record['hardware']})")


def scores(record: Any) -> None:
    """Development scores of each row after fine-tuning: every seed, and the mean."""
    tasks = record["tasks"]
    figure, panels = plt.subplots(1, len(tasks), figsize=(2 + 1.9 * len(tasks), 3.0))
    shown = [name for name in ROWS if name in record["rows"]]
    for axes, (task, metric) in zip(panels, tasks.items(), strict=True):
        for at, name in enumerate(shown):
            values = record["rows"][name]["scores"][task]
            mean, colour = sum(values) / len(values), ROWS[name][1]
            axes.bar(at, mean, color=colour, width=0.72, alpha=0.85)
            axes.scatter([at] * len(values), values, s=9, color=GREY, zorder=3)
            axes.text(at, max(*values, 0) + 0.012, f"{mean:.2f}", ha="center", size=8.5)
        axes.set_title(f"{metric['title']}\n{metric['metric']}", size=10, color=GREY)
        axes.set_xticks([])
        axes.set_ylim(0, 1)
    handles = [plt.Rectangle((0, 0), 1, 1, color=ROWS[name][1]) for name in shown]
    figure.legend(handles, [ROWS[name][0] for name in shown], loc="lower center", ncols=4)
    figure.subplots_adjust(bottom=0.14, top=0.84, wspace=0.5, left=0.05, right=0.99)


def curves(record: Any) -> None:
    """Validation loss and AUC against tokens seen."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.0))
    for name, (label, colour) in ROWS.items():
        curve = record["rows"].get(name, {}).get("curve")
        if curve:
            _line(left, curve, ("generator_loss", "mlm_loss"), label, colour)
            _line(right, curve, ("auc",), label, colour)
    left.axhline(record["uniform_loss"], color=GREY, linestyle="--", linewidth=1)
    right_edge = left.get_xlim()[1]
    left.text(right_edge, record["uniform_loss"] - 0.1, "uniform guessing", ha="right", va="top")
    left.set(xlabel="million tokens", ylabel="validation loss at masked tokens")
    right.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    right.set(xlabel="million tokens", ylabel="AUC of replaced tokens", ylim=(0.48, 1))
    left.legend()
    figure.tight_layout()


def _line(axes: Axes, curve: list[Any], names: tuple[str, ...], label: str, colour: str) -> None:
    points = [(p["tokens"] / 1e6, p[n]) for p in curve for n in names if n in p]
    if points:
        axes.plot(*zip(*points, strict=True), color=colour, label=label, marker="o", markersize=3)


ARMS = {  # of domain.json: label and colour
    "released": ("released", GREY),
    "scratch": ("from scratch", PURPLE),
    "without": ("adapted, old tokenizer", ORANGE),
    "with": ("adapted, 2,000 new words", BLUE),
}
SCORED = {"before": ("released", GREY), "after": ("adapted", BLUE)}


def domain(record: Any) -> None:
    """Loss per character of every arm on the same words, and scores before and after by seed."""
    tasks = [(base, task) for base, one in record.items() for task in one.get("scores", {})]
    figure, panels = plt.subplots(1, len(record) + len(tasks), figsize=(9.6, 2.9), squeeze=False)
    for axes, (base, one) in zip(panels[0], record.items(), strict=False):
        shown = [name for name in ARMS if name in one["arms"]]
        for at, name in enumerate(shown):
            loss = one["arms"][name]["loss_per_character"]
            axes.bar(at, loss, color=ARMS[name][1], width=0.72, alpha=0.85)
            axes.text(at, loss + 0.02, f"{loss:.2f}", ha="center", size=8.5)
        axes.set_title(f"{base}\nloss per character", size=10, color=GREY)
        axes.set_xticks([])
    for axes, (base, task) in zip(panels[0][len(record) :], tasks, strict=True):
        scores = record[base]["scores"][task]
        for at, (name, (_, colour)) in enumerate(SCORED.items()):
            values = [100 * score for score in scores[name]]
            mean = sum(values) / len(values)
            axes.scatter([at] * len(values), values, s=14, color=colour, zorder=3)
            axes.plot([at - 0.25, at + 0.25], [mean, mean], color=colour)
            axes.text(at, max(values) + 0.1, f"{mean:.1f}", ha="center", va="bottom", size=8.5)
        axes.margins(x=0.4, y=0.2)
        axes.set_title(f"{base}\n{task}, {scores['metric']}", size=10, color=GREY)
        axes.set_xticks([])
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in ARMS.values()]
    labels = [label for label, _ in ARMS.values()]
    figure.legend(handles, labels, loc="lower center", ncols=4)
    figure.subplots_adjust(bottom=0.16, top=0.84, wspace=0.45, left=0.05, right=0.99)


DRAWN: dict[str, tuple[Callable[[Any], None], str]] = {
    "pipeline": (pipeline, ""),
    "speed": (speed, "speed.json"),
    "scores": (scores, "learning.json"),
    "curves": (curves, "learning.json"),
    "domain": (domain, "domain.json"),
}


def fingerprint(name: str) -> str:
    """Return the SHA-256 of the record of a figure and of this script, which draws it."""
    record = DRAWN[name][1]
    content = (RECORDS / record).read_bytes() if record else b""
    return hashlib.sha256(Path(__file__).read_bytes() + content).hexdigest()


def stamp_of(figure: Path) -> str:
    """Return the fingerprint that a figure was drawn with; empty if it names none."""
    found = STAMPED.search(figure.read_text())
    return found[1] if found else ""


def main() -> None:
    """Draw every figure."""
    FIGURES.mkdir(exist_ok=True)
    for name, (draw, record) in DRAWN.items():
        with matplotlib.rc_context(STYLE):
            draw(json.loads((RECORDS / record).read_text()) if record else None)
            path = FIGURES / f"{name}.svg"
            plt.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
            plt.close("all")
        path.write_text(path.read_text() + STAMP.format(fingerprint(name)))
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

"""Whether adaptation helped, in plain words: a pure function of the comparison."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from electrify.finetuning.adaptation.tasks import NOTICEABLE, TaskChange

if TYPE_CHECKING:
    from electrify.finetuning.adaptation.compare import AdaptationResult

HEADLINES = {
    "worked": "Adaptation worked",
    "started": "Adaptation made little difference",
    "worse": "Adaptation made the model worse",
    "unknown": "Nobody can tell whether adaptation helped",
}
"""How a verdict begins, by its grade."""
FORGOTTEN = 0.1
"""Rise of the loss on general text, in nats for each masked token, that is worth a warning."""


class AdaptationVerdict(NamedTuple):
    """Whether adaptation helped, and why we think so."""

    grade: str
    """A key of `HEADLINES`."""
    headline: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n  ".join([f"verdict: {self.headline}", *self.reasons])


def adaptation_verdict(result: "AdaptationResult") -> AdaptationVerdict:
    """Judge a comparison by the loss per character; without one before, by the first task."""
    tasks = [TaskChange(**task) for task in result["tasks"]]
    fall = _fall(result)
    if fall is not None:
        direction, clause = fall
    elif tasks:
        direction, clause = tasks[0].direction, _task(tasks[0])
    else:
        clause = "the released model has no masked-LM head, and there is no labelled task"
        return AdaptationVerdict("unknown", f"{HEADLINES['unknown']}: {clause}", _reasons(result))
    grade = {1: "worked", 0: "started", -1: "worse"}[direction]
    return AdaptationVerdict(grade, f"{HEADLINES[grade]}: {clause}", _reasons(result))


def _fall(result: "AdaptationResult") -> tuple[int, str] | None:
    """Return whether the loss per character fell, and by how much; None if it was not measured."""
    before, after = result["before"]["loss_per_character"], result["after"]["loss_per_character"]
    error = result["error"]
    if before is None or after is None or error is None:
        return None
    change = after - before
    direction = 0 if abs(change) <= NOTICEABLE * error else -1 if change > 0 else 1
    verb = {1: "fell", 0: "stayed about the same", -1: "rose"}[direction]
    clause = (
        f"the loss per character of validation words {verb}, {before:.3f} to {after:.3f} "
        f"({change / before:+.1%}, standard error {error:.3f})"
    )
    return direction, clause


def _reasons(result: "AdaptationResult") -> tuple[str, ...]:
    return tuple(_sentences(result))


def _sentences(result: "AdaptationResult") -> Iterator[str]:
    after = result["after"]["loss_per_character"]
    measured = (
        f"{result['words']:,} words on {result['pages']:,} pages that neither the tokenizer nor "
        "the model was trained on"
    )
    if _fall(result) is None and after is not None:
        yield (
            f"Loss per character {after:.3f}, guessing by token frequency gives "
            f"{result['guessing']:.3f} ({measured}); the released model has no masked-LM head to "
            "compare with."
            if result["before"]["loss_per_character"] is None
            else f"Loss per character {after:.3f}; too few pages for a comparison ({measured})."
        )
    else:
        yield f"Measured on {measured}; guessing by token frequency gives {result['guessing']:.3f}."
    tokens = [result[side]["tokens_per_word"] for side in ("before", "after")]
    if tokens[0] != tokens[1]:
        yield (
            f"Tokens per word {tokens[0]:.3f} to {tokens[1]:.3f}: the same text is "
            f"{1 - tokens[1] / tokens[0]:.1%} shorter for the model."
        )
    for task in (TaskChange(**task) for task in result["tasks"]):
        yield f"{_task(task)}."
    if result["general"]:
        yield from _general(result["general"])
    if not result["tasks"]:
        yield "To see what it means for labels, add tasks: --tasks SUITE.toml."


def _task(task: TaskChange) -> str:
    scores = f"{task.name} {task.metric} {task.before:.1%} to {task.after:.1%}"
    if task.error is None:
        return f"{scores}, one seed, which cannot be told from noise"
    kind = {1: "a gain", 0: "within two standard errors", -1: "a loss"}[task.direction]
    change = 100 * (task.after - task.before)
    return (
        f"{scores}: {change:+.1f} points, standard error {100 * task.error:.1f} over {task.seeds} "
        f"seeds, {kind}"
    )


def _general(general: Mapping[str, Any]) -> Iterator[str]:
    """Say how much the model forgot of general text."""
    change = general["after"] - general["before"]
    text = f"General text: {general['label']} {general['before']:.3f} to {general['after']:.3f}"
    if change > FORGOTTEN:
        yield f"{text}: it has forgotten some; a larger --general-share or a lower --lr helps."
    else:
        yield f"{text}: it has not forgotten it."

"""The report section of an adapted model: before and after, the new words, and the verdict."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.finetuning.adaptation.compare import AdaptationResult
from electrify.finetuning.adaptation.tasks import TaskChange
from electrify.finetuning.adaptation.verdict import AdaptationVerdict
from electrify.reports.page import (
    EMPTY_CELL,
    Html,
    Section,
    joined,
    name,
    paragraph,
    table,
    text,
)
from electrify.reports.provenance import Source, read_source, sources_table
from electrify.reports.tuned_section import DAMAGE, manifest_kind
from electrify.storage.commit import damaged, read_json

RESULT = "result.json"


class AdaptedFolder(NamedTuple):
    """The comparison that `electrify adapt` made."""

    name: str
    result: AdaptationResult
    sources: list[Source]

    @property
    def verdict(self) -> AdaptationVerdict:
        """Return whether it helped."""
        return AdaptationVerdict(**self.result["verdict"])


def is_adaptation(folder: Path) -> bool:
    """Return whether a folder has the comparison of a model before and after."""
    return manifest_kind(folder) == "adaptation"


def read_adaptation(folder: Path, label: str) -> AdaptedFolder:
    """Read the comparison of a folder."""
    result: AdaptationResult = read_json(folder / RESULT)
    sources = [read_source(folder, file)[1] for file in (RESULT, "manifest.json")]
    found = AdaptedFolder(label, result, sources)
    try:
        adaptation_section(found)
    except DAMAGE as error:
        raise damaged(folder / RESULT, f"{error!r:.200}") from error
    return found


def adaptation_section(folder: AdaptedFolder, number: int = 1) -> Section:
    """Return the verdict, a table of before and after, and the words that were added."""
    result, verdict, key = folder.result, folder.verdict, f"adapted-{number}"
    sentences = [Html(f"<strong>{text(verdict.headline)}</strong>"), *map(text, verdict.reasons)]
    inner = joined(map(paragraph, sentences))
    columns = [text(column) for column in ("", "before", "after", "change")]
    parts: list[Html | Section] = [
        Html(f'<div class="verdict {text(verdict.grade)}">\n{inner}\n</div>'),
        table("Before and after", columns, _rows(result)),
        paragraph(text(_how(result)), "soft"),
    ]
    if result["new_words"]:
        parts.append(Section(text("New words"), [_new_words(result)], f"{key}-words"))
    parts.append(sources_table(folder.sources))
    return Section(Html(f"{name(result['model'])} adapted to your text"), parts, key)


def _rows(result: AdaptationResult) -> list[list[Html]]:
    before, after = result["before"], result["after"]
    losses = before["loss_per_character"], after["loss_per_character"]
    change = EMPTY_CELL
    if losses[0] is not None and losses[1] is not None:
        error = "" if result["error"] is None else f" ± {result['error']:.3f}"
        change = text(f"{losses[1] - losses[0]:+.3f}{error}")
    tokens = before["tokens_per_word"], after["tokens_per_word"]
    rows = [
        [text("loss per character"), *map(_three, losses), change],
        [text("guessing by token frequency"), EMPTY_CELL, _three(result["guessing"]), EMPTY_CELL],
        [text("tokens per word"), *map(_three, tokens), text(f"{tokens[1] / tokens[0] - 1:+.1%}")],
    ]
    for task in (TaskChange(**task) for task in result["tasks"]):
        error = "" if task.error is None else f" ± {100 * task.error:.1f}"
        gain = text(f"{100 * (task.after - task.before):+.1f}{error}")
        shown = [text(f"{100 * score:.1f}") for score in (task.before, task.after)]
        rows.append([text(f"{task.name}, {task.metric}, {task.seeds} seeds"), *shown, gain])
    if general := result["general"]:
        values = float(general["before"]), float(general["after"])
        label = text(f"general text, {general['label']}")
        rows.append([label, *map(_three, values), text(f"{values[1] - values[0]:+.3f}")])
    return rows


def _three(value: float | None) -> Html:
    return EMPTY_CELL if value is None else text(f"{value:.3f}")


def _how(result: AdaptationResult) -> str:
    network = "generator" if result["objective"] == "rtd" else "model"
    return (
        f"Loss per character: {result['words']:,} words with {result['characters']:,} characters "
        f"on {result['pages']:,} validation pages are masked, the same words for both models. The "
        f"{network} predicts the tokens of each word from left to right, and the sum of their "
        "losses is divided by the characters, because models with different tokenizers cannot be "
        "compared by token. ± is one standard error. General text is compared by token, with one "
        "tokenizer."
    )


def _new_words(result: AdaptationResult) -> Html:
    columns = [text(c) for c in ("word", "occurrences", "tokens before")]
    rows: Sequence[list[Html]] = [
        [name(word["word"]), text(f"{word['count']:,}"), text(f"{word['pieces']}")]
        for word in result["new_words"]
    ]
    return table("Words that save most, now one token each", columns, rows)

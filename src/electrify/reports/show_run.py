"""`electrify show DIR` for runs; documents and shards are shown by `electrify.tokens.show`."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from electrify.config import check_minimum
from electrify.errors import DamagedError, UserError, visible
from electrify.tokens import show as folders
from electrify.tokens.show import Show, sample_indices

if TYPE_CHECKING:  # these import torch, which --help and other folders do not need
    from electrify.reports.examples import CorruptedExample
    from electrify.reports.spelling import TokenText
    from electrify.reports.threshold import Threshold

    Spell = Callable[[int], TokenText]


def show(settings: Show) -> None:
    """Print examples of a run or of another folder, or verify it."""
    if not (settings.folder / "run.json").is_file():
        folders.show_folder(settings)
    elif settings.verify:
        _verify(settings)
    else:
        _show_run(settings)


def _show_run(settings: Show) -> None:
    check_minimum(settings, count=1)
    from electrify.reports.examples import corrupted_example, validation_batches
    from electrify.reports.spelling import speller
    from electrify.reports.threshold import of_run
    from electrify.training.folder import RunFolder
    from electrify.training.summary import forgetting_text, verdict_text
    from electrify.training.trained import load_trained

    loaded = load_trained(settings.folder)
    task = validation_batches(settings.folder, loaded)
    numbers = sample_indices(settings, len(task.batches.examples))
    spell, threshold = speller(loaded.tokenizer), of_run(settings.folder, loaded.step)
    console = Console(soft_wrap=True, highlight=False)
    steps = RunFolder(settings.folder).steps
    heading = f"{settings.folder}: step {loaded.step:,} of {steps:,}, validation examples\n"
    console.print(Text(heading, "dim"))
    for number in numbers:
        example = corrupted_example(loaded, task, number)
        for line in lines(example, spell, threshold, settings.ids):
            console.print(line)
        console.print()
    if verdict := verdict_text(settings.folder):
        console.print(Text(verdict))
    if forgetting := forgetting_text(settings.folder):
        console.print(Text(forgetting))


def lines(
    example: "CorruptedExample", spell: "Spell", threshold: "Threshold", ids: bool
) -> list[Text]:
    """Return an example as lines: original, masked, sampled, labels and predictions."""
    heading = f"example {example.number:,} · {len(example.ids_L)} tokens"
    rows = {"original": example.ids_L, "masked": example.masked_L, "sampled": example.filled_L}
    found = [Text(heading, "bold")]
    for name, ids_L in rows.items():
        marked_L = example.chosen_L if name != "sampled" else example.replaced_L
        found.append(_row(name, ids_L.tolist(), marked_L.tolist(), spell))
        if ids:
            found.append(Text(f"{'':<10}{ids_L.tolist()}", "dim"))
    return [*found, *_predictions(example, spell, threshold)]


def _row(name: str, ids: Sequence[int], marked: Sequence[bool], spell: "Spell") -> Text:
    text = Text(f"{name:<9}", "bold")
    for token, mark in zip(ids, marked, strict=True):
        shown = spell(token)
        text.append(" " if shown.starts_word else "", "not bold")
        text.append(visible(shown.text), "not bold underline" if mark else "not bold")
    return text


def _predictions(example: "CorruptedExample", spell: "Spell", threshold: "Threshold") -> list[Text]:
    """Return a table of the positions that were masked or flagged, then the counts."""
    from electrify.reports.heat import as_percent, counts_text, example_tokens, verdict_on
    from electrify.reports.spelling import on_one_line

    def cell(token: int) -> str:
        return on_one_line(spell(int(token)).text)

    judged = example.probs_L is not None
    tokens = example_tokens(example, spell, threshold) if judged else []
    shown_L = example.chosen_L.copy()
    if judged:
        shown_L |= [token.probability >= token.threshold for token in tokens]
    columns = ["position", "original", "masked", "sampled", "label"]
    rows = []
    for position in compress(range(len(shown_L)), shown_L):
        row = [str(position), *(cell(ids[position]) for ids in (example.ids_L, example.masked_L))]
        row += [cell(example.filled_L[position])] if example.chosen_L[position] else [""]
        row += ["replaced" if example.replaced_L[position] else "original"]
        if judged:
            token = tokens[position]
            row += [as_percent(token.probability), verdict_on(token).text]
        rows.append(row)
    if judged:
        columns += ["predicted", ""]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    table = [Text("  ".join(map(str.ljust, row, widths)).rstrip()) for row in (columns, *rows)]
    table[0].stylize("dim")
    return [*table, *([Text(f"{counts_text(tokens)}; {threshold}", "dim")] if judged else [])]


def _verify(settings: Show) -> None:
    from electrify.training import checkpoint
    from electrify.training.folder import RunFolder

    folder = RunFolder(settings.folder)
    folder.load_tokenizer()
    stored, run = checkpoint.stored(folder.checkpoints), folder.fingerprints
    faults = {
        one.step: wrong for one in stored if (wrong := checkpoint.faults(one.folder, run(one.step)))
    }
    if faults:
        raise DamagedError(
            f"{settings.folder}: {len(faults)} of {len(stored)} checkpoints are damaged",
            got="\n       ".join(f"step {step}: {wrong[0]}" for step, wrong in faults.items()),
            fix="move them away; the run resumes from its latest intact checkpoint",
        )
    if not stored:
        raise UserError(
            f"{settings.folder} has no checkpoint to verify",
            got=f"no checkpoint in {folder.checkpoints}",
            fix="train first, or restore the checkpoints from a backup",
        )
    steps = ", ".join(f"{one.step:,}" for one in reversed(stored))
    print(f"{settings.folder}: all {len(stored)} checkpoints are intact (steps: {steps})")

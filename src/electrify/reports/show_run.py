"""`electrify show DIR` of anything: a run here, documents and shards by `electrify.tokens.show`."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from electrify.config import check_least
from electrify.errors import DamagedError
from electrify.tokens import show as folders
from electrify.tokens.show import Show, numbers_to_show, visible

if TYPE_CHECKING:  # they import torch, which --help and other folders can do without
    from electrify.reports.examples import CorruptedExample
    from electrify.reports.spelling import Piece
    from electrify.reports.threshold import Threshold

    Spell = Callable[[int], Piece]


def show(settings: Show) -> None:
    """Print what is asked for of a run, or of another folder."""
    if not (settings.folder / "run.json").is_file():
        folders.show_folder(settings)
    elif settings.verify:
        _verify(settings)
    else:
        _show_run(settings)


def _show_run(settings: Show) -> None:
    check_least(settings, count=1)
    from electrify.reports.examples import examples, validation_batches
    from electrify.reports.spelling import speller
    from electrify.reports.threshold import of_run
    from electrify.training.trained import load_trained

    loaded = load_trained(settings.folder)
    task = validation_batches(settings.folder, loaded)
    numbers = numbers_to_show(settings, len(task.batches.examples))
    spell, threshold = speller(loaded.tokenizer), of_run(settings.folder, loaded.step)
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text(f"{settings.folder}: step {loaded.step:,}, held-out examples\n", "dim"))
    for example in examples(loaded, task, numbers):
        for line in lines(example, spell, threshold, settings.ids):
            console.print(line)
        console.print()


def lines(
    example: "CorruptedExample", spell: "Spell", threshold: "Threshold", ids: bool
) -> list[Text]:
    """An example: original, masked, sampled, labels and predictions."""
    heading = f"example {example.number:,} · {len(example.ids_L)} tokens"
    rows = {"original": example.ids_L, "masked": example.masked_L, "sampled": example.filled_L}
    made = [Text(heading, "bold")]
    for name, ids_L in rows.items():
        marked_L = example.chosen_L if name != "sampled" else example.replaced_L
        made.append(_row(name, ids_L.tolist(), marked_L.tolist(), spell))
        if ids:
            made.append(Text(f"{'':<10}{ids_L.tolist()}", "dim"))
    return [*made, *_judged(example, spell, threshold)]


def _row(name: str, ids: Sequence[int], marked: Sequence[bool], spell: "Spell") -> Text:
    text = Text(f"{name:<9}", "bold")
    for token, mark in zip(ids, marked, strict=True):
        piece = spell(token)
        text.append(" " if piece.begins_word else "", "not bold")
        text.append(visible(piece.text), "not bold underline" if mark else "not bold")
    return text


def _judged(example: "CorruptedExample", spell: "Spell", threshold: "Threshold") -> list[Text]:
    """Each place that was chosen or suspected; then the counts."""
    from electrify.reports.heat import as_percent, counted, judged_tokens, verdict_on
    from electrify.reports.spelling import on_one_line

    def cell(token: int) -> str:
        return on_one_line(spell(int(token)).text)

    judged = example.suspicion_L is not None
    tokens = judged_tokens(example, spell, threshold) if judged else []
    shown_L = example.chosen_L.copy()
    if example.suspicion_L is not None:
        shown_L |= [token.probability >= token.threshold for token in tokens]
    columns = ["place", "original", "masked", "sampled", "label"]
    rows = []
    for place in compress(range(len(shown_L)), shown_L):
        row = [str(place), *(cell(ids[place]) for ids in (example.ids_L, example.masked_L))]
        row += [cell(example.filled_L[place])] if example.chosen_L[place] else [""]
        row += ["replaced" if example.replaced_L[place] else "original"]
        if judged:
            row += [as_percent(tokens[place].probability), verdict_on(tokens[place]).words]
        rows.append(row)
    if judged:
        columns += ["predicted", ""]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    made = [Text("  ".join(map(str.ljust, row, widths)).rstrip()) for row in (columns, *rows)]
    made[0].stylize("dim")
    return [*made, *([Text(f"{counted(tokens)}; {threshold}", "dim")] if judged else [])]


def _verify(settings: Show) -> None:
    from electrify.training import checkpoint
    from electrify.training.folder import RunFolder

    folder = RunFolder(settings.folder).checkpoints
    stored = checkpoint.stored(folder)
    faults = {one.step: wrong for one in stored if (wrong := checkpoint.faults(one.folder))}
    if faults:
        raise DamagedError(
            f"{settings.folder}: {len(faults)} of {len(stored)} checkpoints are damaged",
            got="\n       ".join(f"step {step}: {wrong[0]}" for step, wrong in faults.items()),
            fix="delete them: the run goes on from the newest that is whole",
        )
    steps = ", ".join(f"{one.step:,}" for one in reversed(stored)) or "none"
    print(f"{settings.folder}: all {len(stored)} checkpoints are as written (steps: {steps})")

"""What `electrify finetune` prints at its end, and the model card, both from `result.json`."""

import shlex
from pathlib import Path
from typing import Any

from electrify import __version__
from electrify.config import to_toml
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.by_label import confusion_table, label_table
from electrify.finetuning.own.hints import hints
from electrify.finetuning.table import Cell, Table, markdown, terminal
from electrify.progress import duration

SAME_ANSWER = "the same answer for every row"
"""The reason in results of earlier versions, which recorded none."""
MOST_LABELS_LISTED = 30


def finetune_summary(result: dict[str, Any]) -> str:
    """Return the scores of every seed, the scores of each label, the confusions and the hints."""
    lines = [seed_lines(result)]
    if by_label := label_table(result):
        lines += ["", _titled(by_label), "", _titled(confusion_table(result))]
    if found := hints(result):
        lines += ["", *(f"hint: {hint}" for hint in found)]
    return "\n".join(lines)


def seed_lines(result: dict[str, Any]) -> str:
    """Return the scores of every seed and, of several, their mean and standard deviation."""
    lines = [
        f"seed {seed['seed']}: failed: {seed['failed']}"
        if "failed" in seed
        else f"seed {seed['seed']}: {format_scores(seed['scores'])} ({duration(seed['seconds'])}, "
        f"{seed['examples_per_second']:.0f} examples/s)"
        + (f"; {seed.get('why', SAME_ANSWER)}: try a lower --lr" if seed["degenerate"] else "")
        for seed in result["seeds"]
    ]
    if untrained := result.get("untrained"):
        lines.insert(0, f"without training: {format_scores(untrained)}")
    if len(result["seeds"]) > 1:
        lines += [
            f"mean:   {format_scores(result['mean'])}",
            f"std:    {format_scores(result['std'])}",
            f"kept: seed {result['best_seed']}, the best of {len(result['seeds'])}",
        ]
    return "\n".join(lines)


def _titled(table: Table) -> str:
    """Return a table below its title, which may be wider."""
    return f"{table.title}\n{terminal(table._replace(title=''))}"


def format_scores(scores: dict[str, float]) -> str:
    """Return scores on one line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())


def next_commands(out: Path, result: dict[str, Any]) -> str:
    """Return commands to continue with after fine-tuning."""
    folder = shlex.quote(str(out))
    if result["kind"] == "sentences":
        return "\n".join(
            [
                "next:",
                f"  electrify embed {folder} new.txt --out vectors.npy   # a text per line",
                f"  electrify report {folder} --out report.html",
            ]
        )
    pair = ' --pair "its second text"' if result["columns"]["pair"] else ""
    suffix = ".conll" if result["kind"] == "tags" else ".tsv"
    return "\n".join(
        [
            "next:",
            f'  electrify predict {folder} "a text of yours"{pair}',
            f"  electrify predict {folder} new.txt --out predictions{suffix}   # a text per line",
            f"  electrify report {folder} --out report.html",
        ]
    )


def finetuned_card(settings: Finetune, result: dict[str, Any], identity: dict[str, Any]) -> str:
    """Return the README.md of a fine-tuned model."""
    on_hub = not Path(settings.model).is_dir()
    base = settings.model if on_hub else "/".join(Path(settings.model).parts[-2:])
    base_model = [f"base_model: {settings.model}"] if on_hub else []
    front, usage = (_vectors_usage if result["kind"] == "sentences" else _pipeline_usage)(result)
    by_label = label_table(result)
    without = ("model", "train", "dev", "out", "device")
    parts = [
        "\n".join(["---", *front, *base_model, "tags: [electrify]", "---"]),
        f"# {base}, fine-tuned",
        f"{_predicted(result)}. Made by electrify {__version__}.",
        *usage,
        f"## Scores on the development file\n\n{_scores(result)}",
        *([f"{by_label.title}:\n\n{markdown(by_label)}"] if by_label else []),
        *(["\n".join(f"- {hint}" for hint in found)] if (found := hints(result)) else []),
        f"## Data\n\n{_files(result, identity)}",
        f"## Training\n\nFine-tuned from `{base}` (fingerprint `{identity['model']}`). Texts are "
        f"truncated to {result['length']} tokens.",
        f"```toml\n{to_toml(settings, without)}```",
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _pipeline_usage(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return lines of metadata, and how to predict with transformers and with electrify."""
    tagger = result["kind"] == "tags"
    task = "token-classification" if tagger else "text-classification"
    options = ', aggregation_strategy="first"' if tagger else ""
    asked = '{"text": "…", "text_pair": "…"}' if result["columns"]["pair"] else '"some text"'
    pair = ' --pair "…"' if result["columns"]["pair"] else ""
    usage = [
        f'```python\nfrom transformers import pipeline\n\npredict = pipeline("{task}", '
        f'model="FOLDER"{options})\npredict({asked})\n```',
        f'```sh\nelectrify predict FOLDER "some text"{pair}\n```',
    ]
    return ["library_name: transformers", f"pipeline_tag: {task}"], usage


def _vectors_usage(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return lines of metadata, and how to make vectors."""
    usage = [
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'vectors = SentenceTransformer("FOLDER").encode(["some text", "another text"])\n```',
        "```sh\nelectrify embed FOLDER texts.txt --out vectors.npy\n```",
    ]
    return ["library_name: sentence-transformers", "pipeline_tag: sentence-similarity"], usage


def _predicted(result: dict[str, Any]) -> str:
    kind, labels = result["kind"], result["labels"]
    of = "a pair of texts" if result["columns"]["pair"] else "a text"
    if kind == "score":
        return f"Predicts a score for {of}"
    if kind == "sentences":
        return f"Makes sentence vectors ({result['pooling']} pooling), learned from {labels[0]}"
    listed = ", ".join(f"`{label}`" for label in labels[:MOST_LABELS_LISTED])
    listed += f" and {len(labels) - MOST_LABELS_LISTED} more" * (len(labels) > MOST_LABELS_LISTED)
    if kind == "tags":
        return f"Predicts a tag for each word: {listed}"
    return f"Predicts the class of {of}, one of {len(labels)}: {listed}"


def _scores(result: dict[str, Any]) -> str:
    """Return the scores of the kept seed and, of several seeds, their mean and deviation."""
    (best,) = (seed for seed in result["seeds"] if seed["seed"] == result["best_seed"])
    several = len(result["seeds"]) > 1
    untrained = result.get("untrained")
    columns = ["metric", f"seed {best['seed']}", *(["mean", "std"] if several else [])]
    columns += ["without training"] if untrained else []
    rows = []
    for metric, value in best["scores"].items():
        values = [value, *([result["mean"][metric], result["std"][metric]] if several else [])]
        values += [untrained[metric]] if untrained else []
        rows.append([Cell(metric), *(Cell(f"{value:.4f}") for value in values)])
    note = f"The first metric selects the best of {len(result['seeds'])} seeds." if several else ""
    return f"{markdown(Table('', tuple(columns), rows, []))}\n{note}"


def _files(result: dict[str, Any], identity: dict[str, Any]) -> str:
    rows = [
        [Cell(split), Cell(info["file"]), Cell(f"{info['rows']:,}"), Cell(identity[split])]
        for split, info in ((split, result[split]) for split in ("train", "dev"))
    ]
    return markdown(Table("", ("split", "file", "rows", "SHA-256"), rows, []))

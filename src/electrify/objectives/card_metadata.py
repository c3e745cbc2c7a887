"""The YAML at the top of a model card, which the Hugging Face Hub reads.

A field that is not known is left out. Every score names the file it comes from and its SHA-256.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCardData

SENTENCES_LIBRARY = "sentence-transformers"


class CardScore(NamedTuple):
    """One score of a model, and the file that it is read from."""

    dataset: str
    """Name for people, such as "GLUE CoLA"."""
    dataset_id: str
    """Name on the Hub, such as nyu-mll/glue; the name of the task if the Hub has none."""
    config: str
    split: str
    task_type: str
    """Kind of task as the Hub names it, such as text-classification."""
    metric: str
    value: float
    network: str
    """Role of the network that was evaluated."""
    file: str
    sha256: str
    seed: int | None = None
    settings: str = ""
    """How it was evaluated: hyperparameters, the number of training rows or of pairs."""


class CardDetails(NamedTuple):
    """What a card says that a run does not know."""

    language: Sequence[str] = ()
    license: str = ""
    datasets: Sequence[str] = ()
    base_model: str = ""
    scores: Sequence[CardScore] = ()


NO_DETAILS = CardDetails()
METRIC_IDS = {
    "mcc": "matthews_correlation",
    "spearman": "spearmanr",
    "pearson": "pearsonr",
    "exact": "exact_match",
}
"""Our names of metrics that the Hub names differently."""


def front_matter(
    name: str, model_type: str, pipeline: str, details: CardDetails, pooling: str = ""
) -> str:
    """Return the YAML of a card, between its two lines of dashes."""
    library = SENTENCES_LIBRARY if pooling else "transformers"
    given: Mapping[str, Any] = {
        "language": list(details.language),
        "license": details.license,
        "library_name": library,
        "pipeline_tag": pipeline,
        "tags": list(
            dict.fromkeys(
                ["electra", "pretraining", "electrify", model_type]
                + ([SENTENCES_LIBRARY] if pooling else [])
            )
        ),
        "datasets": list(details.datasets),
        "base_model": details.base_model,
        # The library writes the model index only if it has both.
        "model_name": name if details.scores else None,
        "eval_results": [_eval_result(score) for score in details.scores],
    }
    known = {field: value for field, value in given.items() if value}
    return f"---\n{ModelCardData(**known).to_yaml()}\n---"


def _eval_result(score: CardScore) -> EvalResult:
    seed = {} if score.seed is None else {"seed": score.seed}
    return EvalResult(
        task_type=score.task_type,
        dataset_type=score.dataset_id,
        dataset_name=score.dataset,
        dataset_config=score.config or None,
        dataset_split=score.split,
        metric_type=METRIC_IDS.get(score.metric, score.metric),
        metric_name=score.metric if score.seed is None else f"{score.metric}, seed {score.seed}",
        metric_value=score.value,
        metric_args={
            **seed,
            **({"settings": score.settings} if score.settings else {}),
            "network": score.network,
            "result_file": score.file,
            "sha256": score.sha256,
        },
    )


def score_section(scores: Sequence[CardScore]) -> list[str]:
    """Return a table of scores, means over seeds, and the files that they are read from.

    Only scores of the same result folder and settings are averaged: the same task may have been
    run with all training rows and, to try it out, with a few.
    """
    groups: dict[tuple[str, ...], list[CardScore]] = {}
    for score in scores:
        about = (score.dataset, score.config, score.split, score.metric, score.network)
        key = (*about, score.settings, Path(score.file).parts[0])
        groups.setdefault(key, []).append(score)
    rows = []
    for (dataset, _, split, metric, network, settings, _), group in groups.items():
        mean = sum(score.value for score in group) / len(group)
        seeds = [score.seed for score in group if score.seed is not None]
        files = {score.file: score.sha256 for score in group}
        hashes = ", ".join(f"`{digest[:12]}`" for digest in files.values())
        rows.append(
            f"| {dataset} | {split} | {metric} | {mean:.4f} | {len(seeds) or MISSING} | {network}"
            f" | {settings or MISSING} | {hashes} |"
        )
    files = dict(sorted({score.file: score.sha256 for score in scores}.items()))
    return [
        "## Scores",
        "",
        "Means over seeds. The `model-index` at the top of this file has every seed. Each score is"
        " read from the result file with the SHA-256 listed below.",
        "",
        "| task | split | metric | mean | seeds | network | settings | result files (SHA-256) |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *(f"- `{digest}` {name}" for name, digest in files.items()),
        "",
    ]


MISSING = "–"

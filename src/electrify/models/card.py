"""The model card of an exported network: what it is, from what, how well, and how it differs.

Everything in it is computed from the recipe, the manifest of the shards and the run's metrics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from electrify import __version__, config
from electrify.recipe import Recipe

ROLES = {
    "discriminator": "tells for every token whether it is original or was replaced: the network "
    "to fine-tune",
    "generator": "a masked language model, which proposed the replaced tokens",
    "model": "a masked language model, the baseline of the same size",
}
ROWS = {
    "generator_loss": "masked-LM loss",
    "generator_accuracy": "masked-LM accuracy",
    "discriminator_loss": "discriminator loss",
    "replaced_rate": "share of tokens replaced",
    "accuracy": "discriminator accuracy",
    "precision": "precision on replaced tokens",
    "recall": "recall on replaced tokens",
    "auc": "area under the ROC curve",
}


class Facts(NamedTuple):
    """What a card is written from."""

    recipe: Recipe
    step: int
    shards: Mapping[str, Any]
    """The manifest of the shards."""
    metrics: Mapping[str, float]
    """On held-out text, at `step`."""
    notes: Sequence[str]
    """What the pair could not share, and what released weights did not hold."""


def card(role: str, network: Any, facts: Facts) -> str:
    """A README.md for the folder of a network."""
    name = type(network).__name__
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "tags: [electra, pretraining, electrify]",
            "---",
            "",
            f"# {network.config.model_type} {role}",
            "",
            f"`{name}`, {network.num_parameters():,} parameters: {ROLES[role]}.",
            f"Trained {facts.step:,} of {facts.recipe.run.steps:,} steps by electrify {__version__}"
            f" on {_tokens_seen(facts):,} tokens, batches of {facts.recipe.run.batch_size} ×"
            f" {facts.recipe.run.length}.",
            "",
            "```python",
            f"from transformers import AutoTokenizer, {name}",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
            f'model = {name}.from_pretrained("FOLDER")',
            "```",
            "",
            "## On held-out text",
            "",
            *_metrics(facts.metrics),
            "",
            "## Data",
            "",
            *_data(facts.shards),
            "",
            "## Where this differs from the paper's code",
            "",
            *(f"- {line}" for line in [*deviations(facts.recipe, facts.shards), *facts.notes]),
            "",
            "## Recipe",
            "",
            "```toml",
            config.to_toml(_without_paths(facts.recipe)).strip(),
            "```",
            "",
        ]
    )


def _without_paths(recipe: Recipe) -> Recipe:
    """The recipe without folders of the machine it ran on."""
    for role in ("discriminator", "generator"):
        part = getattr(recipe, role)
        if Path(part.init_from).is_absolute():
            named = replace(part, init_from=Path(part.init_from).name)
            recipe = replace(recipe, **{role: named})
    return recipe


def _tokens_seen(facts: Facts) -> int:
    return facts.step * facts.recipe.run.batch_size * facts.recipe.run.length


def _metrics(metrics: Mapping[str, float]) -> list[str]:
    rows = [f"| {words} | {metrics[name]:.4f} |" for name, words in ROWS.items() if name in metrics]
    return ["| measure | value |", "|---|---|", *rows] if rows else ["Not measured."]


def _data(shards: Mapping[str, Any]) -> list[str]:
    identity = shards["identity"]
    counts = shards.get("splits", {}).get("train", {})
    lines = [
        f"- {source['name']}: {source['documents']:,} documents, manifest SHA-256"
        f" `{source['manifest_sha256'][:16]}…`"
        for source in identity.get("inputs", [])
    ]
    if counts:
        lines.append(f"- {counts['examples']:,} training examples, {counts['tokens']:,} tokens")
    tokenizer = identity.get("tokenizer", {})
    lines.append(
        f"- tokenizer: {tokenizer.get('vocab_size', 0):,} tokens, SHA-256"
        f" `{str(tokenizer.get('sha256'))[:16]}…`"
    )
    return lines


Differs = Callable[[Recipe], bool]
DEVIATIONS: list[tuple[Differs, str]] = [
    (
        lambda r: r.objective.kind == "mlm",
        "masked language modelling, not replaced token detection",
    ),
    (lambda r: r.discriminator.architecture != "electra", "another architecture than ELECTRA's"),
    (lambda r: r.discriminator.init_from != "", "started from released weights"),
    (
        lambda r: not r.objective.with_replacement,
        "masked positions are drawn without replacement (officially with; duplicates averaged)",
    ),
    (lambda r: r.objective.whole_words, "whole words are masked (officially tokens)"),
    (
        lambda r: r.objective.shown_as_mask != 0.85,
        "another share of hidden tokens shows [MASK] than 85 %",
    ),
    (lambda r: r.objective.disallow_correct, "the generator never proposes the original token"),
    (
        lambda r: r.objective.kind == "rtd" and r.sharing.embeddings != "tied",
        "generator and discriminator do not share all their tables",
    ),
    (
        lambda r: r.optimizer.kind != "electra-adam",
        "another optimizer than Adam without bias correction",
    ),
    (
        lambda r: r.optimizer.schedule != "electra",
        "another schedule than warm-up multiplied by linear decay",
    ),
    (lambda r: r.run.init != "official", "starting weights as the architecture has them"),
    (lambda r: r.run.output_bias != "zero", "output biases that start at token frequencies"),
]
ALWAYS = [
    "tokens are sampled by inverse CDF from one uniform number each: the distribution of the "
    "official Gumbel noise, other draws",
    "examples are visited in a new permutation each epoch (officially a local shuffle)",
    "metrics are on held-out text and over real tokens (officially training text, with padding)",
]


def deviations(recipe: Recipe, shards: Mapping[str, Any]) -> list[str]:
    """In words, where a run differs from what google-research/electra does."""
    found = [words for differs, words in DEVIATIONS if differs(recipe)]
    prepared = shards["identity"].get("settings", {})
    if prepared.get("layout", "electra") != "electra":
        found.append(f"examples in the layout {prepared['layout']}, not ELECTRA's")
    elif prepared.get("overflow", "drop") != "drop":
        found.append("what does not fit an example goes into the next (officially it is dropped)")
    return [*found, *ALWAYS]

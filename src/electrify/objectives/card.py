"""Model cards for exported networks.

Everything in a card is computed from the recipe, the shard manifest and the run's metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from transformers import CONFIG_MAPPING

from electrify import __version__, config
from electrify.models.export import ENCODER_ROLE
from electrify.models.pooling import POOLINGS
from electrify.objectives.card_metadata import (
    NO_DETAILS,
    CardDetails,
    front_matter,
    score_section,
)
from electrify.objectives.objective import Objective
from electrify.recipes.schedules import tokens_per_step
from electrify.recipes.schema import OBJECTIVES, Recipe, load
from electrify.storage.commit import flat

ENCODER_SUMMARY = (
    "the pre-trained backbone without a head, for fine-tuning: every transformers class of this "
    "architecture loads it and adds a new head"
)


class CardInputs(NamedTuple):
    """The inputs of a model card."""

    objective: Objective
    recipe: Recipe
    step: int
    shards: Mapping[str, Any]
    """The shard manifest."""
    metrics: Mapping[str, float]
    """Validation metrics at `step`."""
    steps: int
    """Number of steps of the run, including its extensions up to `step`."""
    extensions: Sequence[str] = ()
    """Descriptions of these extensions beyond the recipe's steps."""
    details: CardDetails = NO_DETAILS


class CardUse(NamedTuple):
    """How the reader of a card loads the model."""

    source: str = "FOLDER"
    """The folder or the Hub repository."""
    subfolder: str = ""
    revision: str = ""
    pooling: str = ""
    """How sentence-transformers pools the token vectors; empty for a folder of transformers."""
    contents: Sequence[str] = ()
    """Lines about what else the repository contains."""


PLAIN_USE = CardUse()


def card(role: str, network: Any, facts: CardInputs, use: CardUse = PLAIN_USE) -> str:
    """Return the README.md of a network's folder."""
    name, roles, run = type(network).__name__, facts.objective.roles, facts.recipe.run
    description = roles[role].description if role in roles else ENCODER_SUMMARY
    trained = replace(facts.recipe, run=replace(run, steps=facts.steps))
    return "\n".join(
        [
            front_matter(
                f"{network.config.model_type} {role}",
                network.config.model_type,
                "sentence-similarity" if use.pooling else pipeline_of(network, role),
                facts.details,
                use.pooling,
            ),
            "",
            f"# {network.config.model_type} {role}",
            "",
            f"`{name}`, {network.num_parameters():,} parameters: {description}.",
            f"Trained for {facts.step:,} of {facts.steps:,} steps with electrify {__version__} on"
            f" {_tokens(facts):,} tokens, in batches of"
            f" {run.batch_size} × {run.length}.",
            *(f"The recipe's steps were extended: {extended}." for extended in facts.extensions),
            "",
            *_usage(name, use),
            *(["## Also in this repository", "", *use.contents, ""] if use.contents else []),
            "## Validation metrics",
            "",
            *_metrics(facts),
            "",
            *(score_section(facts.details.scores) if facts.details.scores else []),
            "## Data",
            "",
            *_data(facts.shards),
            "",
            "## Differences from the official code",
            "",
            f"Compared with `{nearest_official(facts.recipe)}`, the nearest official recipe:",
            "",
            *(f"- {line}" for line in [*deviations(trained, facts.shards), *facts.objective.notes]),
            "",
            "## Recipe",
            "",
            "```toml",
            config.to_toml(_without_paths(facts.recipe)).strip(),
            "```",
            "",
        ]
    )


def pipeline_of(network: Any, role: str) -> str:
    """Return the Hub's name of what a network can be used for; empty if it has none.

    The Hub has no name for replaced token detection.
    """
    if role == ENCODER_ROLE:
        return "feature-extraction"
    return "fill-mask" if type(network).__name__.endswith("ForMaskedLM") else ""


def _usage(name: str, use: CardUse) -> list[str]:
    """Return Python code that loads the model."""
    options = {"subfolder": use.subfolder, "revision": use.revision}
    given = "".join(f', {option}="{value}"' for option, value in options.items() if value)
    if use.pooling:
        return [
            f"Sentence vectors: the {POOLINGS[use.pooling]}.",
            "",
            "```python",
            "from sentence_transformers import SentenceTransformer",
            "",
            f'model = SentenceTransformer("{use.source}"{given})',
            'vectors = model.encode(["A sentence.", "Another one."])',
            "```",
            "",
        ]
    return [
        "```python",
        f"from transformers import AutoTokenizer, {name}",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{use.source}"{given})',
        f'model = {name}.from_pretrained("{use.source}"{given})',
        "```",
        "",
    ]


def _without_paths(recipe: Recipe) -> Recipe:
    """Return the recipe without absolute paths of the machine that it ran on."""
    for role in ("discriminator", "generator"):
        part = getattr(recipe, role)
        if Path(part.init_from).is_absolute():
            part = replace(part, init_from=Path(part.init_from).name)
            recipe = replace(recipe, **{role: part})
    return recipe


def _tokens(facts: CardInputs) -> int:
    done = facts.step / max(facts.steps, 1)
    return round(facts.step * tokens_per_step(facts.recipe, 0.0, done))


def _metrics(facts: CardInputs) -> list[str]:
    rows = [
        f"| {metric.card} | {facts.metrics[name]:.4f} |"
        for name, metric in facts.objective.shown.items()
        if metric.card and facts.metrics.get(name) is not None
    ]
    return ["| metric | value |", "|---|---|", *rows] if rows else ["Not evaluated."]


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


# A run is compared with the closest of the official sizes.
OFFICIAL_RECIPES = ("electra-small", "electra-small-plus", "electra-base", "electra-large")
# Fields that do not affect what is learned, apart from randomness.
NOT_COMPARED = {
    f"run.{name}"
    for name in (
        *("seed", "log_every", "eval_every", "eval_batches"),
        *("save_every", "keep_last", "keep_percent"),
    )
}
# Descriptions of differences, with our value and the official one.
DIFFERENCE_TEXTS = {
    "discriminator.architecture": "the architecture is {ours} (officially {official})",
    "discriminator.init_from": "the discriminator starts from released weights ({ours})",
    "generator.architecture": "the generator's architecture is {ours}",
    "generator.width": "the generator is {ours:.1%} as wide as the discriminator"
    " (officially {official:.1%})",
    "generator.depth": "the generator is {ours:.1%} as deep as the discriminator"
    " (officially {official:.1%})",
    "generator.init_from": "the generator starts from released weights ({ours})",
    "sharing.embeddings": "shared embeddings: {ours} (officially {official}: all embeddings and"
    " their LayerNorm)",
    "sharing.projection": "generator and discriminator share the embedding projection",
    "sharing.encoder": "generator and discriminator share one encoder (officially two)",
    "objective.kind": "the objective is {ours}, not replaced token detection",
    "objective.mask_rate": "{ours:.1%} of the tokens are masked (officially {official:.1%})",
    "objective.shown_as_mask": "{ours:.1%} of the masked tokens are replaced by [MASK] (officially"
    " {official:.1%})",
    "objective.with_replacement": "masked positions are drawn without replacement (officially with;"
    " duplicates averaged)",
    "objective.whole_words": "whole words are masked (officially tokens)",
    "objective.generator_weight": "the generator's loss has weight {ours:.4g} (officially"
    " {official:.4g})",
    "objective.discriminator_weight": "the discriminator's loss has weight {ours:.4g} (officially"
    " {official:.4g})",
    "objective.temperature": "tokens are sampled at temperature {ours:.4g} (officially"
    " {official:.4g})",
    "objective.disallow_correct": "the generator never proposes the original token",
    "optimizer.kind": "the optimizer is {ours} (officially Adam without bias correction)",
    "optimizer.lr": "the peak learning rate is {ours:.4g} (officially {official:.4g})",
    "optimizer.beta1": "Adam's beta1 is {ours:.4g} (officially {official:.4g})",
    "optimizer.beta2": "Adam's beta2 is {ours:.4g} (officially {official:.4g})",
    "optimizer.eps": "Adam's epsilon is {ours:.4g} (officially {official:.4g})",
    "optimizer.weight_decay": "weight decay is {ours:.4g} (officially {official:.4g})",
    "optimizer.clip": "gradients are clipped to a norm of {ours:.4g} (officially {official:.4g})",
    "optimizer.schedule": "the schedule is {ours} (officially warm-up multiplied by linear decay)",
    "optimizer.generator_lr": "the generator's own weights have {ours:.4g} times the learning rate",
    "optimizer.warmup": "{ours:,} steps of warm-up (officially {official:,})",
    "run.steps": "{ours:,} steps (officially {official:,})",
    "run.batch_size": "batches of {ours:,} examples (officially {official:,})",
    "run.length": "examples of {ours:,} tokens (officially {official:,})",
    "run.init": "weights are initialized as in transformers",
    "run.output_bias": "output biases are initialized at token frequencies (officially at zero)",
    "run.new_embeddings": "embeddings of tokens that released weights lack start {ours}",
    "run.packing": "several examples are packed into each row (officially one)",
    "run.attn_implementation": "the attention is {ours}",
    "run.precision": "matmuls in {ours} (officially {official})",
    **{
        f"schedules.{name}": f"{text} changes: {{ours}} (fraction of the steps, value)"
        for name, text in {
            "mask_rate": "the fraction of masked tokens",
            "temperature": "the sampling temperature",
            "generator_weight": "the weight of the generator's loss",
            "discriminator_weight": "the weight of the discriminator's loss",
            "length": "the length of the rows",
            "batch_size": "the batch size",
        }.items()
    },
}
TEXTS_FOR_ZERO = {
    "optimizer.clip": "gradients are not clipped (officially to a norm of {official:.4g})"
}
ALWAYS = [
    "tokens are sampled by inverse CDF from one uniform number each: the same distribution as "
    "the official Gumbel noise, but different draws",
    "examples are visited in a new permutation every epoch (officially a local shuffle)",
    "metrics are computed on validation text without padding (officially on training text, with "
    "padding)",
]


def deviations(recipe: Recipe, shards: Mapping[str, Any]) -> list[str]:
    """Return descriptions of how a run differs from google-research/electra."""
    differences = recipe_differences(_without_paths(recipe))
    prepared = shards["identity"].get("settings", {})
    if prepared.get("layout", "electra") != "electra":
        differences.append(f"examples use the layout {prepared['layout']}, not ELECTRA's")
    elif prepared.get("overflow", "drop") != "drop":
        differences.append("overflowing text continues in the next example (officially dropped)")
    return [*differences, *ALWAYS]


def recipe_differences(recipe: Recipe) -> list[str]:
    """Return a description of every setting that differs from the nearest official recipe.

    A field without a description is listed with both values, so that none can be left out.
    """
    differences = _differences(recipe, official(nearest_official(recipe)))
    return [_describe(name, ours, theirs) for name, (ours, theirs) in differences.items()]


def nearest_official(recipe: Recipe) -> str:
    """Return the official recipe with the most similar discriminator and example length."""

    def distance(name: str) -> int:
        differences = _differences(recipe, official(name))
        return sum(field.startswith(("discriminator.", "run.length")) for field in differences)

    return min(OFFICIAL_RECIPES, key=distance)


def official(name: str) -> Recipe:
    """Return a shipped recipe with the one detail of the official code that it does not copy."""
    shipped = load(name)
    return replace(shipped, objective=replace(shipped.objective, with_replacement=True))


def _differences(recipe: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return our value and the official one for every setting that differs."""
    ours, theirs = _settings(recipe), _settings(other)
    skipped = [f"{name}." for name in OBJECTIVES[recipe.objective.kind].unused]
    if recipe.discriminator.init_from or recipe.discriminator.architecture != "electra":
        skipped.append("discriminator.config.")  # sizes of other architectures are not comparable
    pairs = {name: (ours.get(name), theirs.get(name)) for name in ours | theirs}
    return {
        name: (a, b)
        for name, (a, b) in pairs.items()
        if a != b and name not in NOT_COMPARED and not f"{name}.".startswith(tuple(skipped))
    }


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Return all settings by name, including each field of a network's config."""
    settings = flat(config.to_dict(recipe))
    if recipe.discriminator.architecture == "electra" and not recipe.discriminator.init_from:
        defaults = CONFIG_MAPPING["electra"]()
        sizes = {key for name in OFFICIAL_RECIPES for key in load(name).discriminator.config}
        for key in sorted(sizes):
            settings.setdefault(f"discriminator.config.{key}", getattr(defaults, key))
    return settings


def _describe(name: str, ours: Any, theirs: Any) -> str:
    template = DIFFERENCE_TEXTS.get(name, f"{name} = {{ours}} (officially {{official}})")
    if name == "objective.kind":
        ours = OBJECTIVES[ours].title
    if ours == 0:
        template = TEXTS_FOR_ZERO.get(name, template)
    return template.format(ours=ours, official="not set" if theirs is None else theirs)

"""The model card of an exported network: what it is, from what, how well, and how it differs.

Everything in it is computed from the recipe, the manifest of the shards and the run's metrics.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from transformers import CONFIG_MAPPING

from electrify import __version__, config
from electrify.objectives.objective import Objective
from electrify.recipes.schema import OBJECTIVES, Recipe, load

ENCODER_SUMMARY = (
    "the pre-trained backbone without a head, to fine-tune: every class of transformers for this "
    "architecture loads it and adds a new head"
)


class Facts(NamedTuple):
    """What a card is written from."""

    objective: Objective
    recipe: Recipe
    step: int
    shards: Mapping[str, Any]
    """The manifest of the shards."""
    metrics: Mapping[str, float]
    """On the validation set, at `step`."""


def card(role: str, network: Any, facts: Facts) -> str:
    """A README.md for the folder of a network."""
    name, roles = type(network).__name__, facts.objective.roles
    says = roles[role].says if role in roles else ENCODER_SUMMARY
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "tags: [electra, pretraining, electrify]",
            "---",
            "",
            f"# {network.config.model_type} {role}",
            "",
            f"`{name}`, {network.num_parameters():,} parameters: {says}.",
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
            *_metrics(facts),
            "",
            "## Data",
            "",
            *_data(facts.shards),
            "",
            "## Where this differs from the paper's code",
            "",
            f"Compared with `{nearest_official(facts.recipe)}`, the nearest official recipe:",
            "",
            *(
                f"- {line}"
                for line in [*deviations(facts.recipe, facts.shards), *facts.objective.notes]
            ),
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


def _metrics(facts: Facts) -> list[str]:
    rows = [
        f"| {metric.card} | {facts.metrics[name]:.4f} |"
        for name, metric in facts.objective.shown.items()
        if metric.card and facts.metrics.get(name) is not None
    ]
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


# The official sizes; a run is compared with the one that it is nearest to.
OFFICIAL_RECIPES = ("electra-small", "electra-small-plus", "electra-base", "electra-large")
# Fields that change nothing of what is learned, but for chance.
NOT_COMPARED = {
    f"run.{name}"
    for name in (
        *("seed", "log_every", "eval_every", "eval_batches"),
        *("save_every", "keep_last", "keep_percent"),
    )
}
# What a difference means, with our value and the official one.
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
    "sharing.projection": "generator and discriminator share the projection of the embeddings",
    "sharing.encoder": "generator and discriminator share one encoder (officially two)",
    "objective.kind": "the objective is {ours}, not replaced token detection",
    "objective.mask_rate": "{ours:.1%} of the tokens are masked (officially {official:.1%})",
    "objective.shown_as_mask": "{ours:.1%} of the masked tokens show [MASK] (officially"
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
    "optimizer.warmup": "{ours:,} steps of warm-up (officially {official:,})",
    "run.steps": "{ours:,} steps (officially {official:,})",
    "run.batch_size": "batches of {ours:,} examples (officially {official:,})",
    "run.length": "examples of {ours:,} tokens (officially {official:,})",
    "run.init": "starting weights as the architecture has them",
    "run.output_bias": "output biases start at token frequencies (officially at zero)",
    "run.precision": "matmuls in {ours} (officially {official})",
}
WORDS_FOR_ZERO = {
    "optimizer.clip": "gradients are not clipped (officially to a norm of {official:.4g})"
}
ALWAYS = [
    "tokens are sampled by inverse CDF from one uniform number each: the distribution of the "
    "official Gumbel noise, other draws",
    "examples are visited in a new permutation each epoch (officially a local shuffle)",
    "metrics are on held-out text and over real tokens (officially training text, with padding)",
]


def deviations(recipe: Recipe, shards: Mapping[str, Any]) -> list[str]:
    """In words, where a run differs from what google-research/electra does."""
    found = recipe_differences(_without_paths(recipe))
    prepared = shards["identity"].get("settings", {})
    if prepared.get("layout", "electra") != "electra":
        found.append(f"examples in the layout {prepared['layout']}, not ELECTRA's")
    elif prepared.get("overflow", "drop") != "drop":
        found.append("what does not fit an example goes into the next (officially it is dropped)")
    return [*found, *ALWAYS]


def recipe_differences(recipe: Recipe) -> list[str]:
    """In words, every setting in which a recipe differs from the nearest official one.

    A field that has no words is named with both values, so that none can be left out.
    """
    found = _differences(recipe, official(nearest_official(recipe)))
    return [_in_words(name, ours, theirs) for name, (ours, theirs) in found.items()]


def nearest_official(recipe: Recipe) -> str:
    """The official recipe whose discriminator and examples are the most like a recipe's."""

    def unlike(name: str) -> int:
        found = _differences(recipe, official(name))
        return sum(one.startswith("discriminator.") or one == "run.length" for one in found)

    return min(OFFICIAL_RECIPES, key=unlike)


def official(name: str) -> Recipe:
    """A shipped recipe with the one detail of the official code that it does not copy."""
    shipped = load(name)
    return replace(shipped, objective=replace(shipped.objective, with_replacement=True))


def _differences(recipe: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """Our value and the official one of every setting that differs."""
    ours, theirs = _settings(recipe), _settings(other)
    if recipe.discriminator.init_from or recipe.discriminator.architecture != "electra":
        ours, theirs = (  # what sizes it has, no official recipe can be compared with
            {name: v for name, v in one.items() if not name.startswith("discriminator.config.")}
            for one in (ours, theirs)
        )
    if unused := OBJECTIVES[recipe.objective.kind].unused:
        prefixes = tuple(f"{name}." for name in unused)
        ours = {name: v for name, v in ours.items() if not f"{name}.".startswith(prefixes)}
        theirs = {name: value for name, value in theirs.items() if name in ours}
    names = [*ours, *(name for name in theirs if name not in ours)]
    pairs = {name: (ours.get(name), theirs.get(name)) for name in names}
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b and name not in NOT_COMPARED}


def _settings(recipe: Recipe) -> dict[str, Any]:
    """All settings by name, and each field of a network's configuration by its own."""
    found: dict[str, Any] = {}
    for part in fields(Recipe):
        section = getattr(recipe, part.name)
        for one in fields(section):
            name, value = f"{part.name}.{one.name}", getattr(section, one.name)
            if isinstance(value, dict):
                found |= {f"{name}.{key}": of_key for key, of_key in value.items()}
            else:
                found[name] = value
    if recipe.discriminator.architecture == "electra" and not recipe.discriminator.init_from:
        defaults = CONFIG_MAPPING["electra"]()
        sizes = {key for name in OFFICIAL_RECIPES for key in load(name).discriminator.config}
        for key in sorted(sizes):
            found.setdefault(f"discriminator.config.{key}", getattr(defaults, key))
    return found


def _in_words(name: str, ours: Any, theirs: Any) -> str:
    words = DIFFERENCE_TEXTS.get(name, f"{name} = {{ours}} (officially {{official}})")
    if name == "objective.kind":
        ours = OBJECTIVES[ours].title
    if ours == 0:
        words = WORDS_FOR_ZERO.get(name, words)
    return words.format(ours=ours, official="not set" if theirs is None else theirs)

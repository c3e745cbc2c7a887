"""Which metrics of replaced token detection are normal, and which are alarming.

One reading of the official code is public; chance levels hold for every run.
"""

from math import log

from electrify.objectives.bands import (
    Alarm,
    Metrics,
    Reference,
    Seen,
    Sizes,
    masked_lm_reading,
    not_learning,
)

EARLY_AUC = 0.8
"""Below it hardly any token is more likely replaced than not, so recall says nothing."""


# google-research/electra issue 81: evaluated by the official code; its settings are not stated, and
# its losses fit those that the code has by default, ELECTRA-small's.
OFFICIAL_REFERENCE = Reference(
    5_000,
    {
        "generator_loss": 7.134,
        "generator_accuracy": 0.032,
        "discriminator_loss": 0.359,
        "accuracy": 0.867,
        "precision": 0.759,
        "recall": 0.048,
        "auc": 0.682,
    },
)
NEAR = 1.25  # a reading says something about steps up to this factor away
_LABELS = {
    "generator_loss": ("generator loss", ".2f"),
    "discriminator_loss": ("discriminator loss", ".3f"),
    "auc": ("AUC", ".2f"),
    "recall": ("recall (at 0.5)", ".2f"),
}


def base_rate_loss(replaced_rate: float) -> float:
    """The loss of a discriminator that says the same for every token: the entropy of the rate.

    >>> f"{base_rate_loss(0.138):.2f}"
    '0.40'
    """
    if replaced_rate in (0, 1):
        return 0.0
    return -replaced_rate * log(replaced_rate) - (1 - replaced_rate) * log(1 - replaced_rate)


def constant_level(sizes: Sizes, latest: Metrics) -> list[tuple[float, str]]:
    """Return the loss of one answer for every token, at the last replaced rate."""
    if "replaced_rate" not in latest:
        return []
    loss = base_rate_loss(latest["replaced_rate"])
    return [(loss, f"one answer for all {loss:.3f}")]


def verdict(sizes: Sizes, step: int, metrics: Metrics) -> str:
    """Compare validation metrics with chance and with the reference."""
    said = masked_lm_reading("generator loss", metrics["generator_loss"], sizes)
    constant = base_rate_loss(metrics["replaced_rate"])
    said.append(
        f"discriminator loss {metrics['discriminator_loss']:.3f}, "
        f"the same answer for every token gives {constant:.3f}"
    )
    if metrics["recall"] < 0.1 and metrics["auc"] < EARLY_AUC:
        said.append(
            f"recall at 0.5 of {metrics['recall']:.2f} is normal at AUC {metrics['auc']:.2f}"
        )
    return "; ".join([*said, _against_reference(sizes, step, metrics)])


def _against_reference(sizes: Sizes, step: int, metrics: Metrics) -> str:
    if unlike := _unlike_official(sizes):
        return f"no reference for {unlike}"
    if not OFFICIAL_REFERENCE.step / NEAR <= step <= OFFICIAL_REFERENCE.step * NEAR:
        return f"no reference at step {step:,}, only at {OFFICIAL_REFERENCE.step:,}"
    pairs = [
        f"{label} {metrics[name]:{form}} ({OFFICIAL_REFERENCE.metrics[name]:{form}})"
        for name, (label, form) in _LABELS.items()
    ]
    return f"reference at step {OFFICIAL_REFERENCE.step:,} in brackets: {', '.join(pairs)}"


def reference(sizes: Sizes) -> Reference | None:
    """The one public reading, if a run of these sizes may stand beside it."""
    return None if _unlike_official(sizes) else OFFICIAL_REFERENCE


def _unlike_official(sizes: Sizes) -> str:
    """The first size in which a run is not like the reference; empty if it is like it."""
    like = Sizes(30_522, 0.15, 10_000, "rtd", "electra", 256, 128, 128)
    for name, here, there in zip(Sizes._fields, sizes, like, strict=True):
        if here != there:
            return f"{name} {here} (the only one known has {there})"
    return ""


def _constant(seen: Seen) -> float:
    """The discriminator's loss if it said the same for every token."""
    return base_rate_loss(seen["replaced_rate"])


def _greedy(seen: Seen) -> bool:
    """Whether samples are right as often as the likeliest tokens are, so are the likeliest."""
    right = seen["generator_accuracy"]
    return right > 0.15 and seen["replaced_rate"] < 1.02 * seen.sizes.mask_rate * (1 - right)


ALARMS = (
    not_learning(
        "generator",
        "generator_loss",
        "the generator is frozen or has no weight (objective.generator_weight); its tie to the "
        "word table is broken (sharing.embeddings); the learning rate is far off (optimizer.lr)",
    ),
    Alarm(
        "too many replaced",
        lambda seen: seen["replaced_rate"] > 1.25 * seen.sizes.mask_rate,
        lambda seen: (
            f"the replaced rate is off: {seen['replaced_rate']:.3f} of the tokens, but only "
            f"{seen.sizes.mask_rate} are chosen (objective.mask_rate). Usual causes: tokens "
            "outside the slots are changed or labelled; examples of a few tokens, which have one "
            "slot at least (electrify prepare --length)"
        ),
    ),
    Alarm(
        "too few replaced",
        lambda seen: (
            seen["replaced_rate"] < 0.5 * seen.sizes.mask_rate * (1 - seen["generator_accuracy"])
        ),
        lambda seen: (
            f"the replaced rate is off: {seen['replaced_rate']:.3f} of the tokens, where "
            f"objective.mask_rate = {seen.sizes.mask_rate} and a generator that is right in "
            f"{seen['generator_accuracy']:.0%} of the slots leave about "
            f"{seen.sizes.mask_rate * (1 - seen['generator_accuracy']):.3f}. Usual causes: slots "
            "are left unused; the originals are sampled instead of the generator's tokens; labels "
            "are lost"
        ),
    ),
    Alarm(
        "generator too strong",
        lambda seen: (
            seen["replaced_rate"] < 0.2 * seen.sizes.mask_rate and seen["generator_accuracy"] > 0.6
        ),
        lambda seen: (
            f"the generator is too strong: only {seen['replaced_rate']:.3f} of the tokens are "
            f"replaced, of {seen.sizes.mask_rate} that are chosen, so the discriminator has little "
            "to find. Usual causes: the generator is too large (generator.width, generator.depth: "
            "a quarter to a half is usual); a small text is learned by heart; the temperature is "
            "low (objective.temperature). objective.mask_rate and objective.disallow_correct "
            "bring more replacements"
        ),
    ),
    Alarm(
        "giveaway",
        lambda seen: (
            seen["generator_accuracy"] < 0.35
            and (seen["auc"] > 0.99 or (seen["auc"] > 0.8 and _greedy(seen)))
        ),
        lambda seen: (
            f"replacements give themselves away: AUC {seen['auc']:.3f}, although the generator is "
            f"right in only {seen['generator_accuracy']:.0%} of the slots. Usual causes: it "
            "always samples the same few tokens (objective.temperature is low); it is frozen or "
            "too weak (objective.generator_weight, generator.width, generator.depth)"
        ),
    ),
    Alarm(
        "worse than constant",
        lambda seen: seen["discriminator_loss"] > 1.1 * _constant(seen) > 0,
        lambda seen: (
            f"the discriminator is worse than one that says the same for every token: loss "
            f"{seen['discriminator_loss']:.3f} after {seen.step:,} steps, against "
            f"{_constant(seen):.3f} (replaced rate {seen['replaced_rate']:.3f}). Usual causes: it "
            "is frozen or has no weight (objective.discriminator_weight); the learning rate is too "
            "high (optimizer.lr, optimizer.warmup)"
        ),
    ),
    Alarm(
        "blind",
        lambda seen: (
            seen["auc"] < 0.53
            and not seen.rising
            and seen["discriminator_loss"] <= 1.1 * _constant(seen)
        ),
        lambda seen: (
            f"the discriminator says 'original' for everything: AUC {seen['auc']:.2f} after "
            f"{seen.step:,} steps, loss {seen['discriminator_loss']:.3f}, which is the base-rate "
            f"plateau ({_constant(seen):.3f} at replaced rate {seen['replaced_rate']:.3f}). Usual "
            "causes: the generator is too strong (generator.width, generator.depth); a tie is "
            "broken (sharing.embeddings); the learning rate is too high or the warm-up too short "
            "(optimizer.lr, optimizer.warmup); objective.discriminator_weight is too low. A "
            "body with post-norm may only need more steps"
        ),
    ),
    Alarm(
        "fallen back",
        # A fall by a third is healthy: the generator has left its plateau, and the task is harder.
        lambda seen: seen.best > 0.65 and seen["auc"] < 0.5 + (seen.best - 0.5) / 4,
        lambda seen: (
            f"the discriminator has lost what it had: AUC {seen['auc']:.2f} at step {seen.step:,}, "
            f"{seen.best:.2f} before. Usual causes: the generator has become too strong "
            "(generator.width, generator.depth); the learning rate is too high (optimizer.lr). "
            "Go on from an earlier checkpoint"
        ),
    ),
)

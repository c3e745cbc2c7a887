"""Reference values and alarms for the metrics of replaced token detection.

Only one set of metrics of the official code is public; chance levels apply to every run.
"""

from math import log, nan

from electrify.objectives.bands import (
    Alarm,
    Detection,
    Metrics,
    Observation,
    Reference,
    Sizes,
    masked_lm_details,
    masked_lm_reading,
    not_learning,
    sentence,
)

EARLY_AUC = 0.8
"""Below it, hardly any probability exceeds 0.5, so recall at 0.5 is not informative."""


# google-research/electra issue 81: evaluated by the official code; its settings are not stated, but
# its losses are consistent with the code's defaults, ELECTRA-small.
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
NEAR = 1.25  # the reference applies to steps up to this factor away
_LABELS = {
    "generator_loss": ("generator loss", ".2f"),
    "discriminator_loss": ("discriminator loss", ".3f"),
    "auc": ("AUC", ".2f"),
    "recall": ("recall (at 0.5)", ".2f"),
}


def base_rate_loss(replaced_rate: float) -> float:
    """Return the loss of a constant answer for every token: the entropy of the replaced rate.

    >>> f"{base_rate_loss(0.138):.2f}"
    '0.40'
    """
    if replaced_rate in (0, 1):
        return 0.0
    return -replaced_rate * log(replaced_rate) - (1 - replaced_rate) * log(1 - replaced_rate)


def constant_level(sizes: Sizes, latest: Metrics) -> list[tuple[float, str]]:
    """Return the loss of a constant answer at the latest replaced rate."""
    if "replaced_rate" not in latest:
        return []
    loss = base_rate_loss(latest["replaced_rate"])
    return [(loss, f"constant answer {loss:.3f}")]


def rtd_detection(metrics: Metrics) -> Detection | None:
    """Return how well replaced tokens are detected; None if it was not evaluated.

    Older runs did not measure the recall at a fixed false-alarm rate, but their threshold flags as
    many tokens as were replaced, so the tokens missed are as many as the false alarms.
    """
    if "auc" not in metrics:
        return None
    if "recall_at_5" in metrics:
        return Detection(metrics["auc"], metrics["recall_at_5"])
    rate, alarms = metrics.get("replaced_rate", nan), metrics.get("false_alarm_rate", nan)
    missed = alarms * (1 - rate) / rate if rate else nan
    return Detection(metrics["auc"], max(0.0, 1 - missed) if missed == missed else nan, alarms)


def rtd_reading(sizes: Sizes, metrics: Metrics) -> str:
    """Interpret validation metrics in one sentence."""
    clauses = [masked_lm_reading("generator", metrics["generator_loss"], sizes, metrics)]
    if metrics["discriminator_loss"] >= base_rate_loss(metrics["replaced_rate"]):
        clauses.append("the discriminator does not beat a constant answer yet")
    return sentence(", and ".join(filter(None, clauses)))


def rtd_details(sizes: Sizes, step: int, metrics: Metrics) -> list[str]:
    """Compare validation metrics with guessing and with the published reference."""
    sentences = masked_lm_details("Generator loss", metrics["generator_loss"], sizes, metrics)
    constant = base_rate_loss(metrics["replaced_rate"])
    sentences.append(
        f"Discriminator loss {metrics['discriminator_loss']:.3f}: the same answer for every token "
        f"gives {constant:.3f}."
    )
    if metrics["recall"] < 0.1 and metrics["auc"] < EARLY_AUC:
        sentences.append(
            f"A recall of {metrics['recall']:.2f} at threshold 0.5 is normal at an AUC of "
            f"{metrics['auc']:.2f}."
        )
    return [*sentences, _against_reference(sizes, step, metrics)]


def _against_reference(sizes: Sizes, step: int, metrics: Metrics) -> str:
    if difference := _difference_from_official(sizes):
        return f"No reference values for {difference}."
    if not OFFICIAL_REFERENCE.step / NEAR <= step <= OFFICIAL_REFERENCE.step * NEAR:
        return f"No reference values at step {step:,}, only at {OFFICIAL_REFERENCE.step:,}."
    pairs = [
        f"{label} {metrics[name]:{form}} ({OFFICIAL_REFERENCE.metrics[name]:{form}})"
        for name, (label, form) in _LABELS.items()
    ]
    return (
        "Compared with a run of the official code at step "
        f"{OFFICIAL_REFERENCE.step:,} (in parentheses): {', '.join(pairs)}."
    )


def reference(sizes: Sizes) -> Reference | None:
    """Return the published reference if a run of these sizes is comparable with it."""
    return None if _difference_from_official(sizes) else OFFICIAL_REFERENCE


def _difference_from_official(sizes: Sizes) -> str:
    """Return the first size that differs from the reference; empty if none does."""
    official = Sizes(30_522, 0.15, 10_000, "rtd", "electra", 256, 128, 128)
    for name, ours, theirs in zip(Sizes._fields, sizes, official, strict=True):
        if ours != theirs:
            return f"{name} {ours} (the only published run has {theirs})"
    return ""


def _constant(seen: Observation) -> float:
    """Return the discriminator's loss if it gave every token the same answer."""
    return base_rate_loss(seen["replaced_rate"])


def _greedy(seen: Observation) -> bool:
    """Return whether samples are correct as often as the argmax, so sampling is greedy."""
    accuracy = seen["generator_accuracy"]
    return accuracy > 0.15 and seen["replaced_rate"] < 1.02 * seen.sizes.mask_rate * (1 - accuracy)


ALARMS = (
    not_learning(
        "generator",
        "generator_loss",
        "it is frozen or its loss has no weight (objective.generator_weight); weight tying with "
        "the embedding matrix is broken (sharing.embeddings); the learning rate is much too high "
        "or too low (optimizer.lr)",
    ),
    Alarm(
        "too many replaced",
        lambda seen: seen["replaced_rate"] > 1.25 * seen.sizes.mask_rate,
        lambda seen: (
            f"the replaced rate is too high: {seen['replaced_rate']:.3f} of the tokens, but only "
            f"{seen.sizes.mask_rate} are masked (objective.mask_rate). Usual causes: tokens "
            "outside the masked positions are changed or labelled; very short examples, which have "
            "at least one masked position (electrify prepare --length)"
        ),
    ),
    Alarm(
        "too few replaced",
        lambda seen: (
            seen["replaced_rate"] < 0.5 * seen.sizes.mask_rate * (1 - seen["generator_accuracy"])
        ),
        lambda seen: (
            f"the replaced rate is too low: {seen['replaced_rate']:.3f} of the tokens, while "
            f"objective.mask_rate = {seen.sizes.mask_rate} and a generator accuracy of "
            f"{seen['generator_accuracy']:.0%} give about "
            f"{seen.sizes.mask_rate * (1 - seen['generator_accuracy']):.3f}. Usual causes: masked "
            "positions are left unused; original tokens are sampled instead of the generator's; "
            "labels are lost"
        ),
    ),
    Alarm(
        "generator too strong",
        lambda seen: (
            seen["replaced_rate"] < 0.2 * seen.sizes.mask_rate and seen["generator_accuracy"] > 0.6
        ),
        lambda seen: (
            f"the generator is too strong: only {seen['replaced_rate']:.3f} of the tokens are "
            f"replaced, out of {seen.sizes.mask_rate} that are masked, so the discriminator has "
            "little to find. Usual causes: the generator is too large (generator.width, "
            "generator.depth: a quarter to a half is usual); a small corpus is memorized; the "
            "temperature is low (objective.temperature). objective.mask_rate and "
            "objective.disallow_correct give more replacements"
        ),
    ),
    Alarm(
        "giveaway",
        lambda seen: (
            seen["generator_accuracy"] < 0.35
            and (seen["auc"] > 0.99 or (seen["auc"] > 0.8 and _greedy(seen)))
        ),
        lambda seen: (
            f"replaced tokens are too easy to detect: AUC {seen['auc']:.3f}, although the "
            f"generator accuracy is only {seen['generator_accuracy']:.0%}. Usual causes: it always "
            "samples the same few tokens (objective.temperature is low); it is frozen or too "
            "weak (objective.generator_weight, generator.width, generator.depth)"
        ),
    ),
    Alarm(
        "worse than constant",
        lambda seen: seen["discriminator_loss"] > 1.1 * _constant(seen) > 0,
        lambda seen: (
            f"the discriminator is worse than a constant answer for every token: loss "
            f"{seen['discriminator_loss']:.3f} after {seen.step:,} steps, compared with "
            f"{_constant(seen):.3f} (replaced rate {seen['replaced_rate']:.3f}). Usual causes: it "
            "is frozen or its loss has no weight (objective.discriminator_weight); the learning "
            "rate is too high (optimizer.lr, optimizer.warmup)"
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
            f"the discriminator predicts 'original' for every token: AUC {seen['auc']:.2f} after "
            f"{seen.step:,} steps, loss {seen['discriminator_loss']:.3f}, which is the base-rate "
            f"plateau ({_constant(seen):.3f} at replaced rate {seen['replaced_rate']:.3f}). Usual "
            "causes: the generator is too strong (generator.width, generator.depth); weight tying "
            "is broken (sharing.embeddings); the learning rate is too high or the warm-up too "
            "short (optimizer.lr, optimizer.warmup); objective.discriminator_weight is too low. A "
            "post-norm encoder may only need more steps"
        ),
    ),
    Alarm(
        "fallen back",
        # A drop by a third is healthy: the generator has left its plateau and the task is harder.
        lambda seen: seen.best > 0.65 and seen["auc"] < 0.5 + (seen.best - 0.5) / 4,
        lambda seen: (
            f"the discriminator has regressed: AUC {seen['auc']:.2f} at step {seen.step:,}, down "
            f"from {seen.best:.2f}. Usual causes: the generator has become too strong "
            "(generator.width, generator.depth); the learning rate is too high (optimizer.lr). "
            "Resume from an earlier checkpoint"
        ),
    ),
)

"""What is normal is called normal; every way to collapse is named, with its options."""

from math import log, nan

import pytest

from electrify.objectives.bands import Sizes, sizes_of
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.rtd import ReplacedTokenDetection
from electrify.objectives.rtd_bands import ALARMS, OFFICIAL_REFERENCE, base_rate_loss, verdict
from electrify.recipes import schema
from electrify.training.guard import REPEAT, Guard, GuardSettings

TINY = Sizes(vocab_size=8_000, warmup=100)
SMALL = sizes_of(schema.load("electra-small"), 30_522)
# Intervals of 50 steps of the recipe tiny on docstrings, 16 rows of 128: AUC rises while the
# generator is bad, falls when it guesses by frequency, rises, and falls as the generator learns.
HEALTHY_AUC = [0.701, 0.71, 0.543, 0.544, 0.54, 0.543, 0.557, 0.577, 0.619, 0.635, 0.647, 0.662]
HEALTHY_AUC += [0.674, 0.68, 0.686, 0.687, 0.674, 0.669, 0.657, 0.637, 0.626, 0.624, 0.624, 0.626]


def numbers(**changed: float) -> dict[str, float]:
    """Metrics of a healthy interval (tiny at step 400), some of them changed."""
    healthy = {
        "generator_loss": 6.308,
        "generator_accuracy": 0.18,
        "discriminator_loss": 0.394,
        "replaced_rate": 0.138,
        "accuracy": 0.862,
        "precision": 0.616,
        "recall": 0.004,
        "auc": 0.577,
    }
    return healthy | changed


def alarms(
    series, sizes: Sizes = TINY, interval: int = 50, objective=ReplacedTokenDetection
) -> list[tuple[int, str]]:
    watch = Guard(GuardSettings(), sizes, objective.alarms, objective.watched)
    steps = range(interval, interval * (len(series) + 1), interval)
    return [
        (step, text)
        for step, metrics in zip(steps, series, strict=True)
        for text in watch.observe(step, metrics)
    ]


COLLAPSES = {
    "the generator learns nothing": (
        {"generator_loss": log(8_000), "generator_accuracy": 0.0, "auc": 0.97, "recall": 0.8},
        ("frozen", "objective.generator_weight", "tie", "sharing.embeddings"),
    ),
    "replaced rate is off: 0.300": (
        {"replaced_rate": 0.3, "discriminator_loss": 0.5, "auc": 0.6},
        ("objective.mask_rate",),
    ),
    "replaced rate is off: 0.010": (
        {"replaced_rate": 0.01, "discriminator_loss": 0.05, "auc": 0.6},
        ("objective.mask_rate",),
    ),
    "the generator is too strong": (
        {"replaced_rate": 0.02, "generator_accuracy": 0.9, "discriminator_loss": 0.09, "auc": 0.6},
        ("generator.width", "generator.depth", "objective.temperature"),
    ),
    # measured: tiny at step 300 with objective.temperature = 0.02
    "replacements give themselves away": (
        {
            "generator_loss": 6.562,
            "generator_accuracy": 0.183,
            "discriminator_loss": 0.19,
            "replaced_rate": 0.121,
            "recall": 0.357,
            "auc": 0.946,
        },
        ("objective.temperature",),
    ),
    # measured: tiny at step 200 with objective.discriminator_weight = 0
    "worse than one that says the same": (
        {"replaced_rate": 0.142, "discriminator_loss": 0.835, "recall": 0.503, "auc": 0.513},
        ("objective.discriminator_weight", "optimizer.lr"),
    ),
    "says 'original' for everything: AUC 0.51": (
        {"discriminator_loss": 0.402, "recall": 0.0, "precision": nan, "auc": 0.51},
        ("too strong", "generator.width", "tie", "sharing.embeddings", "base-rate plateau"),
    ),
}


@pytest.mark.parametrize("words", COLLAPSES)
def test_each_collapse_is_named_once_within_500_steps(words):
    changed, named = COLLAPSES[words]
    given = alarms([numbers(**changed)] * 40)
    assert len(given) == 1, "one alarm of one kind in 2,000 steps"
    step, text = given[0]
    assert step <= 500
    assert words in text
    for name in named:
        assert name in text


def test_every_alarm_is_tried():
    assert len(COLLAPSES) + 1 == len(ALARMS), "falling back has its own test"


def test_every_option_that_an_alarm_names_exists():
    known = {
        f"{section}.{name}"
        for section, values in schema.config.to_dict(schema.Recipe()).items()
        for name in values
    }
    for changed, named in COLLAPSES.values():
        (_, text), *_ = alarms([numbers(**changed)] * 10)
        options = {word.strip("(),.;:") for word in text.split() if "." in word.strip("(),.;:")}
        options = {option for option in options if option[0].isalpha()}
        assert options <= known
        assert options >= {name for name in named if "." in name}


def test_an_alarm_is_given_again_after_a_while():
    blind = numbers(discriminator_loss=0.402, recall=0.0, auc=0.51)
    steps = [step for step, _ in alarms([blind] * 250)]
    assert steps == [400, 400 + REPEAT, 400 + 2 * REPEAT]


def test_a_healthy_tiny_run_gives_no_alarm():
    assert alarms([numbers(auc=auc) for auc in HEALTHY_AUC]) == []


def test_low_recall_and_an_auc_of_one_half_are_normal_early():
    """ELECTRA-small warms up for 10,000 steps; at 5,000 it was read to find 5 % of replacements."""
    rising = [0.5] * 30 + [0.5 + 0.18 * i / 20 for i in range(21)]
    plateau = [
        numbers(generator_loss=7.3, discriminator_loss=0.4, recall=0.0, precision=nan, auc=auc)
        for auc in rising
    ]
    official = OFFICIAL_REFERENCE.metrics | {"replaced_rate": 0.138}
    assert alarms([*plateau, *[official] * 50], SMALL, interval=100) == []
    slow = [numbers(discriminator_loss=0.4, recall=0.0, auc=0.5 + i * 0.004) for i in range(20)]
    assert alarms(slow) == [], "low at step 400, but on its way"


def test_one_odd_interval_is_no_alarm():
    series = [numbers(auc=0.5 if i % 3 == 0 else 0.6, discriminator_loss=0.4) for i in range(60)]
    assert alarms(series) == []


def test_losing_what_was_learned_is_an_alarm_and_a_harder_task_is_not():
    learned = [numbers(auc=0.85)] * 10
    assert alarms([*learned, *[numbers(auc=0.72)] * 30]) == []
    ((_, text),) = alarms([*learned, *[numbers(auc=0.56)] * 30])
    assert "lost what it had: AUC 0.56" in text
    assert "generator.width" in text


def test_masked_language_modelling_has_one_alarm():
    sizes = Sizes(8_000, warmup=100, objective="mlm")
    stuck = {"mlm_loss": 9.0, "mlm_accuracy": 0.0}
    ((step, text),) = alarms([stuck] * 20, sizes, objective=MaskedLanguageModel)
    assert step <= 500
    assert "the model learns nothing" in text
    learning = {"mlm_loss": 7.1, "mlm_accuracy": 0.03}
    assert alarms([learning] * 20, sizes, objective=MaskedLanguageModel) == []


def test_the_base_rate_plateau_is_the_entropy_of_the_rate():
    assert base_rate_loss(0.138) == pytest.approx(0.40, abs=0.005), "as the official code is read"
    assert base_rate_loss(0.5) == pytest.approx(log(2))
    assert base_rate_loss(0.0) == base_rate_loss(1.0) == 0


def test_a_run_like_the_reference_is_shown_beside_it():
    line = verdict(SMALL, 5_200, numbers(generator_loss=7.2))
    assert "reference at step 5,000" in line
    assert "generator loss 7.20 (7.13)" in line
    assert "recall (at 0.5) 0.00 (0.05)" in line
    assert "chance 10.33" in line
    assert "post-norm" in line
    assert "recall at 0.5 of 0.00 is normal at AUC 0.58" in line


def test_where_there_is_no_reference_it_says_so():
    assert "no reference at step 100,000, only at 5,000" in verdict(SMALL, 100_000, numbers())
    assert "no reference for vocab_size 8000" in verdict(TINY, 5_000, numbers())
    other = SMALL._replace(batch_size=256)
    assert "no reference for batch_size 256" in verdict(other, 5_000, numbers())
    masked = MaskedLanguageModel.reading(SMALL, 5_000, {"mlm_loss": 3.0})
    assert masked == "loss 3.00, chance 10.33"

"""Normal metrics raise no alarm; every kind of collapse is reported with the options to change."""

from math import log, nan

import pytest

from electrify.objectives.bands import Sizes, sizes_of
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.rtd import ReplacedTokenDetection
from electrify.objectives.rtd_bands import ALARMS, OFFICIAL_REFERENCE, base_rate_loss
from electrify.recipes import schema
from electrify.training.guard import REPEAT, Guard, GuardSettings

TINY = Sizes(vocab_size=8_000, warmup=100)
SMALL = sizes_of(schema.load("electra-small"), 30_522)
# Intervals of 50 steps of the recipe tiny on docstrings, 16 rows of 128: AUC rises while the
# generator is bad, falls when it guesses by frequency, rises, and falls as the generator learns.
HEALTHY_AUC = [0.701, 0.71, 0.543, 0.544, 0.54, 0.543, 0.557, 0.577, 0.619, 0.635, 0.647, 0.662]
HEALTHY_AUC += [0.674, 0.68, 0.686, 0.687, 0.674, 0.669, 0.657, 0.637, 0.626, 0.624, 0.624, 0.626]


def numbers(**changed: float) -> dict[str, float]:
    """Return the metrics of a healthy interval (tiny at step 400), with changes."""
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
    "the generator is not learning": (
        {"generator_loss": log(8_000), "generator_accuracy": 0.0, "auc": 0.97, "recall": 0.8},
        ("frozen", "objective.generator_weight", "tying", "sharing.embeddings"),
    ),
    "replaced rate is too high: 0.300": (
        {"replaced_rate": 0.3, "discriminator_loss": 0.5, "auc": 0.6},
        ("objective.mask_rate",),
    ),
    "replaced rate is too low: 0.010": (
        {"replaced_rate": 0.01, "discriminator_loss": 0.05, "auc": 0.6},
        ("objective.mask_rate",),
    ),
    "the generator is too strong": (
        {"replaced_rate": 0.02, "generator_accuracy": 0.9, "discriminator_loss": 0.09, "auc": 0.6},
        ("generator.width", "generator.depth", "objective.temperature"),
    ),
    # measured: tiny at step 300 with objective.temperature = 0.02
    "replaced tokens are too easy to detect": (
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
    "worse than a constant answer": (
        {"replaced_rate": 0.142, "discriminator_loss": 0.835, "recall": 0.503, "auc": 0.513},
        ("objective.discriminator_weight", "optimizer.lr"),
    ),
    "predicts 'original' for every token: AUC 0.51": (
        {"discriminator_loss": 0.402, "recall": 0.0, "precision": nan, "auc": 0.51},
        ("too strong", "generator.width", "tying", "sharing.embeddings", "base-rate plateau"),
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


def test_every_alarm_is_tested():
    assert len(COLLAPSES) + 1 == len(ALARMS), "regression has its own test"


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


def test_an_alarm_is_repeated_after_a_while():
    blind = numbers(discriminator_loss=0.402, recall=0.0, auc=0.51)
    steps = [step for step, _ in alarms([blind] * 250)]
    assert steps == [400, 400 + REPEAT, 400 + 2 * REPEAT]


def test_a_healthy_tiny_run_gives_no_alarm():
    assert alarms([numbers(auc=auc) for auc in HEALTHY_AUC]) == []


def test_low_recall_and_an_auc_of_one_half_are_normal_early():
    """ELECTRA-small warms up for 10,000 steps; its published recall at step 5,000 is 5 %."""
    rising = [0.5] * 30 + [0.5 + 0.18 * i / 20 for i in range(21)]
    plateau = [
        numbers(generator_loss=7.3, discriminator_loss=0.4, recall=0.0, precision=nan, auc=auc)
        for auc in rising
    ]
    official = OFFICIAL_REFERENCE.metrics | {"replaced_rate": 0.138}
    assert alarms([*plateau, *[official] * 50], SMALL, interval=100) == []
    slow = [numbers(discriminator_loss=0.4, recall=0.0, auc=0.5 + i * 0.004) for i in range(20)]
    assert alarms(slow) == [], "low at step 400, but rising"


def test_one_odd_interval_raises_no_alarm():
    series = [numbers(auc=0.5 if i % 3 == 0 else 0.6, discriminator_loss=0.4) for i in range(60)]
    assert alarms(series) == []


def test_a_regression_is_an_alarm_and_a_harder_task_is_not():
    learned = [numbers(auc=0.85)] * 10
    assert alarms([*learned, *[numbers(auc=0.72)] * 30]) == []
    ((_, text),) = alarms([*learned, *[numbers(auc=0.56)] * 30])
    assert "has regressed: AUC 0.56 at step" in text
    assert "down from 0.85" in text
    assert "generator.width" in text


def test_masked_language_modelling_has_one_alarm():
    sizes = Sizes(8_000, warmup=100, objective="mlm")
    stuck = {"mlm_loss": 9.0, "mlm_accuracy": 0.0}
    ((step, text),) = alarms([stuck] * 20, sizes, objective=MaskedLanguageModel)
    assert step <= 500
    assert "the model is not learning" in text
    learning = {"mlm_loss": 7.1, "mlm_accuracy": 0.03}
    assert alarms([learning] * 20, sizes, objective=MaskedLanguageModel) == []


def test_the_base_rate_plateau_is_the_entropy_of_the_rate():
    assert base_rate_loss(0.138) == pytest.approx(0.40, abs=0.005), (
        "as published for the official code"
    )
    assert base_rate_loss(0.5) == pytest.approx(log(2))
    assert base_rate_loss(0.0) == base_rate_loss(1.0) == 0


def details(sizes: Sizes, step: int, **changed: float) -> str:
    return " ".join(ReplacedTokenDetection.details(sizes, step, numbers(**changed)))


def test_a_run_like_the_reference_is_compared_with_it():
    text = details(SMALL, 5_200, generator_loss=7.2)
    assert "a run of the official code at step 5,000" in text
    assert "generator loss 7.20 (7.13)" in text
    assert "recall (at 0.5) 0.00 (0.05)" in text
    assert "uniform guessing gives 10.33" in text
    assert "Post-norm" in text
    assert "recall of 0.00 at threshold 0.5 is normal at an AUC of 0.58" in text


def test_a_missing_reference_is_reported():
    assert "No reference values at step 100,000, only at 5,000" in details(SMALL, 100_000)
    assert "No reference values for vocab_size 8000" in details(TINY, 5_000)
    other = SMALL._replace(batch_size=256)
    assert "No reference values for batch_size 256" in details(other, 5_000)
    masked = MaskedLanguageModel.details(SMALL, 5_000, {"mlm_loss": 3.0})
    assert masked == [
        "Masked-LM loss 3.00: uniform guessing gives 10.33, guessing by token frequency between "
        "6.7 and 8.5."
    ]


def test_the_headline_shows_every_loss_beside_its_chance_level():
    assert ReplacedTokenDetection.headline(TINY, numbers()) == [
        "generator loss 6.31 (uniform guessing 8.99)",
        "discriminator loss 0.394 (constant answer 0.401)",
        "AUC 0.577 (chance 0.5)",
    ]
    headline = MaskedLanguageModel.headline(SMALL, {"mlm_loss": 3.0, "mlm_accuracy": 0.4})
    assert headline == ["masked-LM loss 3.00 (uniform guessing 10.33)"]


@pytest.mark.parametrize(
    ("generator", "discriminator", "text"),
    [
        (8.5, 0.394, "The generator does not predict better than by token frequency yet."),
        (6.3, 0.394, "The generator still predicts tokens mostly by frequency (normal early on)."),
        (3.0, 0.394, "The generator predicts better than by token frequency."),
        (
            3.0,
            0.45,
            "The generator predicts better than by token frequency, and the discriminator does not "
            "beat a constant answer yet.",
        ),
        (nan, nan, ""),
    ],
)
def test_the_reading_is_one_sentence_at_most(generator, discriminator, text):
    metrics = numbers(generator_loss=generator, discriminator_loss=discriminator)
    assert ReplacedTokenDetection.reading(TINY, 400, metrics) == text
    if discriminator < 0.4:
        masked = MaskedLanguageModel.reading(TINY, 400, {"mlm_loss": generator})
        assert masked == text.replace("generator", "model")

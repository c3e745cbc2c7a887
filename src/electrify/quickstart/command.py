"""`electrify quickstart`: the complete pipeline on the docstrings of this Python installation."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from electrify.config import AcceptsTextPaths, to_dict
from electrify.pipeline.stages import Stages, announce, check_packages
from electrify.progress import duration
from electrify.quickstart.package_task import write_task
from electrify.recipes import schema
from electrify.storage.commit import read_json, write_json
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.show import Show, show_folder

VALIDATION = 0.05
"""Fraction of documents that pre-training does not see."""
EPOCHS = 20.0
LABELLED = {"lr": 1e-3, "batch_size": 16, "layer_decay": 1.0}
NORMAL_SECONDS = 110.0
"""Time for everything except pre-training, on two cores of a laptop."""
LEAST_SECONDS = 60.0
"""Minimum time for the comparison, however long the stages before it took."""


class Comparison(NamedTuple):
    """How much fine-tuning compares the pre-trained model with random weights."""

    seeds: int
    epochs: float


class Cost(NamedTuple):
    """Time of one fine-tuning run in seconds, measured on this machine."""

    fixed: float
    """Time to load, evaluate and save a model."""
    epoch: float

    def of(self, comparison: Comparison) -> float:
        """Return the seconds of a comparison: all seeds of two models."""
        return 2 * comparison.seeds * (self.fixed + comparison.epochs * self.epoch)


SMALLER = ((4, 1.0), (3, 1.0), (3, 0.6), (2, 0.6), (2, 0.3), (2, 0.15))
"""Seeds and fractions of the epochs, largest first; one seed could not estimate the noise."""


def affordable(requested: Comparison, cost: Cost, seconds: float) -> Comparison:
    """Return the requested comparison, or the largest smaller one that fits into the time.

    >>> laptop, busy = Cost(0.5, 0.3), Cost(5.0, 3.0)
    >>> affordable(Comparison(5, 20.0), laptop, 400.0)
    Comparison(seeds=5, epochs=20.0)
    >>> affordable(Comparison(5, 20.0), busy, 200.0)
    Comparison(seeds=2, epochs=12.0)
    """
    smaller = [
        Comparison(min(requested.seeds, seeds), max(1.0, float(round(part * requested.epochs))))
        for seeds, part in SMALLER
    ]
    fitting = (c for c in (requested, *smaller) if cost.of(c) <= seconds)
    return next(fitting, smaller[-1])


@dataclass(frozen=True)
class Quickstart(AcceptsTextPaths):
    """Run the complete pipeline on the docstrings of this Python installation, without downloads.

    It creates documents, a tokenizer, shards, a pre-trained model, a comparison with random weights
    and a report. Rerun the command to resume.
    """

    out: Path = Path("quickstart")
    """The folder to write to."""
    budget: str = "4m"
    """Time for pre-training, such as 4m or 1h30m."""
    seeds: int = 5
    """Fine-tuning seeds, each run from the pre-trained model and from random weights."""


def quickstart(settings: Quickstart) -> None:
    """Run every stage of the pipeline, printing the command of each."""
    start = time.monotonic()
    check_packages()
    stages = Stages(settings.out)
    with stages.claim("docs"):
        stages.make_documents("docstrings")
        stages.make_tokenizer(vocab_size=8192)
        tiny = schema.load("tiny")
        stages.make_shards(length=tiny.run.length, validation=VALIDATION)
        announce("show", stages.shards, count=2, seed=1)
        show_folder(Show(stages.shards, count=2, seed=1))
        stages.pretrain("tiny", settings.budget)
        encoder = stages.export()
        _reload(encoder)
        _compare(settings, stages.docs, encoder, stages.tokenizer, tiny, start)
        page = stages.report(settings.out / "pretrained", settings.out / "random")

    print(f"""
Next steps:
  use your own text    electrify train MY_FOLDER --budget 1h --out trained
  run a GLUE task      electrify glue {encoder} --data GLUE --tasks cola --out glue
  try sentences        electrify inspect {stages.model} --serve

Open {page} in a browser to see the results.""")


def _reload(folder: Path) -> None:
    """Show that transformers can load the export."""
    from electrify.models.pretrained import open_backbone, open_tokenizer

    encoder = open_backbone(str(folder))
    tokenizer = open_tokenizer(str(folder))
    hidden = encoder(**tokenizer("Return a copy of the list.", return_tensors="pt"))[0]
    print(
        f"loaded with transformers.AutoModel: {type(encoder).__name__}, "
        f"output shape {tuple(hidden.shape)}"
    )


def _compare(
    settings: Quickstart,
    docs: Path,
    pretrained: Path,
    tokenizer: Path,
    tiny: schema.Recipe,
    start: float,
) -> None:
    """Fine-tune the model and one with random weights on the same labels, with several seeds.

    Fewer seeds and epochs are used if the quickstart would otherwise take more than about twice its
    normal time.
    """
    from electrify.finetuning.options import Finetune, Fit
    from electrify.finetuning.own.command import finetune

    train, dev = write_task(docs, settings.out / "task", VALIDATION)
    print(f"\nfine-tuning task in {train.parent}: which package does a docstring come from?")
    print("(evaluated on documents that pre-training did not see)")
    random_weights = untrained(tiny, tokenizer, settings.out / "untrained")

    def finetuned(model: Path, folder: Path, comparison: Comparison) -> dict[str, Any]:
        return finetune(
            Finetune(
                model=str(model),
                train=train,
                dev=dev,
                out=folder,
                length=tiny.run.length,
                seeds=comparison.seeds,
                fit=Fit(epochs=comparison.epochs, **LABELLED),  # type: ignore[arg-type]
            ),
            brief=True,
        )

    def measure_cost() -> Cost:
        """Time one epoch of one seed."""
        probe, begin = settings.out / ".probe", time.monotonic()
        shutil.rmtree(probe, ignore_errors=True)
        print("timing one epoch of fine-tuning:")
        result = finetuned(random_weights, probe, Comparison(1, 1.0))
        epoch = float(result["seeds"][0]["seconds"])
        shutil.rmtree(probe)
        return Cost(max(0.0, time.monotonic() - begin - epoch), epoch)

    chosen = _planned(settings, start, measure_cost)
    results: dict[str, dict[str, Any]] = {}
    for name, model in (("pretrained", pretrained), ("random", random_weights)):
        folder = settings.out / name
        options = {**chosen._asdict(), **LABELLED, "length": tiny.run.length, "out": folder}
        announce("finetune", model, train=train, dev=dev, **options)
        results[name] = finetuned(model, folder, chosen)
    print(f"\n{gain_verdict(results['pretrained'], results['random'])}")


def _planned(settings: Quickstart, start: float, measure_cost: Callable[[], Cost]) -> Comparison:
    """Return the comparison that this machine has time for; a resumed quickstart keeps it."""
    from electrify.training.signals import parse_duration

    requested, path = Comparison(settings.seeds, EPOCHS), settings.out / "comparison.json"
    if path.exists() and (saved := read_json(path))["asked"] == settings.seeds:
        return Comparison(saved["seeds"], saved["epochs"])
    chosen = requested
    if not (settings.out / "pretrained").exists():
        cost = measure_cost()
        normal = parse_duration(settings.budget, "--budget") + NORMAL_SECONDS
        remaining = 2 * normal - (time.monotonic() - start)
        chosen = affordable(requested, cost, max(LEAST_SECONDS, remaining))
        if chosen != requested:
            print(
                f"this machine is slow or busy: {requested.seeds} seeds of {requested.epochs:.0f} "
                f"epochs would take about {duration(cost.of(requested))}; using {chosen.seeds} "
                f"seeds of {chosen.epochs:.0f} epochs, about {duration(cost.of(chosen))}"
            )
    write_json(path, {"asked": settings.seeds, **chosen._asdict()})
    return chosen


def untrained(recipe: schema.Recipe, tokenizer: Path, out: Path) -> Path:
    """Export a recipe's discriminator with its initial weights, and return its folder."""
    from electrify.models.export import export_networks
    from electrify.objectives.objective import build_objective
    from electrify.training.data import vocabulary_of

    loaded = tokenizers.load_tokenizer(tokenizer)
    network = build_objective(recipe, vocabulary_of(loaded)).networks["discriminator"]
    card = {"discriminator": "# Random weights, as a baseline\n"}
    identity = {"tokenizer": loaded.backend.to_str(), "recipe": to_dict(recipe)}
    export_networks({"discriminator": network}, card, loaded, out, identity, recipe.run.length)
    return out / "discriminator"


STUDENT = dict(enumerate((12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23), start=1))
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""


def degrees_of_freedom(squares: Sequence[float], counts: Sequence[int]) -> int:
    """Return the Welch–Satterthwaite degrees of freedom of two squared errors, rounded down.

    >>> degrees_of_freedom([1.0, 1.0], [4, 4]), degrees_of_freedom([1.0, 0.0], [4, 4])
    (6, 3)
    """
    parts = sum(square**2 / (n - 1) for square, n in zip(squares, counts, strict=True))
    return int(sum(squares) ** 2 / parts + 1e-9) if parts else sum(counts) - 2


def gain_verdict(pretrained: dict[str, Any], random: dict[str, Any]) -> str:
    """Return whether pre-training helped significantly, by Welch's test at the 95 % level.

    >>> of = lambda mean: {"mean": {"f1": mean}, "std": {"f1": 0.02}, "seeds": [{}] * 4}
    >>> gain_verdict(of(0.7), of(0.5))
    'f1 0.700 pre-trained, 0.500 from random weights: a gain of 0.200 ± 0.014'
    >>> gain_verdict(of(0.5), of(0.7)).partition(": ")[2]
    'a loss of 0.200 ± 0.014; try a longer --budget'
    """
    metric, both = next(iter(pretrained["mean"])), (pretrained, random)
    means = [result["mean"][metric] for result in both]
    counts = [sum("failed" not in seed for seed in result["seeds"]) for result in both]
    squares = [result["std"][metric] ** 2 / n for result, n in zip(both, counts, strict=True)]
    gain, error = means[0] - means[1], sum(squares) ** 0.5
    scores = f"{metric} {means[0]:.3f} pre-trained, {means[1]:.3f} from random weights"
    if min(counts) < 2:
        return f"{scores}; one seed is not enough to estimate the noise"
    noise = STUDENT.get(degrees_of_freedom(squares, counts), 2.2) * error
    if gain > noise:
        return f"{scores}: a gain of {gain:.3f} ± {error:.3f}"
    if gain < -noise:
        return f"{scores}: a loss of {-gain:.3f} ± {error:.3f}; try a longer --budget"
    kind = "gain" if gain > 0 else "loss"
    return (
        f"{scores}: a {kind} of {abs(gain):.3f} ± {error:.3f}, within the noise of {noise:.3f}; "
        "try a longer --budget or more --seeds"
    )

"""The whole way on text that every Python installation carries: `electrify quickstart`."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from electrify.config import AcceptsTextPaths, to_dict
from electrify.corpora.clean import Filters
from electrify.corpora.corpus import corpus, settings_type
from electrify.errors import needs
from electrify.progress import duration
from electrify.quickstart.package_task import write_task
from electrify.recipes import schema
from electrify.storage.commit import read_json, write_json
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.show import Show, show_folder
from electrify.tokens.vocabulary import MakeTokenizer, make_tokenizer

VALIDATION = 0.05
"""The share of the documents that pre-training does not see."""
EPOCHS = 20.0
LABELLED = {"lr": 1e-3, "batch_size": 16, "layer_decay": 1.0}
NORMAL_SECONDS = 110.0
"""That everything but pre-training takes on two cores of a laptop."""
LEAST_SECONDS = 60.0
"""For the comparison, however long all before it took."""


class Comparison(NamedTuple):
    """How the pre-trained model is compared with one of random weights."""

    seeds: int
    epochs: float


class Cost(NamedTuple):
    """Seconds of one fine-tuning run, measured on this machine."""

    fixed: float
    """To load, evaluate and save a model."""
    epoch: float

    def of(self, some: Comparison) -> float:
        """Return the seconds of the whole comparison: every seed, with two models."""
        return 2 * some.seeds * (self.fixed + some.epochs * self.epoch)


LESS = ((4, 1.0), (3, 1.0), (3, 0.6), (2, 0.6), (2, 0.3), (2, 0.15))
"""Seeds, and the share of the epochs, from best to least; one seed would say nothing of noise."""


def affordable(asked: Comparison, cost: Cost, seconds: float) -> Comparison:
    """Return the comparison asked for, or the best smaller one that takes at most some seconds.

    >>> laptop, busy = Cost(0.5, 0.3), Cost(5.0, 3.0)
    >>> affordable(Comparison(5, 20.0), laptop, 400.0)
    Comparison(seeds=5, epochs=20.0)
    >>> affordable(Comparison(5, 20.0), busy, 200.0)
    Comparison(seeds=2, epochs=12.0)
    """
    smaller = [
        Comparison(min(asked.seeds, seeds), max(1.0, float(round(share * asked.epochs))))
        for seeds, share in LESS
    ]
    fitting = (some for some in (asked, *smaller) if cost.of(some) <= seconds)
    return next(fitting, smaller[-1])


@dataclass(frozen=True)
class Quickstart(AcceptsTextPaths):
    """Docstrings to documents, tokenizer, shards, a model, a test of it, and a page to look at.

    Started again, it goes on where it stopped.
    """

    out: Path = Path("quickstart")
    """The folder to make."""
    budget: str = "4m"
    """Time for pre-training."""
    seeds: int = 5
    """Of the fine-tunings that compare the pre-trained model with one of random weights."""


def quickstart(settings: Quickstart) -> int:
    """Run every stage on the docstrings of this Python installation, saying each command."""
    begin = time.monotonic()
    needs("matplotlib", extra="report", why="the page at the end")  # better to know immediately
    out = settings.out
    docs, tokenizer, shards, run = (out / n for n in ("docs", "tokenizer", "shards", "run"))
    tiny = schema.load("tiny")
    length = tiny.run.length

    _say(f"electrify corpus docstrings --dedup --out {docs}")
    docstrings = settings_type("docstrings")
    corpus(docstrings(sources=(), out=docs, filters=Filters(dedup=True)))

    _say(f"electrify tokenizer {docs} --vocab-size 8192 --out {tokenizer}")
    make_tokenizer(MakeTokenizer(docs=(docs,), vocab_size=8192, out=tokenizer))

    flags = f"--tokenizer {tokenizer} --length {length} --validation {VALIDATION}"
    _say(f"electrify prepare {docs} {flags} --out {shards}")
    prepare(
        Prepare(
            docs=(docs,), tokenizer=str(tokenizer), length=length, validation=VALIDATION, out=shards
        )
    )

    _say(f"electrify show {shards} --count 2 --seed 1")
    show_folder(Show(shards, count=2, seed=1))

    from electrify.models.export import encoder_folder
    from electrify.training.export_run import export_run
    from electrify.training.options import Export, Pretrain
    from electrify.training.pretrain import pretrain

    _say(f"electrify pretrain tiny --data {shards} --out {run} --budget {settings.budget}")
    code = pretrain(
        Pretrain(recipe=schema.load("tiny"), data=shards, out=run, budget=settings.budget)
    )
    if code:
        return code

    model = out / "model"
    _say(f"electrify export {run} --out {model}")
    export_run(Export(run, model))
    encoder = encoder_folder(model)
    _reload(encoder)
    _compare(settings, docs, encoder, tokenizer, tiny, begin)

    from electrify.reports.options import Report
    from electrify.reports.report import report

    tuned = (out / "pretrained", out / "random")
    page = out / "report.html"
    _say(f"electrify report {run} {tuned[0]} {tuned[1]} --out {page}")
    report(Report(folders=(run, *tuned), out=page))

    print(f"""
Next:
  your own text     electrify corpus text MY_FOLDER --out docs && electrify show docs
  a GLUE task       electrify glue {encoder} --data GLUE --tasks cola --out glue
  try sentences     electrify inspect {model} --serve

{page}: open it in a browser""")
    return 0


def _reload(folder: Path) -> None:
    """Show that transformers alone loads what was exported."""
    from electrify.models.pretrained import open_backbone, open_tokenizer

    encoder = open_backbone(str(folder))
    tokenizer = open_tokenizer(str(folder))
    hidden = encoder(**tokenizer("Return a copy of the list.", return_tensors="pt"))[0]
    print(f"transformers.AutoModel loads it: {type(encoder).__name__}, {tuple(hidden.shape)}")


def _compare(
    settings: Quickstart,
    docs: Path,
    pretrained: Path,
    tokenizer: Path,
    tiny: schema.Recipe,
    begin: float,
) -> None:
    """Fine-tune the model and one of random weights on the same labels, with several seeds.

    Where that would make the whole way take more than about twice its normal time, with fewer.
    """
    from electrify.finetuning.options import Finetune, Fit
    from electrify.finetuning.own.command import finetune

    train, dev = write_task(docs, settings.out / "task", VALIDATION)
    print(f"\n{train.parent}: which package does a docstring come from?")
    print("(measured on documents that pre-training did not see)")
    random_weights = untrained(tiny, tokenizer, settings.out / "untrained")

    def tuned(model: Path, made: Path, some: Comparison) -> dict[str, Any]:
        return finetune(
            Finetune(
                model=str(model),
                train=train,
                dev=dev,
                out=made,
                length=tiny.run.length,
                seeds=some.seeds,
                fit=Fit(epochs=some.epochs, **LABELLED),  # type: ignore[arg-type]
            )
        )

    def measured() -> Cost:
        """Time one epoch of one seed."""
        probe, start = settings.out / ".probe", time.monotonic()
        shutil.rmtree(probe, ignore_errors=True)
        print("one epoch, to see how long fine-tuning takes here:")
        trained = float(tuned(random_weights, probe, Comparison(1, 1.0))["seeds"][0]["seconds"])
        shutil.rmtree(probe)
        return Cost(max(0.0, time.monotonic() - start - trained), trained)

    chosen = _planned(settings, begin, measured)
    fit = {"epochs": chosen.epochs, **LABELLED}
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in fit.items())
    results: dict[str, dict[str, Any]] = {}
    for name, model in (("pretrained", pretrained), ("random", random_weights)):
        made = settings.out / name
        files = f"--train {train} --dev {dev}"
        counts = f"--length {tiny.run.length} --seeds {chosen.seeds}"
        _say(f"electrify finetune {model} {files} {flags} {counts} --out {made}")
        results[name] = tuned(model, made, chosen)
    print(f"\n{gain_verdict(results['pretrained'], results['random'])}")


def _planned(settings: Quickstart, begin: float, measured: Callable[[], Cost]) -> Comparison:
    """The comparison this machine has time for; once planned, it stays when started again."""
    from electrify.training.signals import seconds_of

    asked, path = Comparison(settings.seeds, EPOCHS), settings.out / "comparison.json"
    if path.exists() and (known := read_json(path))["asked"] == settings.seeds:
        return Comparison(known["seeds"], known["epochs"])
    chosen = asked
    if not (settings.out / "pretrained").exists():
        cost = measured()
        normal = seconds_of(settings.budget, "--budget") + NORMAL_SECONDS
        left = 2 * normal - (time.monotonic() - begin)
        chosen = affordable(asked, cost, max(LEAST_SECONDS, left))
        if chosen != asked:
            print(
                f"this machine is slow or busy: {asked.seeds} seeds of {asked.epochs:.0f} epochs "
                f"would take about {duration(cost.of(asked))}; {chosen.seeds} seeds of "
                f"{chosen.epochs:.0f} epochs take about {duration(cost.of(chosen))}"
            )
    write_json(path, {"asked": settings.seeds, **chosen._asdict()})
    return chosen


def untrained(some: schema.Recipe, tokenizer: Path, out: Path) -> Path:
    """A recipe's discriminator with its starting weights, as a folder for transformers."""
    from electrify.models.export import export_networks
    from electrify.objectives.objective import build_objective
    from electrify.training.data import vocabulary_of

    loaded = tokenizers.load_tokenizer(tokenizer)
    network = build_objective(some, vocabulary_of(loaded)).networks["discriminator"]
    card = {"discriminator": "# Random weights, to compare with\n"}
    identity = {"tokenizer": loaded.backend.to_str(), "recipe": to_dict(some)}
    export_networks({"discriminator": network}, card, loaded, out, identity, some.run.length)
    return out / "discriminator"


STUDENT = dict(enumerate((12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23), start=1))
"""Two-sided 95 % points of Student's t by degrees of freedom: few seeds, wide noise."""


def degrees_of_freedom(squares: Sequence[float], counts: Sequence[int]) -> int:
    """Return Welch and Satterthwaite's degrees of freedom, rounded down, of two squared errors.

    >>> degrees_of_freedom([1.0, 1.0], [4, 4]), degrees_of_freedom([1.0, 0.0], [4, 4])
    (6, 3)
    """
    parts = sum(one**2 / (n - 1) for one, n in zip(squares, counts, strict=True))
    return int(sum(squares) ** 2 / parts + 1e-9) if parts else sum(counts) - 2


def gain_verdict(pretrained: dict[str, Any], random: dict[str, Any]) -> str:
    """Whether pre-training helped by more than seeds differ: at the 95 % level of Welch's test.

    >>> of = lambda mean: {"mean": {"f1": mean}, "std": {"f1": 0.02}, "seeds": [{}] * 4}
    >>> gain_verdict(of(0.7), of(0.5))
    'f1 0.700 pre-trained, 0.500 from random weights: a gain of 0.200 ± 0.014'
    >>> gain_verdict(of(0.5), of(0.7))
    'f1 0.500 pre-trained, 0.700 from random weights: a loss of 0.200 ± 0.014; a longer --budget?'
    """
    metric, both = next(iter(pretrained["mean"])), (pretrained, random)
    means = [one["mean"][metric] for one in both]
    ended = [sum("failed" not in seed for seed in one["seeds"]) for one in both]
    squares = [one["std"][metric] ** 2 / n for one, n in zip(both, ended, strict=True)]
    gain, error = means[0] - means[1], sum(squares) ** 0.5
    said = f"{metric} {means[0]:.3f} pre-trained, {means[1]:.3f} from random weights"
    if min(ended) < 2:
        return f"{said}; one seed says nothing about chance"
    noise = STUDENT.get(degrees_of_freedom(squares, ended), 2.2) * error
    if gain > noise:
        return f"{said}: a gain of {gain:.3f} ± {error:.3f}"
    if gain < -noise:
        return f"{said}: a loss of {-gain:.3f} ± {error:.3f}; a longer --budget?"
    what = "gain" if gain > 0 else "loss"
    return (
        f"{said}: a {what} of {abs(gain):.3f} ± {error:.3f}, which is within its noise "
        f"({noise:.3f}); a longer --budget or more --seeds?"
    )


def _say(command: str) -> None:
    print(f"\n$ {command}", flush=True)

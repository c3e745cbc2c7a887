"""The whole way on text that every Python installation carries: `electrify quickstart`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from electrify import recipe
from electrify.config import to_dict
from electrify.corpora.clean import Filters
from electrify.corpora.corpus import corpus, settings_type
from electrify.package_task import write_task
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.show import Show, show
from electrify.tokens.vocabulary import Vocabulary, vocabulary

HELD_OUT = 0.05
"""The share of the documents that pre-training does not see."""
LABELLED = {"lr": 1e-3, "epochs": 20.0, "batch_size": 16, "layer_decay": 1.0}


@dataclass(frozen=True)
class Quickstart:
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
    from electrify.reports.plots import import_matplotlib

    import_matplotlib()  # for the page at the end: better to know at once
    out = settings.out
    docs, tokenizer, shards, run = (out / n for n in ("docs", "tokenizer", "shards", "run"))
    tiny = recipe.load("tiny")
    length = tiny.run.length

    _say(f"electrify corpus docstrings --dedup --out {docs}")
    docstrings = settings_type("docstrings")
    corpus(docstrings(sources=(), out=docs, filters=Filters(dedup=True)))

    _say(f"electrify tokenizer {docs} --vocab-size 8192 --out {tokenizer}")
    vocabulary(Vocabulary(docs=(docs,), vocab_size=8192, out=tokenizer))

    flags = f"--tokenizer {tokenizer} --length {length} --validation {HELD_OUT}"
    _say(f"electrify prepare {docs} {flags} --out {shards}")
    prepare(
        Prepare(
            docs=(docs,), tokenizer=str(tokenizer), length=length, validation=HELD_OUT, out=shards
        )
    )

    _say(f"electrify show {shards} --count 2 --seed 1")
    show(Show(shards, count=2, seed=1))

    from electrify.models.export import encoder_folder
    from electrify.training.export_run import export_run
    from electrify.training.options import Export, Pretrain
    from electrify.training.pretrain import pretrain

    _say(f"electrify pretrain tiny --data {shards} --out {run} --budget {settings.budget}")
    sections = {part.name: getattr(tiny, part.name) for part in fields(recipe.Recipe)}
    code = pretrain(
        Pretrain(recipe="tiny", data=shards, out=run, budget=settings.budget, **sections)
    )
    if code:
        return code

    model = out / "model"
    _say(f"electrify export {run} --out {model}")
    export_run(Export(run, model))
    encoder = encoder_folder(model)
    _reload(encoder)
    _compare(settings, docs, encoder, tokenizer, tiny)

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
    from transformers import AutoModel

    from electrify.models.pretrained import open_model, open_tokenizer

    encoder, _ = open_model(AutoModel, str(folder))
    tokenizer = open_tokenizer(str(folder))
    hidden = encoder(**tokenizer("Return a copy of the list.", return_tensors="pt"))[0]
    print(f"transformers.AutoModel loads it: {type(encoder).__name__}, {tuple(hidden.shape)}")


def _compare(
    settings: Quickstart, docs: Path, pretrained: Path, tokenizer: Path, tiny: recipe.Recipe
) -> None:
    """Fine-tune the model and one of random weights on the same labels, with several seeds."""
    from electrify.finetuning.finetune import finetune
    from electrify.finetuning.options import Finetune, Fit

    train, dev = write_task(docs, settings.out / "task", HELD_OUT)
    print(f"\n{train.parent}: which package does a docstring come from?")
    print("(measured on documents that pre-training did not see)")
    random_weights = untrained(tiny, tokenizer, settings.out / "untrained")
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in LABELLED.items())
    results: dict[str, dict[str, Any]] = {}
    for name, model in (("pretrained", pretrained), ("random", random_weights)):
        made = settings.out / name
        files = f"--train {train} --dev {dev}"
        counts = f"--length {tiny.run.length} --seeds {settings.seeds}"
        _say(f"electrify finetune {model} {files} {flags} {counts} --out {made}")
        results[name] = finetune(
            Finetune(
                model=str(model),
                train=train,
                dev=dev,
                out=made,
                length=tiny.run.length,
                seeds=settings.seeds,
                fit=Fit(**LABELLED),  # type: ignore[arg-type]
            )
        )
    print(f"\n{verdict(results['pretrained'], results['random'])}")


def untrained(some: recipe.Recipe, tokenizer: Path, out: Path) -> Path:
    """A recipe's discriminator with its starting weights, as a folder for transformers."""
    from electrify.models.export import export
    from electrify.training.objective import build_objective, vocabulary_of

    loaded = tokenizers.load(tokenizer)
    network = build_objective(some, vocabulary_of(loaded)).networks["discriminator"]
    card = {"discriminator": "# Random weights, to compare with\n"}
    identity = {"tokenizer": loaded.backend.to_str(), "recipe": to_dict(some)}
    export({"discriminator": network}, card, loaded, out, identity, some.run.length)
    return out / "discriminator"


def verdict(pretrained: dict[str, Any], random: dict[str, Any]) -> str:
    """Whether pre-training helped by more than seeds differ.

    >>> of = lambda mean: {"mean": {"f1": mean}, "std": {"f1": 0.02}, "seeds": [{}] * 4}
    >>> verdict(of(0.7), of(0.5))
    'f1 0.700 pre-trained, 0.500 from random weights: a gain of 0.200 ± 0.014'
    >>> verdict(of(0.5), of(0.7))
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
    if gain > 2 * error:
        return f"{said}: a gain of {gain:.3f} ± {error:.3f}"
    if gain < -2 * error:
        return f"{said}: a loss of {-gain:.3f} ± {error:.3f}; a longer --budget?"
    return f"{said}: no gain larger than chance ({gain:+.3f} ± {error:.3f}); a longer --budget?"


def _say(command: str) -> None:
    print(f"\n$ {command}", flush=True)

"""The whole way on text that every Python installation carries: `electrify quickstart`."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from electrify import recipe
from electrify.corpora.clean import Filters
from electrify.corpora.corpus import corpus, settings_type
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.show import Show, show
from electrify.tokens.vocabulary import Vocabulary, vocabulary


@dataclass(frozen=True)
class Quickstart:
    """Docstrings to documents, tokenizer, shards, and a small model. Started again, it goes on."""

    out: Path = Path("quickstart")
    """The folder to make."""
    steps: int = 1_200
    """Of pre-training."""


def quickstart(settings: Quickstart) -> int:
    """Run every stage on the docstrings of this Python installation, saying each command."""
    out = settings.out
    docs, tokenizer, shards, run = (out / n for n in ("docs", "tokenizer", "shards", "run"))
    tiny = recipe.load("tiny")
    length = tiny.run.length

    _say(f"electrify corpus docstrings --dedup --out {docs}")
    docstrings = settings_type("docstrings")
    corpus(docstrings(sources=(), out=docs, filters=Filters(dedup=True)))

    _say(f"electrify tokenizer {docs} --vocab-size 8192 --out {tokenizer}")
    vocabulary(Vocabulary(docs=(docs,), vocab_size=8192, out=tokenizer))

    _say(f"electrify prepare {docs} --tokenizer {tokenizer} --length {length} --out {shards}")
    prepare(Prepare(docs=(docs,), tokenizer=str(tokenizer), length=length, out=shards))

    _say(f"electrify show {shards} --count 2 --seed 1")
    show(Show(shards, count=2, seed=1))

    from electrify.training.export_run import Export, export_run
    from electrify.training.pretrain import Pretrain, pretrain

    _say(f"electrify pretrain tiny --data {shards} --out {run} --run.steps {settings.steps}")
    shorter = replace(tiny, run=replace(tiny.run, steps=settings.steps))
    sections = {part.name: getattr(shorter, part.name) for part in fields(recipe.Recipe)}
    code = pretrain(Pretrain(recipe="tiny", data=shards, out=run, **sections))
    if code:
        return code

    _say(f"electrify export {run} --out {out / 'model'}")
    export_run(Export(run, out / "model"))

    print("\nNext: your own text, in any language:")
    print("  electrify corpus text MY_FOLDER --out docs && electrify show docs")
    return 0


def _say(command: str) -> None:
    print(f"\n$ {command}", flush=True)

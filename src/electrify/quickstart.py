"""The whole way on text that every Python installation carries: `electrify quickstart`."""

from dataclasses import dataclass
from pathlib import Path

from electrify.corpora.clean import Filters
from electrify.corpora.corpus import corpus, settings_type
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.show import Show, show
from electrify.tokens.vocabulary import Vocabulary, vocabulary


@dataclass(frozen=True)
class Quickstart:
    """Docstrings to documents, tokenizer and token shards. Started again, it goes on."""

    out: Path = Path("quickstart")
    """The folder to make."""


def quickstart(settings: Quickstart) -> None:
    """Run every stage on the docstrings of this Python installation, saying each command."""
    docs, tokenizer, shards = (settings.out / name for name in ("docs", "tokenizer", "shards"))

    _say(f"electrify corpus docstrings --dedup --out {docs}")
    docstrings = settings_type("docstrings")
    corpus(docstrings(sources=(), out=docs, filters=Filters(dedup=True)))

    _say(f"electrify tokenizer {docs} --vocab-size 8192 --out {tokenizer}")
    vocabulary(Vocabulary(docs=(docs,), vocab_size=8192, out=tokenizer))

    _say(f"electrify prepare {docs} --tokenizer {tokenizer} --length 128 --out {shards}")
    prepare(Prepare(docs=(docs,), tokenizer=str(tokenizer), length=128, out=shards))

    _say(f"electrify show {shards} --count 3 --seed 1")
    show(Show(shards, count=3, seed=1))

    print("Next: your own text, in any language:")
    print("  electrify corpus text MY_FOLDER --out docs && electrify show docs")


def _say(command: str) -> None:
    print(f"\n$ {command}", flush=True)

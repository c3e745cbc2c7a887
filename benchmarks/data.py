"""Measure the speed of `electrify prepare` per core against other tokenizers.

    python benchmarks/data.py TEXT VOCAB_TXT [--rounds 5]

TEXT is plain text with blank lines between documents, compressed or not. All of `prepare` (reading
Parquet, encoding, building examples, writing shards, checksums) with one worker is compared with
`tokenizers.encode_batch_fast` alone on the same lines with one thread, and with the official Python
tokenizer on a sample of them if it is installed:

    pip install --no-deps bert-tensorflow==1.0.1 six

All must give the same ids.
"""

import argparse
import importlib.util
import io
import os
import sys
import tempfile
import types
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from side_by_side import measure, report, where

from electrify.corpora.corpus import corpus, settings_type
from electrify.corpora.document import read_parquet, row_groups
from electrify.tokens import prepare as prepare_module
from electrify.tokens import tokenizer
from electrify.tokens.encoder import LineEncoder
from electrify.tokens.prepare import Prepare, prepare

OFFICIAL_SHARE = 30  # one document in 30, because it is slow


def official_tokenizer(vocab: Path):
    """Return the tokenizer of google-research/bert, which ELECTRA uses; None if not installed."""
    spec = importlib.util.find_spec("bert")
    if spec is None or not spec.submodule_search_locations:
        return None
    sys.modules.setdefault("tensorflow", _tensorflow_stub())
    path = Path(spec.submodule_search_locations[0]) / "tokenization.py"
    loaded = importlib.util.spec_from_file_location("official_tokenization", path)
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    return module.FullTokenizer(str(vocab), do_lower_case=True)


def _tensorflow_stub() -> types.ModuleType:
    """Return what the official tokenizer needs of TensorFlow: a function that opens files."""
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.gfile = types.SimpleNamespace(GFile=open)
    return tensorflow


def prepare_afresh(docs: Path, vocab: Path) -> None:
    """Run `electrify prepare` with one worker and empty caches, into a new folder."""
    prepare_module._encoder.cache_clear()
    out = Path(tempfile.mkdtemp(dir=docs.parent)) / "shards"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        prepare(Prepare(docs=(docs,), tokenizer=str(vocab), out=out, workers="1"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("vocab", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, work: Path) -> None:
    """Check that all give the same ids, then measure their speed."""
    settings = settings_type("text")(sources=(str(args.text),), out=work / "docs", workers="1")
    manifest = corpus(settings)
    megabytes = manifest["text_bytes"] / 1e6
    texts = [document.text for document in read_parquet(row_groups(work / "docs"))]
    lines = [[line for line in text.split("\n") if line and not line.isspace()] for text in texts]
    backend = tokenizer.load_tokenizer(args.vocab).backend
    official = official_tokenizer(args.vocab)
    sample = [line for document in lines[::OFFICIAL_SHARE] for line in document]

    def ours() -> float:
        prepare_afresh(work / "docs", args.vocab)
        return megabytes

    def bare() -> float:
        for document in lines:
            backend.encode_batch_fast(document, add_special_tokens=False)
        return megabytes

    def officially() -> float:
        for line in sample:
            official.convert_tokens_to_ids(official.tokenize(line))
        return sum(len(line.encode()) + 1 for line in sample) / 1e6

    rivals = {"electrify prepare": ours, "encode_batch_fast": bare}
    if official:
        rivals["official tokenizer"] = officially
        ids = [official.convert_tokens_to_ids(official.tokenize(line)) for line in sample]
        same = sum(
            a == b for a, b in zip(ids, LineEncoder(backend).lines("\n".join(sample)), strict=True)
        )
        print(f"same ids as the official tokenizer in {same:,} of {len(sample):,} lines")
    encoder = LineEncoder(backend)
    equal = all(
        encoder.lines(text)
        == [e.ids for e in backend.encode_batch_fast(document, add_special_tokens=False)]
        for text, document in zip(texts, lines, strict=True)
    )
    assert equal, "the ids differ from those of encode_batch_fast"
    print(f"same ids as encode_batch_fast in all {len(texts):,} documents")
    report(measure(rivals, args.rounds), "electrify prepare", "MB/s per core")
    print(where())


if __name__ == "__main__":
    main()

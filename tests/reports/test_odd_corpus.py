"""Odd texts in the corpus are escaped by every command that shows text."""

import re

import pytest
from tests.conftest import make_documents, write_documents
from tests.reports.odd_texts import ODD_TEXTS
from tests.reports.pairs import bytes_pairs, make_run

from electrify.cli import main
from electrify.corpora.document import Document
from electrify.reports.options import Report
from electrify.reports.report import report
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.prepare import Prepare, prepare

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TEXTS = [text for text in ODD_TEXTS.values() if text.strip()]


@pytest.fixture(scope="module")
def odd_docs(tmp_path_factory):
    """Write documents of odd texts, and some normal ones."""
    odd = [
        Document(f"<b>{number}</b>", f"{text} {text}".encode(errors="replace").decode(), "odd")
        for number, text in enumerate(TEXTS * 20)
    ]
    folder = tmp_path_factory.mktemp("odd")
    return write_documents(folder / "docs", odd + make_documents(40))


@pytest.fixture(scope="module")
def odd_run(odd_docs):
    """Make a run on these documents."""
    folder = odd_docs.parent
    tokenizers.save_tokenizer(bytes_pairs(), folder / "tokenizer", 32)
    settings = Prepare(
        docs=(odd_docs,),
        tokenizer=str(folder / "tokenizer"),
        length=32,
        validation=0.3,
        out=folder / "shards",
    )
    prepare(settings)
    return make_run(folder / "shards", folder / "run")


@pytest.mark.parametrize("what", ["docs", "shards", "run"])
def test_show(what, odd_run, capsys):
    for seed in range(3):
        folder = str(odd_run.parent / what)
        assert main(["show", folder, "--count", "8", "--seed", str(seed)]) == 0
        output = capsys.readouterr().out
        assert output.strip()
        assert not CONTROLS.search(output), CONTROLS.search(output)


def test_report(odd_run, tmp_path):
    out = tmp_path / "report.html"
    report(Report(folders=(odd_run,), out=out, examples=40))
    page = out.read_text(encoding="utf-8")
    assert "No examples can be shown" not in page
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"<[^>]+ onmouseover=", page)
    assert not CONTROLS.search(page.replace("\n", ""))

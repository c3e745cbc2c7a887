"""The whole way by one command, and the task at its end."""

import csv
import json

import pytest

from electrify.corpora.document import documents_at
from electrify.errors import UserError
from electrify.package_task import PackageTask, write_task
from electrify.tokens.splits import split_of
from tests.conftest import make_documents, write_documents

SMALL = PackageTask(packages=3, train=5, dev=4)


def labelled(folder, packages: dict[str, int]):
    """Documents of some packages."""
    documents = make_documents(sum(packages.values()), seed=3)
    names = [name for name, count in packages.items() for _ in range(count)]
    long = [
        document._replace(label=name, text=document.text * 9)
        for document, name in zip(documents, names, strict=True)
    ]
    return write_documents(folder, long)


def rows(path) -> list[tuple[str, str]]:
    with path.open(newline="") as file:
        header, *found = csv.reader(file, delimiter="\t")
    assert header == ["text", "label"]
    return [(text, label) for text, label in found]


def test_the_task_has_as_many_texts_of_the_largest_packages(tmp_path):
    docs = labelled(tmp_path / "docs", {"few": 8, "a": 60, "b": 90, "c": 40, "d": 35})
    train, dev = (rows(path) for path in write_task(docs, tmp_path / "task", 0.3, SMALL))
    for some, each in ((train, 5), (dev, 4)):
        assert [label for _, label in some] == ["b"] * each + ["a"] * each + ["c"] * each
    assert not {text for text, _ in train} & {text for text, _ in dev}
    held_out = {
        " ".join(document.text.split())
        for document in documents_at(docs, range(233))
        if split_of(document.text, 0.3, 0.01) != "train"
    }
    assert {text for text, _ in dev} <= held_out
    assert not {text for text, _ in train} & held_out
    before = (tmp_path / "task/train.tsv").read_bytes()
    write_task(docs, tmp_path / "again", 0.3, SMALL)
    assert (tmp_path / "again/train.tsv").read_bytes() == before


def test_one_package_is_no_task(tmp_path):
    docs = labelled(tmp_path / "docs", {"a": 20, "b": 3})
    with pytest.raises(UserError, match="too few packages"):
        write_task(docs, tmp_path / "task", 0.3, SMALL)


@pytest.mark.slow
def test_the_quickstart_goes_the_whole_way_and_again_does_nothing_twice(electrify, tmp_path):
    command = ("quickstart", "--budget", "15s", "--seeds", 2)
    said = electrify(*command, cwd=tmp_path).stdout
    out = tmp_path / "quickstart"
    assert "transformers.AutoModel loads it: ModernBertModel" in said
    assert "from random weights: " in said
    assert said.splitlines()[-1] == "quickstart/report.html: open it in a browser"
    page = (out / "report.html").read_text()
    assert "Fine-tuned on own data" in page
    scores = json.loads((out / "pretrained/result.json").read_text())["mean"]
    assert 0 < scores["accuracy"] < 1
    weights = (out / "model/discriminator/model.safetensors").read_bytes()
    again = electrify(*command, cwd=tmp_path).stdout
    assert "already made" in again
    assert (out / "model/discriminator/model.safetensors").read_bytes() == weights

"""The complete pipeline by one command, and the task at its end."""

import csv
import json

import pytest
from tests.conftest import make_documents, write_documents

from electrify.corpora.document import documents_at
from electrify.errors import UserError
from electrify.quickstart import command as quickstart
from electrify.quickstart.command import Comparison, Cost, affordable
from electrify.quickstart.package_task import PackageTask, write_task
from electrify.recipes import schema
from electrify.tokens.splits import split_of

SMALL = PackageTask(packages=3, train=5, dev=4)


def labelled(folder, packages: dict[str, int]):
    """Write documents labelled with packages."""
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
    for split, each in ((train, 5), (dev, 4)):
        assert [label for _, label in split] == ["b"] * each + ["a"] * each + ["c"] * each
    assert not {text for text, _ in train} & {text for text, _ in dev}
    validation_texts = {
        " ".join(document.text.split())
        for document in documents_at(docs, range(233))
        if split_of(document.text, 0.3, 0.01) != "train"
    }
    assert {text for text, _ in dev} <= validation_texts
    assert not {text for text, _ in train} & validation_texts
    before = (tmp_path / "task/train.tsv").read_bytes()
    write_task(docs, tmp_path / "again", 0.3, SMALL)
    assert (tmp_path / "again/train.tsv").read_bytes() == before


def test_a_gain_is_held_against_the_noise_of_welch():
    """By hand: errors² 1/4 and 25/4 give 42.25 / ((1 + 625) / 16 / 3) = 3.24 degrees of freedom.

    Three of them have a t of 3.18, and 3.18 × √0.00065 = 0.081; six, as of Student, gave 0.062.
    """
    steady, wild = (
        {"mean": {"f1": mean}, "std": {"f1": std}, "seeds": [{}] * 4}
        for mean, std in ((0.57, 0.01), (0.5, 0.05))
    )
    assert quickstart.degrees_of_freedom([1 / 4, 25 / 4], [4, 4]) == 3
    assert "within the noise of 0.081;" in quickstart.gain_verdict(steady, wild)


def test_one_package_is_no_task(tmp_path):
    docs = labelled(tmp_path / "docs", {"a": 20, "b": 3})
    with pytest.raises(UserError, match="too few packages"):
        write_task(docs, tmp_path / "task", 0.3, SMALL)


def test_a_slow_machine_compares_less_within_the_time_that_is_left():
    asked, laptop = Comparison(5, 20.0), Cost(0.5, 0.3)
    assert affordable(asked, laptop, 2 * laptop.of(asked)) == asked
    before = asked
    for slower in (2, 4, 8, 16, 32, 64, 128):
        cost = Cost(laptop.fixed * slower, laptop.epoch * slower)
        chosen = affordable(asked, cost, 160.0)
        assert cost.of(chosen) <= 160 or chosen == Comparison(2, 3.0)
        assert (chosen.seeds, chosen.epochs) <= (before.seeds, before.epochs)
        assert chosen.seeds >= 2  # one seed cannot estimate the noise
        before = chosen
    assert before == Comparison(2, 3.0)
    assert affordable(Comparison(1, 20.0), Cost(9.0, 9.0), 1.0) == Comparison(1, 3.0)


@pytest.mark.parametrize(("seconds", "seeds", "epochs"), [(0.3, 5, 20.0), (6.0, 2, 12.0)])
def test_the_comparison_is_planned_by_the_time_of_an_epoch(
    seconds, seeds, epochs, tmp_path, monkeypatch, capsys
):
    """A fake clock simulates a machine twenty times as slow; the plan is kept on resuming."""
    clock, calls = [1_000.0], []

    def finetune(chosen, brief):
        calls.append((chosen.seeds, chosen.fit.epochs))
        clock[0] += chosen.seeds * (0.5 + chosen.fit.epochs * seconds)
        chosen.out.mkdir(parents=True, exist_ok=True)
        each = [{"seconds": chosen.fit.epochs * seconds}] * chosen.seeds
        return {"seeds": each, "mean": {"f1": 0.5}, "std": {"f1": 0.1}}

    monkeypatch.setattr("electrify.finetuning.own.command.finetune", finetune)
    monkeypatch.setattr(quickstart, "write_task", lambda *args: (tmp_path / "a", tmp_path / "b"))
    monkeypatch.setattr(quickstart, "untrained", lambda *args: tmp_path / "untrained")
    monkeypatch.setattr(quickstart.time, "monotonic", lambda: clock[0])
    settings = quickstart.Quickstart(out=tmp_path / "out", budget="4m")
    (tmp_path / "out").mkdir()
    arguments = (tmp_path, tmp_path, tmp_path, schema.load("tiny"))
    start = clock[0] - 270  # the stages before took their normal time
    quickstart._compare(settings, *arguments, start)
    output = capsys.readouterr().out
    assert calls == [(1, 1.0), (seeds, epochs), (seeds, epochs)]
    assert clock[0] - start < 2 * (240 + quickstart.NORMAL_SECONDS)
    assert ("this machine is slow or busy" in output) is (seeds < 5)
    assert "within the noise" in output
    quickstart._compare(settings, *arguments, clock[0])
    assert calls[3:] == [(seeds, epochs)] * 2
    assert not (tmp_path / "out/.probe").exists()


@pytest.mark.slow
def test_the_quickstart_goes_the_whole_way_and_again_does_nothing_twice(electrify, tmp_path):
    command = ("quickstart", "--budget", "15s", "--seeds", 2)
    output = electrify(*command, cwd=tmp_path).stdout
    out = tmp_path / "quickstart"
    assert "loaded with transformers.AutoModel: ModernBertModel" in output
    assert "from random weights: " in output
    last = "Open quickstart/report.html in a browser to see the results."
    assert output.splitlines()[-1] == last
    page = (out / "report.html").read_text()
    assert "Fine-tuned on your data" in page
    scores = json.loads((out / "pretrained/result.json").read_text())["mean"]
    assert 0 < scores["accuracy"] < 1
    weights = (out / "model/discriminator/model.safetensors").read_bytes()
    again = electrify(*command, cwd=tmp_path).stdout
    assert "already made" in again
    assert (out / "model/discriminator/model.safetensors").read_bytes() == weights

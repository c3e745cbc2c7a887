"""The report page: its content, its escaping, and that it is self-contained."""

import hashlib
import json
import math
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from electrify import cli
from electrify.config import to_dict
from electrify.errors import DamagedError, UserError
from electrify.finetuning.glue.results import read_results
from electrify.finetuning.glue.tables import glue_summary
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.own.by_label import _of_labels
from electrify.finetuning.results import Result, write_result
from electrify.recipes import schema
from electrify.reports import plots
from electrify.reports.options import Report
from electrify.reports.report import report
from electrify.reports.run import read_run
from electrify.storage.commit import sha256_of, write_json
from electrify.training.folder import RunFolder
from electrify.training.journal import as_line

STEPS = (100, 200, 300, 400)
SPLIT = {
    "documents": 40,
    "examples": 1_000,
    "tokens": 90_000,
    "text_tokens": 88_000,
    "dropped_tokens": 3,
    "unknown_tokens": 45,
    "lengths": [0] * 64 + [500] + [0] * 51 + [500],
}
VOID = {"meta", "link", "img", "br", "hr", "input"}


def metrics(step, split):
    found = {
        "step": step,
        "split": split,
        "generator_loss": 10 - step / 100,
        "generator_accuracy": 0.1,
        "discriminator_loss": 0.42 - step / 10_000,
        "replaced_rate": 0.14,
        "accuracy": 0.86,
        "precision": math.nan,
        "recall": 0.0,
        "auc": 0.5 + step / 2_000,
    }
    return found | ({"learning_rate": 5e-4 * step / 400} if split == "train" else {})


def make_run(
    folder, recipe_name="electra-small", steps=400, records=None, data="shards", **changes
):
    """Write a run's folder as `electrify pretrain` does, without training."""
    folder.mkdir(parents=True)
    chosen = to_dict(schema.load(recipe_name))
    chosen["run"] |= {"steps": steps}
    chosen["optimizer"] |= changes
    tokenizer = {"vocab_size": 30_522, "sha256": "0" * 64}
    about = {
        "kind": "run",
        "identity": {"recipe": chosen, "data": {"manifest_sha256": "f" * 64}, "budget": ""},
        "data": data,
        "shards": {
            "identity": {"settings": {"length": 128}, "tokenizer": tokenizer, "inputs": []},
            "splits": {"train": SPLIT, "validation": {**SPLIT, "examples": 10}},
        },
        "made_with": {"electrify": "0.1.0", "torch": "2.13.0"},
        "machine": {"platform": "Linux", "processors": 2, "devices": []},
        "git": {"commit": "c" * 40, "changed": True},
    }
    write_json(folder / "run.json", about)
    if records is None:
        records = [metrics(step, "train") for step in STEPS]
        records += [metrics(step, "validation") for step in STEPS[1::2]]
        records.sort(key=lambda record: record["step"])
    (folder / "metrics.jsonl").write_text("".join(map(as_line, records)))
    speeds = [{"step": s, "tokens_per_second": 900.0, "steps_per_second": 0.5} for s in STEPS]
    (folder / "timing.jsonl").write_text("".join(map(as_line, speeds)))
    return folder


def make_glue(folder, base=0.7, names=("cola", "rte"), seeds=3, preset="paper"):
    for task in names:
        for seed in range(seeds):
            scores = {"dev": dict.fromkeys(TASKS[task].metrics, base + seed / 100)}
            job = folder / "jobs" / f"{task}-{seed}"
            job.mkdir(parents=True)
            result = Result(task, seed, preset, scores, train_rows=TASKS[task].train_rows)
            write_result(job, result, {"source": "model/discriminator", "model": "abc"})
    return folder


def make_tuned(folder, base=0.7, seeds=3, **changes):
    """Write a folder as `electrify finetune` does, without training."""
    values = [base + seed / 100 for seed in range(seeds)]
    result = {
        "kind": "classes",
        "model": "model/discriminator",
        "train": {"file": "train.tsv", "rows": 256, "cut": 0},
        "mean": {"accuracy": float(np.mean(values)), "f1": base},
        "std": {"accuracy": 0.01, "f1": 0.02},
        "seeds": [
            {"seed": seed, "scores": {"accuracy": value, "f1": base}, "degenerate": False}
            for seed, value in enumerate(values)
        ],
    }
    folder.mkdir(parents=True)
    write_json(folder / "result.json", result)
    identity = {"train": "1" * 64, "dev": "2" * 64, **changes}
    write_json(folder / "manifest.json", {"kind": "fine-tuned model", "identity": identity})
    return folder


class Page(HTMLParser):
    """Collects the tags and text of a page, and checks that tags are closed in order."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def of(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def made(tmp_path, *folders, **settings):
    out = tmp_path / "report.html"
    report(Report(folders=folders, out=out, **settings))
    return Page(out.read_text(encoding="utf-8")), out


def test_a_run(tmp_path):
    page, _ = made(tmp_path, make_run(tmp_path / "my-run"))
    assert "my-run" in page.text
    for expected in (
        "finished",
        "replaced token detection",
        "400",
        "of 400 (100 %)",
        "720k",  # 400 steps of 900 / 0.5 tokens
        "6.000",
        "0.3800",
        "0.700",
        "900",
        "uniform guessing 10.33",
        "Validation at step 400: generator loss 6.00 (uniform guessing 10.33), discriminator loss "
        "0.380 (constant answer 0.405), AUC 0.700 (chance 0.5). The generator predicts better than "
        "by token frequency.",
        "A recall of 0.00 at threshold 0.5 is normal at an AUC of 0.70.",
        "guessing by frequency",
        "90,000",
        "0.050 %",  # unknown tokens
        "c" * 40 + ", with uncommitted changes",
        "f" * 64,
        "torch 2.13.0",
        "No examples can be shown",
    ):
        assert expected in page.text
    titles = [a["aria-label"] for a in page.of("svg") if a.get("role") == "img"]
    assert len(titles) == 6
    assert titles[0].startswith(
        "Generator loss over steps. Training: 9.000 at step 100, 6.000 at step 400, "
        "between 6.000 and 9.000. Validation: 8.000 at step 200, 6.000 at step 400"
    )


def test_a_run_with_everything_measured(tmp_path):
    more = {f"replaced_at_{n:02}": n / 100 for n in range(5, 100, 10)} | {"replaced_at_95": None}
    more |= {"unigram_loss": 8.2, "recall_at_5": 0.37}
    records = [metrics(step, "train") | {"gradient_norm": 1.5} for step in STEPS]
    records += [metrics(400, "validation") | more]
    run = make_run(tmp_path / "run", records=records)
    seconds = {"data": 1.0, "forward": 3.0, "backward": 5.0, "evaluation": 20.0}
    parts = {"seconds": 200.0, **{f"{part}_seconds": value for part, value in seconds.items()}}
    speed = {"tokens_per_second": 900.0, "steps_per_second": 0.5}
    (run / "timing.jsonl").write_text(
        "".join(as_line({"step": s, **speed, **parts}) for s in STEPS)
    )
    page, _ = made(tmp_path, run)
    for expected in (
        "Training worked: the model has learned word-level context, and detects 4 of 10 replaced "
        "tokens at a 5 % false-alarm rate.",
        "guessing by token frequency 8.20",
        "generator loss 6.00 (uniform guessing 10.33; guessing by frequency 8.20)",
        "Training time 13 min",
        "the network uses the context",
        "50% of the examples have the maximum, 116 tokens; the bars show the others.",
    ):
        assert expected in page.text
    assert {"class": "verdict worked"} in page.of("div")
    assert page.text.index("Training worked") < page.text.index("Architecture")
    labels = " ".join(a["aria-label"] for a in page.of("svg") if a.get("role") == "img")
    for expected in (
        "Gradient norm over steps: 1.5 at step 100",
        "data 0.5%, forward 33.6%, backward 55.9%, optimizer 0.0%, evaluation 10.0%, saving 0.0%",
        "replaced by predicted probability: at 5% 5%, at 15% 15%",
        "at 85% 85%.",
    ):
        assert expected in labels
    names = [tag for tag, _ in page.tags]
    captions = [n for n, tag in enumerate(names) if tag == "figcaption"]
    assert {names[n + 2] for n in captions} == {"small"}, "every figure says how to read it"


def test_the_page_stands_alone(tmp_path):
    page, out = made(tmp_path, make_run(tmp_path / "run"), make_glue(tmp_path / "glue"), examples=0)
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            assert attrs.get(name, "#").startswith("#")
    content = out.read_text()
    assert "http" not in re.sub("http-equiv", "", content)
    assert not re.search(r"url\((?!#)|@import|<script", content)
    policy = next(a["content"] for a in page.of("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for _, a in page.tags if "href" in a}
    targets |= set(re.findall(r"url\(#([^)]*)\)", content))
    assert targets <= set(ids)


def test_it_is_accessible_to_screen_readers(tmp_path):
    page, _ = made(
        tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b"), make_glue(tmp_path / "glue")
    )
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.of("html")[0]["lang"] == "en"
    assert len(page.of("caption")) == len(page.of("table"))
    assert all(a.get("scope") in ("row", "col") for a in page.of("th"))
    for svg in page.of("svg"):
        assert svg.get("aria-hidden") == "true" or len(svg["aria-label"]) > 40
    assert all("tabindex" in a for a in page.of("div") if a.get("class") == "scroll")


def test_colours_come_from_the_page(tmp_path):
    _, out = made(tmp_path, make_run(tmp_path / "run"), make_glue(tmp_path / "glue"), examples=0)
    content = out.read_text()
    drawn = "".join(re.findall(r"<svg.*?</svg>", content, flags=re.S))
    used = set(re.findall(r"var\(--([\w-]+)\)", drawn))
    assert {"ink", "grid", "band", "series-1", "series-2"} <= used
    for colour in plots.COLOURS:
        assert content.count(f"--{colour}:") == 2  # light and dark
    assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r'(href="|url\()#[^")]*', "", drawn))
    assert "font-family" not in drawn


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_contrast_is_enough_in_light_and_dark(tmp_path):
    _, out = made(tmp_path, make_glue(tmp_path / "glue"))
    schemes = re.findall(r":root \{(.*?)\}", out.read_text(), flags=re.S)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        for ground in ("paper", "raised"):
            for front in ("text", "soft", "link", "ink", *(f"series-{n}" for n in range(1, 7))):
                low, high = sorted(luminance(colours[name]) for name in (ground, front))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (ground, front)


def test_the_same_folders_give_the_same_bytes(tmp_path):
    folders = [make_run(tmp_path / "a"), make_run(tmp_path / "b"), make_glue(tmp_path / "glue")]
    pages = [made(tmp_path, *folders, examples=0)[1].read_bytes() for _ in range(2)]
    assert pages[0] == pages[1]


HOSTILE = "<script>alert(1)</script>&\"'><img onerror=x> \u202eשלום 🎈" + "x" * 100


def test_names_are_escaped(tmp_path):
    name = HOSTILE.replace("/", "")
    run = make_run(tmp_path / name, data=HOSTILE)
    glue = make_glue(tmp_path / f"glue {name}")
    page, _ = made(tmp_path, run, make_run(tmp_path / "b"), glue)
    assert HOSTILE in page.text
    assert name in page.text
    assert not page.of("script")
    assert not page.of("img")
    assert page.of("bdi")


def test_a_name_that_is_not_valid_utf_8(tmp_path):
    _, out = made(tmp_path, make_run(tmp_path / "r\udcffn"), examples=0)
    assert "r\\udcffn" in out.read_text(encoding="utf-8")


def test_a_run_in_progress(tmp_path):
    run = make_run(tmp_path / "run", steps=1_000)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 500, "split": "tr')
    page, _ = made(tmp_path, run)
    assert "not finished: step 400 of 1,000" in page.text
    assert "no checkpoint yet" in page.text


def test_a_run_that_has_logged_nothing(tmp_path):
    run = make_run(tmp_path / "run", records=[])
    (run / "timing.jsonl").unlink()
    page, _ = made(tmp_path, run)
    assert "Nothing was logged yet." in page.text
    assert "not evaluated yet" in page.text


def test_a_masked_language_model(tmp_path):
    records = [
        {"step": 400, "split": split, "generator_loss": 7.5, "generator_accuracy": 0.1}
        for split in ("train", "validation")
    ]
    page, _ = made(tmp_path, make_run(tmp_path / "run", "bert-small", records=records))
    assert "Masked-LM loss" in page.text
    assert "Discriminator loss" not in page.text
    assert "Corrupted examples" not in page.text


def test_parameters_are_counted_in_the_latest_checkpoint(tmp_path):
    run = make_run(tmp_path / "run")
    for step, width in ((300, 5), (400, 7)):
        folder = run / "checkpoints" / f"step-{step:08}"
        folder.mkdir(parents=True)
        save_file({"generator.w": np.zeros((3, width), np.float32)}, folder / "model.safetensors")
        entry = {"name": "model.safetensors", "bytes": 1, "sha256": f"{step}"}
        identity = {"step": step, "run": RunFolder(run).fingerprints(step)}
        manifest = {"kind": "checkpoint", "identity": identity, "files": [entry]}
        write_json(folder / "manifest.json", manifest)
    assert read_run(run, "run").parameters == 21
    (run / "checkpoints" / "step-00000400" / "manifest.json").unlink()  # as while it is pruned
    assert read_run(run, "run").parameters == 15


def test_every_input_is_named_by_its_hash(tmp_path):
    run, glue = make_run(tmp_path / "run"), make_glue(tmp_path / "glue")
    grown = (run / "metrics.jsonl").read_bytes()
    page, _ = made(tmp_path, run, glue)
    files = [run / "run.json", run / "timing.jsonl", *glue.glob("jobs/*/result.json")]
    for file in files:
        assert sha256_of(file) in page.text
    assert hashlib.sha256(grown).hexdigest() in page.text
    assert "jobs/cola-0/result.json" in page.text


def test_the_published_reference_is_shown_for_comparable_runs(tmp_path):
    records = [metrics(400, "train") | {"step": step} for step in (2_500, 5_000)]
    near = make_run(tmp_path / "near", steps=10_000, records=records)
    page, _ = made(tmp_path, near)
    labels = [a["aria-label"] for a in page.of("svg") if "aria-label" in a]
    assert "official code at step 5,000: 7.134." in labels[0]
    other = make_run(tmp_path / "other", steps=10_000, records=records, warmup=77)
    page, _ = made(tmp_path, other)
    assert not any("official code" in a.get("aria-label", "") for a in page.of("svg"))


def test_several_runs_are_compared(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", lr=0.01, beta1=0.7)]
    page, _ = made(tmp_path, *runs, examples=0)
    assert "2 runs" in page.text
    assert "Comparison" in page.text
    after = page.text.split("Differences between the recipes")[1]
    assert after.startswith(" field a b optimizer.beta1 0.9 0.7 optimizer.lr 0.0005 0.01")
    labels = [a["aria-label"] for a in page.of("svg") if "aria-label" in a]
    assert "a, validation: 8.000" in labels[0]
    assert "b, validation: 8.000" in labels[0]


def test_runs_of_the_same_name_are_told_apart(tmp_path, monkeypatch):
    for folder in ("one", "two"):
        make_run(tmp_path / folder / "run")
    monkeypatch.chdir(tmp_path)
    page, _ = made(tmp_path, Path("one/run"), Path("two/run"), examples=0)
    assert "one/run" in page.text
    absolute = [tmp_path / "one" / "run", tmp_path / "two" / "run"]
    page, _ = made(tmp_path, *absolute, examples=0)
    assert str(absolute[0]) in page.text


def test_glue_results(tmp_path):
    page, _ = made(tmp_path, make_glue(tmp_path / "tuned"))
    assert "tuned" in page.text
    for expected in (
        "71.0",
        "70.0–72.0",
        "ELECTRA-Large",
        "69.1",
        "median of 3 seeds",
        "no average over tasks: missing SST-2",
        "the range over the seeds",
    ):
        assert expected in page.text
    (dots,) = [a["aria-label"] for a in page.of("svg") if "aria-label" in a]
    assert "CoLA, tuned: 70.0, 71.0, 72.0." in dots
    notes = {a["id"] for a in page.of("li")}
    marks = {a["href"][1:] for a in page.of("a") if "-note-" in a.get("href", "")}
    assert marks == notes


@pytest.mark.parametrize("preset", ["paper", "seed-004"])
def test_the_page_shows_the_same_statistic_as_the_terminal(tmp_path, preset):
    folder = make_glue(tmp_path / "tuned", seeds=2, preset=f"{preset}, epochs 1.0, length 32")
    page, _ = made(tmp_path, folder)
    text = f"dev, {'median' if preset == 'paper' else 'mean'} of 2 seeds"
    assert text in page.text
    assert text in " ".join(glue_summary(read_results(folder)).split())
    assert "95 %" not in page.text


def test_two_sets_of_glue_results(tmp_path):
    folders = [make_glue(tmp_path / "a"), make_glue(tmp_path / "b", 0.8, ["rte"], 1)]
    page, _ = made(tmp_path, *folders)
    assert "2 sets of GLUE results" in page.text
    assert "Seeds of a" in page.text
    assert any("RTE, b: 80.0." in a.get("aria-label", "") for a in page.of("svg"))


def test_models_fine_tuned_on_your_data_are_compared(tmp_path):
    folders = [make_tuned(tmp_path / "pretrained", 0.8), make_tuned(tmp_path / "random", 0.5)]
    page, _ = made(tmp_path, *folders)
    assert "2 fine-tuned models" in page.text
    assert "0.810 ± 0.010" in page.text
    assert "256" in page.text
    assert "same files" not in page.text
    (dots,) = [a["aria-label"] for a in page.of("svg") if "aria-label" in a]
    assert "random, accuracy: 0.500, 0.510, 0.520." in dots
    page, _ = made(tmp_path, make_tuned(tmp_path / "single", 0.6, 1))
    assert "0.600" in page.text
    assert "±" not in page.text  # one seed has no spread
    page, _ = made(tmp_path, *folders, make_tuned(tmp_path / "other", 0.6, 1, train="3" * 64))
    assert "Not all were trained and evaluated on the same files" in page.text


def test_a_fine_tuned_model_in_detail(tmp_path):
    """Folders that lack the scores of each label are still reported, as above."""
    folder = make_tuned(tmp_path / "tuned", 0.6, 2)
    result = json.loads((folder / "result.json").read_text())
    for seed in result["seeds"]:
        seed["losses"] = [[5, 1.5], [10, 0.25]]
    for count in (3, 50):
        labels = [f"<class {number}>" for number in range(count)]
        gold = [label for number, label in enumerate(labels) for _ in range(number + 2)]
        guesses = [labels[1], *gold[1:]]
        result["by_label"] = _of_labels("class", "rows", labels, gold, guesses)
        write_json(folder / "result.json", result)
        page, _ = made(tmp_path, folder)
        assert "By class, on the development file" in page.text
        assert ("Confusion matrix" in page.text) == (count == 3)
        assert ("10 most frequent of 50" in page.text) == (count == 50)
        assert ("Most frequent confusions (1 of 1 pairs)" in page.text) == (count == 50)
        assert any("seed 1: 1.500 at step 5" in a.get("aria-label", "") for a in page.of("svg"))
    result["train"]["labels"] = {"a": 1000, "b": 10}
    write_json(folder / "result.json", result)
    page, _ = made(tmp_path, folder)
    assert "the classes are unbalanced" in page.text


def test_a_run_with_its_fine_tuned_models(tmp_path):
    folders = [
        make_run(tmp_path / "run"),
        make_tuned(tmp_path / "tuned"),
        make_glue(tmp_path / "g"),
    ]
    page, _ = made(tmp_path, *folders, examples=0)
    assert "1 run, 1 set of GLUE results and 1 fine-tuned model" in page.text


def damage_recipe(run):
    about = json.loads((run / "run.json").read_text())
    del about["shards"]["splits"]["train"]["lengths"]
    (run / "run.json").write_text(json.dumps(about))


def damage_line(run):
    (run / "metrics.jsonl").write_text('{"step": 1, "split": "train"}\nnot JSON\n')


def damage_value(run):
    (run / "metrics.jsonl").write_text('{"step": 1, "split": "train", "auc": [1]}\n')


def damage_file(run):
    (run / "run.json").write_text("{")


@pytest.mark.parametrize("damage", [damage_recipe, damage_line, damage_value, damage_file])
def test_a_damaged_run_is_named_and_nothing_is_written(tmp_path, damage):
    run = make_run(tmp_path / "run")
    damage(run)
    before = '<meta name="generator" content="electrify 0.1.0">'
    (tmp_path / "report.html").write_text(before)
    with pytest.raises(DamagedError, match="is damaged"):
        made(tmp_path, run)
    assert (tmp_path / "report.html").read_text() == before


def test_a_damaged_result(tmp_path):
    glue = make_glue(tmp_path / "glue")
    (glue / "jobs" / "cola-0" / "result.json").write_text("[]")
    with pytest.raises(DamagedError):
        made(tmp_path, glue)


@pytest.mark.parametrize("name", ["nothing", "empty", "glue"])
def test_other_folders_are_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "glue" / "jobs").mkdir(parents=True)
    with pytest.raises(UserError):
        made(tmp_path, tmp_path / name)


@pytest.mark.parametrize("out", [".", "missing/report.html"])
def test_an_output_path_that_cannot_be_written(tmp_path, out):
    with pytest.raises(UserError, match="cannot be written"):
        report(Report(folders=(make_run(tmp_path / "run"),), out=tmp_path / out))


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_glue(tmp_path / "glue")
    assert cli.main(["report", "glue"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert Page((tmp_path / "report.html").read_text()).of("table")
    assert cli.main(["report", "glue", "--examples", "-1"]) == 2


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"electrify\[report\]"):
        made(tmp_path, make_glue(tmp_path / "glue"))


def test_only_a_page_of_ours_is_overwritten(tmp_path):
    run, out = make_run(tmp_path / "my-run"), tmp_path / "report.html"
    for foreign in ("my thesis", '<!DOCTYPE html>\n<meta name="generator" content="thesis">\n'):
        out.write_text(foreign)
        with pytest.raises(UserError, match="is not a page that electrify made"):
            made(tmp_path, run)
        assert out.read_text() == foreign
    out.write_text("")
    made(tmp_path, run)
    page, _ = made(tmp_path, run)  # again
    assert "my-run" in page.text

"""Model cards: `huggingface_hub` parses them, and every score can be traced to its file."""

import json
import shutil
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, metadata_load
from tests.conftest import WORDS
from tests.finetuning.own_files import write_tags
from tests.finetuning.squad_files import paragraphs, write_squad

import electrify
from electrify.cli import main
from electrify.finetuning.blimp.pairs import FIELDS
from electrify.objectives.card_metadata import CardScore, score_section

SUITE = """seeds = 2
epochs = 1
batch_size = 8
train_limit = 16
length = 32

[[task]]
name = "polarity"
task = "SST-2"
data = "GLUE"

[[task]]
name = "cola"
train = "train.txt"
dev = "dev.txt"
kind = "tags"

[[task]]
task = "squad"
data = "squad"
dev_limit = 2

[[task]]
task = "blimp"
data = "blimp"
"""


def write_data(folder: Path) -> None:
    """Write a GLUE task, tagged words, SQuAD, minimal pairs and a suite of them."""
    rows = [f"{word} {other}\t{len(word) % 2}" for word in WORDS[:4] for other in WORDS[:4]]
    (folder / "GLUE" / "SST-2").mkdir(parents=True)
    for split in ("train", "dev"):
        text = "\n".join(["sentence\tlabel", *rows, ""])
        (folder / "GLUE" / "SST-2" / f"{split}.tsv").write_text(text)
        write_squad(folder / "squad" / f"{split}-v1.1.json", paragraphs(4, len(split)))
    write_tags(folder)
    (folder / "blimp").mkdir()
    pairs = [[f"{word} {WORDS[0]}", f"{word} {WORDS[1]}", "p", "f", "one"] for word in WORDS[2:8]]
    text = "".join(json.dumps(dict(zip(FIELDS, pair, strict=True))) + "\n" for pair in pairs)
    (folder / "blimp" / "one.jsonl").write_text(text)
    (folder / "suite.toml").write_text(SUITE)


@pytest.fixture(scope="module")
def evaluated(run_of, tmp_path_factory) -> Path:
    """A folder with a run, its export and a suite of it."""
    folder = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(run_of("electra"), folder / "run")
    electrify.export(run=folder / "run", out=folder / "model")
    data = tmp_path_factory.mktemp("data")
    write_data(data)
    options = {"workers": "1", "device": "cpu"}
    electrify.suite(data / "suite.toml", (str(folder / "model"),), folder / "suite", **options)
    return folder


def results_of(card: Path) -> list:
    """Return the scores of a card, after checking that its YAML means the same to the library."""
    assert metadata_load(card) == ModelCard.load(card).data.to_dict()
    return ModelCard.load(card).data.eval_results


def stored_scores(folder: Path) -> set[tuple[str, float]]:
    """Return all scores in the result files of a folder, with the names of the files."""
    found = set()
    for path in folder.rglob("result.json"):
        content, name = json.loads(path.read_text()), path.relative_to(folder.parent).as_posix()
        parts = [content["overall"], *content["phenomena"]] if "overall" in content else []
        found |= {(name, part["accuracy"]) for part in parts}
        if not parts:
            scores = content["scores"]
            flat = "version" in content  # `electrify squad` has one split
            splits = [scores] if flat else scores.values()
            metrics = [item for split in splits for item in split.items()]
            found |= {(name, value) for metric, value in metrics if "total" not in metric}
    return found


def test_the_card_has_every_score_of_a_suite_with_its_file(evaluated, capsys):
    facts = ["--language", "en", "de", "--license", "mit", "--dataset", "me/text"]
    command = ["export", str(evaluated / "run"), "--out", str(evaluated / "model"), *facts]
    assert main([*command, "--base-model", "google/electra-small-discriminator"]) == 0
    assert "result files in suite" in capsys.readouterr().out
    card = evaluated / "model" / "encoder" / "README.md"
    results = results_of(card)
    for one in results:
        file = evaluated / one.metric_args["result_file"]
        assert one.metric_args["sha256"] == sha256(file.read_bytes()).hexdigest()
        assert one.metric_args["sha256"] in card.read_text().partition("## Scores")[2]
    found = {(one.metric_args["result_file"], one.metric_value) for one in results}
    assert found == stored_scores(evaluated / "suite")
    datasets = {(one.dataset_type, one.dataset_config, one.task_type) for one in results}
    assert datasets == {
        ("nyu-mll/glue", "sst2", "text-classification"),  # named polarity in the suite
        ("cola", None, "token-classification"),  # not GLUE's
        ("rajpurkar/squad", None, "question-answering"),
        ("nyu-mll/blimp", None, "other"),
        ("nyu-mll/blimp", "p", "other"),
    }
    glue = next(one for one in results if one.dataset_config == "sst2")
    assert (glue.metric_name, glue.dataset_split) == ("accuracy, seed 0", "validation")
    assert "16 training rows" in glue.metric_args["settings"]
    data = ModelCard.load(card).data
    assert (data.language, data.license, data.datasets) == (["en", "de"], "mit", ["me/text"])
    assert data.base_model == "google/electra-small-discriminator"
    own = results_of(evaluated / "model" / "discriminator" / "README.md")
    assert {one.metric_args["network"] for one in own} == {"discriminator"}
    assert main(["show", str(evaluated / "model"), "--verify"]) == 0


def test_only_scores_of_the_same_settings_and_folder_are_averaged():
    about = ("GLUE CoLA", "nyu-mll/glue", "cola", "validation", "text-classification", "mcc")
    runs = [
        ("all", 0.5, 0, "8,551 training rows"),
        ("all", 0.7, 1, "8,551 training rows"),
        ("trial", 0.1, 0, "64 training rows"),
        ("again", 0.3, 0, "64 training rows"),
    ]
    scores = [
        CardScore(
            *about, value, "encoder", f"{folder}/jobs/cola-{seed}/result.json", "a", seed, how
        )
        for folder, value, seed, how in runs
    ]
    rows = [line.split(" | ") for line in score_section(scores) if line.startswith("| GLUE")]
    found = [(row[3], row[4], row[6]) for row in rows]
    assert found == [
        ("0.6000", "2", "8,551 training rows"),
        ("0.1000", "1", "64 training rows"),
        ("0.3000", "1", "64 training rows"),
    ]


@pytest.mark.slow
def test_the_card_has_the_scores_of_glue_squad_and_blimp(evaluated, tmp_path):
    folder, data = tmp_path / "all", tmp_path / "data"
    folder.mkdir()
    write_data(data)
    for name in ("run", "model"):
        shutil.copytree(evaluated / name, folder / name)
    model = folder / "model"
    for command in (
        ["glue", model / "encoder", "--data", data / "GLUE", "--tasks", "sst2", "--epochs", "1"],
        ["squad", model / "encoder", "--data", data / "squad", "--epochs", "1"],
        ["blimp", model, "--data", data / "blimp"],
    ):
        assert main([*map(str, command), "--out", str(folder / command[0])]) == 0
    assert main(["export", str(folder / "run"), "--out", str(model), "--language", "en"]) == 0
    results = results_of(model / "encoder" / "README.md")
    files = {one.metric_args["result_file"].partition("/")[0] for one in results}
    assert files == {"glue", "squad", "blimp"}
    found = {(one.metric_args["result_file"], one.metric_value) for one in results}
    assert found == set().union(*(stored_scores(folder / name) for name in files))


def test_results_of_another_model_are_refused(evaluated, tmp_path, capsys):
    for path in (evaluated / "suite").rglob("result.json"):
        copy = tmp_path / "suite" / path.relative_to(evaluated / "suite")
        copy.parent.mkdir(parents=True)
        content = json.loads(path.read_text()) | {"fingerprint": "other"}
        content.get("identity", {})["model"] = "other"
        copy.write_text(json.dumps(content))
    scores = ["--scores", str(tmp_path / "suite")]
    command = ["export", str(evaluated / "run"), "--out", str(tmp_path / "model"), *scores]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "are of another model" in error
    assert "got: fingerprints other" in error


@pytest.mark.parametrize(
    ("option", "module", "extra"),
    [
        ("--sentence-transformers", "sentence_transformers", "sentences"),
        ("--onnx", "onnxruntime", "onnx"),
        ("--onnx", "onnxscript", "onnx"),
    ],
)
def test_a_missing_extra_is_named_before_anything_is_exported(
    option, module, extra, run_of, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, module, None)
    out = tmp_path / "model"
    assert main(["export", str(run_of("electra")), "--out", str(out), option]) == 2
    error = capsys.readouterr().err
    assert f"electrify[{extra}]" in error
    assert option in error
    assert not out.exists()

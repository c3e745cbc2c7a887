"""`electrify classify`: zero-shot classification with a template."""

import csv
import gzip
import json
import shutil

import numpy as np
import pytest
import torch
from tests.finetuning.test_blimp import saved
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    ElectraForPreTraining,
)

import electrify as package
from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.options import Classify
from electrify.finetuning.zeroshot import command
from electrify.finetuning.zeroshot.command import classify
from electrify.finetuning.zeroshot.results import describe_rows, zero_shot_result
from electrify.finetuning.zeroshot.template import fill_template, parse_labels, parse_template

TEXTS = ["kata loso midi", "raso raso", "pefu kata nuta lodi", "kata loso midi"]
LABELS = "kata,nufu"  # one token, and two
TEMPLATE = "lota {label} raso"


@pytest.fixture(scope="module")
def detector(tmp_path_factory, vocab):
    return saved(tmp_path_factory.mktemp("rtd") / "m", vocab, ElectraForPreTraining, "electra")


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory, vocab):
    make = AutoModelForMaskedLM.from_config
    return saved(tmp_path_factory.mktemp("mlm") / "m", vocab, make, "bert")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.tsv"
    lines = [f"{text}\t{number % 2}" for number, text in enumerate(TEXTS[:3])]
    path.write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return path


def run(model, file, **changes):
    options = {"template": TEMPLATE, "labels": LABELS, "device": "cpu", **changes}
    return classify(Classify(str(model), file, **options))


def naive(folder, text):
    """The mean log-probability of the tokens of each label, one sentence at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    make = AutoModelForPreTraining if "rtd" in str(folder) else AutoModelForMaskedLM
    model = make.from_pretrained(folder).eval()
    before = len(tokenizer(f"{text} lota", add_special_tokens=False).input_ids) + 1  # [CLS]
    found = {}
    for label in LABELS.split(","):
        ids = tokenizer(f"{text} lota {label} raso", return_tensors="pt").input_ids
        count = len(tokenizer(label, add_special_tokens=False).input_ids)
        scores = []
        for position in range(before, before + count):
            given = ids.clone()
            if make is AutoModelForMaskedLM:
                given[0, position] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(given).logits[0, position]
            if make is AutoModelForMaskedLM:
                scores.append(logits.log_softmax(-1)[ids[0, position]].item())
            else:
                scores.append(torch.nn.functional.logsigmoid(-logits).item())
        found[label] = np.mean(scores)
    return found


@pytest.mark.parametrize("kind", ["detector", "masked_lm"])
def test_scores_equal_a_naive_loop(kind, request, tmp_path):
    folder = request.getfixturevalue(kind)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    result = run(folder, tmp_path / "texts.txt")
    for text, scores in zip(TEXTS, result["scores"], strict=True):
        assert scores == pytest.approx(naive(folder, text), abs=1e-5)
    best = [max(scores, key=scores.get) for scores in result["scores"]]
    assert result["predictions"] == best
    assert "accuracy" not in result


def test_calibration_subtracts_the_scores_without_text(detector, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    plain, prior = run(detector, path)["scores"], naive(detector, "")
    for before, after in zip(plain, run(detector, path, calibrate=True)["scores"], strict=True):
        wanted = {label: score - prior[label] for label, score in before.items()}
        assert after == pytest.approx(wanted, abs=1e-5)


def test_a_sentence(detector, capsys):
    given = ["classify", str(detector), "kata loso midi", "--template", TEMPLATE]
    assert main([*given, "--labels", LABELS]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = {name: float(score) for name, score in map(str.split, lines)}
    assert printed == pytest.approx(naive(detector, "kata loso midi"), abs=1e-4)
    assert list(printed.values()) == sorted(printed.values(), reverse=True)


def test_the_command_reports_chance_and_writes_predictions(detector, table, tmp_path, capsys):
    packed = tmp_path / "texts.tsv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    out = tmp_path / "predicted.csv"
    given = ["classify", str(detector), str(packed), "--template", TEMPLATE, "--labels", LABELS]
    assert main([*given, "--gold", "1,0", "--out", str(out), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "3 rows" in said
    assert "guessing: 50.0%; always 'nufu': 66.7%" in said
    with out.open() as file:
        rows = list(csv.DictReader(file))
    result = run(detector, table, gold="1,0")
    assert [row["prediction"] for row in rows] == result["predictions"]
    assert [row["sentence"] for row in rows] == TEXTS[:3]
    for row, scores in zip(rows, result["scores"], strict=True):
        assert {n: float(row[f"score_{n}"]) for n in scores} == pytest.approx(scores)
    gold = ["nufu", "kata", "nufu"]
    right = [p == g for p, g in zip(result["predictions"], gold, strict=True)]
    assert result["accuracy"] == pytest.approx(np.mean(right))
    capsys.readouterr()
    assert main([*given, "--gold", "1,0", "--limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    lines = tmp_path / "predicted.jsonl"
    package.classify(detector, table, template=TEMPLATE, labels=LABELS, gold="1,0", out=lines)
    assert "scores" in json.loads(lines.read_text().splitlines()[0])


def test_accuracy_stands_beside_guessing():
    scores = np.array([[0.0, -1.0]] * 3 + [[-1.0, 0.0]])
    result = zero_shot_result(["good", "bad"], scores, ["good", "good", "good", "bad"])
    assert result["accuracy"] == 1
    assert (result["chance"], result["majority"], result["majority_label"]) == (0.5, 0.75, "good")
    said = describe_rows(result, ["good", "bad"])
    assert "predicted: good 3, bad 1" in said
    assert "no better than guessing" in said  # four rows prove nothing
    gold = ["good", "good", "good", "bad"] * 100
    many = zero_shot_result(["good", "bad"], np.tile(scores, (100, 1)), gold)
    assert "no better than guessing" not in describe_rows(many, ["good", "bad"])


def test_the_label_may_come_first_and_only_the_text_is_truncated(detector):
    encoder = open_encoder(str(detector))
    template = parse_template("lota {label} raso: {text} pefu")
    long = " ".join(["kata"] * 100)
    filled, truncated = fill_template(encoder, template, ("nufu",), [long, "midi"], 20)
    assert truncated == 1
    assert [len(one.encoding) <= 20 for one in filled] == [True, True]
    for one in filled:
        tokens = one.encoding.tokens
        assert tokens[-1] == "[SEP]"
        assert "".join(tokens[:-1]).replace("##", "").endswith("pefu")
        scored = [t for t, u in zip(tokens, one.unscored, strict=True) if not u]
        assert scored == encoder.tokenizer.tokenize("nufu")


def test_an_export_stands_for_its_discriminator(detector, tmp_path):
    export = tmp_path / "model"
    shutil.copytree(detector, export / "discriminator")
    assert run(export, TEXTS[0])["scores"] == run(detector, TEXTS[0])["scores"]


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        ({"template": "It was."}, "must contain {label} once", "It was {label}."),
        ({"template": "{label} {label}"}, "must contain {label} once", "It was {label}."),
        ({"template": "{text} {label} {text}"}, "{text} at most once", "It was {label}."),
        ({"labels": "great"}, "--labels must name two or more", "--labels great,terrible"),
        ({"labels": "great,great"}, "--labels must name two or more", "separate them by commas"),
        ({"labels": "great,"}, "--labels must name two or more", "separate them by commas"),
        ({"gold": "1,0,2"}, "one value for each of --labels", "in the order of --labels"),
        ({"gold": "1"}, "--gold must name two or more", "--gold 1,0"),
        ({"limit": -1}, "--limit", ""),
        ({"file": ""}, "no text", "a file of texts"),
        ({"file": "absent.tsv"}, "absent.tsv", ""),
        ({"file": "empty.tsv"}, "empty.tsv", ""),
        ({"file": "two.tsv"}, "two texts in every row", "--text sentence1"),
        ({"file": "texts.tsv"}, "the label is not one of --labels", "--gold 0,1 (or its reverse)"),
        ({"file": "texts.tsv", "gold": "yes,no"}, "not one of --gold", "--gold 0,1"),
        ({"file": "texts.tsv", "text": "review"}, "no column 'review'", ""),
        ({"file": "plain.txt", "gold": "1,0"}, "no label column", "--label"),
        ({"text": "review"}, "a sentence has no columns", "the path of a file"),
        ({"file": "plain.txt", "out": "out.npy"}, "unknown format", ".jsonl"),
        ({"file": "plain.tsv", "out": "plain.tsv"}, "must not be the input file", "another name"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_opened(
    changes, what, fix, table, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("kata\n")
    (tmp_path / "plain.tsv").write_text("text\nkata\n")
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "two.tsv").write_text("sentence1\tsentence2\nkata\tlota\n")
    monkeypatch.setattr(command, "scored_model", lambda source: pytest.fail("opened the model"))
    with pytest.raises(UserError) as error:
        run("model", **{"file": "A fine film.", **changes})
    assert what in error.value.what
    assert fix in error.value.fix
    assert error.value.got


def test_models_without_a_head_and_hopeless_templates_are_refused(
    detector, encoder_folder, vocab, tmp_path, capsys
):
    given = ["kata", "--template", "{label}", "--labels", LABELS]
    assert main(["classify", str(encoder_folder), *given]) == 2
    said = capsys.readouterr().err
    assert "has no head that scores" in said
    assert "got: BertModel" in said
    assert "use a discriminator or a masked language model" in said
    sentences = saved(tmp_path / "st", vocab, AutoModel.from_config, "bert")
    (sentences / "modules.json").write_text("[]")
    with pytest.raises(UserError, match="has no head"):
        run(sentences, "kata")
    with pytest.raises(UserError, match="leaves no room for text"):
        run(detector, "kata", length=5)
    with pytest.raises(UserError, match="no token for a label"):
        run(detector, "kata", labels="kata,\u200b")


def test_templates_and_labels():
    assert parse_template("{text} It was {label}.") == parse_template("It was {label}.")
    first = parse_template("A {label} film: {text}")
    assert first.fill("so {label} it is", "good") == ("A good film: so {label} it is", 2)
    assert parse_labels(" very good , bad") == ("very good", "bad")

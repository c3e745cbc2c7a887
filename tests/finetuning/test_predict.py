"""Predictions for new files."""

import csv
import gzip
import json
import shutil

import pytest
import torch
from tests.finetuning.conftest import rows
from tests.finetuning.own_files import WRITERS, tagged, tuner

from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.options import Predict
from electrify.finetuning.own.predict import predict
from electrify.storage.commit import read_json, write_json


@pytest.fixture(scope="module")
def tuned(encoder_folder, tmp_path_factory):
    return tuner(encoder_folder, tmp_path_factory.mktemp("tuned"))


@pytest.mark.parametrize("kind", WRITERS)
def test_the_scores_on_the_development_file_match_training(kind, tuned, tmp_path, capsys):
    """The exported model is loaded from disk and run with other batches."""
    settings, out = tuned(kind), tmp_path / "predicted.jsonl"
    capsys.readouterr()
    predict(Predict(settings.out, settings.dev, out, batch_size=7, device="cpu"))
    scores, path = capsys.readouterr().out.splitlines()
    printed = {pair.split()[0]: float(pair.split()[1]) for pair in scores.split(",")}
    (seed,) = read_json(settings.out / "result.json")["seeds"]
    # The ranks of nearly equal scores depend on rounding, which other batches change.
    assert printed == pytest.approx(seed["scores"], rel=1e-2, abs=1e-4)
    assert path == str(out)


def test_classes_as_csv_keep_the_columns_of_the_file(tuned, tmp_path, capsys):
    settings = tuned("classes")
    out = tmp_path / "predicted.csv"
    predict(Predict(settings.out, settings.dev, out, device="cpu"))
    with settings.dev.open() as given, out.open() as predicted:
        for before, after in zip(csv.DictReader(given), csv.DictReader(predicted), strict=True):
            assert [*after] == [
                "text",
                "label",
                "prediction",
                "probability_bad",
                "probability_good",
            ]
            assert (after["text"], after["label"]) == (before["text"], before["label"])
            bad, good = float(after["probability_bad"]), float(after["probability_good"])
            assert bad + good == pytest.approx(1)
            assert after["prediction"] == ("good" if good > bad else "bad")


@pytest.mark.parametrize("suffix", [".tsv", ".txt", ".conll"])
def test_tab_separated_classes_have_one_column_each(suffix, tuned, tmp_path):
    new, out = tmp_path / "new.txt", tmp_path / f"predicted{suffix}"
    new.write_text("kata lodi mita\n")
    predict(Predict(tuned("classes").out, new, out, device="cpu"))
    header, row = (line.split("\t") for line in out.read_text().splitlines())
    assert header == ["column 1", "prediction", "probability_bad", "probability_good"]
    assert float(row[2]) + float(row[3]) == pytest.approx(1)


def test_a_file_without_labels(tuned, tmp_path, capsys):
    new = tmp_path / "new.tsv"
    new.write_text("text\nkata lodi mita\npeta lodi mita\n")
    out = tmp_path / "deeper/predicted.jsonl.gz"
    done = tuned("classes").out
    capsys.readouterr()
    predict(Predict(done, new, out, device="cpu"))
    assert capsys.readouterr().out == f"{out}\n"
    predicted = [json.loads(line) for line in gzip.decompress(out.read_bytes()).splitlines()]
    assert [row["prediction"] for row in predicted] == ["good", "bad"]
    assert predicted[0]["text"] == "kata lodi mita"
    assert set(predicted[0]["probabilities"]) == {"good", "bad"}


def test_every_line_of_plain_text_has_a_prediction(tuned, tmp_path, capsys):
    """This holds although the training file had a header."""
    new, done = tmp_path / "new.txt", tuned("classes").out
    for lines in (["kata lodi mita", "Title", "peta lodi"], ["kata lodi mita"]):
        new.write_text("\n".join(lines) + "\n")
        predict(Predict(done, new, tmp_path / "a.jsonl", device="cpu"))
        predicted = (tmp_path / "a.jsonl").read_text().splitlines()
        assert [json.loads(row)["column 1"] for row in predicted] == lines


def test_scores_are_printed_in_the_format_of_the_file(tuned, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text('sentence,note\nkata lodi mita,"a, b"\npeta lodi mita,c\n')
    done = tuned("score").out
    capsys.readouterr()
    predict(Predict(done, new, device="cpu"))
    header, high, low = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["sentence", "note", "prediction"]
    assert high[:2] == ["kata lodi mita", "a, b"]
    assert float(high[2]) - float(low[2]) > 250


def test_tags_in_every_format(tuned, tmp_path, capsys):
    settings, sentences = tuned("tags"), tagged(5, 9)
    new = tmp_path / "new.txt"
    new.write_text("\n".join("\n".join(words) + "\n" for words, _ in sentences))
    capsys.readouterr()
    predict(Predict(settings.out, new, device="cpu"))
    found = capsys.readouterr().out
    blocks = [[line.split("\t") for line in block.splitlines()] for block in found.split("\n\n")]
    assert [[word for word, _ in block] for block in blocks] == [words for words, _ in sentences]
    assert [[tag for _, tag in block] for block in blocks] == [tags for _, tags in sentences]
    predict(Predict(settings.out, new, tmp_path / "a.jsonl", device="cpu"))
    predicted = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(row["tokens"], row["prediction"]) for row in predicted] == sentences
    predict(Predict(settings.out, tmp_path / "a.jsonl", tmp_path / "a.csv", device="cpu"))
    first = (tmp_path / "a.csv").read_text().splitlines()[:2]
    assert first == ["sentence,token,prediction", f"1,{sentences[0][0][0]},{sentences[0][1][0]}"]


def test_tags_are_appended_to_all_columns_of_the_file(tuned, tmp_path, capsys):
    """Every line of a CoNLL-style file and every key of JSON lines is kept."""
    new, done = tmp_path / "new.txt", tuned("tags").out
    new.write_text("-DOCSTART- -X- O O\n\nmira NN I-NP O\nkata NN  I-NP B-LOC\n\n\nlodi X Y O\n")
    capsys.readouterr()
    predict(Predict(done, new, device="cpu"))
    assert capsys.readouterr().out == (
        "-DOCSTART- -X- O O O\n\nmira NN I-NP O O\nkata NN  I-NP B-LOC B-LOC\n\n\nlodi X Y O O\n"
    )
    new = tmp_path / "new.conllu"
    new.write_text("# text = kata\n1-2\tkata\t_\tX\n1\tkata\t_\tX\n2\tmira\t_\tX\n")
    predict(Predict(done, new, device="cpu"))
    assert capsys.readouterr().out == (
        "# text = kata\n1-2\tkata\t_\tX\t_\n1\tkata\t_\tX\tB-LOC\n2\tmira\t_\tX\tO\n"
    )
    new = tmp_path / "new.jsonl"
    new.write_text('{"id": 7, "tokens": ["kata", "mira"], "tags": ["B-LOC", "O"], "note": "x"}\n')
    predict(Predict(done, new, device="cpu"))
    predicted = json.loads(capsys.readouterr().out)
    assert predicted == {**json.loads(new.read_text()), "prediction": ["B-LOC", "O"]}


def test_plain_text_is_tagged(tuned, tmp_path, capsys):
    """Its last word is not a gold tag, so there is nothing to score."""
    new = tmp_path / "new.txt"
    new.write_text("mira kata lodi\n\nlota\n")
    done = tuned("tags").out
    capsys.readouterr()
    predict(Predict(done, new, device="cpu"))
    out, err = capsys.readouterr()
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines] == ["mira", "kata", "lodi", "", "lota"]
    assert {line[1] for line in lines if line[0]} <= {"O", "B-LOC"}, "a tag for every word"
    assert lines[1] == ["kata", "B-LOC"]
    assert err == f"{new}: plain text, one sentence per line\n"


def test_words_are_never_scored_as_gold_tags(tuned, tmp_path, capsys):
    """Unknown words are text to tag; unknown tags are listed instead of scored as 0."""
    new, done = tmp_path / "new.txt", tuned("tags").out
    new.write_text("mira kata\nlodi peta\nsolu peta\nneva kata\nmira peta\nsolu kata\n")
    capsys.readouterr()
    predict(Predict(done, new, device="cpu"))
    out, err = capsys.readouterr()
    assert (out.count("\t"), err) == (12, f"{new}: plain text, one sentence per line\n")
    for content, note in (
        ("kata NN\nmira VB\nlodi NN\nsolu VB\n", "no scores: the model does not know the tags NN, VB"),
        ("kata B-GPE\nmira O\nlodi O\nsolu O\n", "accuracy 0.7500; the model does not know the tags B-GPE"),
    ):  # fmt: skip
        new.write_text(content)
        predict(Predict(done, new, device="cpu"))
        assert capsys.readouterr().err.strip().endswith(note)


def test_truncated_words_are_outside_and_counted(tuned, tmp_path, capsys):
    new = tmp_path / "new.jsonl"
    new.write_text(
        '{"tokens": ["kata", "kata", "kata", "kata"], "tags": ["B-LOC", "B-LOC", "O", "O"]}'
    )
    predict(Predict(tuned("tags").out, new, tmp_path / "a.jsonl", length=4, device="cpu"))
    predicted = json.loads((tmp_path / "a.jsonl").read_text())
    assert predicted["prediction"] == ["B-LOC", "B-LOC", "O", "O"]
    assert "2 words do not fit into 4 tokens" in capsys.readouterr().out


def test_columns_are_those_of_training_or_requested(encoder_folder, tuned, tmp_path, capsys):
    """A model for pairs prefers the columns of its training file to common names."""
    new = tmp_path / "new.jsonl"
    examples = [{"text": "x", "premise": a, "hypothesis": b, "label": y} for a, b, y in rows(9, 8)]
    new.write_text("".join(json.dumps(example) + "\n" for example in examples))
    predict(Predict(tuned("pairs").out, new, tmp_path / "a.jsonl", device="cpu"))
    assert "accuracy 1.0" in capsys.readouterr().out
    new.write_text(new.read_text().replace("premise", "one").replace("hypothesis", "other"))
    requested = {"text": "one", "pair": "other"}
    predict(Predict(tuned("pairs").out, new, tmp_path / "a.jsonl", **requested, device="cpu"))
    assert "accuracy 1.0" in capsys.readouterr().out


def test_a_header_is_recognized_although_the_training_file_had_none(tuned, tmp_path, capsys):
    """Columns are then found by their numbers."""
    model, new = tmp_path / "model", tmp_path / "new.tsv"
    shutil.copytree(tuned("classes").out, model)
    result = read_json(model / "result.json")
    columns = {"text": "column 2", "pair": "", "label": "column 1"}
    write_json(model / "result.json", {**result, "columns": columns})
    new.write_text("coarse\tquestion_text\ngood\tkata lodi mita\nbad\tpeta lodi mita\n")
    capsys.readouterr()
    predict(Predict(model, new, device="cpu"))
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    note = "the first line is a header; columns: text = question_text, label = coarse"
    assert err.startswith(f"{new}: {note}\naccuracy 1.0")
    new.write_text(new.read_text().partition("\n")[2])
    predict(Predict(model, new, device="cpu"))
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert err.startswith(f"{new}: no header line; columns are numbered\naccuracy 1.0")


def test_labels_the_model_does_not_know_do_not_prevent_predictions(tuned, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("text,label\nkata,good\nlodi,ugly\n")
    predict(Predict(tuned("classes").out, new, tmp_path / "a.csv", device="cpu"))
    assert "no scores: " in (output := capsys.readouterr().out)
    assert "line 3" in output
    assert "'ugly'" in output
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 3


def test_any_transformers_classifier_works(encoder_folder, tmp_path, capsys):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_pretrained(
        encoder_folder, num_labels=3, id2label={0: "a", 1: "b", 2: "c"}
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    network.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    new = tmp_path / "new.tsv"
    new.write_text("text\nkata lodi\n" + "kata " * 90 + "\n")
    predict(Predict(tmp_path / "other", new, tmp_path / "a.jsonl", device="cpu"))
    assert "1 texts do not fit into 64 tokens" in capsys.readouterr().out
    for line in (tmp_path / "a.jsonl").read_text().splitlines():
        row = json.loads(line)
        inputs = tokenizer(row["text"], return_tensors="pt", truncation=True, max_length=64)
        probs = network(**inputs).logits.softmax(-1)[0].tolist()
        assert row["probabilities"] == pytest.approx(dict(zip("abc", probs, strict=True)), abs=1e-6)


def test_a_sentence_is_predicted_readably(tuned, tmp_path, capsys):
    done = {kind: tuned(kind).out for kind in ("classes", "score", "tags")}
    capsys.readouterr()
    for sentence, label in (("kata lodi mita", "good"), ("peta lodi mita", "bad")):
        assert main(["predict", str(done["classes"]), sentence, "--device", "cpu"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.split()[0] == label
        assert float(first.split()[1]) + float(second.split()[1]) == pytest.approx(1, abs=2e-3)
    predict(Predict(done["score"], "kata lodi mita", device="cpu"))
    assert float(capsys.readouterr().out) == pytest.approx(1500, abs=150)
    predict(Predict(done["tags"], "mira kata, lodi", device="cpu"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [word for word, _ in lines] == ["mira", "kata", ",", "lodi"]
    assert lines[1] == ["kata", "B-LOC"]
    out = tmp_path / "one.jsonl"
    predict(Predict(done["classes"], "kata lodi mita", out, device="cpu"))
    row = json.loads(out.read_text())
    assert (row["text"], row["prediction"]) == ("kata lodi mita", "good")


def test_pairs_are_predicted_from_arguments_and_from_two_columns(tuned, tmp_path, capsys):
    done, new = tuned("pairs").out, tmp_path / "new.tsv"
    capsys.readouterr()
    predict(Predict(done, "kata mira", pair="lodi", device="cpu"))
    assert capsys.readouterr().out.splitlines()[0].startswith("1  ")
    new.write_text("kata mira\tlodi\nlodi mira\tlodi\n")
    predict(Predict(done, new, device="cpu"))
    assert [x.split("\t")[2] for x in capsys.readouterr().out.splitlines()[1:]] == ["1", "0"]
    new = tmp_path / "new.txt"
    new.write_text("kata mira\nlodi mira\n")
    for model, file, changes, fix in (
        (done, "kata mira", {}, '--pair "…"'),
        (done, new, {}, "--text A --pair B"),
        (tuned("classes").out, "kata", {"pair": "lodi"}, 'predict'),
    ):  # fmt: skip
        with pytest.raises(UserError, match="fine-tuned on") as error:
            predict(Predict(model, file, **changes))
        assert fix in error.value.fix


def test_bad_requests_are_refused(encoder_folder, tuned, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("text\nkata\n")
    done = tuned("classes").out
    for model, file, changes, what in (
        (encoder_folder, new, {}, "does not predict classes"),
        (tmp_path, new, {}, "transformers cannot load this model"),
        (done, tmp_path / "missing.csv", {}, "cannot be opened"),
        (done, new, {"out": tmp_path / "a.xlsx"}, "has an unknown format"),
        (done, new, {"out": new}, "--out must not be the input file"),
        (done, new, {"text": "other"}, "line 1: no column 'other'"),
        (done, new, {"batch_size": 0}, "--batch-size is too small"),
        (done, new, {"length": -1}, "--length is too small"),
        (done, "missing.csv", {}, "cannot be opened"),
        (done, "folder/missing", {}, "has an unknown format"),
        (done, " ", {}, "no text"),
        (done, "a film", {"label": "y"}, "a sentence has no columns"),
        (tuned("tags").out, tmp_path / "b.jsonl", {}, "line 1: no key 'tokens'"),
    ):
        (tmp_path / "b.jsonl").write_text('{"text": "a"}')
        with pytest.raises(UserError) as error:
            predict(Predict(model, file, **changes))
        assert what in error.value.what
    assert new.read_text() == "text\nkata\n"


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("classes", ".csv"),
        ("classes", ".conll"),
        ("score", ".tsv"),
        ("tags", ".conll"),
        ("tags", ".csv"),
        ("tags", ".jsonl.gz"),
        ("plain", ".tsv"),
    ],
)
def test_only_predictions_are_overwritten(suffix, kind, tuned, tmp_path, capsys):
    settings, out = tuned("tags" if kind == "plain" else kind), tmp_path / f"out{suffix}"
    file = settings.dev
    if kind == "plain":
        file = tmp_path / "new.txt"
        file.write_text("kata lodi mita\nlota peta\n")
    chosen = Predict(settings.out, file, out, device="cpu")
    for foreign in (b"text,label\nmine,good\n", settings.dev.read_bytes(), b"\xff\xfe"):
        out.write_bytes(foreign)
        with pytest.raises(UserError, match="does not contain predictions"):
            predict(chosen)
        assert out.read_bytes() == foreign
    out.write_bytes(b"")
    for _ in range(2):
        predict(chosen)


def test_predictions_of_another_model_are_overwritten(tuned, tmp_path):
    new, out = tmp_path / "new.conll", tmp_path / "out.conll"
    new.write_text("kata NN\nlodi NN\n\nmita NN\n")
    out.write_text("kata NN X\nlodi NN Y\n\nmita NN Z\n")
    predict(Predict(tuned("tags").out, new, out, device="cpu"))
    assert out.read_text().startswith("kata NN B-LOC\n")

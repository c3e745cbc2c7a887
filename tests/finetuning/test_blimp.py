"""`electrify blimp`: which sentence of a minimal pair a model prefers."""

import csv
import json
import shutil
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from tests.conftest import WORDS
from tests.models.tiny import tiny_fields
from transformers import (
    CONFIG_MAPPING,
    AutoModelForMaskedLM,
    AutoModelForTokenClassification,
    BertTokenizer,
    ElectraConfig,
    ElectraForPreTraining,
)

import electrify as package
from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.blimp import command, scoring
from electrify.finetuning.blimp.command import blimp
from electrify.finetuning.blimp.model import load_scorer
from electrify.finetuning.blimp.pairs import FIELDS, find_paradigms, read_paradigm
from electrify.finetuning.blimp.results import PairCounts, accuracies
from electrify.finetuning.blimp.scoring import sentence_scores
from electrify.finetuning.encoder import encode, open_encoder
from electrify.finetuning.options import Blimp
from electrify.finetuning.stats import wilson

PHENOMENA = {"island_a": "islands", "island_b": "islands", "agreement": "agreement"}
PAIRS = 30


def line(good, bad, name="island_a", phenomenon="islands", field="syntax"):
    return dict(zip(FIELDS, (good, bad, phenomenon, field, name), strict=True))


def write_lines(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three paradigms; sentences of a pair have other lengths, and some are repeated."""
    folder, rng = tmp_path_factory.mktemp("blimp"), Random(0)
    for name, phenomenon in PHENOMENA.items():
        pairs = []
        for _ in range(PAIRS):
            words = rng.choices(WORDS, k=rng.randint(3, 7))
            pairs.append((" ".join(words), " ".join([*words[: rng.randint(2, 7)], "kata"])))
        pairs[1] = pairs[0]
        pairs[2] = pairs[0][:1] * 2  # a tie
        write_lines(folder / f"{name}.jsonl", [line(*p, name, phenomenon) for p in pairs])
    return folder


def saved(folder, vocab, make, architecture):
    """Save a small network with a tokenizer; returns the folder."""
    tokenizer = BertTokenizer(vocab=str(vocab))
    fields = tiny_fields(architecture) | {"vocab_size": len(tokenizer), "pad_token_id": 0}
    torch.manual_seed(0)
    make(CONFIG_MAPPING[architecture](**fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def detector(tmp_path_factory, vocab):
    return saved(tmp_path_factory.mktemp("rtd") / "m", vocab, ElectraForPreTraining, "electra")


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory, vocab):
    make = AutoModelForMaskedLM.from_config
    return saved(tmp_path_factory.mktemp("mlm") / "m", vocab, make, "bert")


def sentences(data):
    paradigms = [read_paradigm(name, path) for name, path in find_paradigms(data).items()]
    return [text for paradigm in paradigms for text in (*paradigm.good, *paradigm.bad)]


def scores_of(folder, kind, texts):
    encoder = open_encoder(str(folder))
    scorer = load_scorer(str(folder), kind, encoder, "cpu")
    return sentence_scores(scorer, encode(encoder, texts, None, 64), lambda done: None)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "deberta-v2"])
def test_pseudo_likelihood_equals_a_naive_loop(architecture, data, vocab, tmp_path, monkeypatch):
    folder = saved(tmp_path / "m", vocab, AutoModelForMaskedLM.from_config, architecture)
    texts = sentences(data)[:40]
    monkeypatch.setattr(scoring, "TOKENS_PER_BATCH", 100)  # several batches of each length
    found = scores_of(folder, "pseudo-likelihood", texts)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = BertTokenizer.from_pretrained(folder)
    for text, score in zip(texts, found, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        expected = 0.0
        for position in range(1, ids.shape[1] - 1):
            masked = ids.clone()
            masked[0, position] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(input_ids=masked).logits[0, position].double()
            expected += float(torch.log_softmax(logits, -1)[ids[0, position]])
        assert score == pytest.approx(expected, abs=1e-4)


def test_a_detector_scores_the_sum_of_log_probabilities_of_original(
    data, detector, vocab, tmp_path
):
    texts = sentences(data)[:40]
    model = ElectraForPreTraining.from_pretrained(detector).eval()
    tokenizer = BertTokenizer.from_pretrained(detector)
    for text, score in zip(texts, scores_of(detector, "original", texts), strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0, 1:-1].double()
        assert score == pytest.approx(float(torch.sigmoid(-logits).log().sum()), abs=1e-4)
    folder = saved(tmp_path / "m", vocab, AutoModelForTokenClassification.from_config, "modernbert")
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    (score,) = scores_of(folder, "original", texts[:1])
    ids = tokenizer(texts[0], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        log_probs = torch.log_softmax(model(input_ids=ids).logits.double(), -1)[0, 1:-1, 0]
    assert score == pytest.approx(float(log_probs.sum()), abs=1e-4)


def with_constant_head(detector, folder, bias):
    """Return a copy of a detector that gives every token the same log-odds."""
    shutil.copytree(detector, folder)
    model = ElectraForPreTraining.from_pretrained(detector)
    head = model.discriminator_predictions.dense_prediction
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(bias)
    model.save_pretrained(folder)
    return folder


def test_constant_scores_give_exactly_one_half(data, detector, tmp_path):
    model = with_constant_head(detector, tmp_path / "model", bias=-1e4)  # log P(original) is 0
    result = blimp(Blimp(str(model), data, tmp_path / "out"))
    assert result["overall"]["accuracy"] == 0.5
    assert result["overall"]["ties"] == result["overall"]["pairs"] == 3 * PAIRS
    assert result["score"] == "original"


def test_a_constant_probability_prefers_the_sentence_with_fewer_tokens(data, detector, tmp_path):
    """The score is a sum, so the table shows the accuracy of this preference beside the model's."""
    model = with_constant_head(detector, tmp_path / "model", bias=0.0)
    result = blimp(Blimp(str(model), data, tmp_path / "out"))
    for score in [result["overall"], *result["phenomena"], *result["paradigms"]]:
        assert score["accuracy"] == score["shorter"]
    assert result["overall"]["accuracy"] != 0.5


def test_random_weights_are_near_chance_over_seeds(tmp_path, vocab):
    """Pairs that differ in one word each: a seed prefers some words, the mean over seeds none."""
    rng = Random(1)
    tokenizer = BertTokenizer(vocab=str(vocab))
    tokenizer.save_pretrained(tmp_path)
    ElectraConfig(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    encoder = open_encoder(str(tmp_path))
    good, bad = [], []
    for _ in range(100):
        words = rng.choices(WORDS[::2], k=6)
        good.append(" ".join(words))
        bad.append(" ".join([*words[:3], rng.choice(WORDS[::2]), *words[4:]]))
    encodings = encode(encoder, [*good, *bad], None, 64)
    found = []
    for seed in range(30):
        torch.manual_seed(seed)
        fields = tiny_fields("electra") | {"vocab_size": len(tokenizer)}
        network = ElectraForPreTraining(ElectraConfig(**fields)).eval()
        scores = sentence_scores(scoring.OriginalScorer(network), encodings, lambda done: None)
        found.append(command.compared(scores[:100], scores[100:]) / 100)
    assert abs(np.mean(found) - 0.5) < 0.025


def test_the_command(data, masked_lm, tmp_path, capfd, monkeypatch):
    out = tmp_path / "out"
    assert main(["blimp", str(masked_lm), "--data", str(data), "--out", str(out), "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result == json.loads((out / "result.json").read_text())
    assert [score["name"] for score in result["phenomena"]] == ["agreement", "islands"]
    islands = result["phenomena"][1]
    assert (islands["paradigms"], islands["pairs"], islands["ties"]) == (2, 2 * PAIRS, 2)
    assert islands["over_paradigms"] == [None, None]  # too few paradigms
    for score in result["paradigms"]:
        with (out / f"paradigms/{score['name']}.csv").open() as file:
            rows = [(float(r["score_good"]), float(r["score_bad"])) for r in csv.DictReader(file)]
        correct = sum((good > bad) + (good == bad) / 2 for good, bad in rows)
        assert score["accuracy"] == pytest.approx(correct / PAIRS)
    assert "| islands | 2 |" in (out / "blimp.md").read_text()
    assert "island b" in (out / "paradigms.csv").read_text()
    # A finished folder is shown without loading the model.
    monkeypatch.setattr(command, "load_scorer", None)
    again = package.blimp(str(masked_lm), str(data), str(out))
    assert json.loads(json.dumps(again)) == result
    assert "agreement" in capfd.readouterr().out
    with pytest.raises(UserError, match="other settings"):
        blimp(Blimp(str(masked_lm), data, out, limit=3))


def test_an_interrupted_command_resumes_with_the_missing_paradigms(
    data, detector, tmp_path, monkeypatch
):
    settings = Blimp(str(detector), data, tmp_path / "out")
    complete = blimp(replace(settings, out=tmp_path / "complete"))
    real, scored = command.sentence_scores, []

    def interrupted(*arguments):
        scored.append(1)
        if len(scored) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(command, "sentence_scores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        blimp(settings)
    assert not (settings.out / "result.json").exists()
    assert len([*(settings.out / "paradigms").glob("*.csv")]) == 2
    resumed = blimp(settings)
    assert len(scored) == 4
    assert {**resumed, "seconds": 0} == {**complete, "seconds": 0}
    assert not (settings.out / ".parts").exists()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"sentence_bad": None}, "line 2: sentence_bad must be text"),
        ({"sentence_good": 3}, "line 2: sentence_good must be text"),
        ({"linguistics_term": " "}, "line 2: linguistics_term must be text"),
        ({"UID": "other"}, "line 2: UID differs"),
    ],
)
def test_wrong_lines_are_named_before_anything_is_made(
    changed, what, data, detector, tmp_path, monkeypatch
):
    folder = shutil.copytree(data, tmp_path / "data")
    write_lines(folder / "island_a.jsonl", [line("a", "b"), line("a", "b") | changed])
    monkeypatch.setattr(command, "load_scorer", None)
    with pytest.raises(UserError, match=what):
        blimp(Blimp(str(detector), folder, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_other_folders_and_models_are_refused(data, detector, encoder_folder, tmp_path):
    settings = Blimp(str(detector), data, tmp_path / "out")
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UserError, match="no minimal pairs"):
            blimp(replace(settings, data=folder))
    with pytest.raises(UserError, match="no head that scores"):
        blimp(replace(settings, model=str(encoder_folder)))
    with pytest.raises(UserError, match="not a replaced-token detector"):
        blimp(replace(settings, model=str(encoder_folder), score="original"))
    with pytest.raises(UserError, match="lacks weights"):
        blimp(replace(settings, model=str(encoder_folder), score="pseudo-likelihood"))
    longer = shutil.copytree(data, tmp_path / "data")
    write_lines(longer / "island_a.jsonl", [line("kata " * 600, "kata")])
    with pytest.raises(UserError, match="too long"):
        blimp(replace(settings, data=longer))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").touch()
    with pytest.raises(UserError) as refused:
        blimp(replace(settings, model=str(tmp_path / "run")))
    assert "electrify probe" in refused.value.fix
    assert not settings.out.exists()


def test_intervals():
    counts = [
        PairCounts(name=f"p{n}", phenomenon="x", field="", pairs=10, correct=n, ties=0, shorter=5.0)
        for n in range(8)
    ]
    overall = accuracies(counts)["overall"]
    assert overall["accuracy"] == 0.35
    assert overall["interval"] == wilson(0.35, 80)
    low, high = overall["over_paradigms"]
    assert low < overall["interval"][0] < overall["interval"][1] < high
    assert wilson(0.0, 10)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)

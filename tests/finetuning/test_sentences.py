"""`electrify finetune --kind sentences`: train sentence vectors from pairs."""

import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from tests.conftest import WORDS
from tests.models.tiny import tiny_fields
from transformers import CONFIG_MAPPING, AutoModel, BertTokenizer

from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning import fit as fits
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.options import Embed, Finetune, Fit
from electrify.finetuning.own.command import finetune, finetune_identity
from electrify.finetuning.own.data import Columns
from electrify.finetuning.own.files import read_table
from electrify.finetuning.vectors.embed import embed
from electrify.finetuning.vectors.pairs import prepare_pairs, read_pairs
from electrify.finetuning.vectors.retrieval import retrieval_scores
from electrify.models.sentence_folder import SentenceModel, read_sentence_folder

library = pytest.importorskip("sentence_transformers")

TOPICS = [WORDS[start : start + 4] for start in range(0, len(WORDS), 4)]
FAST = Fit(lr=2e-3, epochs=6, batch_size=16, layer_decay=1.0)


def text_about(rng, topic):
    """Words of a topic, in any order, between words that say nothing."""
    return " ".join(rng.choices(TOPICS[topic], k=3) + rng.choices(WORDS, k=1))


def pair(rng, scored):
    first = rng.randrange(len(TOPICS))
    second = rng.randrange(len(TOPICS)) if scored and rng.random() < 0.5 else first
    texts = text_about(rng, first), text_about(rng, second)
    return [*texts, *([f"{4 * (first == second) + rng.random():.2f}"] if scored else [])]


def write_pairs(folder, scored, header=True):
    names = ["sentence1", "sentence2", "score"] if scored else ["anchor", "positive"]
    for split, count in (("train", 192), ("dev", 48)):
        rng = Random(count)
        lines = [names] * header + [pair(rng, scored) for _ in range(count)]
        (folder / f"{split}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))


def make_encoder(folder, vocab, architecture):
    tokenizer = BertTokenizer(vocab=str(vocab))
    fields = tiny_fields(architecture) | {"vocab_size": len(tokenizer), "pad_token_id": 0}
    torch.manual_seed(0)
    AutoModel.from_config(CONFIG_MAPPING[architecture](**fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, vocab):
    return make_encoder(tmp_path_factory.mktemp("encoder") / "electra", vocab, "electra")


def settings(model, folder, **changes):
    options = {"kind": "sentences", "length": 32, "fit": FAST, "device": "cpu", **changes}
    out = options.pop("out", folder / "out")
    return Finetune(str(model), folder / "train.tsv", folder / "dev.tsv", out, **options)


@pytest.mark.parametrize(
    ("architecture", "scored", "pooling"),
    [("electra", True, "auto"), ("albert", False, "mean"), ("modernbert", True, "cls")],
)
def test_trained_vectors_are_better_and_load_everywhere(
    architecture, scored, pooling, vocab, tmp_path, capsys
):
    model = make_encoder(tmp_path / "encoder", vocab, architecture)
    write_pairs(tmp_path, scored)
    chosen = settings(model, tmp_path, pooling=pooling)
    result = finetune(chosen)
    # Eight of the 48 pairs share a topic, so the right one can rarely be the first.
    metric = "spearman" if scored else "mrr"
    (seed,) = result["seeds"]
    names = ["spearman", "pearson"] if scored else ["accuracy", "mrr"]
    assert list(seed["scores"]) == names
    assert seed["scores"][metric] > result["untrained"][metric] + 0.05
    said = capsys.readouterr().out
    assert "sentence vectors, from " + ("pairs with scores" if scored else "pairs that") in said
    assert "without training: " + names[0] in said
    assert f"electrify embed {chosen.out} new.txt" in said
    first = tmp_path / "first.txt"
    table = read_table(chosen.dev, chosen.dev.read_text())
    texts = [row[0] for row in table.rows]
    first.write_text("\n".join(texts) + "\n")
    ours = embed(Embed(str(chosen.out), first, tmp_path / "v.npy", device="cpu"))
    theirs = library.SentenceTransformer(str(chosen.out), device="cpu").encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    expected = "mean" if pooling == "auto" else pooling
    assert read_sentence_folder(str(chosen.out)).pooling == expected == result["pooling"]
    assert "SentenceTransformer" in (chosen.out / "README.md").read_text()
    # The same folder is where to start from again, with its pooling.
    again = replace(FAST, epochs=0.1)
    more = finetune(settings(chosen.out, tmp_path, out=tmp_path / "more", fit=again))
    assert more["pooling"] == expected
    assert more["untrained"] == pytest.approx(seed["scores"], abs=1e-3)


def test_the_scores_equal_those_of_the_package(encoder, tmp_path):
    write_pairs(tmp_path, scored=True)
    chosen = settings(encoder, tmp_path, fit=replace(FAST, epochs=1))
    (seed,) = finetune(chosen)["seeds"]
    table = read_table(chosen.dev, chosen.dev.read_text())
    first, second = table.column("sentence1"), table.column("sentence2")
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    evaluator = evaluation.EmbeddingSimilarityEvaluator(
        first, second, [float(score) for score in table.column("score")], main_similarity="cosine"
    )
    found = evaluator(library.SentenceTransformer(str(chosen.out), device="cpu"))
    assert found["spearman_cosine"] == pytest.approx(seed["scores"]["spearman"], abs=1e-4)
    assert found["pearson_cosine"] == pytest.approx(seed["scores"]["pearson"], abs=1e-4)


def test_a_killed_run_gives_the_same_bytes(encoder, tmp_path, monkeypatch):
    write_pairs(tmp_path, scored=False)
    short = replace(FAST, epochs=1)
    finetune(settings(encoder, tmp_path, fit=short, seeds=2, out=tmp_path / "unbroken"))
    real, begun = fits.train, []

    def stops(run, start):
        begun.append(start)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(run, start)

    again = settings(encoder, tmp_path, fit=short, seeds=2)
    with monkeypatch.context() as patch:
        patch.setattr(fits, "train", stops)
        with pytest.raises(KeyboardInterrupt):
            finetune(again)
    assert not (again.out / "manifest.json").exists()
    finetune(again)
    for name in ("model.safetensors", "modules.json", "1_Pooling/config.json", "tokenizer.json"):
        unbroken = (tmp_path / "unbroken" / name).read_bytes()
        assert (again.out / name).read_bytes() == unbroken, name


def test_a_report_has_the_scores(encoder, tmp_path):
    write_pairs(tmp_path, scored=True)
    chosen = settings(encoder, tmp_path, fit=replace(FAST, epochs=0.5))
    finetune(chosen)
    page = tmp_path / "page.html"
    assert main(["report", str(chosen.out), "--out", str(page)]) == 0
    assert "spearman" in page.read_text()


def test_retrieval_counts_distinct_texts_once():
    eye = np.eye(3)
    # "a" has two right answers; neither counts against the other.
    queries = np.array([[0.5, 1, 0], [0.5, 1, 0], [1, 0.5, 0.2]])
    found = retrieval_scores("aab", "xyz", queries, eye)
    assert found == {"accuracy": 2 / 3, "mrr": (1 + 1 + 1 / 3) / 3}
    # Vectors that are all the same find nothing: every text has the mean rank.
    found = retrieval_scores("abc", "xyz", np.ones((3, 3)), np.ones((3, 3)))
    assert found == {"accuracy": 0, "mrr": 1 / 2}
    again = retrieval_scores("ab", "xx", eye[:2], eye[:2])
    assert again == {"accuracy": 1.0, "mrr": 1.0}


def test_a_batch_of_positive_pairs_repeats_no_text(encoder, tmp_path):
    path = tmp_path / "train.tsv"
    lines = ["anchor\tpositive", "kata\tlota", "kata\tmita", "raso\tnudi", "lota\tpefu"]
    path.write_text("\n".join(lines) + "\n")
    training = read_pairs(path, Columns())
    opened = open_encoder(str(encoder))
    model = SentenceModel(str(encoder))
    rows = prepare_pairs(model, opened, training.data, 32, learn=True)
    assert len(rows.collate(np.arange(4)).scores_B) == 2
    rows = prepare_pairs(model, opened, training.data, 32, learn=False)
    assert rows.collate(np.arange(4)).ids_BL.shape[0] == 8


def test_bad_input_is_refused_before_training(encoder, tmp_path, monkeypatch):
    def refused(message, train, dev=None, **changes):
        (tmp_path / "train.tsv").write_text(train)
        (tmp_path / "dev.tsv").write_text(dev or train)
        with pytest.raises(UserError, match=message):
            finetune(settings(encoder, tmp_path, **changes))
        assert not (tmp_path / "out").exists()

    scored = "sentence1\tsentence2\tscore\nkata\tlota\t1\nmita\tlota\t2\n"
    refused("learned from pairs", "text\tlabel\nkata\t1\nlota\t0\n")
    refused("the score must be a number", scored.replace("\t2\n", "\tentailment\n"))
    refused("nothing to learn", scored.replace("\t2\n", "\t1\n"))
    refused("the same second text", "anchor\tpositive\nkata\tlota\nmita\tlota\n")
    refused("no column 'score'", scored, "sentence1\tsentence2\nkata\tlota\n")
    refused("no text in column", scored.replace("kata", ""))
    refused("leaves no room", scored, length=2)
    refused("--pooling is for sentence vectors", scored, kind="score", pooling="cls")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    refused("needs sentence_transformers, which is not installed", scored)


def test_columns_by_number(encoder, tmp_path):
    write_pairs(tmp_path, scored=True, header=False)
    named = settings(
        encoder, tmp_path, text="1", pair="2", label="3", fit=replace(FAST, epochs=0.2)
    )
    assert finetune(named)["columns"] == {
        "text": "column 1",
        "pair": "column 2",
        "label": "column 3",
    }


def test_older_folders_without_pooling_in_their_identity_stay_the_same(encoder, tmp_path):
    """Only --kind sentences has the option in its identity."""
    write_pairs(tmp_path, scored=True)
    one = settings(encoder, tmp_path)
    assert finetune_identity(one)["settings"]["pooling"] == "auto"
    assert "pooling" not in finetune_identity(replace(one, kind="score"))["settings"]

"""Losses of words: the same words for every tokenizer, and probabilities that multiply."""

import math

import numpy as np
import pytest
import torch
from tests.models.tiny import tiny_recipe

from electrify.errors import UserError
from electrify.finetuning.adaptation.passages import Passage, Span, choose_passages, positions_of
from electrify.finetuning.adaptation.verdict import adaptation_verdict
from electrify.finetuning.adaptation.word_loss import (
    difference_error,
    per_character,
    word_losses,
)
from electrify.finetuning.encoder import encode, open_encoder
from electrify.models.detectors import open_masked_lm
from electrify.models.export import export_networks
from electrify.models.pair import build_masked_lm
from electrify.tokens.new_words import WordFinder, with_new_words
from electrify.tokens.trainers import train_bpe, train_unigram, train_wordpiece
from electrify.training.data import vocabulary_of

LINES = [["the model reads the text and the mask hides some of the text"] * 5]
PAGES = ["the demand reads moths, the (hidden) text\n" * 3, "some maths of the extended model"] * 8
KINDS = {
    "wordpiece": (
        lambda: train_wordpiece(LINES, 60, 2, lowercase=True, strip_accents=True),
        ("demand", "moths"),
    ),
    "bpe": (lambda: train_bpe(LINES, 290, 2), ("Ġdemand", "Ġmoths")),
    "unigram": (
        lambda: train_unigram(LINES, 40, lowercase=False, strip_accents=False),
        ("▁demand", "▁moths"),
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def models(request, tmp_path_factory):
    """The folders of a masked LM with a tokenizer, and of one with the extended tokenizer."""
    make, words = KINDS[request.param]
    base, folder = make(), tmp_path_factory.mktemp(request.param)
    for name, tokenizer in (("base", base), ("more", with_new_words(WordFinder(base), words))):
        torch.manual_seed(0)
        network, _ = build_masked_lm(tiny_recipe("bert"), vocabulary_of(tokenizer))
        export_networks({"model": network}, {"model": ""}, tokenizer, folder / name, {}, 64)
    return [str(folder / name / "model") for name in ("base", "more")]


def test_all_models_have_the_same_words(models):
    encoders = [open_encoder(model) for model in models]
    passages = choose_passages(PAGES, encoders, 48, 30)
    words = {p.text[word.start : word.end] for p in passages for word in p.words}
    assert words <= {word for page in PAGES for word in page.replace(",", " ").split()} | {"hidden"}
    assert {len(p.words) for p in passages} != {0}
    for encoder in encoders:
        [*encodings] = encode(encoder, [p.text for p in passages], None, 64)
        for passage, encoding in zip(passages, encodings, strict=True):
            assert len(encoding) <= 48
            for word in passage.words:
                tokens = [encoding.tokens[p] for p in positions_of(word, encoding)]
                spelled = encoder.tokenizer.convert_tokens_to_string(tokens).strip()
                assert spelled.replace(" ##", "") == passage.text[word.start : word.end]


def test_a_word_has_the_product_of_its_tokens_probabilities(models):
    """One forward pass per token, written out."""
    network, encoder = open_masked_lm(models[0]), open_encoder(models[0])
    text = "the demand reads moths"
    passages = [Passage(0, text, (Span(4, 10), Span(17, 22)))] * 2
    found = word_losses(network, encoder, passages)
    [encoding] = encode(encoder, [text], None, 64)
    words = [positions_of(word, encoding) for word in passages[0].words]
    assert [len(word) for word in words] == found.tokens[:2].tolist()
    assert max(map(len, words)) > 1
    for number, word in enumerate(words):
        ids = torch.tensor([encoding.ids])
        ids[0, [position for other in words for position in other]] = (
            encoder.tokenizer.mask_token_id
        )
        loss = 0.0
        for position in word:
            with torch.no_grad():
                log_probs = network(input_ids=ids).logits[0, position].log_softmax(-1)
            loss -= float(log_probs[encoding.ids[position]])
            ids[0, position] = encoding.ids[position]
        assert found.losses[number] == pytest.approx(loss, abs=1e-4)
        assert found.losses[number + 2] == pytest.approx(loss, abs=1e-4)
    assert per_character(found.losses, passages) == pytest.approx(found.losses.sum() / 22)


def test_the_error_of_a_difference_is_that_of_its_mean_over_pages():
    """With pages of equal length, the ratio of sums is a mean."""
    rng = np.random.default_rng(0)
    passages = [Passage(page, "word word", (Span(0, 4), Span(5, 9))) for page in range(200)]
    before, after = rng.normal(size=400), rng.normal(size=400)
    means = (after - before).reshape(200, 2).sum(1) / 8
    expected = means.std(ddof=1) / math.sqrt(200)
    assert difference_error(before, after, passages) == pytest.approx(expected)
    assert difference_error(before, before + 1, passages) == pytest.approx(0, abs=1e-12)
    assert math.isnan(difference_error(before[:4], after[:4], passages[:2]))


def test_pages_without_words_are_refused(models):
    with pytest.raises(UserError, match="no words that can be compared"):
        choose_passages(["!!! ???", "…"], [open_encoder(models[0])], 48, 30)


def result(before, after, error=0.01, tasks=(), general=None):
    sides = ({"loss_per_character": loss, "tokens_per_word": 1.5} for loss in (before, after))
    names = ("name", "metric", "before", "after", "error", "seeds")
    return {
        **dict(zip(("before", "after"), sides, strict=True)),
        **{"error": error, "guessing": 1.2, "pages": 9, "words": 70, "new_words": []},
        "tasks": [dict(zip(names, task, strict=True)) for task in tasks],
        "general": general,
    }


TASK = ("types", "accuracy", 0.8, 0.84, 0.01, 5)


@pytest.mark.parametrize(
    ("known", "grade", "says"),
    [
        (result(0.6, 0.5), "worked", "fell, 0.600 to 0.500 (-16.7%"),
        (result(0.6, 0.59), "started", "stayed about the same"),
        (result(0.5, 0.6), "worse", "rose"),
        (result(None, 0.6, None), "unknown", "no masked-LM head"),
        (result(None, 0.6, None, [TASK]), "worked", "80.0% to 84.0%: +4.0 points"),
        (result(None, 0.6, None, [(*TASK[:3], 0.81, 0.01, 5)]), "started", "within two"),
        (result(None, 0.6, None, [(*TASK[:4], None, 1)]), "started", "one seed"),
    ],
)
def test_the_verdict_says_whether_it_helped(known, grade, says):
    found = adaptation_verdict(known)
    assert found.grade == grade
    assert says in found.headline


def test_forgetting_is_reported():
    general = {"label": "masked-LM loss", "start": 0, "before": 3.0, "end": 9, "after": 3.3}
    found = adaptation_verdict(result(0.6, 0.5, general=general))
    assert any("3.000 to 3.300: it has forgotten some" in reason for reason in found.reasons)
    kept = adaptation_verdict(result(0.6, 0.5, general={**general, "after": 3.05}))
    assert any("it has not forgotten it" in reason for reason in kept.reasons)

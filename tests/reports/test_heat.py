"""Tokens with predicted probabilities, and their HTML, which is always escaped."""

import json
import shutil
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import torch
from tests.reports.odd_texts import ODD_TEXTS
from tests.reports.pairs import LONGEST
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, ElectraModel
from transformers.models.bert import BertForTokenClassification
from transformers.models.electra import ElectraForPreTraining

from electrify.errors import UserError, visible
from electrify.reports.examples import validation_batches
from electrify.reports.heat import (
    Token,
    corrupt_text,
    counts,
    counts_text,
    detect,
    examples_of_run,
    heat_html,
    notes_on,
    verdict_on,
    with_threshold,
)
from electrify.reports.page import asset
from electrify.reports.pair import load_pair
from electrify.reports.spelling import encodable
from electrify.reports.threshold import Threshold
from electrify.training.trained import load_trained

TEXT = "Kata lodi, MIFU nuta peso radi kaso lota mita nudi."


@pytest.fixture(scope="module", params=["electra", "modernbert"])
def pair(request, exports):
    return load_pair(str(exports[request.param]))


@pytest.fixture(scope="module")
def electra(exports):
    return load_pair(str(exports["electra"]))


def joined(tokens: list[Token]) -> str:
    return "".join(token.before + token.text for token in tokens)


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_tokens_are_spans_of_the_text(name, pair):
    text = encodable(ODD_TEXTS[name])
    tokens = detect(pair, ODD_TEXTS[name])
    shown = joined(tokens)
    assert text.startswith(shown)
    if not notes_on(pair, text):
        # what is not shown has no tokens
        rest = text[len(shown) :]
        assert not pair.tokenizer.backend.encode(rest, add_special_tokens=False).ids or not tokens
    assert all(0 <= token.probability <= 1 and token.replaced is None for token in tokens)
    assert bool(tokens) == bool(pair.tokenizer.backend.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_corrupted_tokens_keep_what_the_generator_left(name, pair):
    text = encodable(ODD_TEXTS[name])
    before, tokens = detect(pair, text), corrupt_text(pair, text, 0.3, 5)
    assert [t.original or t.text for t in tokens] == [t.text for t in before]
    assert all(token.replaced == bool(token.original) for token in tokens)


def test_probabilities_are_those_of_transformers_alone(exports, electra):
    folder = exports["electra"] / "discriminator"
    encoded = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    with torch.no_grad():
        logits = ElectraForPreTraining.from_pretrained(folder).eval()(**encoded).logits
    wanted = torch.sigmoid(logits)[0, 1:-1].tolist()
    assert [token.probability for token in detect(electra, TEXT)] == pytest.approx(wanted, abs=1e-6)


def test_a_character_of_several_tokens_is_one_span(exports):
    pair = load_pair(str(exports["modernbert"]))
    ids = pair.tokenizer.backend.encode("a 🙂", add_special_tokens=False).ids
    assert len(ids) > 3
    spans = ["a", " ", "🙂"]  # the space is a token of its own
    assert [token.text for token in detect(pair, "a 🙂")] == spans
    assert [token.original or token.text for token in corrupt_text(pair, "a 🙂", 1.0, 0)] == spans


def test_a_seed_decides_what_is_corrupted(pair):
    first = corrupt_text(pair, TEXT, 0.3, 1)
    assert first == corrupt_text(pair, TEXT, 0.3, 1)
    others = [corrupt_text(pair, TEXT, 0.3, seed) for seed in range(2, 8)]
    assert len({joined(tokens) for tokens in [first, *others]}) > 4


def test_the_rate_bounds_what_is_replaced(pair):
    total = len(pair.tokenizer.backend.encode(TEXT, add_special_tokens=False).ids)
    for rate in (0.15, 0.5):
        replaced = [sum(t.replaced for t in corrupt_text(pair, TEXT, rate, s)) for s in range(8)]
        assert 0 < max(replaced) <= round(rate * total)
    all_of_them = corrupt_text(pair, TEXT, 1.0, 0)
    assert sum(token.replaced for token in all_of_them) > len(all_of_them) / 2
    with pytest.raises(UserError, match="--rate must be greater than 0 and at most 1"):
        corrupt_text(pair, TEXT, 0.0, 0)


def test_the_discriminator_judges_the_corrupted_text(electra):
    """Its input differs exactly where tokens were replaced, and its predictions are for that input."""
    original = electra.tokenizer.backend.encode(TEXT).ids
    seen = []
    hook = electra.discriminator.register_forward_pre_hook(
        lambda module, _, arguments: seen.append(arguments["input_ids"]), with_kwargs=True
    )
    tokens = corrupt_text(electra, TEXT, 0.4, 3)
    hook.remove()
    ids = seen[0][0].tolist()
    replaced = [token.replaced for token in tokens]
    assert [a != b for a, b in zip(ids, original, strict=True)] == [False, *replaced, False]
    names = [electra.tokenizer.backend.id_to_token(number).removeprefix("##") for number in ids]
    for token, name in zip(tokens, names[1:-1], strict=True):
        assert token.text == name or not token.replaced
    with torch.no_grad():
        logits = electra.discriminator(torch.tensor([ids])).logits
    wanted = torch.sigmoid(logits)[0, 1:-1].tolist()
    assert [token.probability for token in tokens] == pytest.approx(wanted, abs=1e-6)
    assert any(replaced)


def test_a_long_text_is_truncated_with_a_note(pair):
    text = "kata lodi " * 100
    encoded = pair.tokenizer.backend.encode(text).ids
    assert len(encoded) > LONGEST
    tokens = detect(pair, text)
    assert len(tokens) <= LONGEST - 2
    assert text.startswith(joined(tokens))
    assert notes_on(pair, text) == [
        f"the text is truncated: it has {len(encoded) - 2} tokens, "
        f"and the model reads the first {LONGEST - 2}"
    ]
    assert not notes_on(pair, TEXT)


def test_replaced_words_are_separated_and_subwords_are_not(exports):
    pair = load_pair(str(exports["electra"]))
    text = "(kata)lodi."
    glued = set()
    for seed in range(30):
        tokens = corrupt_text(pair, text, 0.5, seed)
        for left, right in pairwise(tokens):
            touching = left.text[-1:].isalnum() and right.text[:1].isalnum() and not right.before
            if touching and (left.replaced or right.replaced):
                glued.add(right.text)
    vocabulary = pair.tokenizer.backend.get_vocab()
    assert glued  # some sampled tokens continue a word
    assert all(f"##{subword}" in vocabulary for subword in glued)


@pytest.mark.parametrize(
    ("replaced", "probability", "name"),
    [
        (True, 0.5, "caught"),
        (True, 0.49, "missed"),
        (False, 0.5, "false-alarm"),
        (False, 0.1, "original"),
        (None, 0.9, "suspected"),
        (None, 0.1, "unsuspected"),
    ],
)
def test_verdicts(replaced, probability, name):
    token = Token("a", "b" if replaced else "", probability, replaced)
    assert verdict_on(token).name == name
    assert counts([token])[name] == 1


def test_counts_as_text():
    assert counts_text([]) == "0 tokens, 0 suspected; mean probability –"
    tokens = [Token("cat", "dog", 0.9, True), Token("sat", "", 0.6, False)]
    assert counts_text(tokens) == (
        "2 tokens, 1 replaced: 1 caught, 0 missed; 1 false alarm; "
        "mean probability 90 % for replaced tokens, 60 % for the others"
    )
    assert counts_text([Token("a", "", 0.2, False)]).startswith("1 token, none replaced")


class Reader(HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_html_contains_the_text_and_none_of_it_is_markup(name, pair):
    for tokens in (detect(pair, ODD_TEXTS[name]), corrupt_text(pair, ODD_TEXTS[name], 0.3, 1)):
        reader = Reader()
        reader.feed(heat_html(tokens))
        assert reader.text == (visible(joined(tokens)) if tokens else "No tokens.")
        allowed = {"class", "role", "style", "tabindex", "data-says", "aria-label", "dir"}
        assert {tag for tag, _ in reader.elements} <= {"p", "span"}
        assert all(attributes.keys() <= allowed for _, attributes in reader.elements)
        assert "\x1b" not in heat_html(tokens)
        assert "\x00" not in heat_html(tokens)


def test_html_needs_no_colour_to_be_read():
    html = heat_html([Token("cat", "dog", 0.93, True), Token("sat", "", 0.02, False, " ")])
    assert 'class="token caught" role="listitem" tabindex="0"' in html
    assert 'aria-label="cat · 93 % likely replaced · was “dog” · caught"' in html
    for name in ("caught", "missed", "false-alarm", "suspected"):
        assert f".token.{name} {{ --sign:" in asset("heat.css")
    assert "prefers-color-scheme: dark" in asset("heat.css")


def test_a_discriminator_finds_the_generator_next_to_it(exports, tmp_path):
    both = load_pair(str(exports["electra"] / "discriminator"))
    assert both.generator is not None
    assert not both.notes
    alone = shutil.copytree(exports["electra"] / "discriminator", tmp_path / "alone")
    pair = load_pair(str(alone))
    assert pair.generator is None
    assert pair.notes == ("no generator next to it, so it cannot corrupt texts",)
    assert detect(pair, TEXT) == detect(both, TEXT)
    with pytest.raises(UserError, match="cannot corrupt texts"):
        corrupt_text(pair, TEXT, 0.15, 0)


def test_a_generator_of_another_vocabulary_is_not_used(exports, tmp_path):
    shutil.copytree(exports["electra"] / "discriminator", tmp_path / "discriminator")
    shutil.copytree(exports["modernbert"] / "generator", tmp_path / "generator")
    pair = load_pair(str(tmp_path))
    assert pair.generator is None
    assert "a different vocabulary" in pair.notes[0]


def two_labels(tmp_path, exports, labels: dict):
    """Write a token classifier that was not made by electrify."""
    tokenizer = AutoTokenizer.from_pretrained(exports["electra"] / "discriminator")
    settings = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=16,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
    )
    BertForTokenClassification(settings).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    return str(tmp_path / "other")


def test_any_token_classifier_of_two_labels_is_a_discriminator(tmp_path, exports):
    pair = load_pair(two_labels(tmp_path, exports, {0: "O", 1: "FAKE"}))
    assert 'assumes that its second label, "FAKE", means "replaced"' in pair.notes
    assert joined(detect(pair, "kata lodi")) == "kata lodi"


def test_other_models_are_refused(tmp_path, exports, masked_lm_run):
    with pytest.raises(UserError, match="is not a replaced-token detector"):
        load_pair(two_labels(tmp_path, exports, {0: "A", 1: "B", 2: "C"}))
    with pytest.raises(UserError, match="is not a replaced-token detector"):
        load_pair(str(exports["electra"] / "generator"))
    with pytest.raises(UserError, match="transformers cannot load this model"):
        load_pair(str(tmp_path))
    with pytest.raises(UserError, match="has no discriminator"):
        load_pair(str(masked_lm_run))


def test_a_discriminator_without_its_head_is_refused(tmp_path, exports):
    headless = shutil.copytree(exports["electra"] / "discriminator", tmp_path / "headless")
    ElectraModel.from_pretrained(headless).save_pretrained(headless)
    config = json.loads((headless / "config.json").read_text())
    (headless / "config.json").write_text(
        json.dumps({**config, "architectures": ["ElectraForPreTraining"]})
    )
    with pytest.raises(UserError, match="lacks weights"):
        load_pair(str(headless))


def test_a_stopped_export_and_broken_weights_are_refused(tmp_path, exports):
    stopped = shutil.copytree(exports["electra"], tmp_path / "stopped")
    (stopped / ".parts").mkdir()
    with pytest.raises(UserError, match="is not finished"):
        load_pair(str(stopped))
    broken = shutil.copytree(exports["electra"], tmp_path / "broken")
    network = ElectraForPreTraining.from_pretrained(broken / "discriminator")
    with torch.no_grad():
        network.discriminator_predictions.dense.weight.fill_(float("nan"))
    network.save_pretrained(broken / "discriminator")
    with pytest.raises(UserError, match="predictions are not finite"):
        detect(load_pair(str(broken)), TEXT)


def test_a_run_is_inspected_like_its_export(run):
    pair = load_pair(str(run))
    assert pair.name == f"{run}, step 7"
    assert pair.longest == 32
    assert len(detect(pair, "kata lodi mifu")) >= 3
    assert corrupt_text(pair, "kata lodi mifu", 0.5, 0)
    assert not pair.discriminator.training


def test_examples_of_a_run_are_those_it_is_evaluated_on(run):
    loaded = load_trained(run)
    task = validation_batches(run, loaded)
    inputs = task.tensors(task.batches[0])
    with torch.no_grad():
        _, sums = loaded.objective(inputs, inputs.totals())
    found, _ = examples_of_run(run, task.batch_size)
    shown = [counts(with_threshold(tokens, Threshold(0.5))) for tokens in found]
    assert len(shown) == task.batch_size
    assert sum(n["tokens"] for n in shown) == sums["tokens"]
    assert sum(n["caught"] + n["missed"] for n in shown) == sums["replaced"] > 0
    assert sum(n["caught"] for n in shown) == sums["found"]
    assert sum(n["caught"] + n["false-alarm"] for n in shown) == sums["said_replaced"]


def test_a_masked_lm_run_has_no_examples_to_judge(masked_lm_run):
    with pytest.raises(UserError, match="no discriminator"):
        examples_of_run(masked_lm_run, 1)


def test_generators_predict_the_same_as_in_transformers(exports, electra):
    """At rate 1 every position is masked: the most likely token is drawn most often."""
    again = AutoModelForMaskedLM.from_pretrained(exports["electra"] / "generator").eval()
    tokenizer = electra.tokenizer
    ids = tokenizer.backend.encode("kaso").ids
    masked = torch.tensor([[ids[0], *[tokenizer.special.mask] * (len(ids) - 2), ids[-1]]])
    with torch.no_grad():
        logits = again(input_ids=masked, attention_mask=torch.ones_like(masked)).logits
    probs = torch.softmax(logits[0, 1], -1)
    best = tokenizer.backend.id_to_token(int(probs.argmax())).removeprefix("##")
    drawn = [corrupt_text(electra, "kaso", 1.0, seed)[0].text for seed in range(300)]
    expected = float(probs.max())
    assert drawn.count(best) / 300 == pytest.approx(expected, abs=4 * (0.25 / 300) ** 0.5)

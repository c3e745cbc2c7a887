"""The inspector with two models, example sentences, and a threshold that moves."""

import json
import shutil
from threading import Thread

import pytest
from tests.reports.chromium import chromium, needs_chromium
from tests.reports.pairs import LONGEST, SPECIAL
from tests.reports.test_serve import PHONE, QUIET, TEXT, WIDE, ask

from electrify.cli import main
from electrify.errors import UserError
from electrify.reports.heat import Token, counts, detect
from electrify.reports.inspection import models_and_text
from electrify.reports.judged import Corruption, judge
from electrify.reports.pair import load_pair
from electrify.reports.serve import start
from electrify.reports.served import ENGLISH, EXAMPLE_COUNT, examples_for, rates_at, served_model
from electrify.reports.threshold import Threshold
from electrify.tokens.tokenizer import from_vocabulary
from electrify.training.export_run import export_run
from electrify.training.options import Export


@pytest.fixture(scope="module")
def pairs(exports):
    """Return models with different tokenizers; WordPiece and byte-level BPE."""
    return [load_pair(str(exports[name])) for name in ("electra", "modernbert")]


@pytest.fixture(scope="module")
def both(pairs):
    with start(pairs, TEXT, "127.0.0.1", 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def flagged(answer: dict) -> int:
    return answer["counts"]["suspected"]


def test_a_threshold_decides_what_is_flagged(both, pairs):
    probabilities = sorted(token.probability for token in detect(pairs[0], TEXT))
    for threshold, count in [(0, len(probabilities)), (1, 0), (probabilities[-3], 3)]:
        answer = ask(both, "POST", "/tokens", {"text": TEXT, "threshold": threshold})[1]
        assert flagged(answer) == count
        assert answer["threshold"] == threshold
        assert f"flagged: from {100 * threshold:.1f} % on" in answer["said"]
    own = ask(both, "POST", "/tokens", {"text": TEXT, "threshold": None})[1]
    assert own == ask(both, "POST", "/tokens", {"text": TEXT})[1]
    assert own["threshold"] == pairs[0].threshold.of(probabilities)


def test_moving_the_threshold_does_not_run_the_model_again(both, monkeypatch):
    request = {"text": f"{TEXT} {TEXT}", "corrupt": True}
    first = ask(both, "POST", "/tokens", request)[1]
    monkeypatch.setattr("electrify.reports.judged.corrupt_text", None)
    moved = ask(both, "POST", "/tokens", {**request, "threshold": 0.01})[1]
    assert [t["text"] for t in moved["tokens"]] == [t["text"] for t in first["tokens"]]


def test_two_models_see_the_same_text(both):
    answers = [ask(both, "POST", "/tokens", {"text": TEXT, "model": m})[1] for m in (0, 1)]
    assert answers[0]["model"].endswith("electra")
    assert answers[1]["model"].endswith("modernbert")
    assert len(answers[0]["tokens"]) != len(answers[1]["tokens"])
    for answer in answers:
        assert "".join(t["before"] + t["text"] for t in answer["tokens"]) == TEXT


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_corrupted_text_is_the_same_for_both(pairs, order):
    ordered = [pairs[index] for index in order]
    first, second = (judge(ordered, i, TEXT, Corruption(0.4, 3)) for i in (0, 1))
    shown = ["".join(t.before + t.text for t in tokens) for tokens in (first, second)]
    assert shown[0].startswith(shown[1])  # the second may be truncated
    assert counts(first)["caught"] + counts(first)["missed"] > 0
    originals = {t.original for t in first if t.replaced}
    found = [t for t in second if t.replaced]
    assert found
    assert all(any(original in t.original for original in originals) for t in found)
    assert {t.replaced for t in second} == {True, False}


def test_the_model_with_a_generator_corrupts(pairs):
    alone = pairs[0]._replace(generator=None)
    with_other = judge([alone, pairs[1]], 1, TEXT, Corruption())
    assert with_other == judge([pairs[1]], 0, TEXT, Corruption())
    with pytest.raises(UserError, match="cannot corrupt texts"):
        judge([alone, alone], 0, TEXT, Corruption())


def test_validation_text_gives_examples_and_rates(run, tmp_path):
    model = served_model(load_pair(str(run)))
    assert model.validated
    assert 0 < len(examples_for([model])) <= EXAMPLE_COUNT
    assert all(len(text) > 10 for text in model.examples)
    rates = [rates_at(model, Threshold(value, chosen=True), value) for value in (0.0, 0.4, 1.0)]
    assert [rates[0]["rate"], rates[2]["rate"]] == ["100.0 %", "0.0 %"]
    original, replaced = model.measured
    assert rates[1]["rate"] == f"{100 * (original >= 0.4).mean():.1f} %"
    assert f"{100 * (replaced >= 0.4).mean():.0f} % of replaced tokens" in rates[1]["source"]
    assert "validation text" in rates[1]["source"]


def test_an_export_next_to_its_run_is_measured_on_its_validation_text(run, shards, tmp_path):
    copy, model = shutil.copytree(run, tmp_path / "run"), tmp_path / "model"
    export_run(Export(copy, model))
    assert load_pair(str(model)).run == load_pair(str(model / "discriminator")).run == (copy, 7)
    of_run, of_export = (served_model(load_pair(str(folder))) for folder in (copy, model))
    assert of_export.validated
    assert (of_export.measured.original == of_run.measured.original).all()
    shutil.rmtree(copy)
    assert load_pair(str(model)).run is None


def test_without_the_shards_a_run_is_still_served(run, tmp_path):
    lone = shutil.copytree(run, tmp_path / "run")
    about = json.loads((lone / "run.json").read_text())
    gone = dict.fromkeys(("data", "data_absolute", "data_from_run"), "gone/shards")
    (lone / "run.json").write_text(json.dumps({**about, **gone}))
    model = served_model(load_pair(str(lone)))
    assert not model.validated
    assert rates_at(model, Threshold(), 0.3)["rate"] == "unknown"
    recorded = rates_at(model, Threshold(0.3, 0.1, 0.05), 0.3)
    assert recorded["rate"] == "5.0 %"


def test_english_is_offered_only_to_a_vocabulary_that_covers_it(pairs, both, monkeypatch):
    assert both.examples == []  # made-up words, and bytes
    tokens = [Token("a", "", 0.2, None), Token("b", "", 0.6, None)]
    monkeypatch.setattr("electrify.reports.served.detect", lambda pair, text: tokens)
    words = {w for s, *ends in ENGLISH for w in " ".join([s.format(""), *ends]).lower().split()}
    english = from_vocabulary([*SPECIAL, *sorted(w.strip(".") for w in words), "."])
    model = served_model(pairs[0]._replace(tokenizer=english, longest=LONGEST))
    assert len(model.examples) == len(ENGLISH)
    rate = rates_at(model, Threshold(0.5, chosen=True), 0.5)
    assert rate["rate"] == "about 50 %"
    assert "estimated from" in rate["source"]
    examples = examples_for([model])
    assert len(examples) == EXAMPLE_COUNT
    assert {bool(example.note) for example in examples} == {True, False}
    assert examples_for([model, served_model(pairs[0])]) == []


def test_a_folder_among_the_arguments_is_a_model(tmp_path):
    folder = str(tmp_path)
    assert models_and_text("a") == (["a"], "")
    assert models_and_text("a", folder) == (["a", folder], "")
    assert models_and_text("a", folder, "text") == (["a", folder], "text")
    assert models_and_text("a", "x" * 9_000) == (["a"], "x" * 9_000)
    for more in [("The", "quick"), (folder, folder, "text"), ("a", "b", "c", "d")]:
        with pytest.raises(UserError, match="at most one text"):
            models_and_text("a", *more)


def test_two_models_in_the_terminal_as_json_and_as_a_page(exports, capsys, tmp_path):
    models = [str(exports[name]) for name in ("electra", "modernbert")]
    assert main(["inspect", *models, TEXT]) == 0
    printed = capsys.readouterr().out
    assert all(f"{model}:\nprobability\t" in printed for model in models)
    assert main(["inspect", *models, TEXT, "--corrupt", "--json"]) == 0
    assert [one["model"] for one in json.loads(capsys.readouterr().out)] == models
    assert main(["inspect", *models, TEXT, "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count('<section class="card">') == 2
    assert '<main class="compared">' in page
    assert main(["inspect", models[0], "The", "quick", "fox"]) == 2
    assert "put the text in quotes" in capsys.readouterr().err


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (PHONE, True)])
def test_in_a_browser_examples_slider_and_two_models(size, dark, run, exports, tmp_path):
    with chromium(tmp_path) as open_tab:
        models = [load_pair(str(source)) for source in (run, exports["modernbert"])]
        with start(models, "", "127.0.0.1", 0) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            tab = open_tab()
            tab.look(*size, dark=dark)
            tab.open(server.url)
            tab.wait("document.querySelectorAll('.card').length === 2")
            assert tab.run("document.querySelector('#examples').open")
            tab.run("document.querySelector('#sentences button').click()")
            tab.wait(f"document.querySelector('.token') && {QUIET}")
            assert tab.run("document.querySelector('#text').value") == server.examples[0].text
            assert not tab.run("document.querySelector('#examples').open")
            alarms = "document.querySelector('.alarms').textContent"
            assert "validation text" in tab.run(alarms)
            slide = """(() => {
                const slider = document.querySelector('.flagging input');
                slider.value = 0; slider.dispatchEvent(new Event('input'));
            })()"""
            tab.run(slide)
            tab.wait(f"{alarms}.startsWith('100.0 %') && {QUIET}")
            first = "document.querySelector('.card')"
            every = f"{first}.querySelectorAll('.token:not(.suspected)').length === 0"
            assert tab.run(every)
            tab.run("document.querySelector('.reset').click()")
            shown = "document.querySelector('.flagging output').textContent"
            tab.wait(f"{shown} !== '0.0 %' && document.querySelector('.reset').disabled")
            assert tab.run("document.documentElement.scrollWidth") <= size[0]
            assert tab.console == []
            server.shutdown()

"""The output of `electrify inspect` and `electrify show RUN`: terminal, pipe, JSON, page."""

import io
import json
import re
import shutil

import pytest
from rich.console import Console
from tests.reports.odd_texts import ODD_TEXTS
from tests.reports.test_heat import Reader

from electrify.cli import main
from electrify.errors import EXIT_DAMAGED, EXIT_USER, visible
from electrify.reports.heat import Token, corrupt_text, detect
from electrify.reports.inspection import coloured, page, summary, token_rows
from electrify.reports.judged import Judged
from electrify.reports.pair import load_pair
from electrify.training import checkpoint

TEXT = "kata lodi mifu nuta peso radi"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Control characters except newlines, and those that change the direction of text.
HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def pair(exports):
    return load_pair(str(exports["electra"]))


@pytest.fixture
def output(capsys, monkeypatch):
    """Return what a command prints; with `terminal`, as to a terminal with colours."""

    def run(*arguments: object, code: int = 0, terminal: bool = False) -> str:
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
            monkeypatch.setenv("COLORTERM", "truecolor")
        capsys.readouterr()
        exit_code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert exit_code == code, captured.err
        run.errors = captured.err
        return captured.out

    return run


def on_terminal(*parts) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor", soft_wrap=True)
    for part in parts:
        console.print(part)
    return file.getvalue()


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_odd_texts_do_nothing_to_a_terminal_or_a_table(name, pair):
    for tokens in (detect(pair, ODD_TEXTS[name]), corrupt_text(pair, ODD_TEXTS[name], 0.3, 2)):
        printed = COLOURS.sub("", on_terminal(coloured(tokens), *summary(tokens)))
        assert not HARMFUL.search(printed.replace("\t", " "))
        for line in token_rows(tokens):
            assert line.count("\t") == 3
            assert not HARMFUL.search(line.replace("\t", " "))
            assert "\n" not in line


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_odd_texts_do_nothing_to_a_page(name, pair):
    tokens = corrupt_text(pair, ODD_TEXTS[name], 0.3, 2)
    html = page([Judged(pair, ODD_TEXTS[name], tokens)])
    plain = page([Judged(pair, "", [])])
    reader, empty = Reader(), Reader()
    reader.feed(html)
    empty.feed(plain)
    names = {tag for tag, _ in reader.elements}
    assert names <= {tag for tag, _ in empty.elements} | {"span", "ul", "li", "del", "p"}
    assert not {"script", "img", "iframe"} & names
    assert not any(key.startswith("on") for _, attributes in reader.elements for key in attributes)
    assert "".join(visible(t.before + t.text) for t in tokens) in reader.text


def test_a_page_needs_nothing_from_elsewhere(pair):
    html = page([Judged(pair, TEXT, detect(pair, TEXT))])
    addresses = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"'> )]+)", html)
    assert addresses == ["data:,"]
    assert "default-src 'none'" in html


@pytest.mark.parametrize("name", ["script", "empty", "escape", "emoji", "layout"])
def test_the_command_in_all_its_forms(name, exports, output, tmp_path):
    model, text = exports["electra"], ODD_TEXTS[name]
    rows = output("inspect", model, text).splitlines()
    answer = json.loads(output("inspect", model, text, "--json"))
    assert [row.split("\t")[0] for row in rows[1:]] == [
        f"{token['probability']:.4f}" for token in answer["tokens"]
    ]
    assert text.startswith("".join(t["before"] + t["text"] for t in answer["tokens"]))
    output("inspect", model, text, "--html", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    in_colour = output("inspect", model, text, terminal=True)
    assert bool(answer["tokens"]) == bool(COLOURS.search(in_colour))
    assert not HARMFUL.search(COLOURS.sub("", in_colour).replace("\t", " "))


def test_an_empty_text_is_explained(exports, output):
    assert output("inspect", exports["electra"]) == ""
    assert "no tokens; give a text" in output.errors


def test_no_colour_in_pipes_or_with_no_color(exports, output, monkeypatch, capsys):
    piped = output("inspect", exports["electra"], TEXT)
    assert "\x1b" not in piped
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["inspect", str(exports["electra"]), TEXT]) == 0
    assert capsys.readouterr().out == piped


def test_warmer_means_a_higher_probability():
    likely, unlikely = Token("cat", "dog", 0.9, True), Token("sat", "", 0.1, False, " ")
    printed = on_terminal(coloured([likely, unlikely]))
    backgrounds = re.findall(r"48;2;255;(\d+);(\d+)m", printed)
    assert len(backgrounds) == 2
    assert int(backgrounds[0][0]) < int(backgrounds[1][0])  # less green: warmer
    assert "✓" in printed


def test_corrupting_is_repeatable_and_counted(exports, output):
    command = ("inspect", exports["electra"], TEXT, "--corrupt", "--rate", "0.5", "--seed", "3")
    first = json.loads(output(*command, "--json"))
    assert first == json.loads(output(*command, "--json"))
    replaced = [token for token in first["tokens"] if token["replaced"]]
    assert len(replaced) == first["counts"]["caught"] + first["counts"]["missed"] > 0
    assert all(token["original"] and token["original"] in TEXT for token in replaced)


def test_notes_and_truncation_are_printed(exports, output, tmp_path):
    alone = shutil.copytree(exports["electra"] / "discriminator", tmp_path / "alone")
    output("inspect", alone, "kata lodi " * 60)
    assert "note: no generator next to it" in output.errors
    assert "note: the text is truncated" in output.errors
    output("inspect", alone, TEXT, "--corrupt", code=2)
    assert "cannot corrupt texts" in output.errors


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--serve", "--json"], "--serve cannot be combined"),
        (["--serve", "--port", "70000"], "--port must be between 0 and 65535"),
        (["--html", "no/such/folder/page.html"], "cannot be written"),
        (["--corrupt", "--rate", "1.5"], "--rate must be greater than 0 and at most 1"),
    ],
)
def test_bad_options_are_refused(options, what, exports, output):
    output("inspect", exports["electra"], TEXT, *options, code=2)
    assert what in output.errors
    assert "fix:" in output.errors


def test_show_of_a_run_shows_every_stage(run, output):
    shown = output("show", run, "--count", 2)
    assert re.findall(r"^example (\d+)", shown, re.M) == ["0", "1"]
    first = shown.split("example 1")[0]
    rows = {line.split()[0]: line.split()[1:] for line in first.splitlines() if line.strip()}
    assert "[MASK]" in rows["masked"]
    assert "[MASK]" not in rows["original"]
    positions = [line.split() for line in first.splitlines() if re.match(r"\d+ +\S", line)]
    judged = [row for row in positions if "tokens," not in row]
    assert any("replaced" in row for row in judged)
    caught = sum(row[-1] == "caught" for row in judged)
    assert f"{caught} caught" in first


def test_show_of_a_run_ends_with_its_verdict(run, output, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    assert "verdict" not in output("show", copied), "nothing was logged"
    record = {"step": 7, "split": "validation", "generator_loss": 3.0, "unigram_loss": 4.0}
    (copied / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    assert "verdict: Training works so far: the model has learned" in output("show", copied)


def test_show_of_a_run_chooses_by_seed_and_prints_ids(run, output):
    assert output("show", run, "--count", 3, "--seed", 1) != output("show", run, "--count", 3)
    ids = re.findall(r"^\s+\[([\d, ]+)\]$", output("show", run, "--count", 1, "--ids"), re.M)
    assert len(ids) == 3
    assert len({len(row.split(",")) for row in ids}) == 1


def test_show_of_a_masked_lm_run_has_no_verdicts(masked_lm_run, output):
    shown = output("show", masked_lm_run, "--count", 1)
    assert "sampled" in shown
    assert "caught" not in shown


def test_show_reports_what_is_missing(run, shards, output, tmp_path):
    lone = shutil.copytree(run, tmp_path / "run")
    about = json.loads((lone / "run.json").read_text())
    gone = dict.fromkeys(("data", "data_absolute", "data_from_run"), "gone/shards")
    (lone / "run.json").write_text(json.dumps({**about, **gone}))
    output("show", lone, code=2)
    assert "were not found" in output.errors
    shutil.copytree(shards, tmp_path / "shards")  # next to the run, they are found
    assert "example 0" in output("show", lone, "--count", 1)
    output("show", lone, "--count", 0, code=2)
    assert "--count is too small" in output.errors
    shutil.rmtree(lone / "checkpoints")
    output("show", lone, code=2)
    assert "has no checkpoint yet" in output.errors


def test_show_verifies_the_checkpoints_of_a_run(run, output, tmp_path):
    assert "all 1 checkpoints are intact (steps: 7)" in output("show", run, "--verify")
    hurt = shutil.copytree(run, tmp_path / "run")
    model = checkpoint.stored(hurt / "checkpoints")[0].folder / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    output("show", hurt, "--verify", code=EXIT_DAMAGED)
    assert "1 of 1 checkpoints are damaged" in output.errors
    shutil.rmtree(hurt / "checkpoints")
    output("show", hurt, "--verify", code=EXIT_USER)
    assert "has no checkpoint to verify" in output.errors


def test_show_still_shows_shards(shards, output):
    assert "example 0" in output("show", shards, "--count", 1)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(run, output, tmp_path):
    hurt = shutil.copytree(run, tmp_path / "run")
    newer = shutil.copytree(hurt / "checkpoints/step-00000007", hurt / "checkpoints/step-00000009")
    (newer / "model.safetensors").write_bytes(b"torn")
    assert f"{hurt}: step 7" in output("show", hurt, "--count", 1)
    assert "is damaged and will be skipped" in output.errors


def test_only_a_page_of_ours_is_overwritten_by_html(exports, output, tmp_path):
    out = tmp_path / "page.html"
    out.write_text("my thesis")
    output("inspect", exports["electra"], "kata lodi", "--html", out, code=2)
    assert "is not a page that electrify made" in output.errors
    assert out.read_text() == "my thesis"
    out.unlink()
    for _ in range(2):
        output("inspect", exports["electra"], "kata lodi", "--html", out)

"""`--json` prints only the result on standard output."""

import json

import pytest

from electrify.cli import main


@pytest.mark.parametrize("command", [["recipes"], ["recipes", "check", "tiny"]])
def test_recipes(capfd, command):
    assert main([*command, "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert "first test" in result["tiny"]["use"]


def test_prepare_prints_its_manifest_and_sends_messages_to_standard_error(
    electrify, docs, vocab, tmp_path
):
    command = ("prepare", docs, "--tokenizer", vocab, "--length", 32, "--out", tmp_path / "shards")
    done = electrify(*command, "--json")
    assert json.loads(done.stdout)["splits"]["train"]["examples"] > 0
    assert "validation" in done.stderr
    assert json.loads(electrify(*command, "--json").stdout) == json.loads(done.stdout)


def test_commands_without_a_result_refuse_json(electrify, docs, vocab, tmp_path):
    tokenizer = ("tokenizer", docs, "--out", tmp_path / "tokenizer")
    assert "--json" in electrify(*tokenizer, "--json", code=2).stderr

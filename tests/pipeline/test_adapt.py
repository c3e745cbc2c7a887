"""`electrify adapt`: a released model on other text, compared before and after."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import make_documents, write_documents
from tests.models.tiny import tiny_recipe

import electrify as package
from electrify.cli import main
from electrify.errors import UserError
from electrify.models.base import open_base
from electrify.models.export import encoder_alone, export_networks
from electrify.models.pair import build_masked_lm, build_pair
from electrify.tokens.tokenizer import load_tokenizer
from electrify.training.data import vocabulary_of

SMALL = ("--budget", "4s", "--add", "8", "--words", "40", "--length", "24", "--batch-size", "4")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("field") / "docs", make_documents(300, seed=1))


@pytest.fixture(scope="module")
def bases(vocab, tmp_path_factory) -> dict[str, Path]:
    """Released models: a pair, and an encoder without a head."""
    folder, tokenizer = tmp_path_factory.mktemp("bases"), load_tokenizer(vocab)
    pair = build_pair(tiny_recipe("electra"), vocabulary_of(tokenizer))
    networks = {"discriminator": pair.discriminator, "generator": pair.generator}
    export_networks(networks, dict.fromkeys(networks, ""), tokenizer, folder / "pair", {}, 64)
    network, _ = build_masked_lm(tiny_recipe("bert"), vocabulary_of(tokenizer))
    both = {"model": network, "encoder": encoder_alone(network)}
    export_networks(both, dict.fromkeys(both, ""), tokenizer, folder / "mlm", {}, 64)
    return {name: folder / name for name in ("pair", "mlm")} | {"encoder": folder / "mlm/encoder"}


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Path:
    """A suite with a task that labels the first syllable."""
    folder = tmp_path_factory.mktemp("task")
    lines = [line for d in make_documents(80, seed=2) for line in d.text.split("\n")][:120]
    rows = [f"{line},{line[:2]}" for line in lines if line[:2] in ("ka", "lo")]
    for name, part in (("train.csv", rows[::2]), ("dev.csv", rows[1::2])):
        (folder / name).write_text("\n".join(["text,label", *part]) + "\n")
    (folder / "suite.toml").write_text(
        'seeds = 2\nepochs = 1\n[[task]]\nname = "first"\ntrain = "train.csv"\ndev = "dev.csv"\n'
    )
    return folder / "suite.toml"


@pytest.fixture(scope="module")
def adapted(bases, texts, docs, task, tmp_path_factory):
    """The folder of an adapted pair, and what the command printed."""
    out = tmp_path_factory.mktemp("adapted") / "out"
    command = [sys.executable, "-m", "electrify", "adapt", bases["pair"], "--docs", texts, *SMALL]
    command += ["--general", docs, "--tasks", task, "--out", out]
    return out, subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_one_command_compares_before_and_after(adapted):
    out, printed = adapted
    result = json.loads((out / "comparison/result.json").read_text())
    assert "model: electra, a discriminator and a generator" in printed
    assert result["before"]["loss_per_character"] > result["after"]["loss_per_character"]
    assert result["before"]["tokens_per_word"] > result["after"]["tokens_per_word"]
    assert len(result["new_words"]) == 8
    assert result["general"]["start"] == 0
    assert [task["name"] for task in result["tasks"]] == ["first"]
    page = (out / "report.html").read_text()
    for text in ("Before and after", "loss per character", "first, accuracy", "general text"):
        assert text in page
    assert result["verdict"]["headline"].replace(" %", "\xa0%") in page.replace(" %", "\xa0%")
    assert f"verdict: {result['verdict']['headline']}" in printed


def test_printed_commands_can_be_typed_again(adapted, electrify):
    _, printed = adapted
    commands = [line[2:].split() for line in printed.splitlines() if line.startswith("$ elect")]
    assert [command[1] for command in commands] == [
        *("tokenizer", "prepare", "prepare", "pretrain", "export", "suite", "report")
    ]
    for command in commands[:3]:
        assert "nothing to do" in electrify(*command[1:]).stdout
    assert "300 steps" not in electrify(*commands[3][1:]).stdout  # the recipe is the same


def test_the_function_resumes_and_returns_the_comparison(adapted, bases, texts, docs, task, capsys):
    out, _ = adapted
    options = {"budget": "4s", "add": 8, "words": 40, "length": 24, "batch_size": 4}
    done = package.adapt(
        str(bases["pair"]), docs=texts, general=docs, tasks=task, out=out, **options
    )
    assert capsys.readouterr().out.count("nothing to do") >= 3
    assert (done.encoder / "model.safetensors").is_file()
    assert done.result["verdict"]["grade"] in ("worked", "started")
    with pytest.raises(UserError, match="another --length"):
        package.adapt(str(bases["pair"]), docs=texts, out=out, **{**options, "length": 32})


def test_raw_text_and_an_encoder_without_a_head(bases, tmp_path, electrify):
    for number, document in enumerate(make_documents(120, seed=3)):
        (tmp_path / f"{number}.txt").write_text(document.text)
    out = tmp_path.parent / "raw"
    options = ("--docs", tmp_path, *SMALL, "--objective", "mlm", "--out", out)
    done = electrify("adapt", bases["encoder"], *options).stdout
    assert "an encoder without a masked-LM head, which starts from scratch" in done
    assert "discriminator: cls.predictions.bias is newly initialised" in done
    result = json.loads((out / "comparison/result.json").read_text())
    assert result["before"]["loss_per_character"] is None
    assert result["after"]["loss_per_character"] > 0
    assert "Nobody can tell" in result["verdict"]["headline"]
    assert (out / "docs/manifest.json").is_file()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--add", "-1"), "--add is too small"),
        (("--words", "0"), "--words is too small"),
        (("--budget", "soon"), "--budget"),
        (("--general-share", "1"), "--general-share must be"),
        (("--general", "nowhere"), "no such folder: nowhere"),
        (("--tasks", "nowhere.toml"), "cannot read nowhere.toml"),
        (("--generator", "nowhere"), "has its own networks"),
        (("--lr", "0"), "optimizer.lr must be"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(
    options, what, bases, texts, tmp_path, capsys
):
    out = tmp_path / "out"
    command = ["adapt", str(bases["pair"]), "--docs", str(texts), "--out", str(out), *options]
    assert main(command) == 2
    assert what in capsys.readouterr().err
    assert not out.exists()


def test_documents_and_texts_are_not_mixed(bases, texts, tmp_path):
    (tmp_path / "a.txt").write_text("some text\n")
    with pytest.raises(UserError, match="--docs mixes documents and texts"):
        package.adapt(str(bases["pair"]), docs=[texts, tmp_path / "a.txt"], out=tmp_path / "out")


def test_bases_are_what_their_folders_have(bases, tmp_path):
    pair, mlm, encoder = (open_base(str(bases[name])) for name in ("pair", "mlm", "encoder"))
    assert pair.discriminator.endswith("discriminator")
    assert pair.masked_lm.endswith("generator")
    assert (mlm.discriminator, Path(mlm.masked_lm).name) == ("", "model")
    assert (encoder.discriminator, encoder.masked_lm) == ("", "")
    alone = open_base(f"{bases['pair']}/discriminator")
    assert (alone.masked_lm, bool(alone.discriminator)) == ("", True)
    two = open_base(f"{bases['pair']}/discriminator", f"{bases['pair']}/generator")
    assert two.masked_lm == f"{bases['pair']}/generator"
    with pytest.raises(UserError, match="--generator belongs to a discriminator"):
        open_base(f"{bases['pair']}/discriminator", str(bases["encoder"]))
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="is a run"):
        open_base(str(tmp_path))


STAGES = ("tokenizer", "shards", "run", "model", "comparison")


@pytest.mark.slow
def test_killed_at_any_stage_it_gives_the_same_bytes(bases, texts, tmp_path, electrify):
    """The steps of a time budget are measured, so a fixed number of them is put into the run."""
    command = ("adapt", bases["pair"], "--docs", texts, *SMALL, "--out")
    electrify(*command, tmp_path / "once")
    shutil.copytree(tmp_path / "once", tmp_path / "again")
    for stage in STAGES:
        if stage != "run":
            shutil.rmtree(tmp_path / "again" / stage)
    about = tmp_path / "again/run/run.json"
    kept = about.read_bytes()
    for path in (tmp_path / "again/run").iterdir():
        if path.name not in ("run.json", "recipe.toml", "tokenizer", "networks"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for stage in STAGES:
        process = subprocess.Popen(
            [sys.executable, "-m", "electrify", *map(str, command), str(tmp_path / "again")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found = tmp_path / "again" / (stage if stage != "run" else "run/metrics.jsonl")
        while not found.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    electrify(*command, tmp_path / "again")
    assert json.loads(about.read_bytes())["identity"] == json.loads(kept)["identity"]
    for name in ("tokenizer/tokenizer.json", "model/generator/model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "once" / name).read_bytes()
    one, two = (tmp_path / name / "comparison/result.json" for name in ("once", "again"))
    assert one.read_bytes() == two.read_bytes()

"""`electrify squad` end to end on a tiny encoder that memorizes a few questions."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from tests.finetuning.conftest import no_room_at_the_end
from tests.finetuning.squad_files import paragraphs, write_squad
from transformers import AutoModel, AutoModelForQuestionAnswering, AutoTokenizer

from electrify.cli import main
from electrify.errors import GuardError, UserError
from electrify.finetuning import experiment
from electrify.finetuning import fit as fitting
from electrify.finetuning.options import Fit, Squad
from electrify.finetuning.squad import problem as problems
from electrify.finetuning.squad.command import squad
from electrify.finetuning.squad.data import read_questions
from electrify.finetuning.squad.metrics import question_scores
from electrify.storage.commit import json_bytes
from electrify.training.checkpoint import SaveError

MEMORIZE = Fit(lr=5e-3, epochs=90, batch_size=8, layer_decay=1.0, optimizer="adamw")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with both versions, with the same questions for training and evaluation."""
    result = tmp_path_factory.mktemp("squad")
    for version in ("1.1", "2.0"):
        content = paragraphs(10, unanswerable=version == "2.0")
        write_squad(result / f"train-v{version}.json.xz", content, version)
        write_squad(result / f"dev-v{version}.json", content, version)
    return result


def loaded(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def answered(folder, encoder_folder, tmp_path_factory):
    """Return the settings of one finished run for each head, with overlapping windows."""
    runs = {}
    for head, version in (("simple", "1.1"), ("official", "2.0")):
        out = tmp_path_factory.mktemp("out") / head
        settings = Squad(
            str(encoder_folder), folder, out, version, head, MEMORIZE, length=24, stride=6
        )
        squad(settings)
        runs[head] = settings
    return runs


@pytest.mark.parametrize("head", ["simple", "official"])
def test_a_few_questions_are_memorized(answered, head):
    settings = answered[head]
    result = loaded(settings.out / "result.json")
    assert result["scores"]["f1"] > 90
    assert result["train"]["windows"] > result["train"]["questions"]
    questions = read_questions(settings.data / f"dev-v{settings.version}.json", settings.version)
    predictions = loaded(settings.out / "predictions.json")
    assert list(predictions) == [question.id for question in questions]
    # The scores are those the evaluation script would compute for the written answers.
    found = question_scores(questions, predictions, settings.version)
    assert 100 * sum(found.exact) / len(questions) == pytest.approx(result["scores"]["exact"])
    assert 100 * sum(found.f1) / len(questions) == pytest.approx(result["scores"]["f1"])
    best = loaded(settings.out / "nbest_predictions.json")
    assert list(best) == list(predictions)
    for number, entries in best.items():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1)
        assert predictions[number] in (entries[0]["text"], "")
    assert not (settings.out / ".parts").exists()


def test_questions_without_an_answer_have_higher_odds(answered):
    settings = answered["official"]
    odds = loaded(settings.out / "null_odds.json")
    questions = read_questions(settings.data / "dev-v2.0.json", "2.0")
    with_answer = [odds[q.id] for q in questions if not q.impossible]
    without = [odds[q.id] for q in questions if q.impossible]
    assert sum(without) / len(without) > sum(with_answer) / len(with_answer) + 1
    result = loaded(settings.out / "result.json")
    assert result["null_threshold"] == -2.75
    assert result["scores"]["best_exact"] >= result["scores"]["exact"]
    assert result["scores"]["HasAns_total"] == result["scores"]["NoAns_total"] == 10
    predictions = loaded(settings.out / "predictions.json")
    assert all((predictions[name] == "") == (odds[name] > -2.75) for name in odds)
    assert not (answered["simple"].out / "null_odds.json").exists()


def test_transformers_loads_the_simple_model_and_gives_the_same_answers(answered):
    settings = answered["simple"]
    network = AutoModelForQuestionAnswering.from_pretrained(settings.out / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(settings.out / "model")
    predictions = loaded(settings.out / "predictions.json")
    agree = 0
    for question in read_questions(settings.data / "dev-v1.1.json", "1.1"):
        row = tokenizer(
            question.text, question.context, return_tensors="pt", return_offsets_mapping=True
        )
        offsets = row.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            output = network(**row)
        context = row["token_type_ids"][0].bool() & (row["input_ids"][0] != tokenizer.sep_token_id)
        start, end = (
            int(logits[0].masked_fill(~context, -1e4).argmax())
            for logits in (output.start_logits, output.end_logits)
        )
        text = question.context[offsets[start][0] : offsets[end][1]]
        agree += text == predictions[question.id]
    # Of 20; transformers sees the context in one window, we split it into several.
    assert agree >= 14


def test_the_official_model_is_a_backbone_and_a_head(answered):
    folder = answered["official"].out / "model"
    assert AutoModel.from_pretrained(folder).config.hidden_size == 32
    assert (folder / "head.safetensors").exists()


def test_a_finished_result_is_printed_again_and_other_settings_are_refused(
    answered, capsys, monkeypatch
):
    settings = answered["simple"]
    monkeypatch.setattr(experiment, "fit", None)  # nothing is trained again
    before = (settings.out / "result.json").stat().st_mtime_ns
    squad(settings)
    output = capsys.readouterr().out
    assert f"{loaded(settings.out / 'result.json')['scores']['f1']:.2f}" in output
    assert (settings.out / "result.json").stat().st_mtime_ns == before
    other = Squad(settings.model, settings.data, settings.out, "1.1", fit=MEMORIZE, seed=1)
    with pytest.raises(UserError, match="seed: the folder has 0, the command says 1"):
        squad(other)


@pytest.mark.parametrize(("head", "refused"), [("simple", True), ("official", False)])
@pytest.mark.parametrize("started", [False, True])
def test_a_folder_made_with_a_kept_head_is_refused(
    answered, head, refused, started, tmp_path, monkeypatch
):
    """Such a head differs from the one that is drawn now; an official head was always new."""
    settings = replace(answered[head], out=tmp_path / "out")
    if started:
        monkeypatch.setattr(problems, "decode", lambda *_: 1 / 0)
        settings = replace(settings, fit=Fit(epochs=1, batch_size=8))
        with pytest.raises(ZeroDivisionError):
            squad(settings)
        monkeypatch.undo()
        path = settings.out / ".parts/settings.json"
        identity = loaded(path)
        identity.pop("init_head", None)
        path.write_bytes(json_bytes(identity))
    else:
        shutil.copytree(answered[head].out, settings.out)
        path = settings.out / "manifest.json"
        manifest = loaded(path)
        manifest["identity"].pop("init_head", None)
        path.write_bytes(json_bytes(manifest))
    if not refused:
        squad(settings)
        return
    before = {path: path.read_bytes() for path in settings.out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="before heads were initialized from the seed") as error:
        squad(settings)
    assert error.value.fix == "use another --out; nothing was touched"
    assert before == {path: path.read_bytes() for path in before}


def test_a_run_killed_after_learning_does_not_learn_again(
    folder, encoder_folder, tmp_path, monkeypatch
):
    short = Fit(epochs=1, batch_size=8)
    settings = Squad(str(encoder_folder), folder, tmp_path / "out", "1.1", fit=short, length=24)
    decode, real, starts = problems.decode, fitting.train, []

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(problems, "decode", killed)
    with pytest.raises(KeyboardInterrupt):
        squad(settings)

    def recording(run, start):
        starts.append((start, run.cadence.steps))
        return real(run, start)

    fitted = loaded(tmp_path / "out/.parts/seed-0/checkpoints/fitted.json")
    monkeypatch.setattr(problems, "decode", decode)
    monkeypatch.setattr(fitting, "train", recording)
    squad(settings)
    assert [start == steps for start, steps in starts] == [True]  # no steps remained
    assert loaded(settings.out / "result.json")["fit"] == fitted
    again = tmp_path / "again"
    monkeypatch.undo()
    squad(Squad(str(encoder_folder), folder, again, "1.1", fit=short, length=24))
    for name in ("predictions.json", "nbest_predictions.json"):
        assert (again / name).read_bytes() == (settings.out / name).read_bytes()


def test_a_folder_started_by_an_earlier_version_resumes(
    folder, encoder_folder, tmp_path, monkeypatch, capsys
):
    """Its checkpoints are in .parts/fit; trained weights are in .parts/fitted.safetensors."""
    short = Fit(epochs=1, batch_size=8)
    settings = Squad(str(encoder_folder), folder, tmp_path / "out", "1.1", fit=short, length=24)
    with monkeypatch.context() as patch:
        patch.setattr(problems, "decode", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            squad(settings)
    parts, real, starts = settings.out / ".parts", fitting.train, []
    (parts / "seed-0/checkpoints/fitted.json").unlink()
    (parts / "seed-0").rename(parts / "fit")
    trained = replace(settings, out=tmp_path / "trained")
    shutil.copytree(settings.out, trained.out)
    shutil.rmtree(trained.out / ".parts/fit/checkpoints")
    (trained.out / ".parts/fitted.safetensors").touch()
    (trained.out / ".parts/fitted.json").touch()

    def recording(run, start):
        starts.append((start, run.cadence.steps))
        return real(run, start)

    monkeypatch.setattr(fitting, "train", recording)
    squad(settings)
    assert "trained again" not in capsys.readouterr().out
    squad(trained)
    assert "trained again" in capsys.readouterr().out
    assert starts == [(3, 3), (0, 3)]
    answers = [run.out / "predictions.json" for run in (settings, trained)]
    assert answers[0].read_bytes() == answers[1].read_bytes()


def test_failed_training_reports_the_reason(folder, encoder_folder, tmp_path, monkeypatch):
    settings = Squad(str(encoder_folder), folder, tmp_path / "out", "1.1", length=24)

    def broken(*arguments):
        raise GuardError("it broke", got="step 7: nan", fix="export an earlier checkpoint")

    monkeypatch.setattr(experiment, "fit", broken)
    for _ in range(2):
        with pytest.raises(GuardError) as error:
            squad(settings)
        assert (error.value.what, error.value.got) == ("it broke", "step 7: nan")
        assert error.value.fix == "use a lower --lr and another --out, or check the data"


def test_a_full_disk_after_the_last_save_keeps_the_checkpoints(folder, encoder_folder, tmp_path):
    short = Fit(epochs=1, batch_size=8)
    settings = Squad(str(encoder_folder), folder, tmp_path / "out", "1.1", fit=short, length=24)
    with no_room_at_the_end(), pytest.raises(SaveError):
        squad(settings)
    assert list(settings.out.glob(".parts/seed-0/checkpoints/step-*/*"))
    squad(settings)  # the lock is released, and nothing is refused
    assert loaded(settings.out / "result.json")["fit"]["steps"] == 3


def test_train_share_dev_limit_and_the_simple_head_on_2_0(folder, encoder_folder, tmp_path):
    short = Fit(epochs=1, batch_size=8)
    settings = Squad(
        str(encoder_folder), folder, tmp_path / "out", "2.0", fit=short, length=24,
        train_share=0.5, dev_limit=5, null_threshold=1e9,
    )  # fmt: skip
    squad(settings)
    result = loaded(settings.out / "result.json")
    assert result["train"]["questions"] == 10
    assert result["scores"]["total"] == 5
    predictions = loaded(settings.out / "predictions.json")
    assert len(predictions) == len(loaded(settings.out / "null_odds.json")) == 5
    assert all(predictions.values())  # no odds are that high


def test_invalid_input_leaves_no_folder_behind(folder, encoder_folder, tmp_path):
    out = tmp_path / "out"
    for fields, message in (
        ({"version": "auto"}, "several versions"),
        ({"version": "1.1", "length": 4}, "--length leaves no room"),
        ({"version": "1.1", "train_share": 2.0}, "--train-share must be"),
        ({"version": "1.1", "fit": Fit(epochs=0)}, "--epochs"),
        ({"version": "1.1", "dev_limit": -1}, "--dev-limit"),
    ):
        with pytest.raises(UserError, match=message):
            squad(Squad(str(encoder_folder), folder, out, **fields))
    assert not out.exists()


def test_the_command_line(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["squad", "--help"])
    assert "--train-share" in capsys.readouterr().out
    nowhere = str(tmp_path / "none")
    assert main(["squad", "model", "--data", nowhere, "--out", nowhere, "--lr", "1e-3"]) == 2
    assert "no such folder" in capsys.readouterr().err

"""Your data, from files to a model that transformers runs."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.finetuning.conftest import no_room_at_the_end, rows
from tests.finetuning.own_files import FAST, WRITERS, settings, tagged, tuner
from tests.models.test_architectures import SEEN, each
from tests.models.tiny import VOCABULARY, tiny_fields, tiny_inputs

from electrify.cli import main
from electrify.errors import DamagedError, UserError
from electrify.finetuning import experiment
from electrify.finetuning import fit as fitting
from electrify.finetuning.options import Predict
from electrify.finetuning.own import command
from electrify.finetuning.own import problem as problems
from electrify.finetuning.own.command import finetune, selection_score
from electrify.finetuning.own.predict import predict
from electrify.finetuning.own.target import Target, undo_standardization
from electrify.finetuning.results import Result, best_of
from electrify.storage.commit import read_json, write_json
from electrify.training.checkpoint import SaveError

DESCRIPTIONS = {
    "classes": "2 classes (bad, good); labels are words",
    "pairs": "2 classes (0, 1); labels are 2 distinct integers",
    "score": "a score (mean 12",
    "tags": "2 tags (B-LOC, O); every word has a tag",
}


@pytest.fixture(scope="module")
def tuned(encoder_folder, tmp_path_factory):
    return tuner(encoder_folder, tmp_path_factory.mktemp("tuned"))


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_is_inferred_and_learned(kind, tuned, capsys):
    out = tuned(kind).out
    result = read_json(out / "result.json")
    assert result["kind"] == {"pairs": "classes"}.get(kind, kind)
    (seed,) = result["seeds"]
    if kind == "score":
        assert seed["scores"]["pearson"] > 0.8
        assert seed["scores"]["mse"] < 250**2 / 2  # predicting the mean would give 250²
    elif kind == "tags":
        assert seed["scores"]["f1"] > 0.9
    else:
        assert seed["scores"]["accuracy"] > 0.85
        assert seed["scores"]["mcc"] > 0.7
    assert not list(out.glob(".*"))
    capsys.readouterr()
    finetune(tuned(kind))  # finished: prints the result without training
    output = capsys.readouterr().out
    assert DESCRIPTIONS[kind] in output
    summary = f"{command.finetune_summary(result)}\n\n{command.next_commands(out, result)}"
    assert output.endswith(f"{summary}\n\n{out}\n")
    assert f"electrify predict {out} " in output
    if kind == "score":
        assert not result["by_label"]
        assert "By " not in output
    else:
        unit = {"tags": "entity type"}.get(kind, "class")
        assert f"By {unit}, on the development file" in output
        assert "Confusion matrix" in output


@pytest.mark.parametrize("kind", WRITERS)
def test_the_model_card_names_data_scores_and_settings(kind, tuned):
    options = tuned(kind)
    card = (options.out / "README.md").read_text()
    result, manifest = (read_json(options.out / f"{n}.json") for n in ("result", "manifest"))
    assert "README.md" in [entry["name"] for entry in manifest["files"]]
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: ")
    for wanted in (
        *(manifest["identity"][name] for name in ("train", "dev", "model")),
        *(f"{score:.4f}" for score in result["seeds"][0]["scores"].values()),
        options.train.name,
        "lr = 0.001",
        "seed = 0",
        "from transformers import pipeline",
        "electrify predict FOLDER",
    ):
        assert wanted in card
    assert ("text_pair" in card) == (kind == "pairs")
    assert str(options.out.parent) not in card  # the locations of files are not published


def test_the_learning_curve_is_kept(tuned):
    (seed,) = read_json(tuned("classes").out / "result.json")["seeds"]
    steps, losses = zip(*seed["losses"], strict=True)
    assert steps[-1] == seed["steps"]
    assert list(steps) == sorted(set(steps))
    assert losses[-1] < losses[0]


def test_tab_separated_texts_and_labels_without_header(encoder_folder, tmp_path, capsys):
    """Many data sets are .txt files; the same columns are then found in files to predict."""
    for split, count in (("train", 240), ("dev", 40)):
        lines = [f"{a}\t{('bad', 'good')[y]}\n" for a, _, y in rows(count, len(split))]
        (tmp_path / f"{split}.txt").write_text("".join(lines))
    options = settings(encoder_folder, tmp_path, ".txt", fit=replace(FAST, epochs=1))
    finetune(options)
    output = capsys.readouterr().out
    assert "240 rows; no header line; columns: text = column 1, label = column 2\n" in output
    assert "2 classes (bad, good)" in output
    (tmp_path / "new.txt").write_text("kata lodi\nmira lodi\n")
    (tmp_path / "new.tsv").write_text("kata lodi\tgood\nmira lodi\tbad\n")
    for name, scored in (("new.txt", False), ("new.tsv", True)):
        predict(Predict(options.out, tmp_path / name, tmp_path / "out.tsv", device="cpu"))
        assert ("accuracy" in capsys.readouterr().out) is scored
        assert len((tmp_path / "out.tsv").read_text().splitlines()) == 3


@pytest.mark.parametrize("kind", WRITERS)
def test_pipelines_run_the_model(kind, tuned):
    from transformers import pipeline

    out = str(tuned(kind).out)
    if kind == "tags":
        tagger = pipeline("token-classification", model=out, device="cpu")
        words, tags = tagged(1, 5)[0]
        found = {token["index"]: token["entity"] for token in tagger(" ".join(words))}
        starts = [1]  # some words have two tokens
        for word in words[:-1]:
            starts.append(starts[-1] + len(tagger.tokenizer.tokenize(word)))
        assert [found.get(start, "O") for start in starts] == tags
        return
    ask = pipeline("text-classification", model=out, device="cpu")
    if kind == "pairs":
        assert ask({"text": "kata mira", "text_pair": "lodi"})["label"] == "1"
        assert ask({"text": "lodi mira", "text_pair": "lodi"})["label"] == "0"
    elif kind == "classes":
        assert [answer["label"] for answer in ask(["kata lodi mita", "peta lodi mita"])] == [
            "good",
            "bad",
        ]
    else:
        high, low = (answer["score"] for answer in ask(["kata lodi mita", "peta lodi mita"]))
        assert high == pytest.approx(1500, abs=150)
        assert low == pytest.approx(1000, abs=150)


@pytest.mark.parametrize("architecture", each(SEEN))
def test_scores_return_to_their_original_scale(architecture):
    from transformers import CONFIG_MAPPING, AutoModelForSequenceClassification

    torch.manual_seed(0)
    fields = {**tiny_fields(architecture), "vocab_size": VOCABULARY.size, "pad_token_id": 0}
    config = CONFIG_MAPPING[architecture](**fields, num_labels=1)
    network = AutoModelForSequenceClassification.from_config(config).eval()
    ids_BL = tiny_inputs().ids_BL
    before_BC = network(ids_BL, attention_mask=torch.ones_like(ids_BL)).logits
    undo_standardization(network, Target("score", ("score",), mean=-40.0, std=7.0))
    after_BC = network(ids_BL, attention_mask=torch.ones_like(ids_BL)).logits
    torch.testing.assert_close(after_BC, before_BC * 7 - 40)


def test_several_seeds_are_printed_and_the_best_is_kept(encoder_folder, tmp_path, capsys):
    options = settings(
        encoder_folder, tmp_path, WRITERS["score"](tmp_path), seeds=3, seed=5, fit=replace(FAST, epochs=2.0)
    )  # fmt: skip
    finetune(options)
    result = read_json(options.out / "result.json")
    found = [seed["scores"]["pearson"] for seed in result["seeds"]]
    assert [seed["seed"] for seed in result["seeds"]] == [5, 6, 7]
    assert len(set(found)) == 3
    assert result["best_seed"] == 5 + found.index(max(found))
    assert result["mean"]["pearson"] == pytest.approx(sum(found) / 3)
    output = capsys.readouterr().out
    assert f"kept: seed {result['best_seed']}, the best of 3" in output
    alone = replace(options, seeds=1, seed=result["best_seed"], out=tmp_path / "alone")
    finetune(alone)
    weights = [load_file(run.out / "model.safetensors") for run in (options, alone)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_a_score_of_nan_is_never_the_best():
    found = [float("nan"), -0.5, -0.5]
    results = [Result("", n, "", {"dev": {"pearson": score}}) for n, score in enumerate(found)]
    assert best_of(results, selection_score) is results[1]
    failed = Result("", 3, "", failed="it broke")
    assert best_of([failed, results[0]], selection_score) is results[0]
    assert best_of([failed], selection_score) is None


@pytest.mark.parametrize("kind", ["score", "tags"])
def test_a_stopped_run_goes_on_to_the_same_weights(kind, encoder_folder, tmp_path, monkeypatch):
    """Interrupt the second of two seeds, as Ctrl-C does, then run the command again."""
    short = replace(FAST, epochs=2.0)
    options = settings(
        encoder_folder, tmp_path, WRITERS[kind](tmp_path), seeds=2, fit=short, out=tmp_path / "broken"
    )  # fmt: skip
    stops = []

    class Stop(fitting.Stop):
        def __init__(self):
            super().__init__()
            stops.append(self)

    def progress_reporter(update, name, number, count):
        def on_progress(step, steps, loss):
            if number == 1 and step == steps // 2:
                stops[-1].signal = 2

        return on_progress

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "Stop", Stop)
        patch.setattr(command, "progress_reporter", progress_reporter)
        with pytest.raises(KeyboardInterrupt):
            finetune(options)
    assert not (options.out / "result.json").exists()
    with pytest.raises(UserError, match="is not finished"):
        predict(Predict(options.out, options.dev))
    assert len(stops) == 2
    first = read_json(options.out / ".parts/seed-0/result.json")
    finetune(options)
    unbroken = replace(options, out=tmp_path / "unbroken")
    finetune(unbroken)
    resumed, reference = (read_json(run.out / "result.json") for run in (options, unbroken))
    kept = resumed["seeds"][0]
    assert kept["scores"] == first["scores"]["dev"]
    assert kept["seconds"] == round(first["seconds"], 1)
    assert (kept["seed"], kept["steps"]) == (first["seed"], first["steps"])
    for field in ("scores", "losses"):
        found = [[seed[field] for seed in result["seeds"]] for result in (resumed, reference)]
        assert found[0] == found[1]
    weights = [load_file(run.out / "model.safetensors") for run in (options, unbroken)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_other_settings_or_data_are_refused(tuned, tmp_path):
    options = tuned("classes")
    weights = (options.out / "model.safetensors").read_bytes()
    with pytest.raises(UserError) as error:
        finetune(replace(options, fit=replace(FAST, lr=2e-3)))
    assert error.value.got == "settings.fit.lr: the folder has 0.001, the command says 0.002"
    other = tmp_path / "train.csv"
    other.write_text(options.train.read_text() + "one more,good\n")
    with pytest.raises(UserError) as error:
        finetune(replace(options, train=other))
    assert error.value.got.startswith("train: ")
    assert (options.out / "model.safetensors").read_bytes() == weights
    moved = shutil.copy(options.train, tmp_path / "moved.csv")
    finetune(replace(options, train=tmp_path / moved))  # the location of a file does not matter


def test_an_export_with_different_outputs_is_refused(encoder_folder, tmp_path, monkeypatch):
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), fit=replace(FAST, epochs=1.0))  # fmt: skip
    real = problems.load_network

    def damaged(kind, source, **fields):
        network = real(kind, source, **fields)
        if "seed-0" in source:
            network.classifier.bias.data += 0.01
        return network

    monkeypatch.setattr(problems, "load_network", damaged)
    with pytest.raises(UserError, match="differs from the trained one"):
        finetune(options)
    assert [path.name for path in options.out.iterdir()] == [".parts"]
    assert not (options.out / ".parts/seed-0/result.json").exists()


def test_a_full_disk_after_the_last_save_keeps_the_checkpoints(encoder_folder, tmp_path):
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), fit=replace(FAST, epochs=1.0))  # fmt: skip
    with no_room_at_the_end(), pytest.raises(SaveError):
        finetune(options)
    assert list(options.out.glob(".parts/seed-0/checkpoints/step-*/*"))
    finetune(options)  # the lock is released, and nothing is refused
    assert (options.out / "model.safetensors").is_file()


@pytest.mark.parametrize("failed", [False, True])
def test_a_folder_started_by_an_earlier_version_is_finished(
    failed, encoder_folder, tmp_path, monkeypatch, capsys
):
    """Its results have no identity, and its models are in .parts/seed-N/model."""
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), fit=replace(FAST, epochs=1.0))  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(command, "run_one", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(options)
    model = options.out / ".parts/seed-0/model"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"weights")
    done = {"scores": {"accuracy": 0.5}, "degenerate": False, "steps": 15, "seconds": 1.0, "examples_per_second": 9.0}  # fmt: skip
    write_json(
        model.parent / "result.json", {"seed": 0, **({"failed": "it broke"} if failed else done)}
    )
    capsys.readouterr()
    finetune(options)
    assert "this seed is trained again" in capsys.readouterr().out
    again = replace(options, out=tmp_path / "again")
    finetune(again)
    weights = [(run.out / "model.safetensors").read_bytes() for run in (options, again)]
    assert weights[0] == weights[1]


def test_a_model_without_files_is_never_committed(encoder_folder, tmp_path, monkeypatch):
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), fit=replace(FAST, epochs=1.0))  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(command, "summarize", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(options)
    shutil.rmtree(options.out / ".parts/seed-0/files")
    with pytest.raises(DamagedError, match="is missing"):
        finetune(options)
    assert not (options.out / "manifest.json").exists()
    shutil.rmtree(options.out / ".parts/seed-0")  # as the error advises
    finetune(options)


def test_truncated_words_are_counted_and_reported(encoder_folder, tmp_path, capsys):
    options = settings(encoder_folder, tmp_path, WRITERS["tags"](tmp_path), length=5, fit=replace(FAST, epochs=1.0))  # fmt: skip
    finetune(options)
    result = read_json(options.out / "result.json")
    assert result["dev"]["cut"] > 0
    note = f"{options.dev}: {result['dev']['cut']} words do not fit into 5 tokens and are ignored"
    assert note in capsys.readouterr().out


TEXT = "text,label\n"
BAD = {
    "no label column": ("train.csv", "text,other\na,b\nc,d\n", "train.csv, line 1: no label column"),
    "no such column": ("train.csv", "a,b,c\n1,2,3\n", "train.csv, line 1: cannot tell which"),
    "one class": ("train.csv", TEXT + "a,x\nb,x\n", "train.csv: every row has the same label"),
    "empty": ("train.csv", "", "train.csv is empty"),
    "NaN": ("train.csv", TEXT + "a,1.5\nb,2.5\nc,nan\n", "train.csv, line 4: the score must be"),
    "inf": ("train.csv", TEXT + "a,1.5\nb,2.5\nc,inf\n", "train.csv, line 4: the score must be"),
    "not a number": ("train.csv", TEXT + "a,1.5\nb,2.5\nc,?\n", "train.csv, line 4: the score must be"),
    "no label": ("train.csv", TEXT + "a,x\nb,\nc,y\n", "train.csv, line 3: no label"),
    "no text": ("train.csv", TEXT + "a,x\n ,y\n", "train.csv, line 3: no text in column 'text'"),
    "1 MB": ("train.csv", TEXT + "a,x\n" + "b" * 1_000_000 + ",y\n", "train.csv, line 3: a cell"),
    "ragged": ("train.csv", TEXT + "a,x\nb,y,z\n", "train.csv, line 3: the row must have"),
    "not an object": ("train.jsonl", '{"text": "a", "label": 1}\n3\n', "train.jsonl, line 2: not a JSON object"),
    "unknown in dev": ("dev.csv", TEXT + "a,x\nb,z\n", "dev.csv, line 3: the label is not in the"),
    "dev without labels": ("dev.csv", "text\na\nb\n", "dev.csv, line 1: no column 'label'"),
    "label missing in dev": ("dev.csv", TEXT + "a,x\nb,\n", "dev.csv, line 3: no label"),
    "unknown tag": ("dev.txt", "a O\nb B-Y\n", "dev.txt, line 2: the label is not in the"),
    "dev without tags": ("dev.txt", "a\nb\n", "dev.txt, line 1: words have no tags"),
    "one tag": ("train.txt", "a O\nb O\n", "train.txt: every word has the same tag"),
}  # fmt: skip
GOOD = {
    ".csv": TEXT + "a,x\nb,y\n",
    ".jsonl": '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n',
    ".txt": "a O\nb B-X\n",
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_files_are_refused_by_name(name, encoder_folder, tmp_path):
    file, content, what = BAD[name]
    suffix = "." + file.split(".")[1]
    for split in ("train", "dev"):
        good = content if file.startswith(split) else GOOD[suffix]
        (tmp_path / f"{split}{suffix}").write_text(good)
    with pytest.raises(UserError) as error:
        finetune(settings(encoder_folder, tmp_path, suffix))
    assert what in error.value.what
    assert not (tmp_path / "out").exists()


NAN, INFINITE = float("nan"), float("inf")
BAD_HYPERPARAMETERS = {
    "lr": (0.0, -1.0, NAN, INFINITE, 1e30),
    "epochs": (0.0, NAN, INFINITE),
    "batch_size": (0, -1),
    "layer_decay": (-0.5, NAN, 2.0),
    "weight_decay": (-5.0, NAN, 1e30),
    "warmup": (-0.1, 1.0, NAN),
    "clip": (-1.0, NAN, INFINITE),
}
INVALID = [
    {"fit": replace(FAST, **{name: value})}
    for name, values in BAD_HYPERPARAMETERS.items()
    for value in values
]


@pytest.mark.parametrize("changes", [{"length": 0}, {"seeds": 0}, {"length": 3}, *INVALID])
def test_invalid_settings_are_refused(changes, encoder_folder, tmp_path):
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), **changes)
    with pytest.raises(UserError):
        finetune(options)
    assert not options.out.exists()


def test_the_command_accepts_every_fine_tuning_setting(encoder_folder, tmp_path, capsys):
    suffix = WRITERS["classes"](tmp_path)
    files = f"--train {tmp_path}/train{suffix} --dev {tmp_path}/dev{suffix} --out {tmp_path}/out"
    fitted = "--lr 1e-3 --epochs 1 --batch-size 8 --optimizer adamw --seeds 2 --device cpu"
    assert main(["finetune", str(encoder_folder), *files.split(), *fitted.split()]) == 0
    output = capsys.readouterr().out
    assert "2 classes (bad, good)" in output
    assert "seed 1: accuracy " in output
    again = ["finetune", str(encoder_folder), "--config", f"{tmp_path}/out/settings.toml"]
    assert main(again) == 0
    assert capsys.readouterr().out == output
    kept = read_json(tmp_path / "out/manifest.json")["identity"]["settings"]["fit"]
    assert (kept["batch_size"], kept["optimizer"], kept["lr"]) == (8, "adamw", 1e-3)


def test_a_degenerate_run_is_reported(encoder_folder, tmp_path, capsys):
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), fit=replace(FAST, lr=0.5, epochs=2.0))  # fmt: skip
    finetune(options)
    output = capsys.readouterr().out
    assert "; the same prediction (" in output
    assert ") for every example: try a lower --lr" in output
    assert read_json(options.out / "result.json")["seeds"][0]["degenerate"] is True


def test_answers_that_are_not_numbers_are_reported():
    nan = float("nan")
    result = Result("", 0, "", {"dev": {"mse": nan}}, degenerate="NaN or infinite predictions")
    seeds = [command._seed_record(result)]
    assert "; NaN or infinite predictions: try a lower" in command.finetune_summary(
        {"seeds": seeds}
    )
    del seeds[0]["why"]  # as earlier versions wrote it
    assert "; the same answer for every row: try" in command.finetune_summary({"seeds": seeds})


def test_the_standard_deviation_of_an_undefined_score_is_undefined():
    results = [Result("", n, "", {"dev": {"f1": n / 2, "pearson": float("nan")}}) for n in range(2)]
    alone, both = command.summarize(results[:1])["std"], command.summarize(results)["std"]
    assert (alone["f1"], both["f1"]) == (0.0, pytest.approx(0.5 / 2**0.5))
    assert math.isnan(alone["pearson"])
    assert math.isnan(both["pearson"])


def test_a_network_that_diverged_is_reported_as_such(encoder_folder, tmp_path, monkeypatch):
    options = settings(encoder_folder, tmp_path, WRITERS["classes"](tmp_path), fit=replace(FAST, epochs=1.0))  # fmt: skip
    real = experiment.fit

    def diverged(network, *arguments):
        fitted = real(network, *arguments)
        network.network.classifier.weight.data.fill_(float("inf"))
        return fitted

    monkeypatch.setattr(experiment, "fit", diverged)
    with pytest.raises(UserError, match="failed with every seed") as error:
        finetune(options)
    assert "diverged" in error.value.got
    assert "lower --lr" in error.value.fix


def test_lone_surrogates_and_terminal_codes_do_no_harm(encoder_folder, tmp_path, capsys):
    """In texts, labels, column names and file names."""
    folder = tmp_path / "\x1b[31mred"
    folder.mkdir()
    labels = ("\x1b]0;title\x07good", "bad\ud800")
    for split, count in (("train", 32), ("dev", 8)):
        examples = [
            {"te\x1b[2Jxt": f"{a} \udc80", "label": labels[y]} for a, _, y in rows(count, 1)
        ]
        lines = "".join(json.dumps(example) + "\n" for example in examples)
        (folder / f"{split}.jsonl").write_text(lines)
    options = settings(encoder_folder, folder, ".jsonl", text="te\x1b[2Jxt", length=8, fit=replace(FAST, epochs=1.0))  # fmt: skip
    finetune(options)
    content = predict(Predict(options.out, folder / "dev.jsonl", tmp_path / "out.jsonl"))
    assert json.loads(content.split("\n")[0])["te\x1b[2Jxt"].endswith(" \ufffd")
    arguments = ["finetune", str(encoder_folder), "--train", str(folder / "train.jsonl")]
    assert main([*arguments, "--dev", str(folder / "none"), "--out", str(tmp_path / "x")]) == 2
    output = "".join(capsys.readouterr())
    assert "title" in output
    assert "\x1b" not in output.replace(str(options.out), "")
    assert "\x07" not in output

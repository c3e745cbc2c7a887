"""`electrify suite`: tasks × seeds × models, killed, resumed, on Dask, refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.conftest import WORDS
from tests.dask_cluster import QUIET, dask_cluster, holds_a_lock
from tests.finetuning.own_files import write_classes, write_pairs, write_scores, write_tags
from tests.finetuning.squad_files import paragraphs, write_squad
from tests.finetuning.suite_kills import content, finished_jobs, suite_command
from tests.test_jobs import wait_until
from transformers import BertForMaskedLM

import electrify as package
from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.blimp.pairs import FIELDS
from electrify.finetuning.glue.command import glue
from electrify.finetuning.options import Finetune, Fit, Glue, Suite
from electrify.finetuning.own.command import finetune
from electrify.finetuning.suite.command import suite
from electrify.finetuning.suite.file import read_suite
from electrify.finetuning.suite.jobs import run_suite_job
from electrify.finetuning.suite.record import read_record
from electrify.finetuning.suite.tables import model_differences, scores_table
from electrify.models.untrained import write_untrained

SMALL = """seeds = 2
epochs = 6
batch_size = 16
lr = 1e-3
layer_decay = 1
train_limit = 160

[[task]]
task = "SST-2"
data = "glue"

[[task]]
name = "places"
train = "tags/train.txt"
dev = "tags/dev.txt"
epochs = 8
"""

ALL = (
    SMALL
    + """
[[task]]
name = "sentiment"
train = "classes/train.csv"
dev = "classes/dev.csv"

[[task]]
name = "pairs"
train = "pairs/train.jsonl"
dev = "pairs/dev.jsonl"
metric = "macro_f1"

[[task]]
name = "rating"
train = "score/train.tsv"
dev = "score/dev.tsv"

[[task]]
task = "squad"
data = "squad"
dev_limit = 6

[[task]]
task = "blimp"
data = "blimp"
"""
)


@pytest.fixture(scope="module")
def data(tmp_path_factory, glue_folder) -> Path:
    """A folder with small data of every kind, and two suites."""
    folder, rng = tmp_path_factory.mktemp("suite"), Random(0)
    (folder / "glue").symlink_to(glue_folder)
    writers = {"classes": write_classes, "pairs": write_pairs, "score": write_scores}
    for name, write in {**writers, "tags": write_tags}.items():
        (folder / name).mkdir()
        write(folder / name)
    for split, count in (("train", 20), ("dev", 4)):
        write_squad(folder / f"squad/{split}-v1.1.json", paragraphs(count, len(split)))
    (folder / "blimp").mkdir()
    for name in ("one", "two"):
        rows = [
            [" ".join(rng.choices(WORDS, k=4)), " ".join(rng.choices(WORDS, k=4)), "p", "f", name]
            for _ in range(10)
        ]
        text = "".join(json.dumps(dict(zip(FIELDS, row, strict=True))) + "\n" for row in rows)
        (folder / f"blimp/{name}.jsonl").write_text(text)
    (folder / "small.toml").write_text(SMALL)
    (folder / "all.toml").write_text(ALL)
    return folder


@pytest.fixture(scope="module")
def models(encoder_folder) -> tuple[str, ...]:
    return f"tiny={encoder_folder}", f"random=random:{encoder_folder}"


def settings(data, models, out, file="small.toml", base=None, **changes) -> Suite:
    options = {"workers": "1", "device": "cpu", "data": base, **changes}
    return Suite(data / file, models, out, **options)


@pytest.fixture(scope="module")
def done(data, models, tmp_path_factory) -> Path:
    """The small suite, run without interruption."""
    out = tmp_path_factory.mktemp("done") / "out"
    suite(settings(data, models, out))
    return out


def test_one_table_of_models_and_tasks(done):
    record = read_record(done)
    table = scores_table(record)
    assert table.columns == ("model", "sst2 accuracy", "places f1", "average")
    assert [row[0].text for row in table.rows] == ["tiny", "random"]
    assert all(0 <= cell.content <= 100 for row in table.rows for cell in row[1:])
    assert "mean of 2 seeds" in table.notes[0]
    assert "the range over the seeds" in table.notes[0]
    assert {"suite.md", "suite.tex", "suite.csv", "seeds.md"} <= {p.name for p in done.iterdir()}
    assert (done / "random-minus-tiny.md").is_file()


def test_models_are_paired_by_seed(done):
    record = read_record(done)
    task = record.tasks[1]
    first, second = (record.summary(model.name, task).scores for model in record.models)
    found = {row.task: row for row in model_differences(record, "tiny", "random")}
    assert found["places"].pairs == 2
    expected = sum(second[seed] - first[seed] for seed in (0, 1)) / 2
    assert found["places"].difference == pytest.approx(expected)
    assert found["overall"].pairs == 4


def test_scores_are_those_of_the_commands(done, data, encoder_folder, tmp_path):
    """The suite has no training of its own."""
    record = read_record(done)
    scores = {(run.model, run.task, run.seed): run.scores["dev"] for run in record.runs}
    options = {"lr": 1e-3, "layer_decay": 1.0}
    glue(
        Glue(
            model=str(encoder_folder), data=data / "glue", out=tmp_path / "glue", tasks="sst2",
            seeds=1, epochs=6, batch_size=16, train_limit=160, length=64, **options,
        )
    )  # fmt: skip
    found = json.loads((tmp_path / "glue/jobs/sst2-0/result.json").read_text())
    assert found["scores"]["dev"] == scores["tiny", "sst2", 0]
    lines = (data / "tags/train.txt").read_text().split("\n\n")
    (tmp_path / "train.txt").write_text("\n\n".join(lines[:161]) + "\n")  # with -DOCSTART-
    result = finetune(
        Finetune(
            str(encoder_folder), tmp_path / "train.txt", data / "tags/dev.txt", tmp_path / "tuned",
            fit=Fit(epochs=8, batch_size=16, **options),
        )
    )  # fmt: skip
    assert result["seeds"][0]["scores"] == scores["tiny", "places", 0]


def test_a_finished_suite_trains_nothing(done, data, models, monkeypatch, capsys):
    before = content(done)
    monkeypatch.setattr("electrify.finetuning.suite.jobs.run_one", None)
    suite(settings(data, models, done))
    assert content(done) == before
    assert "tiny" in capsys.readouterr().out


def test_no_weights_are_kept(done):
    kept = {path.parent.name for path in done.rglob("*.safetensors") if "outputs" not in path.name}
    assert kept == {"encoder"}  # the random weights
    assert not list(done.rglob("*lock"))


def test_interrupted_everywhere_it_ends_with_the_same_bytes(done, data, models, tmp_path):
    """Stop once in every job: before it, after training, and after its result is committed."""
    out, jobs, stages = tmp_path / "out", 8, ("fit", "commit", "drop_weights")
    for number in range(jobs):
        with pytest.MonkeyPatch.context() as patch:
            stage = stages[number % 3]
            where = "suite.jobs" if stage == "drop_weights" else "experiment"
            stopped_after(patch, f"electrify.finetuning.{where}", stage)
            with pytest.raises(Killed):
                suite(settings(data, models, out))
    suite(settings(data, models, out))
    assert content(out) == content(done)


class Killed(BaseException):
    pass


def stopped_after(patch, module, name):
    real = getattr(sys.modules[module], name)

    def stopped(*arguments):
        real(*arguments) if name != "drop_weights" else None
        raise Killed

    patch.setattr(f"{module}.{name}", stopped)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_table_after_a_worker_was_killed(
    done, data, models, tmp_path
):
    """A scheduler and two workers with two threads each; one is killed in the middle of a job."""
    out = tmp_path / "out"
    with dask_cluster(tmp_path, threads=2) as cluster:
        command = suite_command(data / "small.toml", models, out, workers=cluster.address)
        process = subprocess.Popen(command, **QUIET)
        wait_until(lambda: finished_jobs(out) > 0, 120)
        wait_until(lambda: holds_a_lock(out, cluster.workers[0].pid))
        cluster.workers[0].kill()
        assert process.wait(timeout=240) == 0
        assert cluster.workers[1].poll() is None
    assert content(out) == content(done)


def test_a_job_that_another_process_finished_is_not_run_again(done, data, models, monkeypatch):
    jobs = []
    monkeypatch.setattr(
        "electrify.finetuning.suite.command.run_suite_jobs",
        lambda given, finished, workers: jobs.extend(given) or finished,
    )
    suite(settings(data, models, done))
    monkeypatch.setattr("electrify.finetuning.suite.jobs.run_one", None)
    result = run_suite_job(jobs[0])
    assert (result.task, result.seed) == ("sst2", 0)


@pytest.fixture(scope="module")
def everything(data, vocab, tmp_path_factory, encoder_folder) -> Path:
    """A suite with a task of every kind, a masked LM, and an encoder that cannot score sentences."""
    from transformers import BertConfig, BertTokenizer

    folder = tmp_path_factory.mktemp("everything")
    tokenizer = BertTokenizer(vocab=str(vocab))
    config = BertConfig.from_pretrained(encoder_folder)
    BertForMaskedLM(config).save_pretrained(folder / "lm")
    tokenizer.save_pretrained(folder / "lm")
    given = (str(folder / "lm"), f"random:{folder / 'lm'}", f"encoder={encoder_folder}")
    suite(settings(data, given, folder / "out", "all.toml", seeds=1, train_limit=16))
    return folder / "out"


def test_every_kind_of_task(everything):
    record = read_record(everything)
    table = scores_table(record)
    assert [task.benchmark for task in record.tasks] == ["glue", *["own"] * 4, "squad", "blimp"]
    assert table.columns[3:-1] == (
        "sentiment accuracy", "pairs macro_f1", "rating pearson", "squad f1", "blimp accuracy",
    )  # fmt: skip
    by_model = {row[0].text: row for row in table.rows}
    assert by_model["encoder"][-2].text == "–"
    assert by_model["encoder"][-1].text == "–"
    assert any("has no head that scores sentences" in note for note in table.notes)
    assert by_model["lm"][-2].bounds
    squad = [run for run in record.runs if run.task == "squad"]
    assert all(0 <= run.scores["dev"]["f1"] <= 1 for run in squad)
    found = {row.task: row for row in model_differences(record, "lm", "random:lm")}
    assert found["blimp"].pairs == 2
    assert any("paired by paradigm" in note for note in found["blimp"].notes)


def test_the_report_has_a_section(everything, done, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["report", str(everything), str(done), "--out", str(page)]) == 0
    html = page.read_text()
    assert html.count("Models compared") == 2
    assert "2 suites" in html
    assert "jobs/lm/rating-0/result.json" in html


def test_an_unfinished_suite_is_not_reported(done, tmp_path, capsys):
    out = tmp_path / "out"
    (out / "jobs").mkdir(parents=True)
    (out / "suite.toml").write_text(SMALL)
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 2
    assert "is not finished" in capsys.readouterr().err
    for name in ("suite.toml", "suite.json"):
        (out / name).write_bytes((done / name).read_bytes())
    (out / "suite.json").write_text((out / "suite.json").read_text().replace('"seed"', '"sed"'))
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 3


def test_the_python_face_and_json(done, data, models, capsys):
    found = package.suite(data / "small.toml", models, done, workers="1", device="cpu")
    assert found == json.loads((done / "suite.json").read_text())
    capsys.readouterr()
    arguments = ["suite", data / "small.toml", *models, "--out", done, "--workers", 1, "--json"]
    assert main([*map(str, arguments), "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_data_and_seeds_can_be_given_on_the_command_line(data, models, tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SMALL.replace("seeds = 2", "") + "[models.other]\nlr = 1\n")
    found = suite(
        Suite(
            tmp_path / "s.toml", models[:1], tmp_path / "out", data=data, seeds=1, train_limit=8,
            workers="1", device="cpu",
        )
    )  # fmt: skip
    assert [run["seed"] for run in found["runs"]] == [0, 0]
    assert {run["train_rows"] for run in found["runs"]} == {8}
    assert "settings for other, which is not among tiny" in capsys.readouterr().out
    with pytest.raises(UserError, match="train_limit: the folder has 8, the command says 9"):
        suite(
            Suite(
                tmp_path / "s.toml", models[:1], tmp_path / "out", data=data, seeds=1,
                train_limit=9, workers="1", device="cpu",
            )
        )  # fmt: skip


def test_settings_of_a_model_replace_those_of_a_task(data, models, tmp_path):
    text = SMALL.replace("seeds = 2", "seeds = 1") + "[models.tiny]\nepochs = 2\n"
    (data / "models.toml").write_text(text)
    suite(settings(data, models, tmp_path / "out", "models.toml", train_limit=8))
    record = read_record(tmp_path / "out")
    assert "epochs 2" in record.settings("tiny", "places")
    assert "epochs 8" in record.settings("random", "places")
    [notes] = [r.notes for r in model_differences(record, "tiny", "random")][1:2]
    assert any(note.startswith("settings: ") for note in notes)


def test_degenerate_runs_are_named_after_their_model_in_comparisons(done, tmp_path):
    shutil.copytree(done, tmp_path / "out")
    path = tmp_path / "out" / "suite.json"
    record = json.loads(path.read_text())
    run = next(r for r in record["runs"] if (r["model"], r["task"]) == ("random", "places"))
    run["degenerate"] = "the same prediction"
    path.write_text(json.dumps(record))
    found = model_differences(read_record(tmp_path / "out"), "tiny", "random")
    notes = next(row.notes for row in found if row.task == "places")
    assert notes[0].startswith("random: seed 0 degenerate")


def test_notes_name_the_precision_unless_it_is_float32(data, models, tmp_path):
    out = tmp_path / "out"
    options = {"precision": "bf16", "train_limit": 8, "seeds": 1}
    suite(settings(data, models[:1], out, **options))
    record = read_record(out)
    for task in record.tasks:
        assert "precision bf16" in record.settings("tiny", task.name)


def task(**fields) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["[[task]]", *lines]) + "\n"


OWN = {"name": "a", "train": "tags/train.txt", "dev": "tags/dev.txt"}
SST2 = {"task": "sst2", "data": "glue"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no tasks"),
        ("task = 3", "has no tasks"),
        ("sedes = 3\n" + task(**SST2), "sedes is not a setting of a suite"),
        ("seeds = 0\n" + task(**SST2), "seeds must be from 1"),
        ("seeds = [1]\n" + task(**SST2), "seeds must be from 1"),
        ("seeds = true\n" + task(**SST2), "seeds must be from 1"),
        ("lr = -1\n" + task(**SST2), "--lr must be"),
        ("length = 2\n" + task(**SST2), "length is too small"),
        (task(task="sst3", data="glue"), "sst3 is not a task"),
        (task(**SST2) * 2, "two tasks have the same name"),
        (task(**SST2, train="x"), "train has no meaning for sst2"),
        (task(**OWN, data="glue"), "data has no meaning for your own files"),
        (task(task="blimp", data="blimp", lr=1), "lr has no meaning for blimp"),
        (task(train="tags/train.txt", dev="tags/dev.txt"), "name is missing for your own files"),
        (task(task="sst2"), "data is missing for sst2"),
        (task(**{**OWN, "name": "a/b"}), "the name cannot be used"),
        (task(**{**OWN, "train": "tags/no.txt"}), "no.txt"),
        (task(task="sst2", data="nothing"), "nothing"),
        (task(task="squad", data="blimp"), "must contain both a training and a development file"),
        (task(task="blimp", data="squad"), "no minimal pairs"),
        (task(**{**OWN, "dev": "other.txt"}), "the label is not in the training file"),
        (task(**OWN, label="ner"), "no column 'ner'"),
        (task(**OWN, metric="mcc"), "mcc is not a metric"),
        (task(**SST2) + "[models.tiny]\nlr = 'x'", "lr has a bad value"),
        ("seeds = = 3", "is not TOML"),
    ],
)
def test_bad_suites_are_refused_before_anything_is_trained(text, what, data, models, tmp_path):
    (data / "other.txt").write_text("kata X B-PER\nlota X O\n\nkata X O\n")
    (data / "bad.toml").write_text(text)
    with pytest.raises(UserError) as error:
        suite(settings(data, models, tmp_path / "out", "bad.toml"))
    assert what in error.value.what
    assert error.value.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "changes", "what"),
    [
        ((), {}, "no model was given"),
        (("nowhere/at/all",), {}, "there is no folder nowhere/at/all"),
        (("random:",), {}, "a MODEL is incomplete"),
        (("=x",), {}, "a MODEL is incomplete"),
        (("{m}", "{m}"), {}, "two models have the same name"),
        (("{m}",), {"workers": "-1"}, "--workers must be 0 or more"),
        (("{m}",), {"seeds": 0}, "--seeds must be from 1"),
        (("{m}",), {"threads": 0}, "--threads is too small"),
        (("{m}",), {"base": Path("no-such-folder")}, "there is no folder no-such-folder"),
    ],
)
def test_bad_commands_are_refused(given, changes, what, data, encoder_folder, tmp_path):
    models = tuple(text.format(m=encoder_folder) for text in given)
    with pytest.raises(UserError) as error:
        suite(settings(data, models, tmp_path / "out", **changes))
    assert what in error.value.what
    assert not (tmp_path / "out").exists()


def test_random_weights_are_the_same_every_time(encoder_folder, tmp_path):
    for name in ("a", "b"):
        write_untrained(str(encoder_folder), tmp_path / name)
    first, second = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("a", "b"))
    assert first == second
    assert first != (encoder_folder / "model.safetensors").read_bytes()


def test_the_example_is_a_valid_suite():
    examples = Path(__file__).parents[2] / "examples/suites"
    for path in examples.glob("*.toml"):
        assert read_suite(path).tasks

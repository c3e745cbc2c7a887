"""The experiment that all benchmarks share: data is read once, and a new task is one row."""

import shutil
from collections import Counter

import pytest
from tests.finetuning.conftest import rows, write_tsv

from electrify import cli
from electrify.errors import GuardError, UserError
from electrify.finetuning import experiment
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.experiment import LOADED, LastValueCache, stored_result
from electrify.finetuning.glue import problem as problems
from electrify.finetuning.glue.command import glue, plan_jobs
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.published import published
from electrify.finetuning.glue.results import read_results
from electrify.finetuning.glue.tables import averages, beside_published
from electrify.finetuning.glue.tasks import TASKS, GlueTask, averaged_tasks
from electrify.finetuning.options import Glue
from electrify.finetuning.results import Result, degenerate

FAST = {"length": 32, "epochs": 1.0, "train_limit": 16}


def settings(encoder_folder, glue_folder, out, **changes) -> Glue:
    return Glue(model=str(encoder_folder), data=glue_folder, out=out, **{**FAST, **changes})


# ---- every file is read and tokenized once


@pytest.fixture
def counted(monkeypatch):
    """Count how often each split is read, and how often texts are tokenized."""
    calls = Counter()
    read, encode = problems.read_split, problems.encode

    def reading(folder, task, split):
        calls[task.name, split] += 1
        return read(folder, task, split)

    def encoding(*arguments):
        calls["tokenized"] += 1
        return encode(*arguments)

    monkeypatch.setattr(problems, "read_split", reading)
    monkeypatch.setattr(problems, "encode", encoding)
    return calls


def test_a_task_is_read_and_tokenized_once_for_all_its_seeds(
    counted, encoder_folder, glue_folder, tmp_path
):
    glue(settings(encoder_folder, glue_folder, tmp_path / "glue", tasks="sst2,mnli", seeds=3))
    splits = [("sst2", "train"), ("sst2", "dev")]
    splits += [("mnli", split) for split in ("train", "dev", "dev_mismatched")]
    assert counted == {**dict.fromkeys(splits, 1), "tokenized": len(splits)}
    assert LOADED.value is None  # nothing stays in memory after the command
    assert len(read_results(tmp_path / "glue")) == 6


def test_a_task_that_others_start_from_is_read_once_too(
    counted, encoder_folder, glue_folder, tmp_path
):
    chosen = {"tasks": "mnli,rte", "seeds": 2, "from_mnli": "rte"}
    glue(settings(encoder_folder, glue_folder, tmp_path / "glue", **chosen))
    assert set(counted.values()) == {1, 5}


def test_the_cached_value_is_released_before_the_next_is_made():
    cache, held = LastValueCache(), []
    with cache:
        assert cache.get("a", lambda: 1) == cache.get("a", lambda: 2) == 1
        assert cache.get("b", lambda: held.append(cache.value) or 3) == 3
        with pytest.raises(ZeroDivisionError):
            cache.get("c", lambda: 1 / 0)
        assert cache.value is None
        assert cache.get("b", lambda: 4) == 4
    assert held == [None]
    assert cache.value is None


# ---- a ninth averaged task is one row


TOY = GlueTask(
    name="toy", title="Toy", texts=("question", "answer"), label="right", labels=("no", "yes"),
    metrics=("f1", "accuracy"), train_rows=64,
)  # fmt: skip
GRADES = GlueTask(
    name="grades", title="Grades", texts=("text",), label="grade", score_range=(0.0, 1.0),
    metrics=("pearson",), epochs=5,
)  # fmt: skip


@pytest.fixture
def ninth(monkeypatch, glue_folder, tmp_path):
    """Add two tasks by their rows alone, and write their files."""
    monkeypatch.setitem(TASKS, "toy", TOY)
    data = shutil.copytree(glue_folder, tmp_path / "data")
    for split, count in (("train", 64), ("dev", 16)):
        examples = rows(count, len(split))
        texts = [[a, b, TOY.labels[y]] for a, b, y in examples]
        write_tsv(data / f"toy/{split}.tsv", [["question", "answer", "right"], *texts])
        graded = [[a, y / 2 + i / count / 2] for i, (a, _, y) in enumerate(examples)]
        malformed = [["too high", 1.5]]
        write_tsv(data / f"Grades/{split}.tsv", [["text", "grade"], *graded, *malformed])
    return data


def test_a_ninth_averaged_task_runs_from_the_command_to_the_table(
    ninth, encoder_folder, tmp_path, capsys
):
    out = tmp_path / "glue"
    where = [str(encoder_folder), "--data", str(ninth), "--out", str(out)]
    how = ["--tasks=toy,rte", "--seeds=1", "--length=32", "--epochs=1"]
    assert cli.main(["glue", *where, *how]) == 0
    out_text = capsys.readouterr().out
    assert "Toy seed 0: f1 " in out_text
    assert "no average over tasks: missing CoLA" in out_text
    table = (out / "glue.csv").read_text().splitlines()
    assert table[0].startswith("model,size,RTE,Toy,notes")
    names = [line.split(",") for line in table[1:]]
    assert names[0][3]  # ours
    assert {name[3] for name in names[1:]} == {""}  # nobody published it
    [toy] = [r for r in read_results(out) if r.task == "toy"]
    assert toy.scores["dev"].keys() == {"f1", "accuracy"}
    assert toy.train_rows == 64
    identity = stored_identity(out / "jobs/toy-0")
    assert identity["plan"]["fit"]["epochs"] == 1.0


def stored_identity(folder):
    from electrify.storage.commit import read_json

    return read_json(folder / "result.json")["identity"]


def test_a_task_that_the_server_does_not_know_cannot_be_submitted(
    ninth, encoder_folder, tmp_path, capsys
):
    out = tmp_path / "glue"
    glue(settings(encoder_folder, ninth, out, tasks="toy", seeds=1))
    where = ["glue", "submit", str(out), "--data", str(ninth), "--out"]
    assert cli.main([*where, str(tmp_path / "all.zip")]) == 2
    assert (
        "no results of CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE\n" in capsys.readouterr().err
    )
    assert cli.main([*where, str(tmp_path / "files")]) == 2  # it has no file for the server
    assert "has no test files" in capsys.readouterr().err


def test_nine_tasks_have_an_average_of_nine_but_published_rows_do_not(ninth):
    assert averaged_tasks()[-1] == "toy"
    results = [
        Result(name, 0, "paper", {"dev": dict.fromkeys(TASKS[name].metrics, 0.5 + (name == "toy"))})
        for name in averaged_tasks()
    ]
    made = beside_published({"ours": results}, published("dev"))
    assert made.columns[-2:] == ("Toy", "average of 9 tasks")
    ours, *others = made.rows
    assert ours[-1].content == pytest.approx(100 * (8 * 0.5 + 1.5) / 9)
    assert {cell.text for row in others for cell in row[-2:]} == {"–"}
    assert averages(results)[0].startswith("average of 9 tasks (median of each task): ")


def test_the_score_range_comes_from_the_task(ninth, monkeypatch, encoder_folder, tmp_path):
    monkeypatch.setitem(TASKS, "grades", GRADES)
    examples = read_split(ninth, GRADES, "train")
    assert (len(examples), examples.malformed) == (64, 1)
    [job] = plan_jobs(
        settings(encoder_folder, ninth, tmp_path), str(encoder_folder), ["grades"], [0]
    )
    assert job.problem.plan.score_scale == 1.0
    encoder = open_encoder(str(encoder_folder))
    learned = job.problem.prepare(job.problem.read("train"), encoder, learn=True)
    assert learned.labels.tolist() == examples.labels[:16]


# ---- every run


def test_diverged_training_is_committed_as_a_failed_result(
    encoder_folder, glue_folder, tmp_path, monkeypatch, capsys
):
    def broken(*arguments):
        raise GuardError("it broke", got="nan", fix="nothing")

    monkeypatch.setattr(experiment, "fit", broken)
    chosen = settings(encoder_folder, glue_folder, tmp_path)
    [job] = plan_jobs(chosen, str(encoder_folder), ["cola"], [7])
    assert stored_result(job.problem, job.folder) is None
    with LOADED:
        result = experiment.run_one(job.problem, job.model, 7, job.folder, job.problem.plan.fit)
    assert (result.failed, result.train_rows) == ("it broke", 16)
    assert capsys.readouterr().err == "warning: cola seed 7: it broke\n  got: nan\n"
    assert stored_result(job.problem, job.folder) == result
    other = plan_jobs(
        settings(encoder_folder, glue_folder, tmp_path, length=16), job.model, ["cola"], [7]
    )
    with pytest.raises(UserError, match="different settings"):
        stored_result(other[0].problem, job.folder)


class FakeAnswer:
    def __init__(self, prediction):
        self.prediction = prediction


@pytest.mark.parametrize(
    ("predictions", "reason"),
    [
        ([1, 1, 1], "the same prediction (1) for every example"),
        ([0.5, 0.5000001], "the same prediction (0.5) for every example"),
        ([0.5, float("nan")], "NaN or infinite predictions"),
        (["a", "a"], "the same prediction (a) for every example"),
        ([["O"], ["O", "O"]], "the same prediction (O) for every example"),
        ([["O"], ["O", "B-X"]], ""),
        ([0, 1], ""),
        (["a", "b"], ""),
        ([1], ""),
        ([float("nan")], "NaN or infinite predictions"),
        ([[]], ""),
        ([], ""),
    ],
)
def test_degenerate_predictions(predictions, reason):
    assert degenerate([FakeAnswer(p) for p in predictions]) == reason


def test_in_glue_a_single_answer_is_degenerate():
    assert problems.GlueProblem.fewest_answers == 1
    assert degenerate([FakeAnswer(1)], fewest=1) == "the same prediction (1) for every example"
    assert degenerate([], fewest=1) == ""

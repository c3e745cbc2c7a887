"""Tables of results, and their four formats."""

import csv
import io
import re

import pytest

from electrify.finetuning import table
from electrify.finetuning.differences import differences_table
from electrify.finetuning.glue import results as stats
from electrify.finetuning.glue import tables as glue_table
from electrify.finetuning.glue.published import published
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.results import Result

TITLES = {name: task.title for name, task in TASKS.items()}


def results(value=0.8, seeds=3, names=None, **fields):
    found = []
    for name in names or [task.name for task in TASKS.values() if task.averaged]:
        for seed in range(seeds):
            scores = {"dev": dict.fromkeys(TASKS[name].metrics, value + seed / 100)}
            if name == "mnli":
                scores["dev_mismatched"] = {"accuracy": value}
            rows = {"train_rows": TASKS[name].train_rows} | fields
            found.append(Result(name, seed, "paper", scores, **rows))
    return found


def with_notes():
    """Return eight tasks with a degenerate run, a failed run and an unofficial training file."""
    found = results()
    found[0] = found[0]._replace(degenerate="one class only")
    found[3] = Result("sst2", 0, "paper", failed="loss is not a number")
    return [r._replace(train_rows=26_433) if r.task == "mnli" else r for r in found]


def cell(made, row, column):
    (number,) = [n for n, name in enumerate(made.columns) if name == column]
    (found,) = [cells[number] for cells in made.rows if cells[0].text == row]
    return found


def notes_of(made, found):
    return [made.notes[mark - 1] for mark in found.marks]


def test_our_row_next_to_published_ones():
    made = glue_table.beside_published({"ours": with_notes()}, published("dev"), "mean")
    assert made.rows[0][0].text == "ours"
    assert len(made.rows) == 1 + len(published("dev"))
    assert cell(made, "ours", "CoLA").content == pytest.approx(81)
    assert cell(made, "ours", "SST-2").content == pytest.approx(81.5)  # of two, one failed
    low, high = cell(made, "ours", "RTE").interval
    assert (low, high) == pytest.approx((80, 82))
    assert cell(made, "ours", "average of 8 tasks").content == pytest.approx((7 * 81 + 81.5) / 8)
    assert cell(made, "ELECTRA-Base", "RTE").content == 82.7
    assert cell(made, "ELECTRA-Small-OWT", "average of 8 tasks").text == "80.4"
    assert cell(made, "DistilBERT", "CoLA").text == "–"
    assert cell(made, "DistilBERT", "average of 8 tasks").text == "–"


def test_footnotes():
    made = glue_table.beside_published({"ours": with_notes()}, published("dev"), "mean")
    assert notes_of(made, cell(made, "ours", "model")) == [
        "dev, mean of 2–3 seeds, preset paper; in brackets: the range over the seeds"
    ]
    assert notes_of(made, cell(made, "ours", "CoLA")) == [
        "CoLA: seed 0 degenerate (one class only), included"
    ]
    assert notes_of(made, cell(made, "ours", "SST-2")) == [
        "SST-2: seed 0 failed (loss is not a number), no score"
    ]
    assert notes_of(made, cell(made, "ours", "MNLI")) == [
        "MNLI: trained on 26,433 rows, the official file has 392,702; not comparable"
    ]
    assert cell(made, "ours", "RTE").marks == ()
    (note,) = notes_of(made, cell(made, "ELECTRA-Small-OWT", "model"))
    assert note.startswith("dev, median of many seeds; google-research/electra")
    assert len(set(made.notes)) == len(made.notes)


@pytest.mark.parametrize(("preset", "expected"), [("paper", 81), ("seed-003", 80.5)])
def test_the_preset_defines_the_score_of_mnli_in_cell_and_average(preset, expected):
    found = [r._replace(preset=f"{preset}, epochs 1.0") for r in results()]  # mismatched: 80
    made = glue_table.beside_published({"ours": found}, published("dev"), "mean")
    assert cell(made, "ours", "MNLI").content == pytest.approx(expected)
    average = cell(made, "ours", "average of 8 tasks").content
    assert average == pytest.approx((7 * 81 + expected) / 8)
    notes = notes_of(made, cell(made, "ours", "MNLI"))
    assert notes == (["MNLI is the mean of matched and mismatched"] if preset == "seed-003" else [])
    (row,) = [row for row in glue_table.by_seed(found).rows if "MNLI" in row[0].text]
    assert row[2].content == pytest.approx(expected)
    assert ("mean of matched and mismatched" in row[0].text) == (preset == "seed-003")


def test_the_median_is_shown_on_request():
    lowest = Result("cola", 2, "paper", {"dev": {"mcc": 0.0}}, train_rows=8551)
    found = [*results(names=["cola"], seeds=2), lowest]
    made = glue_table.beside_published({"ours": found}, [], "median")
    assert cell(made, "ours", "CoLA").content == pytest.approx(80)
    assert "dev, median of 3 seeds" in made.notes[0]


def test_only_tasks_that_ran_are_shown_with_published_rows_and_remarks_for_them():
    made = glue_table.beside_published({"ours": results(names=["cola"])}, published("dev"))
    assert made.columns == ("model", "size", "CoLA")
    models = [row[0].text for row in made.rows]
    assert "ELECTRA-Base" in models
    assert "DistilBERT" not in models  # it has no CoLA
    notes = " ".join(made.notes)
    for word in ("MNLI", "SST-2", "STS-B", "F1", "14 models", "no average"):
        assert word not in notes
    assert len(made.notes) == 5  # ours, three sources, and "calls these medians averages"
    both = glue_table.beside_published({"ours": results(names=["rte"])}, published("dev"))
    assert "RTE and STS-B start from an MNLI model" in " ".join(both.notes)


def test_without_a_score_of_a_task_there_is_no_average():
    found = [r._replace(scores={}, failed="oh") if r.task == "rte" else r for r in results()]
    made = glue_table.beside_published({"ours": found}, [], "mean")
    average = cell(made, "ours", "average of 8 tasks")
    assert average.text == "–"
    assert notes_of(made, average) == ["no average for ours: missing RTE"]


@pytest.mark.parametrize(
    ("seeds", "note"),
    [
        (1, "dev, one seed, preset paper"),
        (2, "dev, median of 2 seeds, preset paper; in brackets: the range over the seeds"),
        (6, "dev, median of 6 seeds, preset paper; in brackets: the nominal 95 % bootstrap "
            "interval of the median (measured coverage: 93 % for 6 normal scores)"),
    ],
)  # fmt: skip
def test_a_note_explains_the_brackets(seeds, note):
    made = glue_table.beside_published({"ours": results(names=["cola"], seeds=seeds)}, [])
    assert made.notes == [note]
    found = cell(made, "ours", "CoLA")
    low, high = found.interval
    if seeds == 1:
        assert found.bounds == ""
    elif seeds == 2:
        assert (low, high) == pytest.approx((80, 81))
    else:
        assert 80 <= low < 82.5 < high <= 85
    by_seed = glue_table.by_seed(results(names=["cola"], seeds=seeds))
    assert [text for text in by_seed.notes if "brackets" in text] == {
        1: [],
        2: ["in brackets: the range over the seeds"],
        6: [
            "in brackets: the nominal 95 % bootstrap interval of the mean "
            "(measured coverage: 86 % for 6 normal scores)"
        ],
    }[seeds]


def test_every_row_has_the_statistic_of_its_preset():
    scores = [0.1, 0.8, 0.9]
    runs = {
        preset: [Result("cola", s, preset, {"dev": {"mcc": x}}) for s, x in enumerate(scores)]
        for preset in ("paper, epochs 1.0", "seed-004, epochs 1.0")
    }
    made = glue_table.beside_published(runs, [])
    assert [row[2].content for row in made.rows] == pytest.approx([80, 60])
    assert [note.split(" of ")[0] for note in made.notes[:3:2]] == ["dev, median", "dev, mean"]


def test_wnli_has_a_column_only_if_it_was_run():
    assert "WNLI" not in glue_table.beside_published({"ours": results()}, []).columns
    made = glue_table.beside_published(
        {"ours": results() + results(0.5, names=["wnli"])}, published("dev")
    )
    assert cell(made, "ours", "WNLI").content == pytest.approx(51)
    assert cell(made, "ELECTRA-Base", "WNLI").text == "–"
    assert cell(made, "ours", "average of 8 tasks").content == pytest.approx(81)


def test_by_seed():
    made = glue_table.by_seed(with_notes())
    row = dict(zip(made.columns, next(r for r in made.rows if "RTE" in r[0].text), strict=True))
    assert {name: row[name].text for name in made.columns} == {
        "task": "RTE accuracy",
        "n": "3",
        "mean": "81.0",
        "median": "81.0",
        "sd": "1.00",
        "best": "82.0",
        "best seed": "2",
        "seed 0": "80.0",
        "seed 1": "81.0",
        "seed 2": "82.0",
    }
    failed = next(r for r in made.rows if "SST-2" in r[0].text)
    assert [c.text for c in failed][-3:] == ["–", "81.0", "82.0"]
    assert notes_of(made, failed[0]) == ["SST-2: seed 0 failed (loss is not a number), no score"]


def test_the_lines_of_averages():
    lines = glue_table.averages(results(0.8, seeds=2))
    assert lines[:2] == [
        "average of 8 tasks (median of each task): 80.5",
        "seed-003 style (median of each task): 80.5",
    ]
    assert "average of best (best run of each task): 81.0" in lines
    assert lines[-1] == "All averages exclude WNLI"
    (line,) = glue_table.averages(results(names=["cola"]))
    assert line.startswith("no average over tasks: missing SST-2, MRPC")


def test_a_comparison():
    found = stats.paired_differences(results(0.80), results(0.81))
    made = differences_table(found, "a", "b", TITLES)
    assert cell(made, "RTE", "difference").content == pytest.approx(1)
    assert cell(made, "RTE", "p").text == "0.2500"
    assert cell(made, "overall", "pairs").text == "24"
    text = table.terminal(made)
    assert "b minus a" in text
    assert "overall" in text


NASTY = "m_1 & 50% {#$^~\\} [x] | <b> *y* `z`"


def test_the_terminal_shows_all_numbers_and_footnotes_without_parsing_markup():
    made = glue_table.beside_published({"[red]name[/red]": with_notes()}, published("dev"), "mean")
    text = table.terminal(made, width=160)
    assert "[red]name[/red]" in text
    assert "[80.0 82.0]" in text
    assert "80.4" in text
    for note in made.notes:
        assert note.split(";")[0] in " ".join(text.split())
    assert max(map(len, text.split("\n"))) <= 160


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_loses_no_number(width):
    made = glue_table.beside_published({"ours": with_notes()}, published("dev"), "mean")
    text = table.terminal(made, width=width)
    for row in made.rows:
        for found in row[1:]:
            assert found.text in text
    assert "…" not in re.sub(r"88\.0 …", "", text)


def test_markdown_rows_have_equal_cells_and_are_escaped():
    made = glue_table.beside_published({NASTY: with_notes()}, published("dev"), "mean")
    lines = [line for line in table.markdown(made).split("\n") if line.startswith("|")]
    counts = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert counts == {len(made.columns) + 1}
    assert len(lines) == len(made.rows) + 2
    assert r"\| \<b\> \*y\*" in lines[2]
    assert "<sup>1</sup> dev, mean of" in table.markdown(made)


def test_latex_uses_booktabs_and_is_escaped():
    made = glue_table.beside_published({NASTY: with_notes()}, published("dev"), "mean")
    text = table.latex(made)
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"):
        assert text.count(word) == 1
    rows = [line for line in text.split("\n") if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(made.columns) - 1}
    assert r"m\_1 \& 50\% \{\#\$\textasciicircum{}\textasciitilde{}\textbackslash{}\}" in text
    plain = re.sub(r"\\[&%$#_{}\\]", "", text)  # the remaining ones belong to TeX commands
    assert plain.count("{") == plain.count("}")
    assert not re.search(r"[%#_^~–]", plain.replace("$\\times$", ""))


def test_csv_can_be_read_back():
    made = glue_table.beside_published({NASTY: with_notes()}, published("dev"), "mean")
    rows = list(csv.DictReader(io.StringIO(table.comma_separated(made))))
    assert len(rows) == len(made.rows)
    ours = rows[0]
    assert ours["model"] == NASTY
    assert float(ours["CoLA"]) == pytest.approx(81)
    assert 80 <= float(ours["CoLA low"]) < 81 < float(ours["CoLA high"]) <= 82
    assert "seed 0 failed" in ours["notes"]
    base = next(row for row in rows if row["model"] == "BERT-base")
    assert (base["CoLA"], base["CoLA low"]) == ("", "")
    assert base["notes"].startswith("dev, runs not stated; BERT-of-Theseus")


def test_all_tables_are_shown_and_written(tmp_path):
    text = glue_table.glue_summary(with_notes(), "ours")
    for word in ("by seed", "ELECTRA-Small++", "GLUE (", "seed-003 style (", "failed"):
        assert word in text
    assert "test set" not in text
    paths = glue_table.write_tables(tmp_path, with_notes(), "ours")
    assert {p.stem for p in paths} == {"glue", "seeds"}
    assert sorted(p.name for p in paths) == sorted(p.name for p in tmp_path.iterdir())
    assert {p.suffix for p in paths} == {".md", ".tex", ".csv"}
    assert "| ours" in (tmp_path / "glue.md").read_text()


def test_minus_zero_is_shown_as_zero():
    assert table.Cell(-0.01, (-0.02, 0.5)).text == "0.0"
    assert table.Cell(-0.01, (-0.02, 0.5)).bounds == "[0.0 0.5]"


@pytest.mark.parametrize(("seeds", "brackets"), [(1, False), (2, True), (6, True)])
def test_a_comparison_explains_brackets_only_if_it_shows_them(seeds, brackets):
    both = [results(value, seeds, ["cola"]) for value in (0.8, 0.81)]
    made = differences_table(stats.paired_differences(*both), "a", "b", TITLES)
    assert any("in brackets" in note for note in made.notes) is brackets
    assert any("sign-flip" in note for note in made.notes)

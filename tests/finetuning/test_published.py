"""The published rows are complete and equal to the sources, except for corrected errors."""

from decimal import Decimal

import pytest

from electrify.finetuning.glue.published import PUBLISHED, published
from electrify.finetuning.glue.tasks import averaged_tasks

# The tables as published. The model cards of lmtuners repeat those of its experiments.
LMTUNERS_DEV = """
| Model                    | # Params | CoLA | SST | MRPC | STS  | QQP  | MNLI | QNLI | RTE |
| ELECTRA-Small++          | 14M      | 57.0 | 91. | 88.0 | 87.5 | 89.0 | 81.3 | 88.4 | 66.7|
| ELECTRA-Small-OWT        | 14M      | 56.8 | 88.3| 87.4 | 86.8 | 88.3 | 78.9 | 87.9 | 68.5|
| ELECTRA-Small-OWT (lmtuners) | 17M  | 56.3 | 88.4| 75.0 | 86.1 | 89.1 | 77.9 | 83.0 | 67.1|
| ALECTRA-Small-OWT (lmtuners) |  4M  | 50.6 | 89.1| 86.3 | 87.2 | 89.1 | 78.2 | 85.9 | 69.6|
"""
LMTUNERS_TEST = """
| Model                    | # Params | CoLA | SST | MRPC | STS  | QQP  | MNLI | QNLI | RTE |
| BERT-base                | 110M     | 52.1 | 93.5| 84.8 | 85.9 | 89.2 | 84.6 | 90.5 | 66.4|
| GPT                      | 117M     | 45.4 | 91.3| 75.7 | 80.0 | 88.5 | 82.1 | 88.1 | 56.0|
| ELECTRA-Small++          | 14M      | 57.0 | 91.2| 88.0 | 87.5 | 89.0 | 81.3 | 88.4 | 66.7|
| ELECTRA-Small-OWT (lmtuners) | 17M  | 57.4 | 89.3| 76.2 | 81.9 | 87.5 | 78.1 | 82.4 | 68.1|
| ALECTRA-Small-OWT (lmtuners) |  4M  | 43.9 | 87.9| 82.1 | 82.0 | 87.6 | 77.9 | 85.8 | 67.5|
"""
LMTUNERS_FIRST_DEV = """
| Method                   |# params | MNLI | MRPC | QNLI | QQP  | RTE  | SST-2 | STS-B |
| BERT-base                |  110M   | 83.5 | 89.5 | 91.2 | 89.8 | 71.1 | 91.5  | 88.9  |
| DistilBERT               |   66M   | 79.0 | 87.5 | 85.3 | 84.9 | 59.9 | 90.7  | 81.2  |
"""
LMTUNERS_FIRST_TEST = """
| Method                   |# params | MNLI | MRPC | QNLI | QQP  | RTE  | SST-2 | STS-B |
| GPT                      |   117M  | 88.1 | 75.7 | 85.3 | 88.5 | 56.0 | 91.3  | 80.0  |
| ELECTRA-Small            |   14M   | 79.7 | 83.7 | 87.7 | 88.0 | 60.8 | 89.1  | 80.3  |
"""
PYTORCH_DEV = """
|Model|CoLA|SST|MRPC|STS|QQP|MNLI|QNLI|RTE|Avg. of Avg.|
|ELECTRA-Small-OWT|56.8|88.3|87.4|86.8|88.3|78.9|87.9|68.5|80.36|
|ELECTRA-Small-OWT (electra_pytorch)|58.72|88.03|86.04|86.16|88.63|80.4|87.45|67.46|80.36|
"""
PYTORCH_TEST = """
|Model|CoLA|SST|MRPC|STS|QQP|MNLI|QNLI|RTE|Avg.|
|ELECTRA-Small++|55.6|91.1|84.9|84.6|88.0|81.6|88.3|6.36|79.7|
|ELECTRA-Small++ (electra_pytorch)|54.8|91.6|84.6|84.2|88.5|82|89|64.7|79.92|
"""
PYTORCH_DEVIATIONS = """
|Model|CoLA|SST|MRPC|STS|QQP|MNLI|QNLI|RTE|
|ELECTRA-Small-OWT (electra_pytorch)|1.30|0.49|0.7|0.29|0.1|0.15|0.33|1.93|
"""
OFFICIAL_DEV = """
| Model | CoLA | SST | MRPC | STS  | QQP  | MNLI | QNLI | RTE |
| ELECTRA-Large| 69.1 | 96.9 | 90.8 | 92.6 | 92.4 | 90.9 | 95.0 | 88.0 |
| ELECTRA-Base | 67.7 | 95.1 | 89.5 | 91.2 | 91.5  | 88.8  | 93.2 | 82.7 |
| ELECTRA-Small++ | 57.0 | 91.2 | 88.0 |  87.5 | 89.0  | 81.3 | 88.4 | 66.7 |
| ELECTRA-Small-OWT | 56.8 | 88.3 | 87.4 |  86.8 | 88.3  | 78.9 | 87.9 | 68.5 |
"""
TABLES = [
    ("dev", LMTUNERS_DEV),
    ("test", LMTUNERS_TEST),
    ("dev", LMTUNERS_FIRST_DEV),
    ("test", LMTUNERS_FIRST_TEST),
    ("dev", PYTORCH_DEV),
    ("test", PYTORCH_TEST),
    ("dev", OFFICIAL_DEV),
]
SHORT = {"sst": "sst2", "sts": "stsb"}
CORRECTED = {  # published value -> correct value, and a word of the footnote
    ("ELECTRA-Small++", "dev"): ({"sst2": (91.0, 91.2)}, "91."),
    ("ELECTRA-Small++", "test"): (
        {
            "cola": (57.0, 55.6), "sst2": (91.2, 91.1), "mrpc": (88.0, 84.9), "stsb": (87.5, 84.6),
            "qqp": (89.0, 88.0), "mnli": (81.3, 81.6), "qnli": (88.4, 88.3), "rte": (66.7, 63.6),
        },
        "dev row",
    ),
    ("ELECTRA-Small++", "test", "rte"): ({"rte": (6.36, 63.6)}, "6.36"),
    ("GPT", "test"): ({"mnli": (88.1, 82.1), "qnli": (85.3, 88.1)}, "88.1"),
}  # fmt: skip


def parsed(table):
    header, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n") if line
    ]
    for line in lines:
        yield dict(zip(header, line, strict=True))


def row_of(model, split):
    (row,) = [row for row in PUBLISHED if (row.model, row.split) == (model, split)]
    return row


def task_of(column):
    name = column.lower().replace("-", "")
    return SHORT.get(name, name)


def test_rows_are_as_published_except_for_corrections():
    used, seen = set(), set()
    for split, table in TABLES:
        for printed in parsed(table):
            model = printed.get("Model") or printed["Method"]
            row = row_of(model, split)
            seen.add((model, split))
            for column, cell in printed.items():
                if (task := task_of(column)) not in averaged_tasks():
                    continue
                score = row.scores[task]
                if score == float(cell):
                    continue
                (key,) = [
                    key
                    for key, (changes, _) in CORRECTED.items()
                    if key[:2] == (model, split) and changes.get(task) == (float(cell), score)
                ]
                used.add(key)
    assert used == set(CORRECTED)  # each correction is of an error in a table
    assert seen == {(row.model, row.split) for row in PUBLISHED}  # every row has a source


def test_corrections_have_footnotes():
    for (model, split, *_), (_, word) in CORRECTED.items():
        assert any(word in note.text for note in row_of(model, split).notes)


def test_sizes_are_as_published():
    for split, table in TABLES:
        for printed in parsed(table):
            size = printed.get("# Params") or printed.get("# params")
            if size:
                model = printed.get("Model") or printed["Method"]
                assert row_of(model, split).parameters == size


def test_published_averages_follow_from_the_rows():
    checked = 0
    for split, table in (("dev", PYTORCH_DEV), ("test", PYTORCH_TEST)):
        for printed in parsed(table):
            row = row_of(printed["Model"], split)
            text = printed.get("Avg.") or printed["Avg. of Avg."]
            half = Decimal(1).scaleb(Decimal(text).as_tuple().exponent) / 2
            assert row.average == pytest.approx(float(text), abs=float(half) + 1e-9)
            checked += 1
    assert checked == 4


def test_the_average_refutes_the_misprinted_rte():
    row = row_of("ELECTRA-Small++", "test")
    misprinted = (sum(row.scores.values()) - 63.6 + 6.36) / 8
    assert abs(misprinted - 79.7) > 5


def test_deviations():
    (printed,) = parsed(PYTORCH_DEVIATIONS)
    row = row_of(printed.pop("Model"), "dev")
    assert row.deviations == {task_of(name): float(cell) for name, cell in printed.items()}


def test_a_row_without_all_tasks_has_no_average():
    assert row_of("DistilBERT", "dev").average is None
    assert "cola" not in row_of("DistilBERT", "dev").scores


def test_splits_are_separate_and_every_row_has_a_source():
    assert {row.split for row in published("dev")} == {"dev"}
    assert len(published("dev")) + len(published("test")) == len(PUBLISHED)
    assert all(row.source and row.aggregate for row in PUBLISHED)

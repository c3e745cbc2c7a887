"""Reading GLUE's files: the standard folder with its quirks, and the Hub's copy."""

import pytest
from tests.finetuning.conftest import write_tsv

from electrify.errors import UserError
from electrify.finetuning.glue.data import check_folder, data_fingerprint, has_split, read_split
from electrify.finetuning.glue.tasks import TASKS


def test_every_split_of_every_task_is_read(glue_folder):
    for task in TASKS.values():
        for split in task.files:
            examples = read_split(glue_folder, task, split)
            rows = {"train": 256, "ax": 12}.get(split, 40 if split.startswith("dev") else 20)
            assert len(examples) == rows
            assert (examples.second is not None) == (len(task.texts) == 2)
            assert bool(examples.labels) == split.startswith(("train", "dev"))
            assert examples.malformed == 0


def test_labels_are_numbered_as_officially(tmp_path):
    header = ["index", "sentence1", "sentence2", "gold_label"]
    words = ["neutral", "contradiction", "entailment"]
    write_tsv(tmp_path / "MNLI/train.tsv", [header, *[[0, "a", "b", word] for word in words]])
    assert read_split(tmp_path, TASKS["mnli"], "train").labels == [2, 0, 1]
    lines = [["index", "sentence1", "sentence2", "label"]]
    write_tsv(
        tmp_path / "RTE/train.tsv",
        [*lines, [0, "a", "b", "not_entailment"], [1, "a", "b", "entailment"]],
    )
    assert read_split(tmp_path, TASKS["rte"], "train").labels == [1, 0]


def test_quotation_marks_are_characters_and_malformed_rows_are_counted(tmp_path):
    good = [["a", 1, "", f'He said "no {i}'] for i in range(30)]
    bad = [["a", 1], ["a", 7, "", "unknown label"], ["a"]]
    write_tsv(tmp_path / "CoLA/train.tsv", [*good[:10], *bad, *good[10:]])
    examples = read_split(tmp_path, TASKS["cola"], "train")
    assert len(examples) == 30
    assert examples.malformed == 3
    assert examples.first[3] == 'He said "no 3'


def test_a_byte_order_mark_and_carriage_returns_are_ignored(tmp_path):
    path = tmp_path / "SST-2/train.tsv"
    path.parent.mkdir(parents=True)
    path.write_bytes("\ufeffsentence\tlabel\r\ngood \t1\r\nbad\t0\r\n".encode())
    examples = read_split(tmp_path, TASKS["sst2"], "train")
    assert examples.first == ["good ", "bad"]
    assert examples.labels == [1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read a file"),
        (b"", "is empty"),
        (b"sentence\n", "has no labels"),
        (b"what\tlabel\nx\t1\n", "lacks columns"),
        (b"sentence\tlabel\n\xff\t1\n", "line 2"),
        (b"sentence\tlabel\n", "no examples"),
        (b"sentence\tlabel\na\t1\nb\t7\n", "does not look like"),
    ],
)
def test_the_error_for_an_invalid_file_names_it(content, message, tmp_path):
    (tmp_path / "SST-2").mkdir()
    if content is not None:
        (tmp_path / "SST-2/train.tsv").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_split(tmp_path, TASKS["sst2"], "train")
    assert "train.tsv" in str(caught.value)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"GLUE folder .*nothing does not exist"):
        check_folder(tmp_path / "nothing")


def test_scores_outside_their_range_are_malformed(tmp_path):
    lines = [["sentence1", "sentence2", "score"], *[["a", "b", 2.5]] * 40]
    write_tsv(tmp_path / "STS-B/train.tsv", [*lines, ["a", "b", "nan"], ["a", "b", 5.1]])
    examples = read_split(tmp_path, TASKS["stsb"], "train")
    assert examples.malformed == 2
    assert set(examples.labels) == {2.5}


@pytest.fixture
def hub(tmp_path):
    """A copy of the Hub's dataset, whose class indices have another order."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    def write(config, split, columns):
        (tmp_path / config).mkdir(exist_ok=True)
        parquet.write_table(
            pa.table(columns), tmp_path / config / f"{split}-00000-of-00001.parquet"
        )

    pair = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"]}
    write("mnli", "train", {**pair, "label": [0, 1, 2], "idx": [0, 1, 2]})
    write("mnli", "validation_matched", {**pair, "label": [2, 2, 1], "idx": [0, 1, 2]})
    write("mnli", "test_matched", {**pair, "label": [-1, -1, -1], "idx": [0, 1, 2]})
    write("ax", "test", {**pair, "label": [-1, -1, -1], "idx": [0, 1, 2]})
    sentences = {"sentence1": ["a", "b"], "sentence2": ["c", "d"]}
    write("wnli", "train", {**sentences, "label": [0, 1], "idx": [0, 1]})
    write("stsb", "train", {**sentences, "label": [0.5, 5.0], "idx": [0, 1]})
    return tmp_path


def test_the_hubs_copy_gives_the_same_class_indices(hub):
    mnli = TASKS["mnli"]
    train = read_split(hub, mnli, "train")
    assert [mnli.labels[int(n)] for n in train.labels] == ["entailment", "neutral", "contradiction"]
    assert train.second == ["d", "e", "f"]
    assert [int(n) for n in read_split(hub, mnli, "dev").labels] == [0, 0, 2]
    assert read_split(hub, mnli, "test").labels == []
    assert len(read_split(hub, mnli, "ax")) == 3
    assert read_split(hub, TASKS["wnli"], "train").labels == [0, 1]
    assert read_split(hub, TASKS["stsb"], "train").labels == [0.5, 5.0]
    assert not has_split(hub, mnli, "dev_mismatched")


def test_the_fingerprint_depends_on_the_files(glue_folder, tmp_path):
    import shutil

    copy = shutil.copytree(glue_folder, tmp_path / "copy")
    cola = TASKS["cola"]
    assert data_fingerprint(copy, cola) == data_fingerprint(glue_folder, cola)
    with (copy / "CoLA/dev.tsv").open("a") as file:
        file.write("x\t1\t\tone more\n")
    assert data_fingerprint(copy, cola) != data_fingerprint(glue_folder, cola)

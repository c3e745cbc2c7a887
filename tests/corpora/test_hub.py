import random
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electrify.corpora import archive, hub
from electrify.corpora.corpus import corpus, settings_type
from electrify.corpora.document import Document
from electrify.corpora.hub import Hub, Parquet, choose_files
from electrify.corpora.troubles import REPAIRED
from electrify.errors import UserError


@pytest.fixture(autouse=True)
def _clear_resolved_datasets():
    hub._remote.cache_clear()


def write(path, rows=None, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = columns or {
        "id": ["7", "8", "9"],
        "text": ["one", "two", "three"],
        "title": ["T", None, "U"],
    }
    pq.write_table(pa.table(columns), path, row_group_size=rows)


def read(reader, *sources):
    tally: Counter[str] = Counter()
    documents = [d for part in reader.parts(sources) for d in reader.documents(part, tally)]
    assert len({document.id for document in documents}) == len(documents)
    return documents, dict(tally)


def test_rows_become_documents(tmp_path):
    write(tmp_path / "a.parquet", rows=2)
    documents, tally = read(Parquet(), tmp_path)
    assert documents[0] == Document("a.parquet:1:7", "one", "a.parquet", "T")
    assert [d.text for d in documents] == ["one", "two", "three"]
    assert not tally


def test_parts_are_row_groups_and_rows_keep_their_numbers(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", rows=10, text=[f"text {n}" for n in range(95)])
    write(tmp_path / "b.parquet", rows=10, text=["b"] * 5)
    expected, _ = read(Parquet(), tmp_path)
    monkeypatch.setattr(hub, "PART_BYTES", 10_000)
    fractions = [part.fraction for part in Parquet().parts([tmp_path])]
    assert len(fractions) > 3
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < 0.5
    assert fractions[-1] == 1
    split, _ = read(Parquet(), tmp_path)
    assert split == expected
    assert expected[94].id == "a.parquet:95"
    assert expected[95].id == "b.parquet:1"


DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.string_view(), DICTIONARY]
)
def test_string_types(tmp_path, kind):
    write(tmp_path / "a.parquet", text=pa.array(["one", None, "zwei ü"]).cast(kind))
    documents, tally = read(Parquet(), tmp_path)
    assert [document.text for document in documents] == ["one", "zwei ü"]
    assert tally == {"no text": 1}


def test_invalid_utf8_is_repaired_and_counted(tmp_path):
    write(tmp_path / "a.parquet", text=pa.array([b"caf\xe9"]).cast(pa.binary()))
    documents, tally = read(Parquet(), tmp_path)
    assert documents[0].text == "caf\ufffd"
    assert tally == {REPAIRED: 1}


def test_a_missing_or_unsuitable_column_is_reported_with_a_suggestion(tmp_path):
    write(tmp_path / "a.parquet", content=["x"], txt=["y"], n=[1])
    with pytest.raises(UserError, match="content, txt, n") as error:
        read(Parquet(), tmp_path)
    assert error.value.fix == "did you mean 'txt'? If so, use --text txt"
    with pytest.raises(UserError, match="does not contain text") as error:
        read(Parquet(text="n"), tmp_path)
    assert error.value.fix == "choose a text column with --text: content, txt"
    assert read(Parquet(text="content", id="n"), tmp_path)[0][0].id == "a.parquet:1:1"


def test_ids_that_recur_in_distant_parts_stay_unique(tmp_path, monkeypatch):
    rows = {"text": [f"text {n}" for n in range(90)], "id": [n % 4 for n in range(90)]}
    write(tmp_path / "a.parquet", rows=10, **rows)
    expected, _ = read(Parquet(), tmp_path)  # asserts that ids are unique
    assert expected[5].id == "a.parquet:6:1"
    monkeypatch.setattr(hub, "PART_BYTES", 10_000)
    assert read(Parquet(), tmp_path)[0] == expected


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_large_row_group_is_read_in_little_memory(tmp_path, dictionary):
    rng = random.Random(0)
    words = [rng.randbytes(4).hex() for _ in range(1000)]
    texts = [" ".join(rng.choices(words, k=2000)) for _ in range(6000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=dictionary)
    assert pq.read_metadata(path).num_row_groups == 1
    (part,) = Parquet().parts([path])
    documents = Parquet().documents(part, Counter())
    assert next(documents).text == texts[0]
    before, peak = pa.total_allocated_bytes(), 0
    for document, text in zip(documents, texts[1:], strict=True):
        assert document.text == text
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert peak < 10_000_000


def test_a_dictionary_encoded_text_is_held_once(tmp_path, monkeypatch):
    column = pa.array(["x" * 100_000, None, "y"]).dictionary_encode().take([0, 1, 2] * 100)
    write(tmp_path / "a.parquet", text=column.cast(DICTIONARY))
    for limit in (hub.MAX_DICTIONARY_BYTES, 0):
        monkeypatch.setattr(hub, "MAX_DICTIONARY_BYTES", limit)
        monkeypatch.setattr(archive, "RATIO_SLACK", 1 << 30)
        documents, tally = read(Parquet(), tmp_path)
        assert [len(document.text) for document in documents] == [100_000, 1] * 100
        assert tally == {"no text": 100}


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, fraction):
    write(tmp_path / "a.parquet", text=[f"text {n}" for n in range(1000)])
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[: int(len(data) * fraction)])
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        read(Parquet(), tmp_path)


def test_a_damaged_page_is_refused(tmp_path):
    texts = [f"text {n} {n**9}" for n in range(5000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd")
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[100:4000] = b"\xff" * 3900
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        read(Parquet(), tmp_path)


def test_a_bomb_is_refused_and_large_texts_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "MAX_DOCUMENT_BYTES", 100)
    write(tmp_path / "a.parquet", text=["x" * 101, "fine"])
    documents, tally = read(Parquet(), tmp_path)
    assert [document.text for document in documents] == ["fine"]
    assert tally == {"document too large": 1}
    table = pa.table({"text": ["x" * 50_000_000]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(UserError, match="more than 200 : 1"):
        read(Parquet(), tmp_path)


SPLITS = ["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"]


@pytest.mark.parametrize(
    ("names", "subset", "split", "found"),
    [
        ([f"data/{s}" for s in SPLITS], None, "train", 2),
        (SPLITS, None, "validation", 1),
        ([f"2023.{lang}/{s}" for lang in ("en", "fi") for s in SPLITS], "2023.fi", "train", 2),
        (["default/train/0000", "default/train/0001", "default/test/0000"], None, "train", 2),
        (["default/partial-train/0000"], "default", "partial-train", 1),
        (["a", "b"], None, "train", 2),
        (["en/part-00000", "en/part-00001"], "en", "train", 2),
        (["train", "test"], None, "test", 1),
        (["data/train-00000-of-00001-a09b74b3ef9c3b56"], None, "train", 1),
        (["sample/10BT/000_00000", "data/CC/000_00000"], "sample/10BT", "train", 1),
    ],
)  # fmt: skip
def test_the_layouts_of_the_hub(names, subset, split, found):
    files = [(f"{name}.parquet", 1) for name in names]
    assert len(choose_files(files, "x", subset, split)) == found


def test_wrong_subsets_and_splits_are_reported(tmp_path):
    files = [(f"{lang}/{s}.parquet", 1) for lang in ("en", "fi") for s in SPLITS]
    with pytest.raises(UserError, match=r"several subsets(.|\n)*--subset"):
        choose_files(files, "x", None, "train")
    with pytest.raises(UserError, match=r"did you mean 'en'.*--subset en"):
        choose_files(files, "x", "enn", "train")
    with pytest.raises(UserError, match="train, validation"):
        choose_files(files, "x", "en", "test")
    with pytest.raises(UserError, match="no Parquet files"):
        choose_files([], "x", None, "train")


def test_a_local_copy_of_a_dataset(tmp_path):
    for name in SPLITS:
        write(tmp_path / "20231101.en" / f"{name}.parquet")
    reader = Hub(subset="20231101.en")
    documents, _ = read(reader, tmp_path)
    assert len(documents) == 6
    assert documents[0].id.endswith("20231101.en/train-00000-of-00002.parquet:1:7")
    (before,) = reader.fingerprints([tmp_path])
    assert [file["bytes"] > 0 for file in before["files"]] == [True, True]
    path = tmp_path / "20231101.en" / f"{SPLITS[0]}.parquet"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"three", b"seven"))
    assert path.stat().st_size == len(data)
    assert reader.fingerprints([tmp_path]) != [before]
    assert len(read(reader, tmp_path, tmp_path)[0]) == 6  # named twice


def test_a_local_copy_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    write(tmp_path / "copy/train.parquet")
    parts = Hub.parts

    def changing(self, sources):
        write(tmp_path / "copy/train.parquet", text=["other"])
        return parts(self, sources)

    monkeypatch.setattr(Hub, "parts", changing)
    settings = settings_type("hub")(
        sources=(str(tmp_path / "copy"),), out=tmp_path / "out", workers="1"
    )
    with pytest.raises(UserError, match="the sources changed while they were read"):
        corpus(settings)
    assert not (tmp_path / "out").exists()


def test_a_dataset_through_the_file_system_of_the_hub(tmp_path, monkeypatch):
    """HfFileSystem and HfApi are replaced by a folder; paths, commit and columns are real."""
    import fsspec
    import huggingface_hub

    for name in SPLITS:
        write(tmp_path / "datasets" / "o" / "n@abc" / "data" / f"{name}.parquet")

    requested = []

    class Api:
        def dataset_info(self, name, revision, timeout):
            requested.append(name)
            assert (name, revision, timeout) == ("o/n", "v1", hub.TIMEOUT)
            return type("Info", (), {"sha": "abc"})()

    def filesystem():
        return fsspec.filesystem("dir", path=str(tmp_path), target_protocol="file")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", filesystem)
    reader = Hub(revision="v1")
    documents, _ = read(reader, Path("o/n"))
    assert documents[3].id == "o/n/data/train-00001-of-00002.parquet:1:7"
    (source,) = reader.fingerprints([Path("o/n")])
    assert source["revision"] == "abc"
    assert source["files"][0]["name"] == "o/n/data/train-00000-of-00002.parquet"
    assert requested == ["o/n"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ConnectionError("no route"), "check the network"),
        (TimeoutError("slow"), "check the network"),
        (ValueError("bad name"), "check the name"),
    ],
)
def test_a_hub_that_does_not_answer_raises_a_user_error(monkeypatch, error, advice):
    import huggingface_hub

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    with pytest.raises(UserError, match=advice):
        list(Hub().parts([Path("owner/name")]))


def test_the_extra_is_named_if_the_library_is_missing(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match="electrify\\[data\\]"):
        list(Parquet().parts([tmp_path]))

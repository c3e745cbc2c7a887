"""Files for the GLUE server: they are written correctly, and mistakes in them are detected."""

import io
import math
import struct
import zipfile

import numpy as np
import pytest

from electrify.errors import UserError
from electrify.finetuning.glue import submission as submit

# name: rows and allowed answers, as on the server
WANTED = {
    "CoLA.tsv": (1063, {"0", "1"}),
    "SST-2.tsv": (1821, {"0", "1"}),
    "MRPC.tsv": (1725, {"0", "1"}),
    "STS-B.tsv": (1379, None),
    "QQP.tsv": (390_965, {"0", "1"}),
    "MNLI-m.tsv": (9796, {"contradiction", "entailment", "neutral"}),
    "MNLI-mm.tsv": (9847, {"contradiction", "entailment", "neutral"}),
    "QNLI.tsv": (5463, {"entailment", "not_entailment"}),
    "RTE.tsv": (3000, {"entailment", "not_entailment"}),
    "WNLI.tsv": (146, {"0", "1"}),
    "AX.tsv": (1104, {"contradiction", "entailment", "neutral"}),
}


@pytest.fixture
def few(monkeypatch):
    """Reduce the rows of QQP for speed; one test uses them all."""
    wanted = submit.SUBMISSION_FILES["QQP.tsv"]._replace(rows=50)
    monkeypatch.setitem(submit.SUBMISSION_FILES, "QQP.tsv", wanted)


def predictions():
    rng = np.random.default_rng(0)
    predictions = {}
    for name, (task, rows) in submit.SUBMISSION_FILES.items():
        classes = len(task.labels)
        values = rng.integers(classes, size=rows) if classes else rng.normal(2.5, 2, size=rows)
        predictions[name] = values.tolist()
    return predictions


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(tmp_path, name="good.zip"):
    submit.pack(tmp_path / name, predictions())
    return tmp_path / name


def test_all_rows_of_all_files(tmp_path):
    path = packed(tmp_path)
    files = contents(path)
    assert files.keys() == WANTED.keys()
    for name, (rows, words) in WANTED.items():
        header, *lines = files[name].decode().removesuffix("\n").split("\n")
        assert header == "index\tprediction"
        assert [line.split("\t")[0] for line in lines] == [str(n) for n in range(rows)]
        answers = {line.split("\t")[1] for line in lines}
        if words:
            assert answers == words
        else:
            assert {"0.000", "5.000"} < answers  # clipped at both ends
            assert all(len(answer) == 5 for answer in answers)
    assert submit.validate_submission(path) == []


def test_class_indices_become_the_labels_of_the_server(tmp_path, few):
    given = predictions()
    given["MNLI-m.tsv"][:3] = [0, 1, 2]
    given["RTE.tsv"][:2] = [0.0, 1.0]
    given["STS-B.tsv"][:3] = [-0.0001, 5.2, 1.23456]
    submit.pack(tmp_path / "a.zip", given)
    files = contents(tmp_path / "a.zip")
    assert files["MNLI-m.tsv"].split(b"\n")[1:4] == [
        b"0\tcontradiction",
        b"1\tentailment",
        b"2\tneutral",
    ]
    assert files["RTE.tsv"].split(b"\n")[1:3] == [b"0\tentailment", b"1\tnot_entailment"]
    assert files["STS-B.tsv"].split(b"\n")[1:4] == [b"0\t0.000", b"1\t5.000", b"2\t1.235"]


def test_the_same_predictions_give_the_same_bytes(tmp_path, few):
    first = packed(tmp_path, "a.zip").read_bytes()
    assert packed(tmp_path, "b.zip").read_bytes() == first
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        for entry in archive.infolist():  # no timestamp, and nothing that depends on zlib
            assert (entry.date_time[0], entry.compress_type) == (1980, zipfile.ZIP_STORED)


def test_wnli_without_predictions_gets_the_majority_class_and_a_note(tmp_path, few):
    given = predictions()
    del given["WNLI.tsv"]
    (note,) = submit.pack(tmp_path / "a.zip", given)
    assert "WNLI.tsv" in note
    assert "majority class 0" in note
    assert set(contents(tmp_path / "a.zip")["WNLI.tsv"].split(b"\n")[1:-1]) == {
        b"%d\t0" % row for row in range(146)
    }
    assert submit.validate_submission(tmp_path / "a.zip") == []


def test_other_missing_files_are_noted_and_detected(tmp_path, few):
    given = predictions()
    del given["QQP.tsv"], given["AX.tsv"]
    notes = submit.pack(tmp_path / "a.zip", given)
    assert [note.split(":")[0] for note in notes] == ["QQP.tsv", "AX.tsv"]
    assert submit.validate_submission(tmp_path / "a.zip") == ["AX.tsv: missing", "QQP.tsv: missing"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"cola.tsv": [0]}, "cola.tsv"),
        ({"CoLA.tsv": [0] * 1062}, "CoLA.tsv"),
        ({"CoLA.tsv": [2] * 1063}, "CoLA.tsv: row 0"),
        ({"CoLA.tsv": [0.5] * 1063}, "CoLA.tsv: row 0"),
        ({"RTE.tsv": [0] * 2999 + [-1]}, "RTE.tsv: row 2999"),
        ({"STS-B.tsv": [2.0] * 1378 + [math.nan]}, "STS-B.tsv: row 1378"),
        ({"STS-B.tsv": [2.0, math.inf] + [2.0] * 1377}, "STS-B.tsv: row 1"),
        ({"STS-B.tsv": [0.7] * 1379}, "above 1"),
        ({"RTE.tsv": [math.nan] * 3000}, "RTE.tsv: row 0"),
    ],
)
def test_invalid_predictions_are_refused_and_nothing_is_written(tmp_path, few, change, word):
    with pytest.raises(UserError) as error:
        submit.pack(tmp_path / "a.zip", predictions() | change)
    assert word in str(error.value)
    assert not (tmp_path / "a.zip").exists()


def row(name, number, to):
    """Return a function that changes a row (counted from 0) of a file."""

    def change(files):
        lines = files[name].split(b"\n")
        answer = lines[number + 1].split(b"\t")[1]
        lines[number + 1] = to(str(number).encode(), answer)
        files[name] = b"\n".join(lines)

    return change


def content(name, to):
    return lambda files: files.update({name: to(files[name])})


def swap(files):
    files["MNLI-m.tsv"], files["MNLI-mm.tsv"] = files["MNLI-mm.tsv"], files["MNLI-m.tsv"]


def pandas_index(content):
    lines = content.split(b"\n")
    body = [b"%d\t%s" % (n, line) for n, line in enumerate(lines[1:-1])]
    return b"\n".join([b"\t" + lines[0], *body, b""])


def reorder(content):
    lines = content.split(b"\n")
    lines[5], lines[6] = lines[6], lines[5]
    return b"\n".join(lines)


def from_one(content):
    head, *lines = content.split(b"\n")[:-1]
    return b"\n".join([head, *(b"%d\t%s" % (n, x.split(b"\t")[1]) for n, x in enumerate(lines, 1))])


def fifths(content):
    head, *lines = content.split(b"\n")[:-1]
    pairs = (line.split(b"\t") for line in lines)
    return b"\n".join([head, *(b"%s\t%.3f" % (n, float(x) / 5) for n, x in pairs), b""])


MISTAKES = {  # a mistake, the file it is in, its line
    "no AX": (lambda f: f.pop("AX.tsv"), "AX.tsv: missing"),
    "no WNLI": (lambda f: f.pop("WNLI.tsv"), "WNLI.tsv: missing"),
    "another name": (lambda f: f.update({"SST.tsv": f.pop("SST-2.tsv")}), "SST.tsv: extra"),
    "small letters": (lambda f: f.update({"cola.tsv": f.pop("CoLA.tsv")}), "should be CoLA.tsv"),
    "diagnostic": (lambda f: f.update({"diagnostic.tsv": b""}), "diagnostic.tsv: extra"),
    "hidden file": (lambda f: f.update({".DS_Store": b"x"}), ".DS_Store: extra"),
    "empty file": (content("RTE.tsv", lambda c: b""), "RTE.tsv: line 1"),
    "no header": (content("RTE.tsv", lambda c: c.split(b"\n", 1)[1]), "RTE.tsv: line 1: header"),
    "other header": (
        content("RTE.tsv", lambda c: c.replace(b"prediction", b"label", 1)),
        "RTE.tsv: line 1: header",
    ),
    "header in capitals": (
        content("QNLI.tsv", lambda c: c.replace(b"index", b"Index", 1)),
        "QNLI.tsv: line 1: header",
    ),
    "byte-order mark": (content("CoLA.tsv", lambda c: b"\xef\xbb\xbf" + c), "CoLA.tsv: line 1: starts"),
    "UTF-16": (content("CoLA.tsv", lambda c: c.decode().encode("utf-16")), "CoLA.tsv: line 1: not UTF-8"),
    "bytes": (row("CoLA.tsv", 3, lambda i, a: i + b"\t\xff"), "CoLA.tsv: line 5: not UTF-8"),
    "Windows line ends": (
        content("MRPC.tsv", lambda c: c.replace(b"\n", b"\r\n")),
        "MRPC.tsv: line 1: CR",
    ),
    "one carriage return": (row("MRPC.tsv", 7, lambda i, a: i + b"\t1\r"), "MRPC.tsv: line 9: CR"),
    "a row too few": (
        content("QQP.tsv", lambda c: c[:-1].rpartition(b"\n")[0] + b"\n"),
        "QQP.tsv: line 51: 49 rows",
    ),
    "a row too many": (content("QQP.tsv", lambda c: c + b"50\t1\n"), "QQP.tsv: line 52: 51 rows"),
    "empty line at the end": (content("QQP.tsv", lambda c: c + b"\n"), "QQP.tsv: line 52: 51 rows"),
    "empty line inside": (
        content("QQP.tsv", lambda c: c.replace(b"\n4\t", b"\n\n4\t")),
        "QQP.tsv: line 6: 1 columns",
    ),
    "matched for mismatched": (swap, "MNLI-m.tsv: line 9798: 9,847 rows"),
    "pandas index": (content("SST-2.tsv", pandas_index), "SST-2.tsv: line 2: 3 columns"),
    "two rows exchanged": (content("SST-2.tsv", reorder), "SST-2.tsv: line 6: index '5'"),
    "index from 1": (content("SST-2.tsv", from_one), "SST-2.tsv: line 2: index '1'"),
    "index twice": (row("SST-2.tsv", 9, lambda i, a: b"8\t" + a), "SST-2.tsv: line 11: index '8'"),
    "index as float": (row("SST-2.tsv", 9, lambda i, a: b"9.0\t" + a), "SST-2.tsv: line 11: index"),
    "commas": (content("RTE.tsv", lambda c: c.replace(b"\t", b",")), "RTE.tsv: line 2: 1 columns"),
    "spaces": (row("RTE.tsv", 0, lambda i, a: i + b" " + a), "RTE.tsv: line 2: 1 columns"),
    "trailing space": (row("RTE.tsv", 2, lambda i, a: i + b"\t" + a + b" "), "RTE.tsv: line 4"),
    "quotes": (row("RTE.tsv", 4, lambda i, a: i + b'\t"' + a + b'"'), "RTE.tsv: line 6: quotes"),
    "class name for 0 or 1": (
        row("CoLA.tsv", 0, lambda i, a: i + b"\tacceptable"),
        "CoLA.tsv: line 2: 'acceptable'",
    ),
    "class number for a word": (row("RTE.tsv", 5, lambda i, a: i + b"\t1"), "RTE.tsv: line 7: '1'"),
    "capital word": (
        row("MNLI-mm.tsv", 5, lambda i, a: i + b"\tNeutral"),
        "MNLI-mm.tsv: line 7: 'Neutral'",
    ),
    "word of another task": (row("AX.tsv", 0, lambda i, a: i + b"\tnot_entailment"), "AX.tsv: line 2"),
    "hyphen in a word": (row("QNLI.tsv", 0, lambda i, a: i + b"\tnot-entailment"), "QNLI.tsv: line 2"),
    "float class": (row("WNLI.tsv", 145, lambda i, a: i + b"\t1.0"), "WNLI.tsv: line 147: '1.0'"),
    "no answer": (row("WNLI.tsv", 145, lambda i, a: i + b"\t"), "WNLI.tsv: line 147: ''"),
    "class -1": (row("WNLI.tsv", 3, lambda i, a: i + b"\t-1"), "WNLI.tsv: line 5: '-1'"),
    "score not a number": (row("STS-B.tsv", 3, lambda i, a: i + b"\tnan"), "STS-B.tsv: line 5: 'nan'"),
    "score too high": (row("STS-B.tsv", 3, lambda i, a: i + b"\t5.001"), "STS-B.tsv: line 5: '5.001'"),
    "score below 0": (row("STS-B.tsv", 3, lambda i, a: i + b"\t-0.100"), "STS-B.tsv: line 5: '-0.100'"),
    "two decimals": (row("STS-B.tsv", 3, lambda i, a: i + b"\t2.50"), "STS-B.tsv: line 5: '2.50'"),
    "exponent": (row("STS-B.tsv", 3, lambda i, a: i + b"\t2.5e0"), "STS-B.tsv: line 5: '2.5e0'"),
    "decimal comma": (row("STS-B.tsv", 3, lambda i, a: i + b"\t2,500"), "STS-B.tsv: line 5: '2,500'"),
    "scores from 0 to 1": (content("STS-B.tsv", fifths), "STS-B.tsv: line 2: no score is above 1"),
}  # fmt: skip


def test_there_are_at_least_twenty_mistakes():
    assert len(MISTAKES) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "folder"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_found_with_its_file_and_line(tmp_path, few, mistake, kind):
    change, expected = MISTAKES[mistake]
    files = contents(packed(tmp_path))
    change(files)
    if kind == "zip":
        path = tmp_path / "bad.zip"
        path.write_bytes(zipped(files.items()))
    else:
        path = tmp_path / "bad"
        path.mkdir()
        for name, content in files.items():
            (path / name).write_bytes(content)
    faults = submit.validate_submission(path)
    assert any(expected in fault for fault in faults), faults
    others = {f.partition(":")[0] for f in faults} - {expected.partition(":")[0]}
    near = {"SST-2.tsv", "cola.tsv", "CoLA.tsv", "MNLI-mm.tsv"}  # the second file of a mistake
    assert others <= near


def zipped(items):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in items:
            archive.writestr(name, content)
    return out.getvalue()


def twice(files):
    return zipped([*files.items(), ("RTE.tsv", files["RTE.tsv"])])


def nested(files):
    return zipped((f"submission/{name}", content) for name, content in files.items())


def with_folder(files):
    return zipped([*files.items(), ("__MACOSX/", b"")])


def outside(files):
    return zipped([*files.items(), ("../RTE.tsv", b"")])


def cut(files):
    return zipped(files.items())[:-100]


def flipped(files):
    content = bytearray(zipped(files.items()))
    content[content.index(b"\tentailment") + 3] ^= 1
    return bytes(content)


def huge(files):
    """Return a zip whose directory says that a file has 2 GB."""
    content = bytearray(zipped(files.items()))
    start = content.index(b"PK\x01\x02")
    content[start + 24 : start + 28] = struct.pack("<I", 2**31)
    return bytes(content)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (twice, "RTE.tsv: appears twice"),
        (nested, "submission/RTE.tsv: extra file; should be RTE.tsv at the top level"),
        (with_folder, "__MACOSX/: a folder"),
        (outside, "../RTE.tsv: extra"),
        (cut, "bad.zip: not a complete zip file"),
        (flipped, "not a complete zip file"),
        (huge, "2,147,483,648 bytes"),
        (lambda files: b"index\tprediction\n", "bad.zip: not a complete zip file"),
        (lambda files: b"", "bad.zip: not a complete zip file"),
    ],
)
def test_mistakes_in_the_zip_itself(tmp_path, few, make, expected):
    path = tmp_path / "bad.zip"
    path.write_bytes(make(contents(packed(tmp_path))))
    faults = submit.validate_submission(path)
    assert any(expected in fault for fault in faults), faults


def test_a_nested_folder_is_detected(tmp_path, few):
    folder = tmp_path / "bad"
    (folder / "more").mkdir(parents=True)
    for name, content in contents(packed(tmp_path)).items():
        (folder / name).write_bytes(content)
    assert submit.validate_submission(folder) == ["more/: a folder; files must be at the top level"]


def test_a_missing_newline_at_the_end_is_accepted(tmp_path, few):
    files = contents(packed(tmp_path))
    path = tmp_path / "other.zip"
    path.write_bytes(zipped((name, content[:-1]) for name, content in files.items()))
    assert submit.validate_submission(path) == []


def test_many_faults_in_a_file_are_counted(tmp_path, few):
    files = contents(packed(tmp_path))
    files["RTE.tsv"] = from_one(files["RTE.tsv"])
    path = tmp_path / "bad.zip"
    path.write_bytes(zipped(files.items()))
    faults = submit.validate_submission(path)
    assert len(faults) == submit.FAULTS_SHOWN + 1
    assert "RTE.tsv: and 2,995 more" in faults


def test_no_such_file(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        submit.validate_submission(tmp_path / "none.zip")

"""What a look at raw files and documents finds, and what is chosen for it."""

import gzip
import json

import pytest
from tests.conftest import make_documents, write_documents

from electrify.errors import UserError
from electrify.pipeline import survey
from electrify.pipeline.choices import Machine, choose_reading, choose_training
from electrify.pipeline.survey import (
    DocumentText,
    RawText,
    script_of,
    survey_documents,
    survey_files,
)
from electrify.tokens.vocabulary import share_with_accents

LAPTOP = Machine(cuda=False, description="2 cores")
SENTENCE = "The quick brown fox jumps over the lazy dog and runs away into the forest. "


def chosen(choices) -> dict[str, object]:
    return {choice.name: choice.value for choice in choices}


def test_novels_are_one_document_per_file(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n\n".join([SENTENCE * 3] * 200))
    found = survey_files([tmp_path])
    assert (found.kind, found.files) == ("text", 3)
    assert chosen(choose_reading(found)) == {"kind": "text", "split": "file"}


def test_long_blocks_are_documents_of_their_own(tmp_path):
    (tmp_path / "articles.txt").write_text("\n\n".join(["\n".join([SENTENCE * 5] * 4)] * 50))
    assert chosen(choose_reading(survey_files([tmp_path]))) == {"kind": "text", "split": "blank"}


def test_a_file_that_is_too_long_for_a_document_is_split_at_blank_lines():
    posts = RawText("text", files=1, largest=2_000_000_000, block=120)
    assert chosen(choose_reading(posts))["split"] == "blank"


def test_gutenberg_books_are_recognised_by_their_header(tmp_path):
    head = (
        "The Project Gutenberg eBook of Nothing\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n"
    )
    (tmp_path / "1.txt").write_text(head + SENTENCE * 100)
    assert survey_files([tmp_path]).kind == "gutenberg"


def test_a_file_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "1.txt").write_text(SENTENCE * 100)
    read, beginning = [], survey._beginning
    monkeypatch.setattr(survey, "_beginning", lambda path: read.append(path) or beginning(path))
    assert survey_files([tmp_path]).kind == "text"
    assert read == [tmp_path / "1.txt"]


def test_compressed_json_lines_are_recognised(tmp_path):
    with gzip.open(tmp_path / "posts.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": SENTENCE}) + "\n" for _ in range(10))
    assert survey_files([tmp_path]).kind == "jsonl"


@pytest.mark.parametrize("name", ["posts.csv", "POSTS.TSV", "posts.csv.zst"])
def test_tables_are_recognised(tmp_path, name):
    (tmp_path / name).write_text("text\n")
    assert survey_files([tmp_path]).kind == "csv"


def test_several_formats_are_refused_by_name(tmp_path):
    (tmp_path / "a.txt").write_text(SENTENCE)
    (tmp_path / "b.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="mix several formats") as error:
        survey_files([tmp_path])
    assert "--kind" in error.value.fix


def test_a_given_kind_chooses_among_several_formats(tmp_path):
    (tmp_path / "a.txt").write_text(SENTENCE)
    (tmp_path / "b.jsonl").write_text("{}\n")
    assert survey_files([tmp_path], "jsonl") == RawText("jsonl", 1, 3)
    assert survey_files([tmp_path], "text").files == 1
    (tmp_path / "README").write_text(SENTENCE)
    assert survey_files([tmp_path / "README"], "text").kind == "text"


def test_an_index_beside_a_dump_is_no_text_of_its_own(tmp_path):
    (tmp_path / "enwiki-multistream.xml.bz2").write_bytes(b"x")
    (tmp_path / "enwiki-multistream-index.txt.bz2").write_bytes(b"x")
    assert survey_files([tmp_path]).kind == "wikipedia"


def test_utf_16_is_judged_like_utf_8(tmp_path):
    text = "\n\n".join([SENTENCE * 2] * 50)
    for encoding in ("utf-8", "utf-16"):
        folder = tmp_path / encoding
        folder.mkdir()
        (folder / "a.txt").write_text(text, encoding=encoding)
    one, other = (survey_files([tmp_path / name]) for name in ("utf-8", "utf-16"))
    assert (one.block, one.separated) == (other.block, other.separated)


def test_other_encodings_are_refused_with_how_to_convert(tmp_path):
    (tmp_path / "a.txt").write_text("Größe " * 100, encoding="latin-1")
    with pytest.raises(UserError, match="not UTF-8") as error:
        survey_files([tmp_path])
    assert "iconv" in error.value.fix


def test_one_text_a_line_is_one_document_unless_it_is_too_long(tmp_path):
    (tmp_path / "a.txt").write_text((SENTENCE + "\n") * 100)
    found = survey_files([tmp_path])
    assert chosen(choose_reading(found))["split"] == "file"
    with pytest.raises(UserError, match="no blank lines"):
        choose_reading(found._replace(largest=20_000_000))


@pytest.mark.parametrize("name", ["missing", "empty", "blank"])
def test_no_text_is_an_error(name, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank/a.txt").write_text("\n \n")
    with pytest.raises(UserError):
        survey_files([tmp_path / name])


def test_documents_are_measured_by_a_sample(tmp_path):
    documents = make_documents(700)
    docs = write_documents(tmp_path / "docs", documents)
    found = survey_documents(docs)
    assert found.documents == 700
    assert found.characters == sum(len(document.text) for document in documents)
    assert (found.script, found.accents) == ("LATIN", 0.0)


@pytest.mark.parametrize(
    ("script", "accents", "expected"),
    [
        ("LATIN", 0.0005, {"tokenizer": "wordpiece", "keep_accents": False, "vocab_size": 8192}),
        ("LATIN", 0.015, {"tokenizer": "wordpiece", "keep_accents": True, "vocab_size": 8192}),
        ("HANGUL", 1.0, {"tokenizer": "wordpiece", "keep_accents": True, "vocab_size": 8192}),
        ("THAI", 0.4, {"tokenizer": "unigram", "keep_accents": True, "vocab_size": 8192}),
        ("HIRAGANA", 0.1, {"tokenizer": "unigram", "keep_accents": True, "vocab_size": 16384}),
        ("CJK", 0.0, {"tokenizer": "wordpiece", "keep_accents": False, "vocab_size": 16384}),
    ],
)
def test_the_tokenizer_suits_the_script(script, accents, expected):
    text = DocumentText(1000, 30_000_000, script, accents)
    found = chosen(choose_training(text, LAPTOP, 3600))
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("cuda", "seconds", "recipe", "length"),
    [(False, 240, "tiny", 64), (False, 3600, "cram-cpu", 64), (True, 3600, "electra-small", 128)],
)
def test_the_recipe_suits_the_machine_and_the_budget(cuda, seconds, recipe, length):
    text = DocumentText(1000, 30_000_000, "LATIN", 0.0)
    found = chosen(choose_training(text, Machine(cuda, "a device"), seconds))
    assert (found["recipe"], found["length"]) == (recipe, length)


def test_the_length_is_that_of_a_given_recipe():
    text = DocumentText(1000, 30_000_000, "LATIN", 0.0)
    found = chosen(choose_training(text, LAPTOP, 3600, "modernbert-small"))
    assert (found["recipe"], found["length"]) == ("modernbert-small", 512)


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("मैं हिन्दी में हूँ", True),
        ("ที่ผู้ใหญ่น้ำ", True),
        ("Gro\u0308\u00dfe und U\u0308bung", True),
        ("plain English", False),
    ],
)
def test_marks_that_make_letters_are_kept(text, keeps):
    documents = DocumentText(1, 1_000, script_of(text), share_with_accents(text))
    assert chosen(choose_training(documents, LAPTOP, 60))["keep_accents"] is keeps


def test_files_of_one_paragraph_are_documents(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("A short post.\n" if number else "One.\n\nTwo.\n")
    settings = choose_reading(survey_files([tmp_path]))
    [split] = [setting for setting in settings if setting.name == "split"]
    assert split.value == "file"
    assert split.why == "89% of the files have no blank lines, so each file is one document"

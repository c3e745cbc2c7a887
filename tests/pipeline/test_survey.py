"""What a look at raw files and documents finds, and what is chosen for it."""

import gzip
import json

import pytest
from tests.conftest import make_documents, write_documents

from electrify.errors import UserError
from electrify.pipeline.choices import Machine, choose_reading, choose_training
from electrify.pipeline.survey import DocumentText, RawText, survey_documents, survey_files

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
    posts = RawText("text", files=1, largest=2_000_000_000, block=120, wrapped=0)
    assert chosen(choose_reading(posts))["split"] == "blank"


def test_gutenberg_books_are_recognised_by_their_header(tmp_path):
    head = (
        "The Project Gutenberg eBook of Nothing\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n"
    )
    (tmp_path / "1.txt").write_text(head + SENTENCE * 100)
    assert survey_files([tmp_path]).kind == "gutenberg"


def test_compressed_json_lines_are_recognised(tmp_path):
    with gzip.open(tmp_path / "posts.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": SENTENCE}) + "\n" for _ in range(10))
    assert survey_files([tmp_path]).kind == "jsonl"


def test_several_formats_are_refused_by_name(tmp_path):
    (tmp_path / "a.txt").write_text(SENTENCE)
    (tmp_path / "b.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="mix several formats") as error:
        survey_files([tmp_path])
    assert "--kind" in error.value.fix


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_no_text_is_an_error(name, tmp_path):
    (tmp_path / "empty").mkdir()
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
        ("THAI", 0.0, {"tokenizer": "unigram", "keep_accents": False, "vocab_size": 8192}),
        ("CJK", 0.0, {"tokenizer": "wordpiece", "keep_accents": False, "vocab_size": 16384}),
    ],
)
def test_the_tokenizer_suits_the_script(script, accents, expected):
    text = DocumentText(1000, 30_000_000, 3000, script, accents)
    found = chosen(choose_training(text, LAPTOP, 3600))
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("cuda", "seconds", "recipe", "length"),
    [(False, 240, "tiny", 64), (False, 3600, "cram-cpu", 64), (True, 3600, "electra-small", 128)],
)
def test_the_recipe_suits_the_machine_and_the_budget(cuda, seconds, recipe, length):
    text = DocumentText(1000, 30_000_000, 3000, "LATIN", 0.0)
    found = chosen(choose_training(text, Machine(cuda, "a device"), seconds))
    assert (found["recipe"], found["length"]) == (recipe, length)

"""Read sentences of tagged words.

CoNLL-style files have one word per line, columns separated by a tab or spaces, and a blank line
between sentences; JSON lines have lists "tokens" and "tags". Plain text has one sentence per line.
IOB1 tags become IOB2.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.own.data import Columns, nothing_to_learn, sorted_labels
from electrify.finetuning.own.files import (
    JSON_LINES,
    TABLES,
    DataTable,
    cell_text,
    check_length,
    line_error,
    read_table,
    split_lines,
    suffix_of,
)
from electrify.finetuning.own.iob import from_iob1

CONLLU = ".conllu"
"""Universal Dependencies: ten columns, comments, and lines for contractions and empty nodes."""
CONLLU_COLUMNS = (
    "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc",
)  # fmt: skip
CONLL2003_COLUMNS = ("word", "pos", "chunk", "ner")
CONLL = (".conll", ".conll2003", CONLLU, ".bio", ".iob", ".iob2", ".bioes", ".ner", ".pos")
WORD_COLUMNS = ("tokens", "words")
TAG_COLUMNS = ("tags", "ner_tags", "labels", "pos_tags", "tag", "label")
DOCUMENT_START = "-DOCSTART-"
OUTSIDE = "O"
MAX_SENTENCE_WORDS = 1_000
"""A longer sentence means that the file has no blank lines between its sentences."""
MAX_TAGS = 100
"""More distinct tags than this, with fewer than four words each, are not tags."""


class Sentences(NamedTuple):
    """Sentences of words, with one tag per word."""

    path: Path
    words: list[list[str]]
    tags: list[list[str]] | None
    lines: list[int]
    """The line where each sentence starts."""
    word_lines: list[list[int]] | None = None
    """The line of every word in CoNLL-style files; None if each sentence is on one line."""

    def line(self, sentence: int, word: int) -> int:
        """Return the line of a word."""
        return self.word_lines[sentence][word] if self.word_lines else self.lines[sentence]


def is_tagged(path: Path, text: str) -> bool:
    """Return whether a file contains tagged words, judging by its name and content."""
    suffix = suffix_of(path)
    if suffix == ".txt":
        return not _has_texts(text)
    if suffix == ".tsv":  # a table has no blank lines between its rows
        return bool(re.search(r"\n[ \t]*\r?\n[ \t]*[^\s]", text))
    if suffix in JSON_LINES:
        table = read_table(path, text)
        name = _find_key(table, WORD_COLUMNS)
        return bool(name) and isinstance(table.column(name)[0], list)
    return suffix in CONLL or (suffix not in TABLES and _has_tag_columns(text))


def _has_tag_columns(text: str) -> bool:
    r"""Return whether lines have the same number of columns, with blank lines between sentences.

    >>> _has_tag_columns("EU NNP\nacts VBZ\n\nStop VB\n"), _has_tag_columns("a film\n\nit\n")
    (True, False)
    """
    lines = [line.split() for line in split_lines(text.strip())]
    widths = {len(cells) for cells in lines if cells and cells[0] != DOCUMENT_START}
    return len(widths) == 1 and min(widths) > 1 and [] in lines


def _has_texts(text: str) -> bool:
    r"""Return whether most lines are tab-separated cells, one of them with several words.

    >>> _has_texts("a good film\tpos\n"), _has_texts("film\tNOUN\n"), _has_texts("a film X\n")
    (True, False, False)
    """
    filled = [line.strip() for line in split_lines(text) if line.strip()]
    rows = [line for line in filled if "\t" in line and " " in line.replace("\t ", "\t")]
    return len(rows) > len(filled) / 2


def read_sentences(
    path: Path, text: str, requested: Columns, tags: Sequence[str] = ()
) -> Sentences:
    """Return the sentences of a file: JSON lines by its suffix, otherwise CoNLL-style.

    `tags` are those of the training file or the model, if there is one, whose scheme is kept.
    """
    if suffix_of(path) in JSON_LINES:
        found = _parse_json(read_table(path, text), requested)
    else:
        found = _parse_conll(path, text, requested)
    return found._replace(tags=found.tags and from_iob1(found.tags, tags))


def read_for_tagging(path: Path, text: str, requested: Columns, tags: Sequence[str]) -> Sentences:
    """Return the sentences of a file to tag with a model that knows `tags`."""
    known = suffix_of(path) in (*CONLL, ".csv", ".tsv", *JSON_LINES)
    if not known and not any(requested) and is_plain_text(text, tags):
        filled = [(n, line) for n, line in enumerate(split_lines(text), start=1) if line.strip()]
        words = [split_words(line) for _, line in filled]
        return Sentences(path, words, None, [number for number, _ in filled])
    return read_sentences(path, text, requested, tags)


def is_plain_text(text: str, tags: Sequence[str]) -> bool:
    r"""Return whether each line is a sentence, not a word in columns that may end in a tag.

    >>> tags = ["O", "B-PER"]
    >>> is_plain_text("Anna met Bert in Rome\n", tags), is_plain_text("Anna B-PER\n", tags)
    (True, False)
    """
    filled = [line for line in split_lines(text) if line.strip()]
    rows = [line.split() for line in filled if not line.startswith(DOCUMENT_START)]
    if not rows or "\t" in filled[0] or all(len(cells) == 1 for cells in rows):
        return False
    last = [cells[-1] for cells in rows]
    width, count = Counter(map(len, rows)).most_common(1)[0]
    aligned = width > 1 and count > 0.9 * len(rows)
    known = {cell for cell in last if cell in tags and any(map(str.isalnum, cell))}
    # A single tag may be a word, such as the O of "vitamin O", unless the lines are columns.
    if sum(cell in known for cell in last) > len(rows) / 2 and (aligned or len(known) > 1):
        return False
    recurring = len(set(last)) <= len(last) / 2
    return not (aligned and recurring and (known - {OUTSIDE} or _look_like_tags(rows)))


def _look_like_tags(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether only the last cells are in upper case, like the NNP of another tag set."""
    last = "".join(cells[-1] for cells in rows)
    others = "".join(cell for cells in rows for cell in cells[:-1])
    return last.isupper() and any(map(str.islower, others))


def split_words(text: str) -> list[str]:
    """Split at whitespace; punctuation and symbols around a word become separate words.

    >>> split_words("U.S. films (3) aren't bad.")
    ['U.S', '.', 'films', '(', '3', ')', "aren't", 'bad', '.']
    """
    words = []
    for chunk in text.split():
        inside = [i for i, char in enumerate(chunk) if unicodedata.category(char)[0] not in "PS"]
        first, stop = (inside[0], inside[-1] + 1) if inside else (len(chunk), len(chunk))
        words += [*chunk[:first], *([chunk[first:stop]] if inside else []), *chunk[stop:]]
    return words


def _parse_conll(path: Path, text: str, requested: Columns) -> Sentences:
    lines = split_lines(text)
    conllu = suffix_of(path) == CONLLU
    filled = [line for line in lines if line.strip() and not (conllu and line[0] == "#")]
    fix = "provide words and their tags"
    if not filled:
        raise UserError(f"{path} has no sentences", got="only comments", fix=fix)
    separator = "\t" if "\t" in filled[0] else " +"
    width = len(re.split(separator, filled[0].strip(" \r")))
    known = CONLLU_COLUMNS if conllu else CONLL2003_COLUMNS
    names = known if len(known) == width else ("",) * width
    word_column = _column_index(path, requested.text, "--text", names, 1 if conllu else 0)
    tag_column = _column_index(path, requested.label, "--label", names, 3 if conllu else width - 1)
    sentences: list[list[tuple[str, str, int]]] = [[]]
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(DOCUMENT_START):
            sentences.append([])
            continue
        if conllu and not line.split("\t")[0].isdecimal():
            continue
        cells = [cell.strip() for cell in re.split(separator, line.strip(" \r"))]
        if len(cells) != width or not cells[word_column] or not cells[tag_column]:
            raise line_error(
                path,
                number,
                f"the line must have {width} columns, like the first line",
                got=repr(line[:60]),
                fix="put one word and its tag on each line, and a blank line between sentences; "
                "to classify texts, separate each text and its label with a tab",
            )
        check_length(path, number, "word", cells[word_column])
        sentences[-1].append((cells[word_column], cells[tag_column], number))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise UserError(f"{path} has no sentences", got="only blank lines", fix=fix)
    words = [[word for word, _, _ in sentence] for sentence in sentences]
    tags = [[tag for _, tag, _ in sentence] for sentence in sentences]
    word_lines = [[number for _, _, number in sentence] for sentence in sentences]
    starts = [numbers[0] for numbers in word_lines]
    known_tags = tags if tag_column != word_column else None
    return _check_plausible(Sentences(path, words, known_tags, starts, word_lines))


def _check_plausible(sentences: Sentences) -> Sentences:
    """Raise an error if a file is most likely not one of tagged words."""
    path = sentences.path
    longest = max(range(len(sentences.words)), key=lambda number: len(sentences.words[number]))
    words = list(chain.from_iterable(sentences.words))
    tags = set(chain.from_iterable(sentences.tags or []))
    with_spaces = [word for word in words if " " in word]
    rename = "" if suffix_of(path) in TABLES else "rename the file to end in .tsv, then "
    fix = (
        "put one word and its tag on each line, and a blank line between sentences; to classify "
        f"texts, with a text, a tab and its label on each line: {rename}"
        "electrify finetune --kind classes"
    )
    if len(with_spaces) > len(words) / 2:
        what, got = "most words contain spaces, as texts do", repr(with_spaces[0][:60])
    elif len(sentences.words[longest]) > MAX_SENTENCE_WORDS:
        what = f"a sentence has more than {MAX_SENTENCE_WORDS:,} words"
        got = f"{len(sentences.words[longest]):,} lines without a blank line between them"
    elif len(tags) > MAX_TAGS and len(tags) > len(words) / 4:
        what = "too many distinct tags to be tags of words"
        got = f"{len(tags):,} distinct tags for {len(words):,} words"
    else:
        return sentences
    raise line_error(path, sentences.lines[longest], what, got, fix)


def append_tags(
    text: str, word_lines: Sequence[Sequence[int]], tags: Sequence[Sequence[str]]
) -> str:
    r"""Return a CoNLL-style file with a tag after the last column of every word.

    Blank lines and comments stay as they are. Lines between documents get the tag O and lines that
    are not words get _, because conlleval expects the same number of columns in every line.

    >>> append_tags("-DOCSTART- X\n\nAnna NNP\n", [[3]], [["B-PER"]])
    '-DOCSTART- X O\n\nAnna NNP B-PER\n'
    """
    added = dict(zip(chain.from_iterable(word_lines), chain.from_iterable(tags), strict=True))
    lines = split_lines(text)
    first = lines[word_lines[0][0] - 1].strip()
    separator = " " if " " in first and "\t" not in first else "\t"
    for number, line in enumerate(lines, start=1):
        if line.startswith(DOCUMENT_START):
            added[number] = OUTSIDE
        elif line.strip() and not line.startswith("#"):
            added.setdefault(number, "_")
    return "\n".join(
        f"{line.rstrip(' ')}{separator}{added[number]}" if number in added else line
        for number, line in enumerate(lines, start=1)
    )


def _column_index(path: Path, requested: str, flag: str, names: Sequence[str], default: int) -> int:
    """Return the index of a column that is given by number or, if the columns have names, by name.

    >>> _column_index(Path("a.conllu"), "XPOS", "--label", CONLLU_COLUMNS, 3)
    4
    """
    if not requested:
        return default
    if requested.lower() in names:
        return names.index(requested.lower())
    if not requested.isdecimal() or not 1 <= int(requested) <= len(names):
        listed = f", or a name: {', '.join(names)}" if names[0] else ""
        what = f"no column {requested!r}; columns of CoNLL-style files are given by number"
        got, fix = f"{flag} {requested}", f"use a number from 1 to {len(names)}{listed}"
        raise line_error(path, 1, what, got, fix)
    return int(requested) - 1


def _parse_json(table: DataTable, requested: Columns) -> Sentences:
    words_key = requested.text or _find_key(table, WORD_COLUMNS)
    tags_key = requested.label or _find_key(table, TAG_COLUMNS)
    for name in (words_key or WORD_COLUMNS[0], tags_key or words_key):
        if name not in table.header:
            raise line_error(
                table.path,
                1,
                f"no key {name!r}",
                got=f"keys: {', '.join(table.header)}",
                fix='use objects such as {"tokens": ["…"], "tags": ["O"]}, or name the keys: '
                "--text A --label L",
            )
    words = _parse_lists(table, words_key)
    if not tags_key or all(cell is None for cell in table.column(tags_key)):
        return Sentences(table.path, words, None, table.lines)
    tags = _parse_lists(table, tags_key)
    for line, sentence, sentence_tags in zip(table.lines, words, tags, strict=True):
        if len(sentence) != len(sentence_tags):
            got = f"{len(sentence)} words, {len(sentence_tags)} tags"
            fix = "give every word one tag"
            raise line_error(table.path, line, "words and tags differ in number", got=got, fix=fix)
    return Sentences(table.path, words, tags, table.lines)


def _find_key(table: DataTable, names: Sequence[str]) -> str:
    by_case = {name.lower(): name for name in table.header}
    return next((by_case[name] for name in names if name in by_case), "")


def _parse_lists(table: DataTable, name: str) -> list[list[str]]:
    lists = []
    for line, cell in zip(table.lines, table.column(name), strict=True):
        plain = isinstance(cell, list) and not any(
            value is None or isinstance(value, list | dict) for value in cell
        )
        if not plain or not cell:
            what = f"{name!r} must be a non-empty list of strings"
            got = cell_text(cell)[:60] or "nothing"
            fix = 'use a list such as ["New", "York"]'
            raise line_error(table.path, line, what, got=got, fix=fix)
        for value in cell:
            check_length(table.path, line, name, value)
        lists.append([value if isinstance(value, str) else cell_text(value) for value in cell])
    return lists


def require_tags(sentences: Sentences) -> list[list[str]]:
    """Return the tags of a file, or raise an error if it has none."""
    if sentences.tags is None:
        got = " ".join(sentences.words[0])[:60]
        fix = "add a second column with tags, or a list of them; choose it with --label"
        raise line_error(sentences.path, sentences.lines[0], "words have no tags", got=got, fix=fix)
    return sentences.tags


def find_tags(sentences: Sentences) -> tuple[str, ...]:
    """Return the distinct tags of a training file."""
    tags = sorted_labels(chain.from_iterable(require_tags(sentences)))
    if len(tags) < 2:
        lines = sentences.lines[0], sentences.line(-1, -1)
        raise nothing_to_learn(sentences.path, "word", "tag", repr(tags[0]), lines)
    return tags

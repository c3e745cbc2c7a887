"""Sentences of words with a tag each, as files have them.

CoNLL-style files have a word a line, columns apart by a tab or blanks, and a blank line between
sentences; JSON lines have lists "tokens" and "tags". Plain text has a sentence a line.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.errors import UserError
from electrify.finetuning.own.data import Columns, label_order
from electrify.finetuning.own.files import (
    JSON_LINES,
    TABLES,
    DataTable,
    cell_text,
    check_length,
    fault,
    lines_of,
    read_table,
    suffix_of,
)

UNIVERSAL = ".conllu"
"""Universal Dependencies: ten columns, comments, and lines for contractions and left-out words."""
CONLL = (".conll", ".conll2003", UNIVERSAL, ".bio", ".iob", ".iob2", ".bioes", ".ner", ".pos")
WORD_COLUMNS = ("tokens", "words")
TAG_COLUMNS = ("tags", "ner_tags", "labels", "pos_tags", "tag", "label")
BETWEEN_DOCUMENTS = "-DOCSTART-"
OUTSIDE = "O"
LONGEST_SENTENCE = 1_000
"""In a sentence; a longer one is a file without blank lines between its sentences."""
MOST_TAGS = 100
"""More different tags than these, for less than four words each, are no tags."""


class Sentences(NamedTuple):
    """Sentences of words, and a tag for every word."""

    path: Path
    words: list[list[str]]
    tags: list[list[str]] | None
    lines: list[int]
    """Where each sentence begins."""
    word_lines: list[list[int]] | None = None
    """The line of every word in CoNLL-style files; None where a sentence is in one line."""

    def line(self, sentence: int, word: int) -> int:
        """Return the line that a word is in."""
        return self.word_lines[sentence][word] if self.word_lines else self.lines[sentence]


def is_tagged(path: Path, text: str) -> bool:
    """Whether a file holds words with tags, by its name and what it looks like."""
    suffix = suffix_of(path)
    if suffix == ".txt":
        return not _has_texts(text)
    if suffix == ".tsv":  # no table has a blank line within
        return bool(re.search(r"\n[ \t]*\r?\n[ \t]*[^\s]", text))
    if suffix in JSON_LINES:
        table = read_table(path, text)
        name = _usual(table, WORD_COLUMNS)
        return bool(name) and isinstance(table.column(name)[0], list)
    return suffix in CONLL


def _has_texts(text: str) -> bool:
    r"""Whether most lines are cells apart by tabs, one of which holds several words.

    >>> _has_texts("a good film\tpos\n"), _has_texts("film\tNOUN\n"), _has_texts("a film X\n")
    (True, False, False)
    """
    filled = [line.strip() for line in lines_of(text) if line.strip()]
    rows = [line for line in filled if "\t" in line and " " in line.replace("\t ", "\t")]
    return len(rows) > len(filled) / 2


def read_sentences(path: Path, text: str, named: Columns) -> Sentences:
    """The sentences of a file: JSON lines by their suffix, anything else CoNLL-style."""
    if suffix_of(path) in JSON_LINES:
        return _from_objects(read_table(path, text), named)
    return _from_lines(path, text, named)


def read_to_tag(path: Path, text: str, named: Columns, tags: Sequence[str]) -> Sentences:
    """The sentences of a file for a model that knows some tags; plain text has one a line."""
    known = suffix_of(path) in (*CONLL, ".csv", ".tsv", *JSON_LINES)
    if not known and not any(named) and is_prose(text, tags):
        filled = [(n, line) for n, line in enumerate(lines_of(text), start=1) if line.strip()]
        words = [split_words(line) for _, line in filled]
        return Sentences(path, words, None, [number for number, _ in filled])
    return read_sentences(path, text, named)


def is_prose(text: str, tags: Sequence[str]) -> bool:
    r"""Whether lines are sentences, and not words with columns of which the last may be a tag.

    >>> is_prose("Anna met Bert in Rome\n", ["O", "B-PER"]), is_prose("Anna B-PER\n", ["B-PER"])
    (True, False)
    """
    filled = [line for line in lines_of(text) if line.strip()]
    rows = [line.split() for line in filled if not line.startswith(BETWEEN_DOCUMENTS)]
    if not rows or "\t" in filled[0] or all(len(cells) == 1 for cells in rows):
        return False
    last = [cells[-1] for cells in rows]
    width, count = Counter(map(len, rows)).most_common(1)[0]
    aligned = width > 1 and count > 0.9 * len(rows)
    known = {cell for cell in last if cell in tags and any(map(str.isalnum, cell))}
    # one tag alone may be a word, such as the O of "vitamin O", unless the lines are columns
    if sum(cell in known for cell in last) > len(rows) / 2 and (aligned or len(known) > 1):
        return False
    recurring = len(set(last)) <= len(last) / 2
    return not (aligned and recurring and (known - {OUTSIDE} or _look_like_tags(rows)))


def _look_like_tags(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the last cells alone are in capitals, as tags of another model are, such as NNP."""
    last = "".join(cells[-1] for cells in rows)
    others = "".join(cell for cells in rows for cell in cells[:-1])
    return last.isupper() and any(map(str.islower, others))


def split_words(text: str) -> list[str]:
    """Words are apart by blanks; punctuation and symbols around a word are words of their own.

    >>> split_words("U.S. films (3) aren't bad.")
    ['U.S', '.', 'films', '(', '3', ')', "aren't", 'bad', '.']
    """
    words = []
    for chunk in text.split():
        inside = [n for n, sign in enumerate(chunk) if unicodedata.category(sign)[0] not in "PS"]
        first, stop = (inside[0], inside[-1] + 1) if inside else (len(chunk), len(chunk))
        words += [*chunk[:first], *([chunk[first:stop]] if inside else []), *chunk[stop:]]
    return words


def _from_lines(path: Path, text: str, named: Columns) -> Sentences:
    lines = lines_of(text)
    universal = suffix_of(path) == UNIVERSAL
    filled = [line for line in lines if line.strip() and not (universal and line[0] == "#")]
    if not filled:
        raise UserError(f"{path} has no sentences", got="comments", fix="give words and tags")
    apart = "\t" if "\t" in filled[0] else " "
    width = len(_cells(filled[0], apart))
    word_place = _place(path, named.text, "--text", width, default=1 if universal else 0)
    tag_place = _place(path, named.label, "--label", width, default=3 if universal else width - 1)
    words: list[list[str]] = []
    tags: list[list[str]] = []
    numbers: list[list[int]] = []
    inside = False
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(BETWEEN_DOCUMENTS):
            inside = False
            continue
        if universal and not line.split("\t")[0].isdecimal():
            continue
        cells = _cells(line, apart)
        if len(cells) != width or not cells[word_place] or not cells[tag_place]:
            raise fault(
                path,
                number,
                f"not the {width} columns that the first line has",
                got=repr(line[:60]),
                fix="give a word and its tag in every line, a blank line between sentences; "
                "a text and its label in every line need a tab between",
            )
        check_length(path, number, "word", cells[word_place])
        if not inside:
            for some in (words, tags, numbers):
                some.append([])
            inside = True
        words[-1].append(cells[word_place])
        tags[-1].append(cells[tag_place])
        numbers[-1].append(number)
    if not words:
        raise UserError(f"{path} has no sentences", got="blank lines", fix="give words and tags")
    starts = [some[0] for some in numbers]
    known = tags if tag_place != word_place else None
    return _plausible(Sentences(path, words, known, starts, numbers))


def _plausible(found: Sentences) -> Sentences:
    """Refuse what is most likely no file of words and tags."""
    longest = max(range(len(found.words)), key=lambda number: len(found.words[number]))
    words = [word for some in found.words for word in some]
    tags = {tag for some in found.tags or [] for tag in some}
    with_blanks = [word for word in words if " " in word]
    renamed = "" if suffix_of(found.path) in TABLES else "rename the file to end in .tsv, then "
    fix = (
        "give a word and its tag in every line, a blank line between sentences; for a text, a tab "
        f"and its label in every line: {renamed}electrify finetune --kind classes"
    )
    if len(with_blanks) > len(words) / 2:
        what, got = "most words have blanks inside, as texts have", repr(with_blanks[0][:60])
    elif len(found.words[longest]) > LONGEST_SENTENCE:
        what = f"a sentence of more than {LONGEST_SENTENCE:,} words"
        got = f"{len(found.words[longest]):,} lines without a blank one between"
    elif len(tags) > MOST_TAGS and len(tags) > len(words) / 4:
        what = "too many different tags to be tags of words"
        got = f"{len(tags):,} different ones for {len(words):,} words"
    else:
        return found
    raise fault(found.path, found.lines[longest], what, got, fix)


def with_column(
    text: str, word_lines: Sequence[Sequence[int]], tags: Sequence[Sequence[str]]
) -> str:
    r"""Return a CoNLL-style file with a tag after the last column of every word.

    Other lines stay: blank ones and comments as they are, those between documents (tagged O) and of
    what is no word (_) with a column more, as conlleval wants the same number in every line.

    >>> with_column("-DOCSTART- X\n\nAnna NNP\n", [[3]], [["B-PER"]])
    '-DOCSTART- X O\n\nAnna NNP B-PER\n'
    """
    added = {
        number: tag
        for numbers, some in zip(word_lines, tags, strict=True)
        for number, tag in zip(numbers, some, strict=True)
    }
    lines = lines_of(text)
    first = lines[word_lines[0][0] - 1].strip()
    apart = " " if " " in first and "\t" not in first else "\t"
    for number, line in enumerate(lines, start=1):
        if line.startswith(BETWEEN_DOCUMENTS):
            added[number] = OUTSIDE
        elif line.strip() and not line.startswith("#"):
            added.setdefault(number, "_")
    return "\n".join(
        f"{line.rstrip(' ')}{apart}{added[number]}" if number in added else line
        for number, line in enumerate(lines, start=1)
    )


def _cells(line: str, apart: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"\t" if apart == "\t" else " +", line.strip(" \r"))]


def _place(path: Path, named: str, flag: str, width: int, default: int) -> int:
    if not named:
        return default
    if not named.isdecimal() or not 1 <= int(named) <= width:
        raise fault(
            path,
            1,
            "columns of CoNLL-style files have numbers, not names",
            got=f"{flag} {named}",
            fix=f"give a number from 1 to {width}",
        )
    return int(named) - 1


def _from_objects(table: DataTable, named: Columns) -> Sentences:
    words_name = named.text or _usual(table, WORD_COLUMNS)
    tags_name = named.label or _usual(table, TAG_COLUMNS)
    for name in (words_name or WORD_COLUMNS[0], tags_name or words_name):
        if name not in table.header:
            raise fault(
                table.path,
                1,
                f"no key {name!r}",
                got=f"keys: {', '.join(table.header)}",
                fix='give objects such as {"tokens": ["…"], "tags": ["O"]}, or name the keys: '
                "--text A --label L",
            )
    words = [_list(table, line, words_name, cell) for line, cell in _column(table, words_name)]
    if not tags_name or all(cell is None for cell in table.column(tags_name)):
        return Sentences(table.path, words, None, table.lines)
    tags = [_list(table, line, tags_name, cell) for line, cell in _column(table, tags_name)]
    for line, some, their in zip(table.lines, words, tags, strict=True):
        if len(some) != len(their):
            got = f"{len(some)} words, {len(their)} tags"
            fix = "give every word one tag"
            raise fault(table.path, line, "not as many tags as words", got=got, fix=fix)
    return Sentences(table.path, words, tags, table.lines)


def _column(table: DataTable, name: str) -> list[tuple[int, Any]]:
    return list(zip(table.lines, table.column(name), strict=True))


def _usual(table: DataTable, names: Sequence[str]) -> str:
    by_case = {name.lower(): name for name in table.header}
    return next((by_case[name] for name in names if name in by_case), "")


def _list(table: DataTable, line: int, name: str, cell: Any) -> list[str]:
    plain = isinstance(cell, list) and not any(
        isinstance(one, list | dict | None.__class__) for one in cell
    )
    if not plain or not cell:
        got = cell_text(cell)[:60] or "nothing"
        fix = 'give a list, such as ["New", "York"]'
        raise fault(table.path, line, f"{name!r} is no list of words", got=got, fix=fix)
    for one in cell:
        check_length(table.path, line, name, one)
    return [one if isinstance(one, str) else cell_text(one) for one in cell]


def need_tags(sentences: Sentences) -> list[list[str]]:
    """The tags of a file where every word must have one."""
    if sentences.tags is None:
        got = " ".join(sentences.words[0])[:60]
        fix = "give a second column with tags, or a list of them; --label names it"
        raise fault(sentences.path, sentences.lines[0], "words without tags", got=got, fix=fix)
    return sentences.tags


def tags_of(sentences: Sentences) -> tuple[str, ...]:
    """The different tags of a training file."""
    tags = label_order([tag for some in need_tags(sentences) for tag in some])
    if len(tags) < 2:
        raise UserError(
            f"{sentences.path}: every word has the same tag, so there is nothing to learn",
            got=f"{tags[0]!r} from line {sentences.lines[0]} on",
            fix="give words of two tags at least, or name another column with --label",
        )
    return tags

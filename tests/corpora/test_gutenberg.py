import gzip
import io
import time
import zipfile
from collections import Counter

import pytest

from electrify.corpora import gutenberg
from electrify.corpora.gutenberg import Gutenberg, book_text, open_book
from electrify.corpora.troubles import CUT, TRUNCATED
from electrify.errors import UserError

NEW = """\
The Project Gutenberg EBook of A Small Book, by Ann Author

This eBook is for the use of anyone anywhere at no cost and with
almost no restrictions whatsoever.

Title: A Small Book

Author: Ann Author

Release Date: May 1, 2008 [EBook #12345]

Language: English

Character set encoding: UTF-8

*** START OF THIS PROJECT GUTENBERG EBOOK A SMALL BOOK ***



Produced by Some Volunteers and the Online Distributed
Proofreading Team at http://www.pgdp.net

[Transcriber's Note: Obvious errors
were corrected.]

CHAPTER I

It was a bright cold day in the month of April, and all of the clocks in
the town were striking the hour when the well-
known visitor came up the road, slowly,--as he always did,--
to the door.  Nobody opened it for a long while, so he sat down.

      Wheat      12.50
      Barley      8.25

The woods are lovely, dark and deep,
But I have promises to keep,
And miles to go before I sleep,
And miles to go before I sleep.

He left.

End of the Project Gutenberg EBook of A Small Book, by Ann Author

*** END OF THIS PROJECT GUTENBERG EBOOK A SMALL BOOK ***

***** This file should be named 12345.txt or 12345.zip *****
Updated editions will replace the previous one.
"""
BODY = """\
CHAPTER I
It was a bright cold day in the month of April, and all of the clocks in the town were striking \
the hour when the well-known visitor came up the road, slowly,--as he always did,--to the door. \
Nobody opened it for a long while, so he sat down.
Wheat      12.50
Barley      8.25
The woods are lovely, dark and deep,
But I have promises to keep,
And miles to go before I sleep,
And miles to go before I sleep.
He left."""
OLD = """\
**The Project Gutenberg Etext of An Old Book, by Bob Writer**

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here? You know: lawyers.
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

This etext was prepared by Somebody, Somewhere.

An old story.

End of Project Gutenberg's Etext of An Old Book
"""


def read(*sources):
    tally: Counter[str] = Counter()
    documents = []
    for part in Gutenberg().parts(sources):
        tally.update(part.problems)
        documents += Gutenberg().documents(part, tally)
    assert len({document.id for document in documents}) == len(documents)
    return documents, dict(tally)


def test_header_licence_credits_and_wrapped_lines_are_removed(tmp_path):
    (tmp_path / "12345.txt").write_text(NEW)
    (document,), tally = read(tmp_path)
    assert document.text == BODY
    assert (document.id, document.title, document.label) == (
        "12345.txt",
        "A Small Book",
        "Ann Author",
    )
    assert not tally


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (
            "*** START OF THE PROJECT GUTENBERG EBOOK X ***",
            "*** END OF THE PROJECT GUTENBERG EBOOK",
        ),
        ("***START OF THE PROJECT GUTENBERG EBOOK X***", "***END OF THE PROJECT GUTENBERG EBOOK"),
        ("*** START OF THIS PROJECT GUTENBERG EBOOK A\nB C ***", "End of Project Gutenberg's X"),
        (
            "*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*END*",
            "End of The Project Gutenberg Etext",
        ),
        ("*END*THE SMALL PRINT! FOR PUBLIC DOMAIN", "*** START: FULL LICENSE ***"),
    ],
)
def test_markers(start, end):
    text = f"The Project Gutenberg Etext\nlegal\n{start}\n\nThe story.\n\n{end}\nlegal\n"
    assert gutenberg.book_body(open_book(text, "x.txt").lines) == "The story."


def test_the_old_small_print_and_the_name_of_the_file(tmp_path):
    (tmp_path / "Bob Writer___An Old Book.txt").write_text(OLD.replace("\n", "\r\n"))
    (document,), _ = read(tmp_path)
    assert document.text == "An old story."
    assert (document.title, document.label) == ("An Old Book", "Bob Writer")


def test_a_book_without_any_header_is_kept_completely(tmp_path):
    (tmp_path / "Ann___X.txt").write_text("One.\n\nTwo.\n")
    assert read(tmp_path)[0][0].text == "One.\nTwo."


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", "UTF-8"),
        ("utf-8-sig", ""),
        ("utf-16", ""),
        ("latin-1", "ISO-8859-1"),
        ("cp1252", "ISO-8859-1"),
        ("cp1252", ""),
        ("mac_roman", "MacRoman"),
        ("mac_roman", ""),
        ("cp437", "CP437"),
        ("cp437", ""),
        ("iso8859-15", "ISO-8859-15"),
    ],
)
def test_encodings(encoding, declared):
    words = "élève à la crème, où l'été, déjà" + (" “quoted”" if encoding == "cp1252" else "")
    words = words.replace("où", "ou") if encoding == "cp437" else words
    header = f"Character set encoding: {declared}\n" if declared else ""
    assert book_text((header + words).encode(encoding)).endswith(words)


def _zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)


def test_books_are_read_out_of_a_zip_and_its_names_are_only_names(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "Gutenberg.zip"
    members = [
        ("Gutenberg/txt/Ann Author___One.txt", NEW),
        ("../../Bob___Two.txt", OLD),
        ("/abs.txt", "Three."),
        ("__MACOSX/x.txt", "no"),
        ("readme.html", "no"),
        ("empty.txt", ""),
    ]
    _zip(path, members)
    documents, tally = read(path)
    assert [d.text for d in documents] == [BODY, "An old story.", "Three."]
    assert (documents[1].title, documents[1].label) == ("Two", "Bob")
    assert tally == {"not a .txt file": 1, "empty file": 1}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["Gutenberg.zip", "in"]
    monkeypatch.setattr(gutenberg, "MAX_DOCUMENT_BYTES", 100)
    assert read(path)[1]["document too large"] == 2


def test_fractions_rise_to_the_end(tmp_path):
    _zip(
        tmp_path / "a.zip",
        [(f"{n}.txt", "word " * 1_000_000) for n in range(6)],
        zipfile.ZIP_STORED,
    )
    (tmp_path / "b.txt").write_text("word " * 3_000_000)
    fractions = [part.fraction for part in Gutenberg().parts([tmp_path])]
    assert len(fractions) == 3
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < 0.6
    assert fractions[-1] == 1


def test_a_zip_bomb_is_refused_with_its_ratio(tmp_path):
    path = tmp_path / "bomb.zip"
    _zip(path, [("a.txt", bytes(60_000_000))])
    with pytest.raises(UserError, match="more than 200 : 1"):
        read(path)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_zip_is_refused(tmp_path, fraction):
    path = tmp_path / "a.zip"
    _zip(path, [(f"{n}.txt", NEW) for n in range(5)])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    with pytest.raises(UserError, match="not a complete zip"):
        read(path)


def test_damaged_encrypted_and_unusually_compressed_members_are_counted(tmp_path):
    path = tmp_path / "a.zip"
    _zip(path, [("a.txt", NEW), ("b.txt", "Fine.")], zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.find(b"bright cold")] ^= 0xFF
    path.write_bytes(data)
    documents, tally = read(path)
    assert [document.text for document in documents] == ["Fine."]
    assert tally == {"damaged in archive": 1}
    _zip(path, [("a.txt", NEW)], zipfile.ZIP_LZMA)
    assert read(path) == ([], {"packed in an uncommon way": 1})
    _zip(path, [("a.txt", NEW)])
    data = bytearray(path.read_bytes())
    data[data.rfind(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert read(path) == ([], {"encrypted": 1})


def test_compressed_empty_and_truncated_books(tmp_path):
    compressed = gzip.compress(NEW.encode())
    (tmp_path / "a.txt.gz").write_bytes(compressed)
    (tmp_path / "b.txt.gz").write_bytes(compressed[:-200])
    (tmp_path / "c.txt").write_bytes(b"")
    documents, tally = read(tmp_path)
    assert [document.text for document in documents] == [BODY]
    assert tally == {TRUNCATED: 1, CUT: 1, "empty file": 1}


def test_many_short_lines_are_read_quickly(tmp_path):
    out = io.StringIO()
    out.writelines(f"word{n % 97}\n" for n in range(300_000))
    (tmp_path / "a.txt").write_text(out.getvalue())
    assert len(read(tmp_path)[0]) == 1


def test_a_repeated_marker_is_read_quickly():
    began = time.monotonic()
    open_book("(Small Print " * 500_000 + "\n" + "(Small Print\n" * 100_000, "a.txt")
    assert time.monotonic() - began < 5

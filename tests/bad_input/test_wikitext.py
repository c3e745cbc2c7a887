"""Wikipedia dumps that are truncated, hostile, or not dumps."""

from itertools import pairwise

import pytest

from electrify.corpora.troubles import CUT, REPAIRED
from tests.bad_input.sources import ALSO_GOOD, GOOD, accounted, manifest, texts, wiki


def test_unbalanced_wikitext_is_read_quickly(tmp_path, run):
    """Each piece of markup 100,000 times before prose, in one dump."""
    marks = ["{{", "[[", "{|", "{{{", "[http://a ", "'''", "&lt;ref&gt;", "&lt;!--", "&lt;math&gt;"]
    marks += ["}}", "]]", "|}", "&lt;/ref&gt;", "-->".replace(">", "&gt;"), "==", "&amp;", "[[a|"]
    marks += ["{{a|", "&lt;", "__", "\n*", "\n{|\n|", "&lt;nowiki&gt;", "[[File:a|", "~~~~", "\n="]
    pages = [GOOD.decode(), *(mark * 100_000 + " and prose." for mark in marks), ALSO_GOOD.decode()]
    (tmp_path / "a.xml").write_bytes(wiki(*pages))
    run("corpus", "wikipedia", "a.xml", "--out", "docs", "--workers", "2")
    assert accounted(tmp_path / "docs") == len(pages)
    assert {GOOD.decode(), ALSO_GOOD.decode()} <= set(texts(tmp_path / "docs"))


LAUGHS = '<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {name} "{f"&{before};" * 20}">' for before, name in pairwise("abcdefgh")
)


DOCTYPES = {
    "plain": ("<!DOCTYPE mediawiki>", ""),
    "billion laughs": (f"<!DOCTYPE mediawiki [{LAUGHS}]>", "&h;"),
    "external entity": ('<!DOCTYPE mediawiki [<!ENTITY x SYSTEM "file://@">]>', "&x;"),
    "external DTD": ('<!DOCTYPE mediawiki SYSTEM "file://@">', ""),
}


@pytest.mark.parametrize("name", DOCTYPES)
def test_a_doctype_brings_nothing_in(tmp_path, refused, name):
    """No dump has one, and its entities must not be expanded."""
    secret = tmp_path / "secret"
    secret.write_text("The secret.")
    head, entity = DOCTYPES[name]
    (tmp_path / "a.xml").write_bytes(
        wiki(GOOD.decode(), f"x {entity}", head=head.replace("@", str(secret)))
    )
    error = refused("corpus", "wikipedia", "a.xml", "--out", "docs")
    assert "secret." not in error
    assert not (tmp_path / "docs" / "manifest.json").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"no XML at all",
        b"<html><body><p>A page</body>",
        b"<a>" * 200_000,
    ],
    ids=["text", "HTML", "tags"],
)
def test_a_file_that_is_not_a_dump_is_refused(tmp_path, refused, data):
    (tmp_path / "a.xml").write_bytes(data)
    refused("corpus", "wikipedia", "a.xml", "--out", "docs")
    assert not (tmp_path / "docs" / "manifest.json").exists()


def test_broken_pages_are_counted_or_repaired(tmp_path, run):
    intact = wiki(GOOD.decode(), "@", ALSO_GOOD.decode())
    cases = {
        "control": intact.replace(b"@", b"a bad \x01 character"),
        "NUL": intact.replace(b"@", b"a bad \0 character"),
        "not UTF-8": intact.replace(b"@", b"a \xff\xfe"),
        "entity": intact.replace(b"@", b"&undefined; &#0; &#xd800; &#99999999999; &"),
        "no end": intact.replace(b"@</text></revision>", b"@"),
        "no text": intact.replace(b'<text xml:space="preserve">@</text>', b""),
        "no title": intact.replace(b"<title>Page 2</title>", b""),
        "no id": intact.replace(b"<id>2</id>", b""),
        "tags": intact.replace(b"@", b"<b><page><i></text>"),
    }
    (tmp_path / "src").mkdir()
    for name, data in cases.items():
        (tmp_path / "src" / f"{name}.xml").write_bytes(data)
    sources = [f"src/{name}.xml" for name in cases]
    run("corpus", "wikipedia", *sources, "--out", "docs", "--workers", "2")
    found = texts(tmp_path / "docs")
    assert found.count(GOOD.decode()) == found.count(ALSO_GOOD.decode()) == len(cases)
    assert accounted(tmp_path / "docs") == 3 * len(cases) + 1  # a tag in a text begins another page


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "windows-1252", "UTF-8", "utf-16"])
def test_the_declared_encoding_is_used(tmp_path, run, encoding):
    content = wiki("Übergröße, naïve café.", head=f'<?xml version="1.0" encoding="{encoding}"?>\n')
    (tmp_path / "a.xml").write_bytes(content.decode().encode(encoding))
    run("corpus", "wikipedia", "a.xml", "--out", "docs")
    assert texts(tmp_path / "docs") == ["Übergröße, naïve café."]
    assert not manifest(tmp_path / "docs")["notes"]


@pytest.mark.parametrize("encoding", ["klingon", "idna", "rot13", "punycode", "undefined"])
def test_an_unknown_encoding_is_refused(tmp_path, refused, encoding):
    (tmp_path / "a.xml").write_bytes(wiki("a", head=f"<?xml version='1.0' encoding='{encoding}'?>"))
    assert encoding in refused("corpus", "wikipedia", "a.xml", "--out", "docs")


def test_invalid_bytes_are_noted_and_a_text_without_end_is_dropped(tmp_path, run):
    intact = wiki(GOOD.decode(), "a bad @ byte", "without an end#", ALSO_GOOD.decode())
    content = intact.replace(b"@", b"\xff").replace(b"#</text>", b"")
    (tmp_path / "a.xml").write_bytes(content)
    run("corpus", "wikipedia", "a.xml", "--out", "docs")
    assert texts(tmp_path / "docs") == [GOOD.decode(), "a bad \ufffd byte", ALSO_GOOD.decode()]
    stated = manifest(tmp_path / "docs")
    assert (stated["dropped"], stated["notes"]) == ({CUT: 1}, {REPAIRED: 1})

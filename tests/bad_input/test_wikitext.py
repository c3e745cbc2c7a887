"""Wikipedia dumps that are truncated, hostile, or not dumps."""

from itertools import pairwise

import pytest

from tests.bad_input.sources import ALSO_GOOD, GOOD, accounted, texts, wiki


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
    assert accounted(tmp_path / "docs") == 3 * len(cases)

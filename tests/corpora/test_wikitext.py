"""Wikitext to prose: every kind of markup, alone, nested, broken, and in extreme amounts."""

import time

import pytest

from electrify.corpora.wikisite import Site, is_disambiguation, is_redirect
from electrify.corpora.wikitext import clean

SITE = Site.from_header(
    '<mediawiki xml:lang="de"><siteinfo><namespaces><namespace key="6">Datei</namespace>'
    '<namespace key="14">Kategorie</namespace><namespace key="0" /></namespaces></siteinfo>'
)


def cleaned(text: str, **options: bool) -> str:
    return clean(text, "Tea", SITE, **options)


MARKUP = {
    "plain": ("Tea is hot.", "Tea is hot."),
    "bold and italics": ("'''Tea''' is ''very'' '''''hot'''''.", "Tea is very hot."),
    "apostrophe after italics": ("''The Times'''s tea", "The Times's tea"),
    "bold plural": ("'''Tea'''s are many", "Teas are many"),
    "italics beside italics": ("''a''<sub>''n''</sub> = ''b''<sub><b>''n''</b></sub>", "an = bn"),
    "italics around a note": ("''a''<ref>x</ref>''b'' and ''T''<nowiki/>'s", "ab and T's"),
    "link": ("a [[drink]] of [[tea]]s", "a drink of teas"),
    "piped link": ("a [[drink (hot)|hot drink]]", "a hot drink"),
    "link with colon": ("[[2001: A Space Odyssey]] and [[Star Trek: Nemesis|Nemesis]]",
                        "2001: A Space Odyssey and Nemesis"),
    "link to a section": ("[[#History|above]], [[green_tea:x]]", "above, green tea:x"),
    "empty piped link": ("[[tea|]] leaves", "tea leaves"),
    "visible category": ("see [[:Category:Tea|the teas]]", "see the teas"),
    "sister project": ("[[wikt:tea|word]] and [[wikt:leaf]]", "word and leaf"),
    "file": ("A [[File:tea.jpg|thumb|A '''cup''' of [[tea]]]] B", "A B"),
    "local file": ("A [[Datei:tea.jpg|mini|Tasse]] B", "A B"),
    "unknown file word": ("A [[Mynd:tea.jpg|thumb|Tasse]] B", "A B"),
    "old file word": ("A [[Image:tea.png]] B", "A B"),
    "category": ("Tea.\n[[Kategorie:Tee]]\n[[Category:Tea]]", "Tea."),
    "language links": ("Tea.\n[[de:Tee]]\n[[zh-min-nan:Tê]]", "Tea."),
    "external link": ("the [http://example.org/?a=b official site] here", "the official site here"),
    "external without text": ("Tea [http://example.org] (see [http://a.org]).", "Tea."),
    "line that is an address": ("Tea.\n* http://example.org/a", "Tea."),
    "template": ("Tea{{citation needed|date=May 2005}} is hot.", "Tea is hot."),
    "infobox": ("{{Infobox drink\n| name = Tea\n| type = [[drink|hot]]\n}}\nTea.", "Tea."),
    "nested template": ("{{a|{{b|{{c}}}}|{{d}}}}Tea", "Tea"),
    "parameter": ("{{{1|Tea}}} is {{{2}}}hot", "Tea is hot"),
    "lang": ("{{lang|fr|thé}} ({{lang-el|τσάι}})", "thé (τσάι)"),
    "nowrap": ("{{nowrap|5 cups}} of {{abbr|t.|tea}}", "5 cups of t."),
    "convert": ("{{convert|5|km|mi|1}}, {{convert|6|ft|2|in|m}}", "5 km, 6 ft 2 in"),
    "convert range": ("{{convert|5|to|8|km2|sqmi}} {{convert|90|-|95|C}}", "5 to 8 km² 90–95 °C"),
    "nihongo": ("{{nihongo|Green tea|緑茶|ryokucha}}", "Green tea (緑茶, ryokucha)"),
    "transl": ("{{transl|ru|ISO|čaj}}", "čaj"),
    "quote": ("He said:\n{{quote|Tea is [[hot]].|Ann}}\nThen", "He said:\nTea is hot.\nThen"),
    "named quote": ("{{blockquote|text=Tea = hot|author=Ann}}", "Tea = hot"),
    "page name": ("{{PAGENAME}} is hot", "Tea is hot"),
    "signs": ("Ann{{'}}s 1{{ndash}}2{{spaced ndash}}3{{'s}}", "Ann's 1–2 – 3's"),
    "circa": ("{{circa|1900}}, {{as of|2010|5|lc=y}}", "c. 1900, as of May 2010"),
    "parser function": ("{{lc:tea}} {{formatnum:1000}} {{#if:x|y|z}}", "tea 1000"),
    "fraction": ("{{frac|1|2}} cup, {{HMS|Tea|1900|2}}", "1/2 cup, HMS Tea"),
    "table": ('A\n{| class="x"\n|-\n| a || b\n|}\nB', "A\nB"),
    "indented table": ("A\n:{|\n| a\n|}\nB", "A\nB"),
    "table after a template": ("{{x}} {|\n| a\n|}\nB", "B"),
    "no table": ("{{x}} set {|x| > 0} of\n\nnumbers", "set x| > 0} of\nnumbers"),
    "nested table": ("A\n{|\n|\n{|\n| a\n|}\n| b\n|}\nB", "A\nB"),
    "html table": ("A <table border=1><tr><td>x</td></tr></table> B", "A\nB"),
    "ref": ("Tea<ref>Book, p. 1</ref> is<ref name=x /> hot<ref name=\"a\">{{cite}}</ref>.",
            "Tea is hot."),
    "ref with tag": ("Tea<ref name=a>An <i>old</i> book</ref>.<REF>x</REF>", "Tea."),
    "references": ("Tea.\n<references/>\n<references>\n<ref>a</ref></references>", "Tea."),
    "comment": ("Tea <!-- no --> is<!--\n\nx--> hot", "Tea is hot"),
    "comment on its own line": ("Tea is\n<!-- no -->\nhot", "Tea is hot"),
    "gallery": ("Tea.\n<gallery>\nFile:a.jpg|A\n</gallery>", "Tea."),
    "code": ("<source lang=c>int a;</source>Use <code>printf()</code>", "Use printf()"),
    "nowiki": ("<nowiki>[[tea]] '''x''' {{y}} <b></nowiki>", "[[tea]] '''x''' {{y}} <b>"),
    "nowiki over sections": ("A <nowiki>b\n== C ==\n[[D]] ''e''</nowiki>", "A b\nD e"),
    "derivative": ("<math>f''(x)</math>", "f''(x)"),
    "formula": (r"where <math>x</math> is <math>\frac{{a}}{b}</math> hot", "where x is a/b hot"),
    "Greek": (r"angle <math>\alpha \in \mathbb{R}</math>, <math>\,2\pi r</math>", "angle α ∈ R, 2π r"),
    "scripts": (r"<math>x_1^2 + y_{n+1} = e^{-i\omega t}</math>", "x1² + y_(n+1) = e^(-iω t)"),
    "function": (r"<math>\sin(\theta) = \frac{a+b}{2}, \sqrt{2}</math>", "sin(θ) = (a+b)/2, √2"),
    "accent": (r"<math>\bar{z} = {a \over 2 b}</math>", "z̄ = a/(2 b)"),
    "set": (r"<math>\left\{1, \ldots, n\right\}</math>", "{1, …, n}"),
    "TeX that is no text": (r"A <math>\begin{matrix}1&2\\3&4\end{matrix}</math> B", "A B"),
    "inline tags": ("H<sub>2</sub>O, 10<sup>6</sup> s<sup>&minus;2</sup>, <span style='x'>a</span>",
                    "H2O, 10⁶ s⁻², a"),
    "block tags": ("one<br/>two<div>three</div><p>four", "one\ntwo\nthree\nfour"),
    "no tag": ("if a <b and 2 < 3; <joe@example.org>", "if a <b and 2 < 3; <joe@example.org>"),
    "ruby": ("<ruby>茶<rp>(</rp><rt>ちゃ</rt><rp>)</rp></ruby>", "茶"),
    "entities": ("A&nbsp;B &amp; C &mdash; &#233; &#xe9; &lt;b&gt;", "A B & C — é é <b>"),
    "entities of entities": ("A&amp;nbsp;B &amp;amp;amp; C", "A B & C"),
    "no entity": ("AT&T; R&D &unknown;", "AT&T; R&D &unknown;"),
    "magic words": ("__NOTOC__Tea __KEIN_INHALTSVERZEICHNIS__ __ОГЛ__", "Tea"),
    "dunder": ("__init__ stays", "__init__ stays"),
    "lists": ("* a\n** b\n# c\n: d\n;e: f\n*\n* {{x}}", "a\nb\nc\nd\ne: f"),
    "rule": ("A\n----\nB", "A\nB"),
    "paragraphs": ("one\ntwo\n\nthree\n\n\n\nfour", "one two\nthree\nfour"),
    "heading": ("A\n== B ==\nC\n===D===\nE", "A\nC\nE"),
    "sloppy heading": ("== B == text", "text"),
    "variants": ("-{zh-hans:电脑;zh-hant:電腦}- -{只}- -{H|zh-cn:a;zh-tw:b}-", "电脑 只"),
    "hole": ("Tea ({{x}}) is", "Tea is"),
    "hole with comma": ("Tea ({{x}}, ''cha'') is", "Tea (cha) is"),
    "hole at the end": ("Tea (cha; {{x}}) is", "Tea (cha) is"),
    "title's sound": ("'''Tea''' ({{IPA|ti}}, ''cha''; {{IPA2|tʃɑ}}) is", "Tea (cha) is"),
    "title's sound in words": ("'''Tea''' (pronounced {{IPA|/ti/}}) is", "Tea (pronounced /ti/) is"),
    "sounds": ("{{IPA|/i/}} ({{IPA|[ɪ]}}, {{unicode|ī}}) as in {{IPA|fr|tje}}",
               "/i/ ([ɪ], ī) as in tje"),
    "comma after hole": ("Tea {{x}}, hot {{y}}.", "Tea, hot."),
    "hole at the start": ("{{x}}, which is hot", "which is hot"),
    "absolute value": ("|G| denotes the order of G, which is finite.",
                       "|G| denotes the order of G, which is finite."),
    "absolute values": ("Then\n|''f''| &ge; |''g''|, so\n|-a| = |a|.", "Then |f| ≥ |g|, so |-a| = |a|."),
    "rows without a table": ("A\n|-\n| b\n|c || d\n| name = value\n|}\n|+ e\n| f=g| h\nB", "A\nB"),
    "hatnotes": (":''This is about tea.''\n::''For cups, see'' [[Cup]].\n\n'''Tea''' is hot.",
                 "Tea is hot."),
    "hatnote without indent": ("''For cups, see [[Cup]].''\n'''Tea''' is hot.", "Tea is hot."),
    "italics first": ("''Tea'' is hot.\n:''Cha'' too.", "Tea is hot.\nCha too."),
    "note in a section": ("A\n== B ==\n:''Main article: [[Tea]]''\nC\n\n:''Tea is hot''",
                          "A\nC\nTea is hot"),
    "broken language links": ("Tea.\n\n[[pl:Herbata\n\nct:Te\n\n[[sv:Te]", "Tea."),
    "no language link": ("Note:\n\nre:Invent is held.\n\nto: him", "Note:\nre:Invent is held.\nto: him"),
    "call": ("the main() function", "the main() function"),
    "spaces": ("a  b\t c\u2009d\u200be", "a b c de"),
}  # fmt: skip


@pytest.mark.parametrize(("wikitext", "prose"), MARKUP.values(), ids=MARKUP)
def test_markup(wikitext: str, prose: str) -> None:
    assert cleaned(wikitext) == prose


NESTED = {
    "link in caption in template in table": (
        "A\n{|\n| {{x|[[File:a.jpg|thumb|see [[b|c]]]]}}\n|}\nB", "A\nB"),
    "template in link": ("[[Tea|{{nowrap|hot [[drink]]}}]] B", "hot drink B"),
    "link in quote": ("{{quote|{{lang|fr|[[thé|le thé]]}} is ''hot''}}", "le thé is hot"),
    "file in file": ("[[File:a.jpg|thumb|[[File:b.png]] and {{c|[[d]]}}]]A", "A"),
    "table in template": ("{{x|\n{|\n| a\n|}\n}}A", "A"),
}  # fmt: skip


@pytest.mark.parametrize(("wikitext", "prose"), NESTED.values(), ids=NESTED)
def test_nesting(wikitext: str, prose: str) -> None:
    assert cleaned(wikitext) == prose


UNBALANCED = {
    "template": "First.\n{{Infobox\n| a = b\n\nLast.",
    "template in a line": "First {{x and\n\nLast.",
    "template before a section, closed late": "First.\n{{x|\n== A ==\nLast.\n}}",
    "table": 'First.\n{| class="a"\n|-\n| b\n\nLast.',
    "link": "First [[a|b and\n\nLast.",
    "file": "First [[File:a.jpg|thumb|caption\n\nLast.",
    "file, closed late": "First [[File:a.jpg|thumb|caption\n\nMiddle\n\nLast.]]",
    "ref": "First<ref>note\n\nLast.",
    "ref before a ref": "First<ref>note Last.<ref>b</ref>",
    "comment": "First <!-- Last.",
    "nowiki": "First <nowiki> Last.",
    "nowiki over the rest": "First <nowiki><math>[[a\n== B ==\n{{c}}</math></nowiki>\n\nLast.",
    "formula": "First <math>\\frac{{a}}{b}\nLast.",
    "formula before a formula": "First <math>\\frac{{a}}{b}\n\nLast. <math>x</math>",
    "closing": "First }} ]] |} </ref> --Last.",
    "link in template": "First {{a|[[b}} Last.",
    "template in ref": "First <ref>{{cite|a</ref> Last.",
    "template in table": "First\n{|\n| {{a\n|}\nLast.",
}


def test_rows_are_dropped_if_a_table_is_never_closed() -> None:
    assert cleaned("First.\n{|\n|-\n|a| b\n|This cell holds seven or more words.\n\nLast.") == (
        "First.\nLast."
    )


@pytest.mark.parametrize("wikitext", UNBALANCED.values(), ids=UNBALANCED)
def test_unbalanced_markup_swallows_nothing(wikitext: str) -> None:
    prose = cleaned(wikitext)
    assert prose.startswith("First")
    assert "Last." in prose
    assert not {"{{", "}}", "[[", "]]", "{|", "|}"} & {prose[i : i + 2] for i in range(len(prose))}


REPEATED = [
    "{{", "}}", "[[", "]]", "{|", "\n{|", "\n|}", "<ref>", "</ref>", "<ref", "'", "<!--", "-->",
    "{{{", "}}}", "{{a|", "[[a|", "[[File:a|", "{{nowrap|", "{{nowrap|[[a|", "<math>", "<nowiki>",
    "<table>", "<b", "<b>", "[http://a ", "[http://a]", "(", "( ", "(,", ", ", ",", " ,", " ",
    ")", "=", "==", "\n==", "&", "&amp;", "-{", "-{}-", "__", "__A", "_", "|", "\n|", "\n*", "*",
    "!", "\n", "\x0b", "a=|", "{{hlist|a", "'''s", "''a'''s ", "{{convert|1", "<ref>a</ref",
    "{{x}}", "[[x]]", "<nowiki>a", "<math>a</math>", r"<math>\frac{a}{b}</math>", "'''(", "''<b>",
    ":''a''\n", "''a''\n", "''a'\n", "\n|a|", "|a| ", "&amp;amp;amp;", "ab:c", "(({{IPA|", "\n''main", "\n;", "\n-", "{{PAGENAME|", "http://",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("markup", REPEATED, ids=repr)
def test_time_is_linear(markup: str) -> None:
    start = time.process_time()
    cleaned(markup * 100_000)
    cleaned("Tea " + markup * 100_000 + " ]]}}|}")
    assert time.process_time() - start < 4, "quadratic time would take minutes"


def test_many_arguments_are_linear() -> None:
    start = time.process_time()
    cleaned("{{hlist" + "|a" * 100_000 + "}}")
    cleaned("{{lang|" * 30 + "x" * 1_000_000 + "}}" * 30)
    cleaned("<nowiki>" * 100_000 + "\n==</nowiki>")
    cleaned("<math>" + "\\alpha{" * 100_000 + "</math>")
    cleaned("== a " + " " * 100_000 + "b")
    assert time.process_time() - start < 4


def test_headings_are_kept_on_request_unless_empty() -> None:
    wikitext = "A\n== B ==\n=== C ===\nD\n== E ==\n{{x}}\n== F ==\n* G\n== H ==\n"
    assert cleaned(wikitext, headings=True) == "A\nB\nC\nD\nF\nG"


def test_cleaning_clean_prose_changes_nothing() -> None:
    prose = "\n".join(prose for _, prose in MARKUP.values() if not set("[{'<&") & set(prose))
    assert cleaned(prose.replace("\n", "\n\n")) == prose


@pytest.mark.parametrize(
    "text",
    ["#REDIRECT [[Tea]]", "#redirect: [[Tea]]", " #WEITERLEITUNG [[Tee]]", "#REDIRECT[[Tea]]",
     "#перенаправление [[Чай]]", "#पुनर्प्रेषित [[चाय]]", "#重定向 [[茶]]"],
)  # fmt: skip
def test_redirects(text: str) -> None:
    assert is_redirect(text)


def test_a_list_is_not_a_redirect() -> None:
    assert not is_redirect("Tea\n#one [[two]]")
    assert not is_redirect("* [[Tea]]")


DISAMBIGUATION = {
    "template": ("Tea", "{{disambig}}", True),
    "template with arguments": ("Tea", "{{ Disambiguation | geo }}", True),
    "names": ("Tea", "{{hndis|Tea}}", True),
    "places": ("Tea", "{{geodis}}", True),
    "two letters": ("TE", "{{2LCdisambig}}", True),
    "German": ("Tee", "{{Begriffsklärung}}", True),
    "Japanese": ("茶", "{{Aimai}}", True),
    "word": ("Tea", "__DISAMBIG__", True),
    "title": ("Tea (disambiguation)", "", True),
    "Russian title": ("Чай (значения)", "", True),
    "needs it": ("Tea", "a [[x]]{{disambiguation needed|date=May}}", False),
    "article": ("Tea", "{{Infobox}} {{about|x}} tea", False),
}


@pytest.mark.parametrize(("title", "text", "expected"), DISAMBIGUATION.values(), ids=DISAMBIGUATION)
def test_disambiguation(title: str, text: str, expected: bool) -> None:
    assert is_disambiguation(title, text) is expected

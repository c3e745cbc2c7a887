"""Render the templates and formulas that are part of sentences.

Every other template is a box, a note or a maintenance mark and renders to nothing. A formula is
rendered if it fits in one line of plain text; otherwise it would be TeX, which is not prose.
"""

import re
from collections.abc import Callable

from electrify.corpora.wikisite import LANGUAGES, normal, words

BREAK = "\v"
"""A line break inside nested markup; no dump contains this character, because XML forbids it."""

RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
"""Superscript digits and signs."""

Arguments = dict[str, str]
"""A template's arguments by name; positional arguments are named "1", "2", …"""
Renderer = Callable[[Arguments], str]


def _positional(arguments: Arguments) -> list[str]:
    return [value for name, value in arguments.items() if name.isdecimal()]


def _first(*names: str, before: str = "", after: str = "") -> Renderer:
    """Render the first of these arguments that has a value."""

    def render(arguments: Arguments) -> str:
        value = next((arguments[name] for name in names if arguments.get(name)), "")
        return value and before + value + after

    return render


def _block(*names: str) -> Renderer:
    """Render an argument as a separate paragraph."""
    return _first(*names, before=BREAK, after=BREAK)


def _joined(separator: str, limit: int = 99) -> Renderer:
    """Render the positional arguments, joined by a separator."""
    return lambda arguments: separator.join(filter(None, _positional(arguments)[:limit]))


def _last(arguments: Arguments) -> str:
    return next((value for value in reversed(_positional(arguments)) if value), "")


def _constant(text: str) -> Renderer:
    return lambda arguments: text


def _filled(form: str) -> Renderer:
    """Render two arguments by a format: {{sclass|Kongo|cruiser}} is "Kongo-class cruiser"."""
    return lambda arguments: form.format(arguments.get("1", ""), arguments.get("2", ""))


def _glossed(text: str, *glosses: str) -> Renderer:
    """Render a text and its gloss: {{nihongo|Tea|茶|cha}} is "Tea (茶, cha)"."""

    def render(arguments: Arguments) -> str:
        gloss = ", ".join(filter(None, (arguments.get(name, "") for name in glosses)))
        shown = arguments.get(text, "")
        return f"{shown} ({gloss})" if shown and gloss else shown or gloss

    return render


_NUMBER = re.compile(r"[-−+±]?\d[\d.,/+⁄ e-]*")
_RANGES = {"-": "–", "–": "–", "to": " to ", "and": " and ", "or": " or ", "x": " × ", "by": " by ",
           "to(-)": " to ", "+/-": " ± ", "±": " ± ", "xx": " × ", "*": " × "}  # fmt: skip
_UNITS = {"sqmi": "sq mi", "sqkm": "km²", "sqft": "sq ft", "sqm": "m²", "km2": "km²", "m2": "m²",
          "mi2": "sq mi", "ft2": "sq ft", "cm2": "cm²", "m3": "m³", "km3": "km³", "cm3": "cm³",
          "ft3": "cu ft", "cuft": "cu ft", "cuin": "cu in", "cumi": "cu mi", "C": "°C", "F": "°F",
          "kph": "km/h", "kmh": "km/h", "acre": "acres", "inch": "in", "foot": "ft", "mile": "mi",
          "metre": "m", "meter": "m", "LT": "long tons", "ST": "short tons"}  # fmt: skip
_SUBUNITS = frozenset({"in", "oz", "lb", "ft", "min"})
_MONTHS = ("", "January", "February", "March", "April", "May", "June", "July", "August",
           "September", "October", "November", "December")  # fmt: skip


def _measure(arguments: Arguments) -> str:
    """Render {{convert|6|ft|2|in|m}} as "6 ft 2 in", {{convert|5|to|8|km|mi}} as "5 to 8 km"."""
    values, shown = _positional(arguments), ""
    for index, value in enumerate(values[:12]):
        if value in _RANGES:
            shown += _RANGES[value]
        elif _NUMBER.fullmatch(value):
            shown += value
        else:
            shown += f" {_UNITS.get(value, value)}"
            if len(values) < index + 3 or values[index + 2] not in _SUBUNITS:
                break
            shown += " "
    return shown


def _month(text: str) -> str:
    return _MONTHS[int(text)] if text.isdecimal() and int(text) < len(_MONTHS) else text


def _transcribed(arguments: Arguments) -> str:
    """Render {{IPA|ti}}, or {{IPA|fr|te}} of later wikis, which name the language first."""
    first, second = arguments.get("1", ""), arguments.get("2", "")
    return second if second and first in LANGUAGES else first


def _date(arguments: Arguments) -> str:
    year, month, day = (arguments.get(name, "") for name in "123")
    return " ".join(filter(None, (day, _month(month), year)))


def _as_of(arguments: Arguments) -> str:
    return f"{'as of' if arguments.get('lc') else 'As of'} {_date(arguments)}".rstrip()


_PREFIXES = {
    "circa|c.|ca.": "c. ", "floruit|fl.": "fl. ", "us patent": "U.S. Patent ", "sup": "^",
    "us$|usd": "US$", "gbp|£": "£", "inr|indian rupee": "₹", "eur|€": "€", "aud|a$": "A$",
    **{name.lower(): f"{name} " for name in (
        "HMS", "USS", "SS", "RMS", "HMAS", "HMCS", "USNS", "USCGC", "INS", "MV", "SMS")},
}  # fmt: skip
_CONSTANTS = {
    "am": "AM", "pm": "PM", "'s": "'s", "'|apostrophe": "'", '"': '"', "\" '": "\" '", "=": "=",
    "ndash|en dash|endash|nbndash": "–", "mdash|em dash|emdash": "—",
    "spaced ndash|snd|spnd|spndash|spaced en dash|sndash|dash": " – ",
    "spaced mdash|spaced em dash": " — ", "•|bull|bullet": " • ", "·|dot|middot": " · ",
    "nbsp|space|spaces|thinsp|thin space|hair space|hsp|0": " ", "break|br|crlf|clear|-": BREAK,
    "okina": "ʻ", "pi": "π", "times": "×", "minus": "−", "eqm": "⇌", "sharp": "♯", "flat": "♭",
}  # fmt: skip
_TABLE: tuple[tuple[str, Renderer], ...] = (
    *((names, _first("1", before=prefix)) for names, prefix in _PREFIXES.items()),
    *((names, _constant(text)) for names, text in _CONSTANTS.items()),
    # styles, scripts or notes around words
    ("nowrap|nobr|nowr|small|smaller|big|larger|em|strong|mvar|math|var|code|kbd|samp|tt|mono|sc"
     "|smallcaps|sc2|allcaps|nobold|noitalic|underline|key press|keypress|key|dfn|center|resize"
     "|midsize|railgauge|mpl|vr|angbr|angle bracket|visible anchor|vanchor|sic|not a typo"
     "|proper name|su|sub|chem2"
     "|ill|interlanguage link|link-interwiki|linktext|wikt|flag|flagcountry|flagu", _first("1")),
    ("abbr|abbrv|tooltip|h:title|hover", _first("1")),
    ("polytonic|unicode|iast|script/hebrew|script/arabic|script/greek|rtl-lang|hebrew|hayeren|ar"
     "|arabiyyah|arabdin|semxlit", _last),
    ("ipa|ipa2", _transcribed),
    ("lang|langx|lang2|langue|wikt-lang|lang-en-gb", _first("2", "text")),
    ("audio|color|background color|sort", _first("2")),
    ("transl|transliteration|translit|tlit", _last),
    ("nihongo|nihongo krt|nihongo-s", _glossed("1", "2", "3")),
    ("nihongo2|nihongo3", _first("1", "2")),
    ("korean", _first("hangul", "1")),
    ("zh|zh-all|zh-stp|zh-cp|zh-tp|zh-sp|zh-cpw", _glossed("s", "t", "c", "p")),
    ("citation needed span|cns|clarify span", _first("text", "1")),
    # numbers, measures and times
    ("val|num|nts|formatnum|gaps", _first("1")),
    ("convert|cvt", _measure),
    ("frac|fraction|sfrac", _joined("/")),
    ("reign|r.", _joined("–")),
    ("as of|asof", _as_of),
    ("oldstyledate", _joined(" ", limit=2)),
    ("start date|end date|birth date|death date|birth date and age|dts|date", _date),
    ("chem", _joined("")),
    ("bibleverse|bibleref|bibleref2", _joined(" ", limit=2)),
    ("ship", _joined(" ", limit=2)),
    ("sclass|sclass2|sclass-", _filled("{}-class {}")),
    # blocks of prose
    ("quote|cquote|blockquote|quotation|rquote|bquote|quote box|quotebox|pull quote|poemquote"
     "|centered pull quote|epigraph|poem quote|verse|zitat|citation bloc|cita|citazione|цитата"
     "|начало цитаты", _block("quote", "text", "1", "content")),
    ("verse translation", _block("2", "1")),
    ("plainlist|flatlist|columns-list|div col list", _block("content", "1")),
    ("hlist|flat list", _joined(", ")),
    ("ubl|unbulleted list|bulleted list|ordered list", _joined(BREAK)),
    # parser functions, as in {{lc:Text}}
    ("lc:|lcfirst:|uc:|ucfirst:|formatnum:|plural:", _first("1")),
)  # fmt: skip
_RENDERERS = {name: render for names, render in _TABLE for name in names.split("|")}
_RENDERERS["!"] = _constant("|")
_PAGE_NAMES = frozenset({"pagename", "fullpagename", "basepagename", "subpagename"})
_LANGUAGE_NAMED = _first("1", "text")  # {{lang-el|…}}, {{lang-ru|…}}
_KEY = re.compile(r"\s*([\w -]{1,30}?)\s*=")


def _arguments(parts: list[str]) -> Arguments:
    arguments: Arguments = {}
    positional = 0
    for part in parts:
        if key := _KEY.match(part):
            arguments[key[1]] = part[key.end() :].strip()
        else:
            positional += 1
            arguments[str(positional)] = part.strip()
    return arguments


def render_template(fragments: list[str], title: str) -> str:
    """Render a template, given the fragments of its content and the title of the page.

    >>> render_template(["convert|5|to|8|km|mi"], "Page")
    '5 to 8 km'
    >>> render_template(["Infobox person|name=Ada"], "Page")
    ''
    """
    head = fragments[0].partition("|")[0][:80]
    name = normal(head)
    if name in _PAGE_NAMES:
        return title
    renderer = _RENDERERS.get(name) or (_LANGUAGE_NAMED if name.startswith("lang-") else None)
    if renderer:
        shown = renderer(_arguments("".join(fragments).split("|")[1:]))
        return shown if name == "!" else shown.replace("|", "&#124;")
    function, colon, _ = head.partition(":")
    if colon and (renderer := _RENDERERS.get(normal(function) + colon)):
        value = "".join(fragments).partition(":")[2].partition("|")[0]
        return renderer({"1": value.strip()})
    return ""


# --- formulas -------------------------------------------------------------------------------------

MAX_FORMULA_CHARS = 60  # longer ones are not part of a sentence
_PLAIN = re.compile(r"(?:[^\W_]|[\s+\-=<>/.,()'*|!]){1,60}")
_LEFT, _RIGHT = "\x02", "\x03"  # stand for literal braces
_SIGNS = """
    alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta θ iota ι
    kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ
    omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω hbar ℏ ell ℓ
    partial ∂ nabla ∇ infty ∞ emptyset ∅ varnothing ∅ sum ∑ prod ∏ int ∫ sqrt √ pm ± mp ∓ times ×
    div ÷ cdot · circ ∘ ast * otimes ⊗ oplus ⊕ cap ∩ cup ∪ setminus ∖ wedge ∧ land ∧ vee ∨ lor ∨
    neg ¬ lnot ¬ forall ∀ exists ∃ in ∈ notin ∉ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ le ≤ leq ≤
    ge ≥ geq ≥ ne ≠ neq ≠ ll ≪ gg ≫ lt < gt > equiv ≡ approx ≈ sim ∼ simeq ≃ cong ≅ propto ∝ perp ⊥
    mid | vert | to → rightarrow → longrightarrow → leftarrow ← leftrightarrow ↔ Rightarrow ⇒
    implies ⇒ iff ⇔ Leftrightarrow ⇔ mapsto ↦ ldots … dots … cdots … prime ′ langle ⟨ lang ⟨
    rangle ⟩ rang ⟩ aleph ℵ vdash ⊢ colon :
    """
_WORDS = words(
    "sin cos tan cot sec csc log ln exp lim max min sup inf det gcd ker dim deg arg mod sinh cosh"
)
_STYLES = words(
    "mathbb mathbf mathrm mathit mathcal mathfrak mathsf boldsymbol Bbb rm bf it text textrm textbf"
    " mbox operatorname left right big Big bigg Bigg displaystyle textstyle limits !"
)
_ACCENTS = {"bar": "\u0304", "overline": "\u0305", "hat": "\u0302", "tilde": "\u0303",
            "vec": "\u20d7", "dot": "\u0307", "ddot": "\u0308"}  # fmt: skip
_COMMANDS = (
    dict(re.findall(r"(\w+) (\S)", _SIGNS))
    | {word: word for word in _WORDS}
    | dict.fromkeys(_STYLES, "")
    | dict.fromkeys([*",;: ", "quad", "qquad"], " ")
    | {"{": _LEFT, "}": _RIGHT, "|": "‖"}
)
_COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])")
_ACCENT = re.compile(rf"\\({'|'.join(_ACCENTS)})\s*(?:\{{([^\W\d_])\}}|([^\W\d_]))")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_GROUP = re.compile(r"([_^√]?)(?<!frac)(?<!\})\{([^{}]*)\}")
_POWER = re.compile(r"\^([-+]?\d)|_([^\W_])")


def _command(found: re.Match[str]) -> str:
    shown = _COMMANDS.get(found[1], found[0])
    return f"{shown} " if found[1] in _WORDS and found.string[found.end() :][:1] == "\\" else shown


def _parenthesized(term: str) -> str:
    term = term.strip()
    return term if term.isalnum() else f"({term})"


def _group(found: re.Match[str]) -> str:
    """Render x^{10} as x¹⁰, x^{n+1} as x^(n+1), x_{12} as x12; other braces only group."""
    sign, inside = found[1], found[2].strip()
    above, over, below = inside.partition(r"\over ")
    if over:
        return sign + f"{_parenthesized(above)}/{_parenthesized(below)}"
    if sign == "^" and inside.lstrip("+-").isdecimal():
        return inside.translate(RAISED)
    if not sign or (sign == "_" and inside.isalnum()):
        return inside
    return sign + _parenthesized(inside)


def formula(tex: str) -> str:
    r"""Render a simple formula as plain text; any other as nothing.

    >>> formula(r"\alpha_1^2 \leq \frac{n+1}{2}")
    'α1² ≤ (n+1)/2'
    """
    if _PLAIN.fullmatch(tex):
        return tex.strip()
    if len(tex) > 4 * MAX_FORMULA_CHARS or "[[" in tex:
        return ""
    shown = _COMMAND.sub(_command, tex.replace("~", " "))
    for _ in range(4):  # from the innermost braces outward
        shown = _ACCENT.sub(lambda f: (f[2] or f[3]) + _ACCENTS[f[1]], shown)
        shown = _FRACTION.sub(lambda f: f"{_parenthesized(f[1])}/{_parenthesized(f[2])}", shown)
        shown = _GROUP.sub(_group, shown)
    shown = _POWER.sub(lambda f: f[1].translate(RAISED) if f[1] else f[2], shown)
    shown = " ".join(shown.split())
    if len(shown) > MAX_FORMULA_CHARS or not {"\\", "{", "}", "&"}.isdisjoint(shown):
        return ""
    return shown.replace(_LEFT, "{").replace(_RIGHT, "}")

"""Read the docstrings of the standard library and of installed packages."""

import ast
import difflib
import hashlib
import inspect
import io
import re
import sys
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, NamedTuple

from electrify.corpora import archive
from electrify.corpora.clean import decode_utf8
from electrify.corpora.doctext import prose
from electrify.corpora.document import Document, Part, part_of_files
from electrify.corpora.duplicates import text_key
from electrify.corpora.troubles import TOO_LARGE
from electrify.errors import UserError

MAX_SOURCE_BYTES = 5_000_000  # of one .py file; larger ones are data tables
MAX_HEADER_CHARS = 100_000  # of `def …:`
VENDORED = ("_vendor", "vendor", "vendored", "_vendored", "third_party", "extern", "externals")
TESTS = ("test", "tests", "testing", "_testing", "conftest", "idlelib", "turtledemo", "lib2to3")
NOT_PACKAGES = ("site-packages", "dist-packages", "lib-dynload", "__pycache__")
EXCLUDED = frozenset((*VENDORED, *TESTS, *NOT_PACKAGES))
TOPICS = "pydoc_data.topics"


class Module(NamedTuple):
    """A Python source file and the dotted name it is imported by."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        """Return the part of the name before the first dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Docstrings:
    """Docstrings of Python's standard library and of installed packages, and the pydoc topics.

    Source files are searched, never imported. The same environment (Python version and installed
    packages) gives the same documents. The sources are names of packages; with none, all packages
    are read. The label of a document is its package.
    """

    suffixes: ClassVar[Sequence[str]] = ()

    min_words: int = 20
    """Drop docstrings with fewer words."""
    code: bool = False
    """Keep code examples: doctests, fenced and literal blocks."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        selected = _select(sources)
        total, done = max(1, sum(map(_size, selected))), 0
        for batch in archive.group(selected, _size):
            done += sum(map(_size, batch))
            part = part_of_files([(module.path, module.name) for module in batch], done / total)
            yield replace(part, source=batch[0].package)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        files = map(Module, part.context, (source.path for source in part.slices))
        for package, modules_of_package in groupby(files, _package):
            seen: set[bytes] = set()
            for module in modules_of_package:
                for name, raw in _docstrings_of(module, tally):
                    text = prose(raw, self.code) if _words(raw) >= self.min_words else ""
                    if _words(text) < self.min_words:
                        tally["fewer words than --min-words"] += 1
                        continue
                    if (key := text_key(text)) in seen:
                        tally["repeated in its package"] += 1
                        continue
                    seen.add(key)
                    yield Document(name, text, package, name.replace(":", "."), package)

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, object]]:
        """Return what the documents depend on: the versions of Python and of the packages.

        The standard library and packages without a version are identified by file names and sizes.
        """
        owners = metadata.packages_distributions()
        packages = {name: list(group) for name, group in groupby(_select(sources), _package)}
        standard = [name for name in packages if name in sys.stdlib_module_names]
        digest = _digest([module for name in standard for module in packages[name]])
        found: list[dict[str, object]] = [
            {"name": "python", "version": sys.version.split()[0], "sha256": digest}
        ]
        for name in sorted(packages.keys() - set(standard)):
            versions = {owner: metadata.version(owner) for owner in sorted(owners.get(name, ()))}
            known = {"versions": versions} if versions else {"sha256": _digest(packages[name])}
            found.append({"name": name, **known})
        return found


_package = attrgetter("package")


def _size(module: Module) -> int:
    return module.path.stat().st_size


def _words(text: str) -> int:
    return len(text.split())


def _digest(modules: Sequence[Module]) -> str:
    lines = (f"{_size(module)}  {module.name}\n" for module in modules)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


# --- files


def _select(sources: Sequence[Path]) -> list[Module]:
    """Return the modules of the named packages, or of all packages."""
    found = modules()
    packages = {module.package for module in found}
    names = {source.as_posix() for source in sources} or packages
    for name in sorted(names - packages):
        public = sorted(package for package in packages if not package.startswith("_"))
        matches = difflib.get_close_matches(name, public, n=3, cutoff=0.6)
        raise UserError(
            f"package {name!r} is not installed",
            got=f"{len(public):,} other packages in {sys.prefix}",
            fix=f"did you mean {' or '.join(map(repr, matches))}?"
            if matches
            else "install it, or name another package",
        )
    return [module for module in found if module.package in names]


def modules() -> list[Module]:
    """Return the source files in this interpreter's library folders, by package and name."""
    found: dict[str, Path] = {}
    for folder in ("stdlib", "platstdlib", "purelib", "platlib"):
        for name, path in _find_modules(Path(sysconfig.get_path(folder)), ""):
            found.setdefault(name, path)  # `import` takes the first one too
    by_name = (Module(name, path) for name, path in found.items())
    return sorted(by_name, key=lambda module: (module.package, module.name))


def _find_modules(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # absent or not readable
        return
    for path in entries:
        name = path.stem if path.suffix == ".py" else path.name
        if name in EXCLUDED or not name.isidentifier():
            continue
        if path.suffix == ".py" and path.is_file():
            yield (prefix.rstrip(".") if name == "__init__" else prefix + name) or name, path
        elif path.is_dir() and not path.is_symlink():
            yield from _find_modules(path, f"{prefix}{name}.")


# --- source to docstrings


def _docstrings_of(module: Module, tally: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every docstring of a module; repeated names are numbered."""
    try:
        if _size(module) > MAX_SOURCE_BYTES:
            tally[TOO_LARGE] += 1
            return
        data = module.path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        source = data.decode(encoding)
    except OSError:
        tally["file cannot be read"] += 1
        return
    except (SyntaxError, UnicodeDecodeError):
        tally["file cannot be decoded"] += 1
        return
    names: Counter[str] = Counter()
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    for qualified, raw in _topics(source) if module.name == TOPICS else docstrings(source):
        name = f"{module.name}:{qualified}" if qualified else module.name
        names[name] += 1
        text = decode_utf8(inspect.cleandoc(raw).encode(errors="surrogatepass"), tally)
        yield name if names[name] == 1 else f"{name}#{names[name]}", text


# Every alternative begins with one of four characters, which makes the search fast. No group is
# possessive: Python before 3.11.5 matches those wrongly (github.com/python/cpython/issues/106052).
_TOKEN = re.compile(
    r"\n(?P<indent>[ \t\f]*)(?:(?:async[ \t]+)?(?:(?:def|class)[ \t]+(?P<name>\w+)"
    r"|(?:if|elif|else|try|except|finally|with|for|while)\b))"
    r'|(?P<string>"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*"""|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
    r"|'''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*'''|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*')"
    r"|#[^\n]*",
    re.DOTALL,
)
_BRACKETS = re.compile(r"[()\[\]{}:]")
_STATEMENT_ENDS = re.compile(r"[ \t]*(?:[#;\n]|\Z)")


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, content) of every docstring; the module's own comes first, unnamed.

    Parsing would take most of the time. Instead, a docstring is recognized by its position: the
    first string after the colon that ends a definition's header, or at the start of the module.
    """
    blocks: list[tuple[int, str]] = []  # (indent, name or "") of the enclosing blocks
    name, header, start = "", ":", 0  # of the definition whose docstring may come next
    awaited = True
    source = "\n" + source
    for token in _TOKEN.finditer(source):
        if token["indent"] is not None:
            indent = len(token["indent"].expandtabs())
            while blocks and blocks[-1][0] >= indent:
                blocks.pop()
            blocks.append((indent, token["name"] or ""))
            awaited = token["name"] is not None
            name, header, start = ".".join(n for _, n in blocks if n), "", token.end()
        elif awaited:
            header += source[start : token.start()]
            start = token.end()
            if token["string"] is None:
                continue
            body = _after_header(header)
            if body is None:  # a string inside the header: a default, an annotation
                header += "''"
                awaited = len(header) < MAX_HEADER_CHARS
                continue
            awaited = False
            if body.strip() in ("", "r", "R", "u", "U") and _STATEMENT_ENDS.match(source, start):
                yield name, _value(body.strip() + token["string"])


def _after_header(code: str) -> str | None:
    """Return the code after the first colon outside brackets, or None."""
    depth = 0
    for bracket in _BRACKETS.finditer(code):
        if bracket[0] in "([{":
            depth += 1
        elif bracket[0] in ")]}":
            depth -= 1
        elif depth == 0:
            return code[bracket.end() :]
    return None


def _value(literal: str) -> str:
    if "\\" not in literal:
        return literal.lstrip("rRuU")[3:-3] if literal.endswith(('"""', "'''")) else literal[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes
            return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):
        return ""


def _topics(source: str) -> Iterator[tuple[str, str]]:
    """Yield the chapters of the language reference that `help()` shows, from the dict of them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(key.value), str(value.value)

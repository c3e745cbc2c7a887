"""The docstrings of the standard library and of installed packages: text that every machine has."""

import ast
import inspect
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from electrify.corpora import archive
from electrify.corpora.clean import blocks_of, decode, paragraph, wrap_width
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.plaintext import TOO_LARGE, missing_field

MOST_SOURCE = 5_000_000  # bytes of one .py file; larger ones are tables, and slow to parse
COPIES = ("_vendor", "vendor", "vendored", "_vendored", "third_party", "extern", "externals")
TESTS = ("test", "tests", "testing", "_testing", "conftest", "idlelib", "turtledemo", "lib2to3")
NO_PACKAGES = ("site-packages", "dist-packages", "lib-dynload", "__pycache__")
LEFT_OUT = frozenset((*COPIES, *TESTS, *NO_PACKAGES))
TOPICS = "pydoc_data.topics"
_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_HOLDERS = (*_NAMED, ast.If, ast.Try, ast.With, ast.ExceptHandler)  # where definitions may be


class Module(NamedTuple):
    """A Python source file and the dotted name it is imported by."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        """The part of the name before the first dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Docstrings:
    """Docstrings of Python's standard library and of installed packages, and the pydoc topics.

    Source files are parsed, never imported. What comes out depends on the version of Python and on
    the packages that are installed: the same environment gives the same documents. The sources
    are names of packages; with none, all that are found. The label is the package.
    """

    min_words: int = 20
    """Leave out docstrings with fewer words."""
    code: bool = False
    """Keep examples of code: doctests and fenced blocks."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts: whole packages, so that their duplicates meet."""
        found = modules()
        packages = {package: list(group) for package, group in groupby(found, _package)}
        names = [source.as_posix() for source in sources]
        for name in names:
            if name not in packages:
                raise missing_field("this Python", "package", "sources", name, list(packages))
        chosen = [packages[name] for name in sorted(set(names) or packages)]
        for batch in archive.group(chosen, _source_bytes):
            inside = [module for package in batch for module in package]
            slices = tuple(Slice(module.path) for module in inside)
            yield Part(inside[0].package, slices=slices, context=tuple(m.name for m in inside))

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        files = map(Module, part.context, (piece.path for piece in part.slices))
        for package, inside in groupby(files, _package):
            seen: set[bytes] = set()
            for module in inside:
                for name, raw in _of_module(module, tally):
                    text = prose(raw if self.code else without_code(raw))
                    if len(text.split()) < self.min_words:
                        tally["fewer words than min_words"] += 1
                        continue
                    digest = blake2b(text.encode(errors="replace"), digest_size=16).digest()
                    if digest in seen:
                        tally["repeated in its package"] += 1
                        continue
                    seen.add(digest)
                    yield Document(name, text, package, name, package)

    def fingerprints(self, sources: Sequence[Path]) -> list[dict[str, object]]:
        """What the documents depend on: the versions of Python and of the packages."""
        wanted = {source.as_posix() for source in sources}
        owners = metadata.packages_distributions()
        found = sorted({module.package for module in modules()})
        versions: list[dict[str, object]] = [{"name": "python", "version": sys.version.split()[0]}]
        for package in (name for name in found if name in owners and name in (wanted or found)):
            versions.append({"name": package, "version": metadata.version(owners[package][0])})
        return versions


def _package(module: Module) -> str:
    return module.package


def _source_bytes(package: Sequence[Module]) -> int:
    return sum(module.path.stat().st_size for module in package)


def modules() -> list[Module]:
    """The Python source files of this interpreter's library folders, by package and name."""
    found: dict[str, Path] = {}
    for folder in ("stdlib", "platstdlib", "purelib", "platlib"):
        for name, path in _below(Path(sysconfig.get_path(folder)), ""):
            found.setdefault(name, path)  # what is found first is what `import` would take
    by_name = (Module(name, path) for name, path in found.items())
    return sorted(by_name, key=lambda module: (module.package, module.name))


def _below(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # not there, or not for us to read
        return
    for path in entries:
        name = path.stem if path.suffix == ".py" else path.name
        if name in LEFT_OUT or not name.isidentifier():
            continue
        if path.suffix == ".py" and path.is_file():
            yield (prefix.rstrip(".") if name == "__init__" else prefix + name) or name, path
        elif path.is_dir() and not path.is_symlink():
            yield from _below(path, f"{prefix}{name}.")


def _of_module(module: Module, tally: Counter[str]) -> Iterator[tuple[str, str]]:
    """(dotted name, text) of every docstring of a module, names that repeat numbered."""
    try:
        size = module.path.stat().st_size
        data = module.path.read_bytes() if size <= MOST_SOURCE else b""
    except OSError:
        tally["file cannot be read"] += 1
        return
    if size > MOST_SOURCE:
        tally[TOO_LARGE] += 1
        return
    if b'"""' not in data and b"'''" not in data:  # parsing is most of the work
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tally["file is not Python of this version"] += 1
        return
    names: Counter[str] = Counter()
    for name, raw in _topics(tree) if module.name == TOPICS else _docstrings(tree, module.name):
        names[name] += 1
        text = decode(inspect.cleandoc(raw).encode(errors="surrogatepass"), tally)
        yield name if names[name] == 1 else f"{name}#{names[name]}", text


def _docstrings(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, ast.AST]] = [(name, tree)]
    while stack:  # not recursion: generated code nests deeper than Python's stack
        name, node = stack.pop()
        if isinstance(node, (ast.Module, *_NAMED)):
            raw = ast.get_docstring(node, clean=False)
            if raw:
                yield name, raw
        inside = [
            (f"{name}.{child.name}" if isinstance(child, _NAMED) else name, child)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, _HOLDERS)
        ]
        stack += reversed(inside)


_FENCED = re.compile(r"^ *```.*?^ *``` *$", re.MULTILINE | re.DOTALL)
_DOCTEST = re.compile(r"^ *>>> .*(?:\n *\S.*)*", re.MULTILINE)  # and its output, to a blank line
_UNDERLINE = re.compile(r"^ *([-=~^])\1{2,} *$", re.MULTILINE)  # a heading is a block of its own
_BARE_HEADING = (
    re.compile(  # "Example:" and the like, with nothing but a heading or the end after it
        r"^ *(?:(?:[Uu]sage )?[Ee]xamples?(?: usage)?|Usage):{0,2} *\n(?: *[-=~]{3,} *\n)?"
        r"(?=\s*(?:\Z|[A-Z]\w+:? *\n(?: *[-=~]{3,}|    )))",
        re.MULTILINE,
    )
)


def without_code(text: str) -> str:
    """A docstring without its doctests and fenced code, and without the headings over nothing."""
    if "```" in text:
        text = _FENCED.sub("", text)
    if ">>>" in text:
        text = _DOCTEST.sub("", text)
    return _BARE_HEADING.sub("", text + "\n")


def prose(text: str) -> str:
    """One paragraph per line; lists and tables of parameters keep their lines."""
    width = wrap_width(lines := _UNDERLINE.sub("", text).split("\n"))
    return "\n".join(paragraph(block, width) for block in blocks_of(lines))


def _topics(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The chapters of the language reference that `help()` shows, from the dict that holds them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield f"{TOPICS}.{key.value!s}", str(value.value)

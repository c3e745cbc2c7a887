import ast
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from electrify.corpora import archive, docstrings
from electrify.corpora.docstrings import Docstrings, modules
from electrify.corpora.doctext import prose
from electrify.errors import UserError

LONG = (
    "A docstring with enough words to be kept by the reader, because it says a thing or two more."
)
SOURCE = f'''"""{LONG} Module."""
import nowhere_at_all
raise SystemExit("imported!")

class Shape:
    """{LONG} Class.

    Examples
    ========

    >>> Shape()
    Shape
    """
    def area(self):
        """{LONG} Method."""
    @property
    def name(self):
        """{LONG} Getter."""
    @name.setter
    def name(self, value):
        """{LONG} Setter."""
    def short(self):
        """Too short."""

if True:
    async def again():
        """{LONG} Method."""
'''


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library folder that replaces that of the interpreter."""
    monkeypatch.setattr(docstrings.sysconfig, "get_path", lambda name: str(tmp_path / name))
    package = tmp_path / "purelib" / "shapes"
    for folder in ("tests", "_vendor/other", "sub"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text(f'"""{LONG} {folder}."""')
    (package / "__init__.py").write_text(SOURCE)
    (package / "broken.py").write_text('"""x"""\ndef (:')
    (package / "coding.py").write_bytes(b'# coding: nonsense\n"""x"""')
    (package / "bytes.py").write_bytes(b'"""caf\xe9"""')
    (package / "nul.py").write_bytes(b'"""x"""\0')
    (package / "latin.py").write_bytes(f'# coding: latin-1\n"""{LONG} caf\xe9"""'.encode("latin-1"))
    (package / "deep.py").write_text('"""x"""\nx = ' + "(" * 5000 + ")" * 5000)
    (package / "not-a-module.py").write_text(SOURCE)
    (tmp_path / "stdlib").mkdir()
    (tmp_path / "stdlib" / "alone.py").write_text(f"'''{LONG} Alone.'''")
    return tmp_path


def read(*packages):
    tally: Counter[str] = Counter()
    reader = Docstrings(min_words=10)
    parts = list(reader.parts([Path(package) for package in packages]))
    documents = [document for part in parts for document in reader.documents(part, tally)]
    assert len({document.id for document in documents}) == len(documents)
    return documents, dict(tally)


def test_docstrings_are_found_without_importing(library):
    documents, tally = read()
    assert [document.id for document in documents] == [
        "alone",
        "shapes",
        "shapes:Shape",
        "shapes:Shape.area",
        "shapes:Shape.name",
        "shapes:Shape.name#2",
        "shapes.latin",
        "shapes.sub",
    ]
    assert documents[2].text == f"{LONG} Class."
    assert documents[3].title == "shapes.Shape.area"
    assert documents[6].text.endswith("café")
    assert {document.label for document in documents} == {"alone", "shapes"}
    assert tally == {
        "fewer words than --min-words": 3,
        "repeated in its package": 1,
        "file cannot be decoded": 2,
    }


def test_packages_can_be_selected_and_a_wrong_name_gets_a_suggestion(library):
    assert {document.label for document in read("alone")[0]} == {"alone"}
    (library / "stdlib" / "_shape.py").write_text("'''x'''")
    with pytest.raises(UserError, match="did you mean 'shapes'") as error:
        read("shape")
    assert "_shape" not in str(error.value)
    with pytest.raises(UserError, match="install it"):
        read("zzzz")


def test_large_packages_are_split_and_fractions_rise_to_the_end(library, monkeypatch):
    expected = read()[0]
    monkeypatch.setattr(archive.group, "__defaults__", (1,))
    parts = list(Docstrings().parts([]))
    assert len(parts) > 5
    assert parts[-1].fraction == 1
    assert [part.fraction for part in parts] == sorted(part.fraction for part in parts)
    assert read()[0] == expected


CASES = [
    'def f(x="a:", *, y: "b" = {"c": 1}) -> "d":  # e: f\n    # g\n    """doc"""',
    "def f(x=(lambda: 0), y='''a''', z=[1, 2]):\n    r'''d\\oc'''",
    'class A:\n    """a"""\n    def f(self):\n        """f"""\n        class B:\n            "b"\n'
    'if x:\n    def g():\n        """g"""\nelse:\n    async def g():\n        """h"""',
    'def f():\n    x = 1\n    """no"""\ndef g():\n    if x:\n        """no"""',
    '"""a""" + b\ndef f():\n    f"""no {x}"""\ndef g():\n    b"""no"""\ndef h(): """yes"""; x',
    "x = 'def f():\\n'\ny = '''\ndef f():\n    \"no\"\n'''\n# def f(): \"no\"",
    '"a\\n\\x41 \\\\ \\"q\\" "\ndef f(\n    match: int,\n    case: str):\n    u"""é \\\ngoes on"""',
    'class A(B[C], metaclass={"D": E}["D"]):\n\t"""tab"""\n\tdef f(x):\n\t\t"""f"""',
]


@pytest.mark.parametrize("source", CASES)
def test_docstrings_are_found_where_the_parser_finds_them(source):
    assert list(docstrings.docstrings(source)) == list(_parsed(ast.parse(source)))


def test_docstrings_of_the_library_are_found_where_the_parser_finds_them():
    chosen = random.Random(0).sample(
        [m for m in modules() if m.package in sys.stdlib_module_names], 60
    )
    for module in chosen:
        source = module.path.read_text("utf-8", "replace")
        found = [pair for pair in docstrings.docstrings(source) if pair[1]]
        assert found == list(_parsed(ast.parse(source))), module.name


def _parsed(node, name=""):
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, documented) and (raw := ast.get_docstring(node, clean=False)):
        yield name, raw
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _parsed(child, f"{name}.{getattr(child, 'name', None) or ''}".strip("."))


def test_code_and_the_headings_above_it_are_dropped():
    text = """Add two numbers.

Example:

```python
>>> add(1, 2)
```

Args:
    x: a number

Examples
--------
>>> add(1, 2)
3
"""
    assert prose(text) == "Add two numbers.\nArgs:\n    x: a number"
    assert ">>> add(1, 2)" in prose(text, code=True)


REST = """\
Draw a shape on the :class:`~shapes.canvas.Canvas`, which is where shapes are
drawn.

Usage::

    from shapes import draw
    draw("circle")

.. versionadded:: 1.4

.. note:: A circle is drawn, too, if its radius is so small that nobody will
   ever see it.

.. plot::
   :include-source: true

   draw("circle")

.. seealso:: :func:`erase`

.. _a target: http://a.b

Parameters
----------
radius : float, optional
    Half of the diameter, which is measured in the unit of the canvas and is
    never negative.
**kwargs
    See ``Line``.

For example:

    >>> draw("circle")

Example:
    import shapes
    for shape in shapes.all():
        shape.draw()

Returns:
    The shape::

        Shape(1)

References
----------
.. [1] A book.

Examples
--------

.. code-block:: python

    draw("circle")
"""
PLAIN = """\
Draw a shape on the Canvas, which is where shapes are drawn.
A circle is drawn, too, if its radius is so small that nobody will ever see it.
Parameters
radius : float, optional
    Half of the diameter, which is measured in the unit of the canvas and is never negative.
**kwargs
    See Line.
Returns:
    The shape:
References
[1] A book."""


def test_markup_code_and_wrapped_lines_are_removed():
    assert prose(REST) == PLAIN


def test_this_interpreter_has_text_and_the_order_is_fixed():
    names = [module.name for module in modules()]
    assert names == sorted(names, key=lambda name: (name.partition(".")[0], name))
    assert not any(name.startswith(("test.", "idlelib")) for name in names)
    documents, _ = read("argparse", "pydoc_data")
    assert documents[0].id == "argparse"
    assert any(document.id == "pydoc_data.topics:assignment" for document in documents)


def test_the_fingerprints_record_what_the_text_depends_on(library, monkeypatch):
    owners = {"shapes": ["b-shapes", "a-shapes", "a-shapes"]}
    monkeypatch.setattr(docstrings.metadata, "packages_distributions", lambda: owners)
    monkeypatch.setattr(docstrings.metadata, "version", {"a-shapes": "1", "b-shapes": "2"}.get)
    python, alone, shapes = Docstrings().fingerprints([])
    assert (python["name"], python["version"]) == ("python", sys.version.split()[0])
    assert shapes == {"name": "shapes", "versions": {"a-shapes": "1", "b-shapes": "2"}}
    assert list(shapes["versions"]) == ["a-shapes", "b-shapes"]
    assert Docstrings().fingerprints([Path("alone")]) == [python, alone]
    (library / "stdlib" / "alone.py").write_text("'''other'''")
    assert Docstrings().fingerprints([Path("alone")])[1] != alone
    (library / "stdlib" / "argparse.py").write_text("'''new'''")
    assert Docstrings().fingerprints([])[0] != python


@pytest.mark.parametrize(
    "module",
    ["archive", "clean", "troubles", "plaintext", "gutenberg", "openwebtext", "hub", "docstrings"],
)
def test_no_reader_imports_heavy_libraries(module):
    code = (
        f"import electrify.corpora.{module}, sys; "
        "assert not {'torch', 'pyarrow', 'huggingface_hub', 'ftfy', 'zstandard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

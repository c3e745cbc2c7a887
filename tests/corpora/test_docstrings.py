import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from electrify.corpora import docstrings
from electrify.corpora.docstrings import Docstrings, modules, prose, without_code
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
    """A library folder of our own in place of the interpreter's."""
    monkeypatch.setattr(docstrings.sysconfig, "get_path", lambda name: str(tmp_path / name))
    package = tmp_path / "purelib" / "shapes"
    for folder in ("tests", "_vendor/other", "sub"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text(f'"""{LONG} {folder}."""')
    (package / "__init__.py").write_text(SOURCE)
    (package / "broken.py").write_text('"""x"""\ndef (:')
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
        "shapes.Shape",
        "shapes.Shape.area",
        "shapes.Shape.name",
        "shapes.Shape.name#2",
        "shapes.latin",
        "shapes.sub",
    ]
    assert documents[2].text == f"{LONG} Class."
    assert documents[6].text.endswith("café")
    assert {document.label for document in documents} == {"alone", "shapes"}
    assert tally == {
        "fewer words than min_words": 1,
        "repeated in its package": 1,
        "file is not Python of this version": 3,
    }


def test_packages_can_be_chosen_and_a_wrong_name_gets_a_near_one(library):
    assert {document.label for document in read("alone")[0]} == {"alone"}
    with pytest.raises(UserError, match="did you mean 'shapes'"):
        read("shape")


def test_code_and_the_headings_over_it_can_go():
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
    assert prose(without_code(text)) == "Add two numbers.\nArgs:\n    x: a number"


def test_this_interpreter_has_text_and_the_order_is_fixed():
    names = [module.name for module in modules()]
    assert names == sorted(names, key=lambda name: (name.partition(".")[0], name))
    assert not any(name.startswith(("test.", "idlelib")) for name in names)
    documents, _ = read("argparse", "pydoc_data")
    assert documents[0].id == "argparse"
    assert any(document.id == "pydoc_data.topics.assignment" for document in documents)


def test_the_versions_say_what_the_text_depends_on():
    versions = Docstrings().fingerprints([])
    assert versions[0] == {"name": "python", "version": sys.version.split()[0]}


@pytest.mark.parametrize(
    "module", ["archive", "clean", "plaintext", "gutenberg", "openwebtext", "hub", "docstrings"]
)
def test_no_reader_imports_heavy_libraries(module):
    code = (
        f"import electrify.corpora.{module}, sys; "
        "assert not {'torch', 'pyarrow', 'huggingface_hub', 'ftfy', 'zstandard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

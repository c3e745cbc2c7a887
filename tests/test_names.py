"""No public name means two things, and no module hides one of the standard library."""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import electrify

SOURCE = Path(electrify.__file__).parent

# The public face repeats the names of the commands on purpose.
FACE = {SOURCE / "api.py", SOURCE / "__init__.py"}


def public_names(tree: ast.Module) -> set[str]:
    """Return the public functions, classes, constants and type aliases that a module defines."""
    names = set[str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for target in targets for n in ast.walk(target) if type(n) is ast.Name}
    return {name for name in names if not name.startswith("_")}


def test_every_public_name_is_defined_once():
    modules = defaultdict(list)
    for path in sorted(set(SOURCE.rglob("*.py")) - FACE):
        for name in public_names(ast.parse(path.read_text())):
            modules[name].append(path.relative_to(SOURCE).as_posix())
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


def test_no_module_hides_one_of_the_standard_library():
    ours = {path.stem for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    ours |= {path.parent.name for path in SOURCE.rglob("__init__.py")}
    assert sorted(ours & sys.stdlib_module_names) == []

"""Public names are unique, and no module shadows one of the standard library."""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import electrify

SOURCE = Path(electrify.__file__).parent

# The Python API repeats the names of the commands on purpose.
API = {SOURCE / "api.py", SOURCE / "__init__.py"}


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
    for path in sorted(set(SOURCE.rglob("*.py")) - API):
        for name in public_names(ast.parse(path.read_text())):
            modules[name].append(path.relative_to(SOURCE).as_posix())
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def test_no_module_shadows_one_of_the_standard_library():
    ours = {path.stem for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    ours |= {path.parent.name for path in SOURCE.rglob("__init__.py")}
    assert sorted(ours & sys.stdlib_module_names) == []

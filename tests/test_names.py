"""No public name means two things, and no module hides one of the standard library."""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import electrify

SOURCE = Path(electrify.__file__).parent

# To be emptied: names that two modules still share.
SHARED = {
    "Answer": "finetuning/answers finetuning/own_task",
    "Asked": "finetuning/squad_windows training/precision",
    "Examples": "finetuning/glue_data finetuning/head",
    "FIXED": "finetuning/search models/limits",
    "FROM_TOKENIZER": "models/limits recipes/schema",
    "HEADS": "finetuning/squad_head models/released",
    "HUB_NAME": "finetuning/glue_data models/pretrained",
    "Head": "finetuning/head finetuning/squad_head",
    "Kind": "finetuning/head finetuning/own_task finetuning/squad_data models/initialise training/layers training/schedule",
    "LABELS": "finetuning/headers models/pair training/bands",
    "MARGIN": "planning/memory training/signals",
    "METRICS": "finetuning/metrics reports/run_section training/journal",
    "NOTHING": "finetuning/answers finetuning/headers finetuning/table reports/page",
    "OFFICIAL": "models/card training/bands",
    "Objective": "recipes/schema training/objective",
    "Plan": "finetuning/presets planning/plan",
    "Precision": "planning/memory training/precision",
    "Prepared": "finetuning/own_task finetuning/squad",
    "ROUNDS": "batches/order training/precision",
    "ROWS": "models/card training/self_check",
    "Reading": "finetuning/reading training/bands",
    "Run": "recipes/schema reports/run",
    "STATE": "planning/memory training/upload",
    "Scores": "finetuning/squad_metrics finetuning/stats",
    "TOLERANCE": "finetuning/finetune models/export",
    "Table": "finetuning/own_files finetuning/table",
    "Training": "finetuning/own_task training/loop",
    "Update": "progress training/update",
    "WORDS": "finetuning/sentences models/card",
    "Work": "finetuning/finetune planning/flops",
    "as_table": "finetuning/results finetuning/stability",
    "as_text": "finetuning/own_files training/screen",
    "choose": "batches/masking training/precision",
    "compare": "finetuning/compare finetuning/stats",
    "comparison": "finetuning/glue_table reports/comparison",
    "differences": "finetuning/glue_table storage/commit",
    "evaluate": "finetuning/squad_metrics training/evaluate",
    "f1": "finetuning/metrics finetuning/squad_metrics",
    "fingerprint": "finetuning/encoder finetuning/glue_data",
    "in_order": "finetuning/own_data jobs",
    "kind_of": "finetuning/job finetuning/own_data",
    "load": "recipes/schema tokens/tokenizer training/checkpoint",
    "outputs": "finetuning/fit models/export",
    "plan": "finetuning/presets planning/plan",
    "predict": "finetuning/job finetuning/predict models/mlm",
    "prepare": "finetuning/own_task tokens/prepare",
    "probe": "finetuning/probe models/export",
    "read": "config training/journal",
    "save": "tokens/tokenizer training/loop",
    "scores": "finetuning/metrics finetuning/squad_metrics",
    "shown": "config finetuning/finetune finetuning/glue_table",
    "to_stderr": "training/loop training/upload",
}


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


def names_of_several_modules() -> dict[str, set[str]]:
    modules = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for name in public_names(ast.parse(path.read_text())):
            modules[name].add(path.relative_to(SOURCE).with_suffix("").as_posix())
    return {name: where for name, where in modules.items() if len(where) > 1}


def test_every_public_name_is_defined_once():
    new = {
        name: sorted(where)
        for name, where in names_of_several_modules().items()
        if not where <= set(SHARED.get(name, "").split())
    }
    assert new == {}


def test_no_module_hides_one_of_the_standard_library():
    ours = {path.stem for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    ours |= {path.parent.name for path in SOURCE.rglob("__init__.py")}
    assert sorted(ours & sys.stdlib_module_names) == []

"""Run notebooks from top to bottom and store what their cells print, return and draw.

    python -m notebooks.execute                         # all of them, in a temporary folder
    python -m notebooks.execute notebooks/1_*.ipynb

No Jupyter is needed. The hash of the code is stored too, so that a test can tell whether the
outputs are those of the code.
"""

import ast
import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DOTS_PER_INCH = 80


def main(names: Sequence[str]) -> int:
    """Run notebooks, each in a process and an empty folder of its own."""
    for path in map(Path, names or sorted(map(str, FOLDER.glob("*.ipynb")))):
        with tempfile.TemporaryDirectory() as folder:
            print(path.name, flush=True)
            environment = {**os.environ, "MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1"}
            # Not as a file: worker processes would import it as the main module.
            program = "import sys; from notebooks.execute import rewrite; rewrite(sys.argv[1])"
            roots = [str(FOLDER.parent), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, roots))
            command = [sys.executable, "-c", program, str(path.resolve())]
            if code := subprocess.run(command, cwd=folder, env=environment).returncode:
                return code
    return 0


def rewrite(name: str) -> None:
    """Run a notebook here and store its outputs."""
    path = Path(name)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    execute(notebook)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def execute(notebook: dict[str, Any]) -> None:
    """Run the code cells of a notebook in order, and put their outputs into it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), start=1):
        cell["execution_count"], cell["outputs"] = number, run_cell(source(cell), names, number)
    notebook["metadata"]["source_sha256"] = fingerprint(notebook)


def run_cell(code: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell and return its outputs: what it prints, its figures, its last expression."""
    outputs: list[dict[str, Any]] = []
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(Stream("stdout", outputs)), redirect_stderr(Stream("stderr", outputs)):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    outputs += figures()
    if value is not None and not code.rstrip().endswith(";"):  # as in Jupyter
        data = {"text/plain": _lines(repr(value))}
        result = {"output_type": "execute_result", "execution_count": number}
        outputs.append({**result, "data": data, "metadata": {}})
    for output in outputs:
        if output["output_type"] == "stream":
            # A terminal overwrites what stands before a carriage return.
            output["text"] = _lines(re.sub(r"[^\n]*\r(?!\n)", "", "".join(output["text"])))
    return outputs


class Stream(io.TextIOBase):
    """A standard stream whose text is appended to the outputs of a cell."""

    def __init__(self, name: str, outputs: list[dict[str, Any]]) -> None:
        self.name, self.outputs = name, outputs

    def write(self, text: str) -> int:
        """Append text to the last output if that is this stream's, or else to a new one."""
        if not self.outputs or self.outputs[-1]["name"] != self.name:
            self.outputs.append({"output_type": "stream", "name": self.name, "text": []})
        self.outputs[-1]["text"].append(text)
        return len(text)


def figures() -> list[dict[str, Any]]:
    """Return the figures that a cell has drawn, as PNG, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    found = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
        image = textwrap.fill(base64.b64encode(file.getvalue()).decode(), 76) + "\n"
        data = {"image/png": image, "text/plain": ["<Figure>"]}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return found


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def fingerprint(notebook: dict[str, Any]) -> str:
    """Return the hash of the code of a notebook."""
    code = json.dumps([source(cell) for cell in code_cells(notebook)])
    return hashlib.sha256(code.encode()).hexdigest()


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

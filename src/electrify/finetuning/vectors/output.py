"""Files of vectors: NumPy arrays, Parquet and JSON lines."""

# N texts, H width

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electrify.errors import UserError, needs
from electrify.finetuning.own.files import DataTable, add_columns, cell_text
from electrify.storage.commit import committed, parse_json

Vectors = NDArray[np.float32]
VECTOR = "vector"
"""The column of the vectors in tables."""


def check_vector_file(out: Path) -> None:
    """Refuse a name with an unknown suffix, or a file that does not contain vectors."""
    if out.suffix not in WRITERS_BY_SUFFIX:
        raise UserError(
            f"{out} has an unknown format",
            got=out.suffix or "a name without suffix",
            fix=f"use an --out that ends in {', '.join(WRITERS_BY_SUFFIX)}",
        )
    if out.suffix == ".parquet":
        _pyarrow()
    if out.is_dir() or (out.is_file() and out.stat().st_size and not _has_vectors(out)):
        raise UserError(
            f"{out} does not contain vectors",
            got="a folder" if out.is_dir() else f"a file of {out.stat().st_size:,} bytes",
            fix="use another --out, or remove it; nothing was changed",
        )


def _has_vectors(path: Path) -> bool:
    """Return whether an earlier command may have written a file, so that it may be replaced."""
    try:
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return bool(array.ndim == 2 and array.dtype == np.float32)
        if path.suffix == ".parquet":
            return VECTOR in _pyarrow().parquet.read_schema(path).names
        with path.open(encoding="utf-8") as file:
            return VECTOR in parse_json(file.readline())
    except (OSError, ValueError, TypeError):  # pyarrow's errors are of these kinds
        return False


def write_vectors(out: Path, table: DataTable, vectors_NH: Vectors) -> None:
    """Commit the vectors of the rows of a table; tables keep the columns of the input."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with committed(out) as temporary:
        WRITERS_BY_SUFFIX[out.suffix](temporary, table, vectors_NH)


def _write_npy(path: Path, table: DataTable, vectors_NH: Vectors) -> None:
    with path.open("wb") as file:
        np.save(file, vectors_NH, allow_pickle=False)


def _write_json_lines(path: Path, table: DataTable, vectors_NH: Vectors) -> None:
    # The text of a float32 is the shortest that reads back as the same float32.
    cells = [{VECTOR: [float(str(value)) for value in vector_H]} for vector_H in vectors_NH]
    path.write_text(add_columns(table, cells, ".jsonl"), encoding="utf-8", errors="replace")


def _write_parquet(path: Path, table: DataTable, vectors_NH: Vectors) -> None:
    pa = _pyarrow()
    columns = {name: map(cell_text, table.column(name)) for name in table.header if name != VECTOR}
    arrays = {name: pa.array(cells, pa.string()) for name, cells in columns.items()}
    width = vectors_NH.shape[1]
    arrays[VECTOR] = pa.FixedSizeListArray.from_arrays(pa.array(vectors_NH.reshape(-1)), width)
    pa.parquet.write_table(pa.table(arrays), path)


def _pyarrow() -> Any:
    needs("pyarrow.parquet", extra="data", why="writing Parquet")
    return needs("pyarrow", extra="data", why="writing Parquet")


WRITERS_BY_SUFFIX: dict[str, Callable[[Path, DataTable, Vectors], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_json_lines,
}

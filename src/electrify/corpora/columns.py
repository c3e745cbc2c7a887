"""Choose the columns of a Parquet file to read, and convert their values."""

from collections.abc import Callable, Sequence
from typing import Any

from electrify.corpora.plaintext import TextFields
from electrify.corpora.troubles import several_columns
from electrify.errors import UserError

STRINGS = ("string", "large_string", "string_view", "binary", "large_binary")


def check_text(name: str, column: str, schema: Any) -> None:
    """Raise an error unless exactly one column of the file has this name, and it contains text."""
    if schema.names.count(column) > 1:
        raise several_columns(name, column, schema.names)
    if not has_column(schema, column, STRINGS):
        texts = [other for other in schema.names if has_column(schema, other, STRINGS)]
        raise UserError(
            f"column {column!r} of {name} does not contain text",
            got=str(schema.field(column).type),
            fix=f"choose a text column with --text: {', '.join(texts)}"
            if texts
            else "use another file",
        )


def has_column(schema: Any, column: str, types: Sequence[str]) -> bool:
    """Return whether exactly one column has this name, and its type is one of `types`."""
    import pyarrow.types

    if schema.names.count(column) != 1:
        return False
    kind = schema.field(column).type
    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return any(getattr(pyarrow.types, f"is_{name}")(kind) for name in types)


def columns_to_read(schema: Any, columns: TextFields) -> list[str]:
    """Return the columns to read: id and title only if their types are usable, never nested."""
    types = {columns.text: STRINGS, columns.id: (*STRINGS, "integer"), columns.title: STRINGS}
    return [
        name for name in schema.names if name in types and has_column(schema, name, types[name])
    ]


def text_values(column: Any) -> list[bytes | None]:
    """Return the texts of a column as bytes, because nothing has checked that they are UTF-8."""
    import pyarrow as pa

    return _values(column, lambda values: values.cast(pa.large_binary()).to_pylist())


def plain_values(column: Any, default: list[None]) -> Sequence[object]:
    """Return the values of a column, or `default` if it is absent or cannot be decoded."""
    try:
        return default if column is None else _values(column, lambda values: values.to_pylist())
    except UnicodeDecodeError:
        return default


def _values(column: Any, to_list: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the values of a column; a dictionary-encoded value is converted only once."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return to_list(column)
    used = column.indices.unique().drop_null()
    values = to_list(column.dictionary.take(used))
    by_index = {None: None, **dict(zip(used.to_pylist(), values, strict=True))}
    return [by_index[index] for index in column.indices.to_pylist()]

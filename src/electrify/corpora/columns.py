"""The columns of a Parquet file: which may be read, and their values."""

from collections.abc import Callable, Sequence
from typing import Any

from electrify.corpora.plaintext import TextFields
from electrify.errors import UserError

STRINGS = ("string", "large_string", "string_view", "binary", "large_binary")


def check_text(name: str, column: str, schema: Any) -> None:
    """Raise an error unless a column of a file is one column of text."""
    if schema.names.count(column) > 1:
        raise UserError(
            f"{name} has several columns {column!r}",
            got=f"columns {', '.join(schema.names[:20])}",
            fix="rename all but one of them, or give --text and another column",
        )
    if not holds(schema, column, STRINGS):
        texts = [other for other in schema.names if holds(schema, other, STRINGS)]
        raise UserError(
            f"column {column!r} of {name} holds no text",
            got=str(schema.field(column).type),
            fix=f"give --text and one of: {', '.join(texts)}" if texts else "choose another file",
        )


def holds(schema: Any, column: str, fit: Sequence[str]) -> bool:
    """Whether there is one such column, and it holds one of some types."""
    import pyarrow.types as kinds

    if schema.names.count(column) != 1:
        return False
    kind = schema.field(column).type
    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    return any(getattr(kinds, f"is_{name}")(kind) for name in fit)


def columns_to_read(schema: Any, columns: TextFields) -> list[str]:
    """The columns to read: ids and titles only where one could be used, never nested ones."""
    used = {columns.text: STRINGS, columns.id: (*STRINGS, "integer"), columns.title: STRINGS}
    return [name for name in schema.names if holds(schema, name, used.get(name, ()))]


def text_values(column: Any) -> list[bytes | None]:
    """As bytes: nothing has checked that they are UTF-8."""
    import pyarrow as pa

    return _values(column, lambda values: values.cast(pa.large_binary()).to_pylist())


def plain_values(column: Any, nothing: list[None]) -> Sequence[object]:
    """As Python has them, or nothing where they cannot be decoded or are not there."""
    try:
        return nothing if column is None else _values(column, lambda values: values.to_pylist())
    except UnicodeDecodeError:
        return nothing


def _values(column: Any, to_list: Callable[[Any], list[Any]]) -> list[Any]:
    """The values of a column; what is stored once is one object."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return to_list(column)
    used = column.indices.unique().drop_null()
    values = to_list(column.dictionary.take(used))
    by_place = {None: None, **dict(zip(used.to_pylist(), values, strict=True))}
    return [by_place[place] for place in column.indices.to_pylist()]

"""The reasons that readers count, and the error for a missing field.

A reason that begins with `NOTE` describes something noticed in a source; any other reason says why
a document was dropped.
"""

import difflib
from collections.abc import Sequence

from electrify.errors import UserError

NOTE = "note: "

TRUNCATED = NOTE + "source truncated"
REPAIRED = NOTE + "not valid UTF-8, repaired"
TOO_LARGE = "document too large"
CUT = "document cut off"
EMPTY = "empty file"

# What is not read in a folder.
LINKED_FOLDER = NOTE + "link to a folder not followed; give that folder as a source to read it"
CLOSED_FOLDER = NOTE + "folder cannot be opened; check its permissions"
HIDDEN_FILE = NOTE + "hidden file not read; its name starts with a dot"
OTHER_SUFFIX = NOTE + "file not read; its suffix is not one of this kind of corpus"
NOT_A_FILE = NOTE + "neither a file nor a folder, or a link to nothing"


def several_columns(name: str, column: str, available: Sequence[str]) -> UserError:
    """Return the error for a table with more than one column of the text's name."""
    return UserError(
        f"{name} has several columns named {column!r}",
        got=f"columns {', '.join(available[:20])}",
        fix="rename all but one of them, or choose another column with --text",
    )


def missing(name: str, noun: str, option: str, wanted: str, available: Sequence[str]) -> UserError:
    """Return the error for a field, column, subset or split that a source does not have."""
    near = difflib.get_close_matches(wanted, available, n=1, cutoff=0.5)
    return UserError(
        f"{name} has no {noun} {wanted!r}",
        got=f"{noun}s {', '.join(available[:20])}{', …' if len(available) > 20 else ''}",
        fix=f"did you mean {near[0]!r}? If so, use {option} {near[0]}"
        if near
        else f"choose one of them with {option}",
    )

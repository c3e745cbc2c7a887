"""What readers count, and what they say when a field is not there.

A reason that begins with `NOTE` tells of something that was found; any other tells why a document
was left out.
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


def missing(name: str, noun: str, option: str, wanted: str, there: Sequence[str]) -> UserError:
    """The error for a field, column or the like that a source does not have."""
    near = difflib.get_close_matches(wanted, there, n=1, cutoff=0.5)
    return UserError(
        f"{name} has no {noun} {wanted!r}",
        got=f"{noun}s {', '.join(there[:20])}{', …' if len(there) > 20 else ''}",
        fix=f"did you mean {near[0]!r}? Then give {option} {near[0]}"
        if near
        else f"give {option} and one of them",
    )

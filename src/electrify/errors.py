"""What every bad input ends in: an error that says what is wrong, what we got, and what to do."""

EXIT_USER = 2
EXIT_DAMAGED = 3
EXIT_GUARD = 4
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """The user must change something. Shown without a traceback; exit code 2.

    >>> print(UserError("corpus too small", got="11,204 tokens", fix="add text"))
    corpus too small
      got: 11,204 tokens
      fix: add text
    """

    exit_code = EXIT_USER

    def __init__(self, what: str, *, got: str, fix: str) -> None:
        super().__init__(what, got, fix)
        self.what, self.got, self.fix = what, got, fix

    def __str__(self) -> str:
        return f"{self.what}\n  got: {self.got}\n  fix: {self.fix}"

    def __reduce__(
        self,
    ) -> tuple[object, ...]:  # keyword arguments survive the way back from a worker
        return _rebuild, (type(self), self.what, self.got, self.fix)


class DamagedError(UserError):
    """What is stored on disk is not what was written. Exit code 3."""

    exit_code = EXIT_DAMAGED


class GuardError(UserError):
    """Training was stopped because its numbers went bad. Exit code 4."""

    exit_code = EXIT_GUARD


def _rebuild(kind: type[UserError], what: str, got: str, fix: str) -> UserError:
    return kind(what, got=got, fix=fix)

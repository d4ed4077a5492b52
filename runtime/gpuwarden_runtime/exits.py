"""Exit codes of `gpuwarden-run`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Codes of the launcher's own; every other code is the command's. Numbers as in sysexits.h."""

    USAGE = 64  # EX_USAGE: wrong options or settings
    NO_INPUT = 66  # EX_NOINPUT: a host list cannot be read or written
    UNANSWERED = 69  # EX_UNAVAILABLE: --strict, and nobody could say
    ENDED = 75  # EX_TEMPFAIL: the command ran and was ended by an exclusion; run it elsewhere
    REFUSED = 77  # EX_NOPERM: the place is excluded, the command was not started
    NOT_EXECUTABLE = 126  # as a shell reports it
    NOT_FOUND = 127  # as a shell reports it

"""Exit codes of the `gpuwarden` command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """One meaning each, for every sub-command."""

    DONE = 0
    NEGATIVE = 1  # the answer is no: the demo did not go as told, `why --exit-code` of an excluded
    USAGE = 2  # wrong options, settings or input; click's own code for it
    UNREACHABLE = 3  # no answer from the server
    REFUSED = 4  # the server answered and said no (key, role, unknown id, conflict)
    LOCAL = 5  # a file of this machine cannot be read or written, an extra is not installed
    INTERRUPTED = 130  # Ctrl-C, as shells report it
    TERMINATED = 143  # SIGTERM, likewise


class CommandError(Exception):
    """Ends a command with one sentence and a mend instead of a traceback.

    Attributes:
        code: Exit code.
        mend: What to do, "" where the sentence says it.
    """

    def __init__(self, code: ExitCode, detail: str, mend: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.mend = mend

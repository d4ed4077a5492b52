"""The demo's own processes: each in a group of its own, its output in a file, ended for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuwarden_cli.exits import CommandError, ExitCode

_END_WAIT_S = 10.0


class Process:
    """One Python module run as a program.

    Args:
        module: Module to run with `-m`.
        words: Its arguments.
        variables: Settings; variables of ours that the user has set do not reach it.
        log: File for its output.
    """

    def __init__(
        self, module: str, words: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> None:
        self.module, self.log = module, log
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("GPUWARDEN_")}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env={**inherited, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C reaches the demo alone, which then ends them in order
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def require_alive(self) -> None:
        """Raise where it has ended.

        Raises:
            CommandError: With the last lines of its output.
        """
        code = self._process.poll()
        if code is not None:
            raise CommandError(
                ExitCode.LOCAL,
                f"{self.module} ended with {code}:\n{self.last_lines()}",
                f"its whole output is in {self.log}",
            )

    def last_lines(self, count: int = 8) -> str:
        """The end of its output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  | {line}" for line in lines[-count:])

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL, nothing is written any more."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """SIGTERM, then SIGKILL to the group after _END_WAIT_S."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + _END_WAIT_S
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(max(deadline - time.monotonic(), 0.0))
        self._signal(signal.SIGKILL)  # also what it may have left behind in its group
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

"""Runs nvidia-smi, one at a time; one that hangs in the driver is left alone."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO

_MOST_BYTES = 4 * 1024 * 1024
_TICK_S = 0.05


class SmiFailed(Exception):
    """No answer.

    Attributes:
        reason: Short stable phrase.
        mend: What the operator can do about it.
    """

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}. {mend}")
        self.reason = reason
        self.mend = mend


class SmiRunner:
    """Runs one command with changing arguments. Not thread-safe.

    A run that is past its deadline hangs in the driver, as a rule: it is not killed (to kill a
    process inside a driver call has frozen GPUs, NVIDIA/dcgm-exporter#84), and no other is started
    before it has ended.

    Args:
        command: Program and leading arguments.
        deadline_s: Seconds for one run.
    """

    def __init__(self, command: Sequence[str], deadline_s: float) -> None:
        self._command = tuple(command)
        self._deadline_s = deadline_s
        self._hanging: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> str:
        """What it prints.

        Raises:
            SmiFailed: It cannot be started, hangs, or ends with an error.
        """
        if self._hanging is not None and self._hanging.poll() is None:
            raise self._hangs(self._hanging)
        self._hanging = None
        with tempfile.TemporaryFile() as output:
            process = self._start(arguments, output)
            self._wait(process)
            text = _text_of(output)
        if process.returncode != 0:
            raise self._ended_badly(process.returncode, text)
        return text

    def _start(self, arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SmiFailed(
                "nvidia_smi_not_started",
                f"{self._command[0]}: {error.strerror}. Give the path of nvidia-smi.",
            ) from error

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + self._deadline_s
        while process.poll() is None:
            if time.monotonic() >= until:
                self._hanging = process
                raise self._hangs(process)
            time.sleep(_TICK_S)

    def _hangs(self, process: subprocess.Popen[bytes]) -> SmiFailed:
        return SmiFailed(
            "nvidia_smi_hangs",
            f"Process {process.pid} has not ended within {self._deadline_s:g} s; see the kernel "
            "log. It is left alone, and no other is started.",
        )

    def _ended_badly(self, code: int, text: str) -> SmiFailed:
        said = next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
        lost = "is lost" in said.lower()
        reason = "nvidia_smi_gpu_is_lost" if lost else f"nvidia_smi_exit_{code}"
        return SmiFailed(reason, f"{self._command[0]} says: {said or 'nothing'}")


def _text_of(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(_MOST_BYTES).decode("utf-8", errors="replace")

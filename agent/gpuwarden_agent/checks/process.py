"""Runs one plug-in check: bounded in time and output, its whole process group ended afterwards."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event as StopFlag

KEPT_BYTES = 65_536
"""What is kept of a check's output; the rest is read and dropped, so that it can end."""

MOST_BYTES = 64 * 1024 * 1024
"""A check that prints more than this is ended."""

_KEPT_ERROR_BYTES = 4_096
_READ_BYTES = 65_536
_TICK_S = 0.05
_TERM_PATIENCE_S = 2.0
_KILL_PATIENCE_S = 2.0
_REASONS = {
    errno.ENOENT: "no_such_file",
    errno.ENOTDIR: "no_such_file",
    errno.EACCES: "not_executable",
    errno.EPERM: "not_executable",
    errno.ENOEXEC: "not_a_program",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        exit_code: None where it did not end by itself with one.
        reason: "" where it ended by itself; else deadline_exceeded, ended_by_signal_N,
            no_such_file, not_executable, too_much_output, not_killable, agent_ends …
        output: First 64 KiB that it printed.
        errors: First 4 KiB of its standard error.
        cut: It printed more than was kept.
        took_s: Seconds.
        left: The process where even SIGKILL did not end it (an uninterruptible sleep).
    """

    exit_code: int | None
    reason: str
    output: bytes = b""
    errors: bytes = b""
    cut: bool = False
    took_s: float = 0.0
    left: subprocess.Popen[bytes] | None = None


@dataclass(slots=True)
class _Pipe:
    """What came out of one pipe."""

    descriptor: int
    limit: int
    kept: bytearray = field(default_factory=bytearray)
    total: int = 0
    open: bool = True

    def take(self) -> bool:
        """Read what is there, once; False at its end."""
        try:
            part = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            part = b""
        self.open = bool(part)
        self.total += len(part)
        self.kept += part[: self.limit - len(self.kept)]
        return self.open


def run_check(
    command: Sequence[str], environment: Mapping[str, str], deadline_s: float, stop: StopFlag
) -> Outcome:
    """Run a command to its end, its deadline, or until `stop` is set.

    The process group gets SIGTERM and 2 s later SIGKILL; children that stayed behind in it after a
    good end get SIGKILL. Returns within `deadline_s` and some 5 s.
    """
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **environment},
            cwd="/",
            bufsize=0,
            start_new_session=True,  # a process group of its own, ended as one
        )
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        return Outcome(None, _REASONS.get(number or 0, "not_started"), errors=str(error).encode())
    run = _Run(process, began + deadline_s, stop)
    try:
        return run.finish(run.watch(), began)
    finally:
        run.close_pipes()


class _Run:
    def __init__(self, process: subprocess.Popen[bytes], deadline: float, stop: StopFlag) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._deadline = deadline
        self._stop = stop
        self._output = _Pipe(process.stdout.fileno(), KEPT_BYTES)
        self._errors = _Pipe(process.stderr.fileno(), _KEPT_ERROR_BYTES)
        self._poll = select.poll()
        for pipe in (self._output, self._errors):
            os.set_blocking(pipe.descriptor, False)
            self._poll.register(pipe.descriptor, select.POLLIN)

    def watch(self) -> str:
        """Read until the first process has ended; why it has to be ended, "" where it did."""
        while not self._ended():
            if self._stop.is_set():
                return "agent_ends"
            if time.monotonic() >= self._deadline:
                return "deadline_exceeded"
            if self._output.total + self._errors.total > MOST_BYTES:
                return "too_much_output"
            self._drain(_TICK_S)
        return ""

    def finish(self, reason: str, began: float) -> Outcome:
        """End what is left of the group and gather the outcome."""
        if reason:
            self._signal_group(signal.SIGTERM)
            self._await_end(_TERM_PATIENCE_S)
        self._drain_rest()
        # Not reaped before this: while its leader is there, the group's number is nobody else's.
        self._signal_group(signal.SIGKILL)
        killed = self._await_end(_KILL_PATIENCE_S)
        code = self._process.wait() if killed else None
        if code is None:
            reason = "not_killable"
        elif not reason and code < 0:
            reason = f"ended_by_signal_{-code}"
        return Outcome(
            exit_code=code if not reason else None,
            reason=reason,
            output=bytes(self._output.kept),
            errors=bytes(self._errors.kept),
            cut=self._output.total > KEPT_BYTES,
            took_s=time.monotonic() - began,
            left=None if killed else self._process,
        )

    def close_pipes(self) -> None:
        """Close our ends: whoever still writes is told so."""
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _ended(self) -> bool:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, how) is not None

    def _await_end(self, patience_s: float) -> bool:
        until = time.monotonic() + patience_s
        while not (ended := self._ended()) and time.monotonic() < until:
            self._drain(0.02)
        return ended

    def _drain(self, timeout_s: float) -> None:
        """Wait for output and take it; a check that closed its pipes is waited for."""
        if not (self._output.open or self._errors.open):
            time.sleep(timeout_s / 5)
            return
        ready = {descriptor for descriptor, _ in self._poll.poll(timeout_s * 1000)}
        for pipe in (self._output, self._errors):
            if pipe.open and pipe.descriptor in ready and not pipe.take():
                self._poll.unregister(pipe.descriptor)

    def _drain_rest(self) -> None:
        """What it wrote before it ended lies in the pipes, at most their size."""
        for pipe in (self._output, self._errors):
            before = -1
            while pipe.open and pipe.total != before and pipe.total <= MOST_BYTES:
                before = pipe.total
                pipe.take()

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

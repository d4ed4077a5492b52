"""Runs programs of others within a time limit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from gpuwarden_server.actuators.ports import ActuatorError

LARGEST_OUTPUT = 64 * 1024 * 1024
"""10,000 nodes of `scontrol -o show node` are about 8 MB."""
_SAID = 400
_LIMIT_ROOM_S = 0.5

Variables = Mapping[str, str]
"""A whole environment: never the server's own, which holds its keys."""


def run_program(
    argv: Sequence[str],
    timeout_s: float,
    *,
    variables: Variables,
    given: bytes = b"",
    mend: str,
) -> str:
    """Run a program and give its standard output.

    It has its own process group, which is killed as a whole at the time limit: a client of Slurm
    that hangs must not stay behind. It writes to files, not pipes: a daemon that it leaves behind
    keeps nobody waiting for the end of a pipe. Where the server is killed meanwhile, coreutils'
    timeout ends it half a second later: who takes over must know when it can do nothing more.

    Args:
        argv: Program and arguments.
        timeout_s: Time limit, seconds.
        variables: Its whole environment.
        given: Its standard input.
        mend: What to do where it fails.

    Raises:
        ActuatorError: It is not there, took too long, failed or said too much.
    """
    name = Path(argv[0]).name
    with TemporaryFile() as asked, TemporaryFile() as out, TemporaryFile() as err:
        asked.write(given)
        asked.seek(0)
        code = _run(argv, timeout_s, variables, (asked, out, err), mend)
        if code is None:
            raise ActuatorError(f"{name} took longer than {timeout_s:g} s", mend)
        if code != 0:
            said = _read(err, _SAID) or _read(out, _SAID)
            raise ActuatorError(f"{name} ended with {code}: {said.strip()}", mend)
        if (size := os.fstat(out.fileno()).st_size) > LARGEST_OUTPUT:
            raise ActuatorError(f"{name} printed {size} bytes", mend)
        return _read(out, LARGEST_OUTPUT)


def _run(
    argv: Sequence[str],
    timeout_s: float,
    variables: Variables,
    files: tuple[IO[bytes], IO[bytes], IO[bytes]],
    mend: str,
) -> int | None:
    """Its exit code, None where it was killed at the time limit."""
    try:
        process = subprocess.Popen(
            _bounded(argv, timeout_s, variables),
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            env=dict(variables),
            start_new_session=True,
        )
    except OSError as error:
        raise ActuatorError(f"{argv[0]} cannot be run: {error.strerror}", mend) from error
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def _bounded(argv: Sequence[str], timeout_s: float, variables: Variables) -> Sequence[str]:
    """The program under timeout(1), where there is one, and the program."""
    path = variables.get("PATH", os.defpath)
    limiter = shutil.which("timeout", path=path)
    if limiter is None or shutil.which(argv[0], path=path) is None:
        return argv
    return (limiter, "-s", "KILL", f"{timeout_s + _LIMIT_ROOM_S:g}", *argv)


def _read(file: IO[bytes], most: int) -> str:
    file.seek(0)
    return file.read(most).decode("utf-8", "replace")

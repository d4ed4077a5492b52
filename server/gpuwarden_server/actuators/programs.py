"""Runs programs of others within a time limit and with bounded output."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Timer

from gpuwarden_server.actuators.ports import ActuatorError

LARGEST_OUTPUT = 64 * 1024 * 1024
"""10,000 nodes of `scontrol -o show node` are about 8 MB."""
_SAID = 400


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
    that hangs must not stay behind.

    Args:
        argv: Program and arguments.
        timeout_s: Time limit, seconds.
        variables: Its whole environment.
        given: Its standard input.
        mend: What to do where it fails.

    Raises:
        ActuatorError: It is not there, took too long, failed or said too much.
    """
    name = " ".join(argv[:2])
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(variables),
            start_new_session=True,
        )
    except OSError as error:
        raise ActuatorError(f"{argv[0]} cannot be run: {error.strerror}", mend) from error
    expired: list[bool] = []

    def kill() -> None:
        expired.append(True)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = Timer(timeout_s, kill)
    timer.daemon = True
    timer.start()
    try:
        out, err = process.communicate(given)
    finally:
        timer.cancel()
    if expired:
        raise ActuatorError(f"{name} took longer than {timeout_s:g} s", mend)
    if process.returncode != 0:
        said = (err or out).decode("utf-8", "replace").strip()[:_SAID]
        raise ActuatorError(f"{name} ended with {process.returncode}: {said}", mend)
    if len(out) > LARGEST_OUTPUT:
        raise ActuatorError(f"{name} printed {len(out)} bytes", mend)
    return out.decode("utf-8", "replace")

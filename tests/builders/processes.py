"""Starts real programs for end-to-end tests and ends them, whatever happened."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

END_S = 15.0


@contextmanager
def started(
    command: Sequence[object],
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs for the length of the block; its output goes to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=os.environ | (environment or {}),
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

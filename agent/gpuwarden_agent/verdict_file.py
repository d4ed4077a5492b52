"""The local verdict file: what prologs, health checks and launchers on this node read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuwarden_agent.logs import get_logger
from gpuwarden_wire.acknowledgement import Acknowledgement, NodeVerdict

_log = get_logger("verdict_file")

_RENEW_AFTER_S = 30.0
"""An unchanged verdict that the server confirmed is written anew this often: its age is told."""


class VerdictFile:
    """Writes the node's verdict whole or not at all; never removes it.

    A server that is away leaves the last verdict in place: its `written_at` tells its age.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._verdict: NodeVerdict | None = None
        self._written_at = 0.0
        self._failing = False

    @property
    def verdict(self) -> NodeVerdict | None:
        """What the server said last in this run, None before it said anything."""
        return self._verdict

    def note(self, acknowledgement: Acknowledgement) -> None:
        """Write the verdict that an acknowledgement brings, or confirms by bringing none."""
        now = self._clock()
        if acknowledgement.verdict is not None:
            self._verdict = acknowledgement.verdict
        elif self._verdict is None or 0 <= now - self._written_at < _RENEW_AFTER_S:
            return
        self._write(self._verdict, now)

    def _write(self, verdict: NodeVerdict, now: float) -> None:
        content = msgspec.json.encode({**msgspec.structs.asdict(verdict), "written_at": now})
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _write_synced(temporary, content)
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            if not self._failing:
                _log.error("verdict_file_not_written", path=str(self._path), why=str(error))
            self._failing = True
            return
        if self._failing:
            _log.info("verdict_file_written_again", path=str(self._path))
        self._failing = False
        self._written_at = now


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)  # whatever the umask: every user of the node may read it
        file.write(content)
        file.flush()
        os.fsync(descriptor)

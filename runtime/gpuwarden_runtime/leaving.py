"""A planned leave of the node that a command runs on: asked to stop at its next border in time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpuwarden_runtime.cache import write_atomically
from gpuwarden_runtime.host_names import same_host
from gpuwarden_runtime.place import utc
from gpuwarden_runtime.plan_records import PlannedLeave

LONGEST_WAIT_S = 3600.0
"""Waited at once at most: no time that a server tells is too far ahead for a clock of ours."""


def soonest(node: str, planned: Iterable[PlannedLeave], now: float) -> PlannedLeave | None:
    """The next leave of a node that is not over, None for none."""
    found = [
        one
        for one in planned
        if same_host(node, one.node_id) and (one.until is None or one.until > now)
    ]
    return min(found, key=lambda one: one.at, default=None)


def sentence(leave: PlannedLeave) -> str:
    """A leave in one sentence."""
    until = "" if leave.until is None else f" until {utc(leave.until)}"
    by = f", planned by {leave.by}" if leave.by else ""
    return f"node {leave.node_id} leaves at {utc(leave.at)}{until}{by}: {leave.reason}"


class LeaveNotice:
    """When to ask the command, and the file by which it is asked.

    Args:
        node: Node that the command runs on.
        notice_s: How long before a leave it is asked, seconds.
        file: Written then, removed where the leave is taken back; None for none.
    """

    def __init__(self, node: str, notice_s: float, file: Path | None) -> None:
        self._node = node
        self._notice_s = notice_s
        self._file = file
        self._leave: PlannedLeave | None = None
        self._asked = ""

    def hear(self, planned: Iterable[PlannedLeave], now: float) -> bool:
        """Take over what is planned; whether a leave that was asked for is planned no more."""
        self._leave = soonest(self._node, planned, now)
        gone = bool(self._asked) and (self._leave is None or self._leave.id != self._asked)
        if gone:
            self._asked = ""
        return gone

    def wait_s(self, now: float) -> float | None:
        """Seconds until the command is to be asked, or to look again; None where it is not."""
        if self._leave is None or self._leave.id == self._asked:
            return None
        return min(max(0.0, self._leave.at - self._notice_s - now), LONGEST_WAIT_S)

    def ask(self, now: float) -> PlannedLeave | None:
        """The leave to ask for now, once each; None where none is near."""
        leave, wait_s = self._leave, self.wait_s(now)
        if leave is None or wait_s is None or wait_s > 0:
            return None
        self._asked = leave.id
        return leave

    def write(self, leave: PlannedLeave) -> str:
        """Write the file; returns why it could not be, "" where it was."""
        if self._file is None:
            return ""
        try:
            write_atomically(self._file, msgspec.json.encode(leave) + b"\n")
        except OSError as error:
            return f"{self._file}: {error.strerror or error}"
        return ""

    def remove(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

"""When a kernel line was written, and whether it is news."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_agent.sources.kernel_lines import KernelLine
from gpuwarden_wire.events import Backlog

_OLD_S = 60.0
"""A stamp this much before the boot tells of an older one: clocks are set in the first minute."""


@dataclass(frozen=True, slots=True)
class LineDating:
    """What lines are dated by; all times are epoch seconds.

    Attributes:
        started_at: The agent's start: what is younger is news at any look.
        booted_at: The present boot, None where unknown.
        same_boot: The saved position was made in the present boot.
    """

    started_at: float
    booted_at: float | None
    same_boot: bool = True

    def date(self, line: KernelLine, stamped: float | None, now: float) -> tuple[Backlog, float]:
        """Whether a line is news, and when it was written as far as can be known.

        Args:
            line: The line, with what its source knows.
            stamped: What the line says of itself, None for nothing.
            now: Taken where neither tells.
        """
        written = line.observed_at if line.observed_at is not None else stamped
        backlog = self._backlog(line.backlog, written)
        if backlog is Backlog.NONE and self._before_boot(written):
            written = None  # appended in this boot: its stamp is wrong
        if written is None and backlog is Backlog.OLDER_BOOT:
            written = self.booted_at  # no later than this
        return backlog, now if written is None else written

    def _backlog(self, said: Backlog | None, written: float | None) -> Backlog:
        match said:
            case None:
                return Backlog.NONE if self._in_boot(written) else Backlog.OLDER_BOOT
            case Backlog.NONE if self.same_boot:
                return Backlog.NONE
            case _ if self._before_boot(written):
                return Backlog.OLDER_BOOT
            case Backlog.FIRST_LOOK if written is not None and written >= self.started_at:
                return Backlog.NONE
            case _:
                return said

    def _before_boot(self, written: float | None) -> bool:
        if written is None or self.booted_at is None:
            return False
        return written < self.booted_at - _OLD_S

    def _in_boot(self, written: float | None) -> bool:
        if written is None or self.booted_at is None:
            return False
        return written >= self.booted_at

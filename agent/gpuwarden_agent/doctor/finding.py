"""What the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    ABSENT = "absent"  # not there, and nothing says that it should be
    WARNING = "warning"  # the agent works, and misses something
    VITAL = "vital"  # the agent does not do its work like this


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        area: settings, agent, collectors, node, folders or server.
        name: What was looked at.
        level: How much it matters.
        says: What was found.
        mend: What to do about it, "" where nothing.
    """

    area: str
    name: str
    level: Level
    says: str
    mend: str = ""


def exit_code(findings: list[Finding]) -> int:
    """0 all fine, 1 warnings, 2 something vital."""
    levels = {finding.level for finding in findings}
    if Level.VITAL in levels:
        return 2
    return 1 if Level.WARNING in levels else 0

"""What a page says of a detector: the rows of docs/detectors.md."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.signals import Persistence, Plane

CLEARED_BY = MappingProxyType(
    {
        Persistence.EVENT: "time, or a passed check",
        Persistence.LEVEL: "a clear reading, or a passed check",
        Persistence.BOOT: "a reboot, or a passed check",
        Persistence.PART: "a passed check after a repair",
    }
)
"""What ends evidence, in words, by its persistence."""


@dataclass(frozen=True, slots=True)
class About:
    """One detector in words.

    Attributes:
        plane: Kind of evidence.
        reads: Metrics, kernel-log families or kinds of event that it reads.
        says: What its signals mean.
        limit: From when on it speaks.
        max_rung: Highest rung that its evidence may support.
        clears: What ends its evidence.
    """

    plane: Plane
    reads: tuple[str, ...]
    says: str
    limit: str
    max_rung: Rung
    clears: str


@runtime_checkable
class Described(Protocol):
    """A detector that describes itself, as all that differ by data only do."""

    @property
    def about(self) -> About:
        """The detector in words, made of the very data that it judges by."""
        ...

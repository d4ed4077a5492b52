"""Order and replay within one stream of one spool.

Sequences come in order as a rule, but live telemetry may come before a backlog, and after a crash
of the server the agent feeds again what was not durable. So what is missing below the highest
sequence stays fillable, and for a while holds `durable_seq` back, so that the agent does not trim
what may still come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

# A hole that nothing filled for so long was lost by the agent (a rejected batch, a lost spool).
HOLE_GRACE_S = 60.0
MAX_HOLES = 64
# Digests kept to tell a replay from a conflict: always the newest few, more while not durable.
KEPT_DIGESTS = 32
MAX_DIGESTS = 512


class Arrival(StrEnum):
    """What a sequence means to the ledger."""

    NEW = "new"
    REPLAY = "replay"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Hole:
    """Sequences that are missing below the highest one; both ends inclusive.

    Attributes:
        first: Lowest missing.
        last: Highest missing.
        since: When it appeared or was last filled in part, epoch seconds.
    """

    first: int
    last: int
    since: float


Range = tuple[int, int]


@dataclass(slots=True)
class SequenceLedger:
    """What is applied of one stream of one spool. Not thread-safe.

    Attributes:
        applied_seq: Highest sequence applied, 0 before the first.
        durable_seq: Highest sequence that the agent may trim to.
        holes: Missing below `applied_seq`, in order.
        declared: Ranges above `applied_seq` that the agent declared as shed.
        digests: 64-bit content digest of recent sequences.
    """

    applied_seq: int = 0
    durable_seq: int = 0
    holes: list[Hole] = field(default_factory=list)
    declared: list[Range] = field(default_factory=list)
    digests: dict[int, int] = field(default_factory=dict)

    def copy(self) -> SequenceLedger:
        """A ledger of its own, to be changed while a transaction may still fail."""
        return SequenceLedger(
            self.applied_seq,
            self.durable_seq,
            list(self.holes),
            list(self.declared),
            dict(self.digests),
        )

    def judge(self, seq: int, digest: int) -> Arrival:
        """What `seq` with this content is; a sequence whose digest is forgotten is a replay."""
        if seq > self.applied_seq or any(hole.first <= seq <= hole.last for hole in self.holes):
            return Arrival.NEW
        known = self.digests.get(seq)
        return Arrival.REPLAY if known is None or known == digest else Arrival.CONFLICT

    def apply(self, seq: int, digest: int, now: float) -> int:
        """Note that `seq` is applied.

        Returns:
            How many sequences are newly missing below it without having been declared.
        """
        opened = 0
        if seq > self.applied_seq:
            missing = subtract([(self.applied_seq + 1, seq - 1)], self.declared)
            self.holes += [Hole(first, last, now) for first, last in missing]
            opened = sum(last - first + 1 for first, last in missing)
            self.declared = [part for part in self.declared if part[1] > seq]
            self.applied_seq = seq
        else:
            self._fill((seq, seq), now)
        self.digests[seq] = digest
        self._prune()
        return opened

    def declare(self, first: int, last: int, now: float) -> int:
        """Note that the agent shed these sequences: they will never come.

        Returns:
            How many of them are news; agents declare a range until it is acknowledged.
        """
        before = sum(hole.last - hole.first + 1 for hole in self.holes)
        self._fill((first, last), now)
        news = before - sum(hole.last - hole.first + 1 for hole in self.holes)
        above = subtract([(max(first, self.applied_seq + 1), last)], self.declared)
        above = above[: MAX_HOLES - len(self.declared)]
        self.declared += above
        return news + sum(high - low + 1 for low, high in above)

    def ceiling(self, now: float) -> int:
        """Highest sequence that a durable copy of this ledger allows the agent to trim to."""
        young = [hole.first for hole in self.holes if now - hole.since < HOLE_GRACE_S]
        return max(self.durable_seq, min(young, default=self.applied_seq + 1) - 1)

    def _fill(self, part: Range, now: float) -> None:
        kept: list[Hole] = []
        for hole in self.holes:
            rest = subtract([(hole.first, hole.last)], [part])
            if rest == [(hole.first, hole.last)]:
                kept.append(hole)
            else:
                kept += [Hole(first, last, now) for first, last in rest]
        self.holes = kept

    def _prune(self) -> None:
        """Forget the holes and digests that came first, beyond the bounds."""
        del self.holes[:-MAX_HOLES]
        while len(self.digests) > KEPT_DIGESTS:
            first = next(iter(self.digests))
            if first > self.durable_seq and len(self.digests) <= MAX_DIGESTS:
                return
            del self.digests[first]


def subtract(parts: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """What is left of the inclusive ranges `parts` without `taken`, in order."""
    left = [part for part in parts if part[0] <= part[1]]
    for first, last in taken:
        rest: list[Range] = []
        for low, high in left:
            if last < low or first > high:
                rest.append((low, high))
                continue
            if low < first:
                rest.append((low, first - 1))
            if high > last:
                rest.append((last + 1, high))
        left = rest
    return left

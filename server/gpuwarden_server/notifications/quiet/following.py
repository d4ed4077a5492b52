"""How long a silence that an Alertmanager lists no more goes on here. Pure.

One that was restarted without what it held lists nothing until its peers tell it; a list that is
too long for us leaves some out. Neither has ended anything.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

READS = 4
ABSENT_S = 120.0


@dataclass(slots=True)
class Absences:
    """Silences that are held here and were not listed of late.

    Attributes:
        since: Monotonic seconds of the first read without it, and how many there were, by id.
    """

    since: dict[str, tuple[float, int]] = field(default_factory=dict)

    def note(self, absent: Set[str], clock: float) -> Set[str]:
        """Note a read that lacked these alone.

        Args:
            absent: Ids of those that it lacked.
            clock: Monotonic seconds.

        Returns:
            Those that were lacking in READS in a row and for ABSENT_S: they have ended.
        """
        before = self.since
        self.since = {}
        for key in absent:
            first, reads = before.get(key, (clock, 0))
            self.since[key] = first, reads + 1
        return {
            key
            for key, (first, reads) in self.since.items()
            if reads >= READS and clock - first >= ABSENT_S
        }

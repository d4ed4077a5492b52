"""The fleet's columnar state and the lock that its users share."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from gpuwarden_verdict.windows import FleetState


@dataclass(frozen=True, slots=True)
class GuardedState:
    """FleetState is not thread-safe: every use, reads and views included, holds `lock`.

    Ingest takes the lock for microseconds and never waits for it on the event loop; a sweep should
    hold it as short as it can.
    """

    state: FleetState
    lock: Lock = field(default_factory=Lock)

"""Where harvests go: readings into telemetry, events out, inventory shares together."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from gpuwarden_agent.collectors.contract import Emit, Harvest
from gpuwarden_agent.inventory import InventoryKeeper
from gpuwarden_agent.latest import LatestReadings
from gpuwarden_agent.precedence import Precedence
from gpuwarden_agent.sealing import Sealer
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Rows, Stale, Unavailable
from gpuwarden_wire.tables import TableMaker


class Collection:
    """The scheduler's sink. Thread-safe."""

    def __init__(
        self,
        latest: LatestReadings,
        sealer: Sealer,
        inventory: InventoryKeeper,
        emit: Emit,
        precedence: Precedence,
    ) -> None:
        self._latest = latest
        self._sealer = sealer
        self._inventory = inventory
        self._emit = emit
        self._precedence = precedence
        self._tables = TableMaker()
        self._lock = threading.Lock()

    def took(self, collector: str, harvest: Harvest, now: float, took_s: float) -> None:
        """Readings came: events first, since they are urgent."""
        if harvest.events:
            self._emit(harvest.events)
        self._latest.note_good(collector, harvest, now, took_s)
        self._inventory.heard(collector, harvest.inventory, now)
        self._add(collector, harvest.rows, now, urgent=harvest.urgent)

    def failed(self, collector: str, reason: str, now: float, took_s: float) -> None:
        """No reading came: each one that was there before says why."""
        self._latest.note_failed(collector, took_s)
        self._latest.count(collector, "error")
        self._inventory.heard(collector, None, now)
        self._add(collector, self._latest.missing(collector, Unavailable(reason)), now)

    def stuck(self, collector: str, age_s: float, now: float) -> None:
        """A call does not come back: its readings grow old."""
        self._latest.note_failed(collector, age_s)
        self._latest.count(collector, "stuck")
        self._inventory.heard(collector, None, now)
        read_at = self._latest.read_at(collector)
        stale = Stale(round(max(age_s, now - read_at), 3))
        self._add(collector, self._latest.missing(collector, stale), now)

    def paused(self, collector: str, now: float) -> None:
        """Nothing is read, on purpose: each reading that was there before says so."""
        self._latest.note_failed(collector, 0.0)
        self._latest.count(collector, "paused")
        self._inventory.heard(collector, None, now)
        self._add(collector, self._latest.missing(collector, Unavailable("maintenance")), now)

    def _add(
        self,
        collector: str,
        rows: Mapping[EntityKind, Rows],
        now: float,
        *,
        urgent: bool = False,
    ) -> None:
        with self._lock:
            admitted = self._precedence.admit(collector, rows, now)
            tables = self._tables.tables(collector, admitted.rows, now, admitted.shared)
        self._sealer.add(collector, tables, urgent=urgent)

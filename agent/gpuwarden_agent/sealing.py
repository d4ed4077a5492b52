"""Seals telemetry: one batch an interval, as soon as the collectors of that tick have answered."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from gpuwarden_agent.logs import get_logger
from gpuwarden_wire.batches import Table
from gpuwarden_wire.schema import Schema

Seal = Callable[[Sequence[Table], Iterable[Schema]], None]

_log = get_logger("sealer")

_LONGEST_GRACE_S = 1.0
_END_PATIENCE_S = 2.0


class Sealer:
    """Gathers tables from the collectors' threads and hands them on as batches.

    It takes its turns in a crew (`crew.Turn`), behind the collectors: the last of them to answer
    need wake nobody.
    """

    name = "sealer"

    def __init__(self, collectors: Iterable[str], interval_s: float, seal: Seal) -> None:
        self._expected = frozenset(collectors)
        self._grace_s = min(_LONGEST_GRACE_S, interval_s / 5)
        self._seal = seal
        self._wake: Callable[[], None] = _nobody
        self._lock = threading.Lock()
        self._sealing = threading.Lock()
        self._tables: list[tuple[Table, Schema]] = []
        self._heard: set[str] = set()
        self._due = math.inf

    @property
    def due(self) -> float:
        """Monotonic seconds: at once where a tick is whole, else when it has had its grace."""
        return self._due

    @property
    def is_in_flight(self) -> bool:
        """A batch is being handed on."""
        return self._sealing.locked()

    def move(self, wake: Callable[[], None]) -> None:
        """`wake` is called from now on when a batch is due earlier than it was."""
        self._wake = wake

    def add(
        self, collector: str, tables: Sequence[tuple[Table, Schema]], *, urgent: bool = False
    ) -> None:
        """What one call of a collector brought, nothing included; urgent waits for no other."""
        with self._lock:
            former = self._due
            if not self._heard:
                self._due = time.monotonic() + self._grace_s
            self._heard.add(collector)
            self._tables += tables
            if urgent or self._heard >= self._expected:
                self._due = -math.inf
            earlier = self._due < former
        if earlier:
            self._wake()

    def take(self) -> None:
        """Hand on what was gathered."""
        with self._sealing:
            with self._lock:
                gathered, self._tables = self._tables, []
                self._heard.clear()
                self._due = math.inf
            try:
                if gathered:
                    schemas = {schema.hash: schema for _, schema in gathered}
                    self._seal([table for table, _ in gathered], schemas.values())
            except Exception:
                _log.exception("sealer_bug")

    def finish(self) -> None:
        """Hand on what is left, unless what was handed on before does not come back."""
        if self._sealing.acquire(timeout=_END_PATIENCE_S):
            self._sealing.release()
            self.take()


def _nobody() -> None:
    return

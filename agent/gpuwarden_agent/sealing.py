"""Seals telemetry: one batch an interval, as soon as the collectors of that tick have answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from gpuwarden_agent.threads import tell_kernel_my_name
from gpuwarden_wire.batches import Table
from gpuwarden_wire.schema import Schema

Seal = Callable[[Sequence[Table], Iterable[Schema]], None]

_LONGEST_GRACE_S = 1.0
_EARLY_S = 0.1
"""A tick that comes so much before its time may have its grace so much prolonged."""


class Sealer:
    """Gathers tables from the collectors' threads and hands them on as batches."""

    def __init__(self, collectors: Iterable[str], interval_s: float, seal: Seal) -> None:
        self._expected = frozenset(collectors)
        self._grace_s = min(_LONGEST_GRACE_S, interval_s / 5)
        self._seal = seal
        self._changed = threading.Condition()
        self._tables: list[tuple[Table, Schema]] = []
        self._heard: set[str] = set()
        self._first_at = 0.0
        self._interval_s = interval_s
        self._wakes_at = 0.0
        self._urgent = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="sealer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(
        self, collector: str, tables: Sequence[tuple[Table, Schema]], *, urgent: bool = False
    ) -> None:
        """What one call of a collector brought, nothing included; urgent waits for no other."""
        with self._changed:
            first = not self._heard
            if first:
                self._first_at = time.monotonic()
            self._heard.add(collector)
            self._tables += tables
            ends_at = self._first_at + self._grace_s
            self._urgent = self._urgent or urgent
            if (
                urgent
                or self._heard >= self._expected
                or (first and self._wakes_at > ends_at + _EARLY_S)
            ):
                self._changed.notify()

    def stop(self) -> None:
        """Seal what is there and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _run(self) -> None:
        tell_kernel_my_name()
        while (gathered := self._await_tick()) is not None:
            if gathered:
                schemas = {schema.hash: schema for _, schema in gathered}
                self._seal([table for table, _ in gathered], schemas.values())

    def _await_tick(self) -> list[tuple[Table, Schema]] | None:
        """What a tick gathered; None at the end."""
        with self._changed:
            while not self._ready():
                if self._stopping:
                    return None
                self._wait()
            gathered, self._tables = self._tables, []
            self._heard.clear()
            self._urgent = False
            return gathered

    def _wait(self) -> None:
        """Sleep until the tick is whole, or has had its grace.

        Where nothing was heard yet, until the grace of the next tick is over: its first collector
        then need not wake us, which would cost more than all the rest here.
        """
        left = self._left()
        if left is None:
            next_ends_at = self._first_at + self._interval_s + self._grace_s
            left = max(next_ends_at - time.monotonic(), self._interval_s)
        self._wakes_at = time.monotonic() + left
        self._changed.wait(left)

    def _ready(self) -> bool:
        if not self._heard:
            return False
        return (
            self._stopping or self._urgent or self._heard >= self._expected or self._left() == 0.0
        )

    def _left(self) -> float | None:
        if not self._heard:
            return None
        return max(0.0, self._first_at + self._grace_s - time.monotonic())

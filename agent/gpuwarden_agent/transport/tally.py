"""Counts of what became of batches; read by /metrics."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from gpuwarden_agent.transport.answers import Fate
from gpuwarden_wire.batches import Stream


@dataclass(frozen=True, slots=True)
class Refusals:
    """Batches that the server refused for ever with one code.

    Attributes:
        count: How many.
        last_at: Epoch seconds of the last.
    """

    count: int
    last_at: float


class DeliveryTally:
    """Thread-safe counters of one sender."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fates: Counter[tuple[Stream, str]] = Counter()
        self._acknowledged_at: float | None = None
        self._refusals: dict[str, Refusals] = {}

    def note(self, stream: Stream, outcome: Fate | str) -> None:
        """One try of one batch ended so; "unreachable" where no answer came."""
        with self._lock:
            self._fates[stream, str(outcome)] += 1

    def note_acknowledged(self, now: float) -> None:
        """The server acknowledged a batch at `now`, epoch seconds."""
        with self._lock:
            self._acknowledged_at = now

    def note_refused(self, code: str, now: float) -> None:
        """A batch was refused for ever with the server's code at `now`, epoch seconds."""
        with self._lock:
            before = self._refusals.get(code)
            self._refusals[code] = Refusals(before.count + 1 if before else 1, now)

    def refusals(self) -> dict[str, Refusals]:
        """Refused batches by the server's code."""
        with self._lock:
            return dict(self._refusals)

    def outcomes(self) -> dict[tuple[Stream, str], int]:
        """Tries by stream and outcome."""
        with self._lock:
            return dict(self._fates)

    @property
    def acknowledged_at(self) -> float | None:
        """Epoch seconds of the last acknowledgement; None before the first."""
        return self._acknowledged_at

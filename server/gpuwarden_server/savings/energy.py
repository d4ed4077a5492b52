"""Mean power of GPUs by their energy counters, out of history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_server.history.domain import SHAPES, Level
from gpuwarden_server.history.reading import HistoryReader, Wanted
from gpuwarden_verdict.segments.blocks import F64
from gpuwarden_wire.metrics import EntityKind

COUNTER = "gpu_energy_joules_total"
LOOK_S = 3600.0
"""So much of a time is looked at, at most."""
LEAST_S = 120.0
"""Shorter than this a counter tells too little."""


class EnergyMeter:
    """Answers once for what is over, and again for what goes on."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, tuple[str, ...], float, float], float | None] = {}

    def watts(
        self, node_id: str, gpus: Sequence[str], begin: float, end: float, now: float
    ) -> float | None:
        """Mean power of a GPU in the first hour of a time, None where no counter was read.

        Args:
            node_id: Their node.
            gpus: UUIDs.
            begin: Epoch seconds.
            end: Epoch seconds.
            now: Epoch seconds: what ends before it is remembered.
        """
        end = min(end, begin + LOOK_S)
        if end - begin < LEAST_S or not gpus:
            return None
        key = node_id, tuple(gpus), begin, end
        if key not in self._known:
            found = self._measured(node_id, gpus, begin, end)
            if end > now - LEAST_S:
                return found
            if len(self._known) > 20_000:
                self._known.clear()
            self._known[key] = found
        return self._known[key]

    def _measured(
        self, node_id: str, gpus: Sequence[str], begin: float, end: float
    ) -> float | None:
        for level in (Level.MINUTE, Level.QUARTER):
            step_s = SHAPES[level].step_s
            if end - begin < 2 * step_s:
                break
            places = tuple((node_id, gpu) for gpu in gpus)
            wanted = Wanted(EntityKind.GPU, places, (COUNTER,), begin, end, level, step_s)
            times, series = self._reader.read(wanted)
            powers = [_mean_power(times, one.numbers["last"]) for one in series]
            known = [watts for watts in powers if watts is not None]
            if known:
                return sum(known) / len(known)
        return None


def _mean_power(times: F64, joules: F64) -> float | None:
    """Growth over time between readings; what a reset lies between is left out."""
    read = ~np.isnan(joules)
    grown, took = np.diff(joules[read]), np.diff(times[read])
    whole = grown >= 0.0
    seconds = float(took[whole].sum())
    return float(grown[whole].sum()) / seconds if seconds else None

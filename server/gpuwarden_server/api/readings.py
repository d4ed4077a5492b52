"""Latest readings of GPUs as numbers, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_wire.metrics import EntityKind

_MISSING = {1: "not_supported", 2: "unavailable", 3: "stale", 4: "never"}
_REASONS = {
    "not_supported": "the device or driver does not have it",
    "unavailable": "it could not be read",
    "stale": "the last value is too old",
    "never": "it was never sent",
}

Readings = dict[str, Any]
"""By metric: a number, or {"missing", "reason", "age_s"}."""


def gpu_readings(guarded: GuardedState, gpu_uuids: Sequence[str], now: float) -> list[Readings]:
    """Latest readings of some GPUs.

    Args:
        guarded: Columnar state; its lock is taken once.
        gpu_uuids: Who; one that never sent telemetry gets no readings.
        now: Epoch seconds; ages are counted to it.
    """
    with guarded.lock:
        state = guarded.state
        rows = state.rows_of(EntityKind.GPU, gpu_uuids).tolist()
        view = state.view(EntityKind.GPU)
        readings: list[Readings] = [{} for _ in rows]
        for metric in view.metrics:
            last, codes = view.last(metric), view.missing_code(metric)
            ages = view.age_s(metric, now)
            for place, row in enumerate(rows):
                if row >= 0:
                    readings[place][metric] = _form(last[row], int(codes[row]), float(ages[row]))
    return readings


def _form(value: float, code: int, age_s: float) -> float | dict[str, Any]:
    if code == 0 and math.isfinite(value):
        return float(value)
    kind = _MISSING.get(code, "unavailable")
    age = round(age_s, 1) if math.isfinite(age_s) else None
    return {"missing": kind, "reason": _REASONS[kind], "age_s": age}

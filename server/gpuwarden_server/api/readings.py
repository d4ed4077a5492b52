"""Latest readings of GPUs as numbers, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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


_Plane = tuple[str, npt.NDArray[np.float32], npt.NDArray[np.uint8], npt.NDArray[np.float32]]


def gpu_readings(guarded: GuardedState, gpu_uuids: Sequence[str], now: float) -> list[Readings]:
    """Latest readings of some GPUs.

    Args:
        guarded: Columnar state; its lock is taken once.
        gpu_uuids: Who; one that never sent telemetry gets no readings.
        now: Epoch seconds; ages are counted to it.
    """
    with guarded.lock:
        rows = guarded.state.rows_of(EntityKind.GPU, gpu_uuids)
        known = rows >= 0
        view = guarded.state.view(EntityKind.GPU).only(rows[known])
    planes = [
        (metric, view.last(metric), view.missing_code(metric), view.age_s(metric, now))
        for metric in view.metrics
    ]
    places = (np.cumsum(known) - 1).tolist()
    return [
        _row(planes, place) if is_known else {}
        for place, is_known in zip(places, known.tolist(), strict=True)
    ]


def node_number(guarded: GuardedState, node_id: str, metric: str) -> float | None:
    """Last reading of one metric of a node; None where there is no number."""
    with guarded.lock:
        rows = guarded.state.rows_of(EntityKind.NODE, [node_id])
        if rows[0] < 0:
            return None
        value = float(guarded.state.view(EntityKind.NODE).only(rows).last(metric)[0])
    return value if math.isfinite(value) else None


def _row(planes: Sequence[_Plane], row: int) -> Readings:
    return {
        metric: _form(last[row], int(codes[row]), float(ages[row]))
        for metric, last, codes, ages in planes
    }


def _form(value: float, code: int, age_s: float) -> float | dict[str, Any]:
    if code == 0 and math.isfinite(value):
        return float(value)
    kind = _MISSING.get(code, "unavailable")
    age = round(age_s, 1) if math.isfinite(age_s) else None
    return {"missing": kind, "reason": _REASONS[kind], "age_s": age}

"""Features of the learnt score: one path from the windows to a matrix, for training and serving.

Every feature is monotone: a larger value never lowers the risk. Missing stays missing (NaN).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.peers import PeerGroups, excess_over_peers
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows import KindView

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

FEATURES_VERSION = 2
"""Raised whenever a feature of the same name is computed in another way."""

CELSIUS_PER_WATT = 0.055
"""What a GPU's own draw explains of its temperature. Assumed: an H100 SXM at 650 W runs about 36 C
above its air; the remainder after this cut is compared between peers, so its exact size matters
little."""

BUSY_UTILIZATION, IDLE_UTILIZATION = 0.7, 0.15
"""Limits of the load bands: GPUs are compared within idle, light and busy."""

SILENCE_GRACE_S = 60.0
"""A GPU may lag behind its node's other GPUs by this much before it counts as silent."""

_LONGEST_SILENCE_S = 3600.0

# What every GPU gives as long as it answers at all.
_ALWAYS_READ = "gpu_temperature_celsius"


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the matrix.

    Attributes:
        name: Stable snake_case name with its unit.
        plane: Kind of evidence.
        monotone: 1: a larger value never lowers the risk; -1: a smaller one; 0: free.
        fault_class: What a high value points at.
    """

    name: str
    plane: Plane
    monotone: int
    fault_class: FaultClass


FEATURES: tuple[Feature, ...] = (
    Feature("temperature_excess_celsius", Plane.PEERS, 1, FaultClass.THERMAL),
    Feature("temperature_drift_celsius", Plane.PEERS, 1, FaultClass.THERMAL),
    Feature("thermal_slowdown_excess_seconds_1h", Plane.COUNTERS, 1, FaultClass.THERMAL),
    Feature("clock_deficit_ratio", Plane.PEERS, 1, FaultClass.THERMAL),
    Feature("ecc_corrected_1h", Plane.COUNTERS, 1, FaultClass.MEMORY),
    Feature("ecc_corrected_24h", Plane.COUNTERS, 1, FaultClass.MEMORY),
    Feature("ecc_uncorrected_24h", Plane.COUNTERS, 1, FaultClass.MEMORY),
    Feature("rows_remapped_24h", Plane.COUNTERS, 1, FaultClass.MEMORY),
    Feature("row_remap_state", Plane.COUNTERS, 1, FaultClass.MEMORY),
    Feature("memory_events_24h", Plane.EVENTS, 1, FaultClass.MEMORY),
    Feature("bus_events_24h", Plane.EVENTS, 1, FaultClass.BUS),
    Feature("other_hardware_events_24h", Plane.EVENTS, 1, FaultClass.UNKNOWN),
    Feature("application_events_1h", Plane.EVENTS, 1, FaultClass.APPLICATION),
    Feature("silence_seconds", Plane.STRUCTURE, 1, FaultClass.BUS),
)
"""Columns in order."""

FEATURE_NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)

_BUS = (EventGroup.XID_BUS, EventGroup.GPU_LOST, EventGroup.AER_UNCORRECTABLE)
_OTHER = (EventGroup.XID_NVLINK, EventGroup.XID_DRIVER, EventGroup.XID_OTHER, EventGroup.SXID)
_APPLICATION = (EventGroup.XID_APPLICATION, EventGroup.XID_ECHO)


def schema_hash() -> str:
    """First 16 hex digits of SHA-256 over version, names, planes and signs: names the schema."""
    rows = [[f.name, f.plane.value, f.monotone] for f in FEATURES]
    canonical = json.dumps([FEATURES_VERSION, rows], separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def feature_matrix(view: KindView, now: float) -> F32:
    """All features of all GPUs.

    Args:
        view: State of the GPUs, N rows.
        now: Epoch seconds to which event counts are decayed.

    Returns:
        float32, shape (N, len(FEATURES)), columns as FEATURES; NaN where a reading is missing.
    """
    matrix = np.empty((len(view), len(FEATURES)), dtype=np.float32)
    silence = _silence(view)
    columns = (*_heat(view, silence > 0), *_memory(view, silence > 0), *_events(view, now), silence)
    for index, column in enumerate(columns):
        matrix[:, index] = column
    return matrix


def _heat(view: KindView, silent: npt.NDArray[np.bool_]) -> tuple[F64, F64, F64, F64]:
    """Excess and drift in C, slowdown seconds of the last hour, missing share of the clock.

    Each against the GPU's peers: those of its model and load band in the fleet, and those of its
    model in its own node; the smaller excess counts, so that a hot rack or a slow job accuses
    nobody. A silent GPU is nobody's peer: its last readings are of another time.
    """
    groups = _peers(view, silent)
    watts = view.ewma_fast("gpu_power_watts").astype(np.float64)
    slow_watts = view.ewma_slow("gpu_power_watts").astype(np.float64)
    heat = view.ewma_fast("gpu_temperature_celsius") - CELSIUS_PER_WATT * watts
    past = view.ewma_slow("gpu_temperature_celsius") - CELSIUS_PER_WATT * slow_watts
    slowdown = view.increment_1h("gpu_thermal_slowdown_seconds_total").astype(np.float64)
    clock = view.ewma_fast("gpu_sm_clock_hertz").astype(np.float64)
    highest = view.last("gpu_sm_clock_max_hertz").astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        missing_clock = np.where(highest > 0, -clock / highest, np.nan)
    return (
        excess_over_peers(heat, groups),
        excess_over_peers(heat - past, groups),
        excess_over_peers(slowdown, groups),
        excess_over_peers(missing_clock, groups),
    )


def _peers(view: KindView, silent: npt.NDArray[np.bool_]) -> PeerGroups:
    load = view.ewma_fast("gpu_utilization_ratio")
    band = (load > IDLE_UTILIZATION).astype(np.int64) + (load > BUSY_UTILIZATION)
    # NVML gives no number for a model; these three tell the models of one fleet apart.
    model = np.stack(
        [
            view.last("gpu_memory_total_bytes"),
            view.last("gpu_sm_clock_max_hertz"),
            view.last("gpu_slowdown_temperature_celsius"),
        ]
    )
    known = ~np.isnan(load) & ~silent
    kind = np.zeros(len(view), np.int64)
    for numbers in np.nan_to_num(model):  # one sort each; all three in one take ten times as long
        values, place = np.unique(numbers, return_inverse=True)
        kind = kind * values.size + place
    # The node's GPUs change their load together, so they stay one group while it changes.
    node = view.node_rows * (int(kind.max(initial=0)) + 1) + kind
    return PeerGroups(fleet=kind * 3 + band, node=node, known=known)


def _memory(view: KindView, silent: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.floating], ...]:
    remapped = view.increment_24h("gpu_rows_remapped_correctable_total") + view.increment_24h(
        "gpu_rows_remapped_uncorrectable_total"
    )
    state = view.last("gpu_row_remap_pending") + 2.0 * view.last("gpu_row_remap_failure")
    return (
        view.increment_1h("gpu_ecc_corrected_volatile_total"),
        view.increment_24h("gpu_ecc_corrected_volatile_total"),
        view.increment_24h("gpu_ecc_uncorrected_volatile_total"),
        remapped,
        np.where(silent, np.nan, state),
    )


def _events(view: KindView, now: float) -> tuple[F32, F32, F32, F32]:
    return (
        view.events_24h(EventGroup.XID_MEMORY, now),
        _sum_24h(view, _BUS, now),
        _sum_24h(view, _OTHER, now),
        view.events_1h(_APPLICATION[0], now) + view.events_1h(_APPLICATION[1], now),
    )


def _sum_24h(view: KindView, groups: tuple[EventGroup, ...], now: float) -> F32:
    total: F32 = np.zeros(len(view), dtype=np.float32)
    for group in groups:
        total = total + view.events_24h(group, now)
    return total


def _silence(view: KindView) -> F64:
    """Seconds by which a GPU's latest reading lags behind its node's latest GPU reading.

    Less SILENCE_GRACE_S, 0..3600; by the agent's own clock. 0 for a node that is silent as a whole.
    An agent says of a lost GPU that it is not present, an exporter says nothing: both are silence.
    """
    seen, nodes = view.last_seen_at(), view.node_rows
    lost = (view.last("gpu_present") == 0) & ~np.isnan(view.lag_s(_ALWAYS_READ))
    seen = np.where(lost, seen - view.lag_s(_ALWAYS_READ), seen)
    if seen.size == 0:
        return np.empty(0)
    latest = np.full(int(nodes.max()) + 1, -np.inf)
    np.fmax.at(latest, nodes, seen)
    return np.clip(latest[nodes] - seen - SILENCE_GRACE_S, 0.0, _LONGEST_SILENCE_S)

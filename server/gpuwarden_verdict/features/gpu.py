"""Features of GPUs. Every one is monotone: a larger value never lowers the risk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.detectors.drift import CELSIUS_PER_WATT
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.contract import Feature
from gpuwarden_verdict.features.scene import Column
from gpuwarden_verdict.peers import PeerGroups, excess_over_peers
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows import KindView

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

GPU_VERSION = 2

BUSY_UTILIZATION, IDLE_UTILIZATION = 0.7, 0.15
"""Limits of the load bands: GPUs are compared within idle, light and busy."""

SILENCE_GRACE_S = 60.0
"""A GPU may lag behind its node's other GPUs by this much before it counts as silent."""

_LONGEST_SILENCE_S = 3600.0

# What every GPU gives as long as it answers at all.
_ALWAYS_READ = "gpu_temperature_celsius"


_BUS = (EventGroup.XID_BUS, EventGroup.GPU_LOST, EventGroup.AER_UNCORRECTABLE)
_OTHER = (EventGroup.XID_NVLINK, EventGroup.XID_DRIVER, EventGroup.XID_OTHER, EventGroup.SXID)
_APPLICATION = (EventGroup.XID_APPLICATION, EventGroup.XID_ECHO)


def _heat(scene: Scene) -> tuple[F64, F64, F64, F64]:
    """Excess and drift in C, slowdown seconds of the last hour, missing share of the clock.

    Each against the GPU's peers: those of its model and load band in the fleet, and those of its
    model in its own node; the smaller excess counts, so that a hot rack or a slow job accuses
    nobody. A silent GPU is nobody's peer: its last readings are of another time.
    """
    view, silent = scene.view, _silence(scene) > 0
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


def _memory(scene: Scene) -> tuple[npt.NDArray[np.floating], ...]:
    view = scene.view
    remapped = view.increment_24h("gpu_rows_remapped_correctable_total") + view.increment_24h(
        "gpu_rows_remapped_uncorrectable_total"
    )
    state = view.last("gpu_row_remap_pending") + 2.0 * view.last("gpu_row_remap_failure")
    return (
        view.increment_1h("gpu_ecc_corrected_volatile_total"),
        view.increment_24h("gpu_ecc_corrected_volatile_total"),
        view.increment_24h("gpu_ecc_uncorrected_volatile_total"),
        remapped,
        np.where(_silence(scene) > 0, np.nan, state),
    )


def _events(scene: Scene) -> tuple[F32, F32, F32, F32]:
    view, now = scene.view, scene.now
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


def _silence(scene: Scene) -> F64:
    """Seconds by which a GPU's latest reading lags behind its node's latest GPU reading.

    Less SILENCE_GRACE_S, 0..3600; by the agent's own clock. 0 for a node that is silent as a whole.
    An agent says of a lost GPU that it is not present, an exporter says nothing: both are silence.
    """
    return scene.once("silence_seconds", lambda: _silence_of(scene.view))


def _silence_of(view: KindView) -> F64:
    seen, nodes = view.last_seen_at(), view.node_rows
    lost = (view.last("gpu_present") == 0) & ~np.isnan(view.lag_s(_ALWAYS_READ))
    seen = np.where(lost, seen - view.lag_s(_ALWAYS_READ), seen)
    if seen.size == 0:
        return np.empty(0)
    latest = np.full(int(nodes.max()) + 1, -np.inf)
    np.fmax.at(latest, nodes, seen)
    return np.clip(latest[nodes] - seen - SILENCE_GRACE_S, 0.0, _LONGEST_SILENCE_S)


def _one_of(
    make: Callable[[Scene], tuple[npt.NDArray[np.floating], ...]], place: int
) -> Callable[[Scene], npt.NDArray[np.floating]]:
    """One of some columns that are made together, once a moment."""
    return lambda scene: scene.once(("features", make.__name__, scene.now), lambda: make(scene))[
        place
    ]


GPU_COLUMNS: tuple[Column, ...] = (
    Column(
        Feature("temperature_excess_celsius", Plane.PEERS, 1, FaultClass.THERMAL),
        _one_of(_heat, 0),
    ),
    Column(
        Feature("temperature_drift_celsius", Plane.PEERS, 1, FaultClass.THERMAL),
        _one_of(_heat, 1),
    ),
    Column(
        Feature("thermal_slowdown_excess_seconds_1h", Plane.COUNTERS, 1, FaultClass.THERMAL),
        _one_of(_heat, 2),
    ),
    Column(
        Feature("clock_deficit_ratio", Plane.PEERS, 1, FaultClass.THERMAL),
        _one_of(_heat, 3),
    ),
    Column(
        Feature("ecc_corrected_1h", Plane.COUNTERS, 1, FaultClass.MEMORY, cheap=True),
        _one_of(_memory, 0),
    ),
    Column(
        Feature("ecc_corrected_24h", Plane.COUNTERS, 1, FaultClass.MEMORY, cheap=True),
        _one_of(_memory, 1),
    ),
    Column(
        Feature("ecc_uncorrected_24h", Plane.COUNTERS, 1, FaultClass.MEMORY, cheap=True),
        _one_of(_memory, 2),
    ),
    Column(
        Feature("rows_remapped_24h", Plane.COUNTERS, 1, FaultClass.MEMORY, cheap=True),
        _one_of(_memory, 3),
    ),
    Column(
        Feature("row_remap_state", Plane.COUNTERS, 1, FaultClass.MEMORY, cheap=True),
        _one_of(_memory, 4),
    ),
    Column(
        Feature("memory_events_24h", Plane.EVENTS, 1, FaultClass.MEMORY, cheap=True),
        _one_of(_events, 0),
    ),
    Column(
        Feature("bus_events_24h", Plane.EVENTS, 1, FaultClass.BUS, cheap=True),
        _one_of(_events, 1),
    ),
    Column(
        Feature("other_hardware_events_24h", Plane.EVENTS, 1, FaultClass.UNKNOWN, cheap=True),
        _one_of(_events, 2),
    ),
    Column(
        Feature("application_events_1h", Plane.EVENTS, 1, FaultClass.APPLICATION, cheap=True),
        _one_of(_events, 3),
    ),
    Column(
        Feature("silence_seconds", Plane.STRUCTURE, 1, FaultClass.BUS, cheap=True),
        _silence,
    ),
)
"""How each is made, in the order of the matrix."""

"""Features of nodes: the host's own planes, and whether all of its devices are there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.detectors.measures import change_to_usual
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.contract import Feature
from gpuwarden_verdict.features.scene import Column
from gpuwarden_verdict.signals import Plane

F32 = npt.NDArray[np.float32]

NODE_VERSION = 1


def _gpus_missing(scene: Scene) -> F32:
    """GPUs that the node should show and does not; NaN where its agent counts none."""
    return scene.latest("node_gpus_expected") - scene.latest("node_gpus_visible")


def _interrupts(scene: Scene) -> F32:
    """Interrupts of the last minute over their own last hour, over the same of the peers."""
    own, peers = change_to_usual(scene, "node_interrupts_total")
    with np.errstate(divide="ignore", invalid="ignore"):
        change = own / np.where(np.isnan(peers), 1.0, np.maximum(peers, 0.05))
    return change.astype(np.float32)


def _mean(metric: str) -> Callable[[Scene], F32]:
    return lambda scene: scene.mean(metric)


def _latest(metric: str) -> Callable[[Scene], F32]:
    return lambda scene: scene.latest(metric)


def _grown_24h(metric: str) -> Callable[[Scene], F32]:
    return lambda scene: scene.grown_24h(metric)


def _events_24h(group: EventGroup) -> Callable[[Scene], F32]:
    return lambda scene: scene.view.events_24h(group, scene.now)


NODE_COLUMNS: tuple[Column, ...] = (
    Column(
        Feature("gpus_missing", Plane.STRUCTURE, 1, FaultClass.BUS, cheap=True),
        _gpus_missing,
    ),
    Column(
        Feature("nvml_call_age_seconds", Plane.STRUCTURE, 1, FaultClass.DRIVER, cheap=True),
        _latest("node_nvml_call_age_seconds"),
    ),
    Column(
        Feature("interrupts_to_usual_ratio", Plane.HOST, -1, FaultClass.HOST),
        _interrupts,
    ),
    Column(
        Feature("processes_blocked", Plane.HOST, 1, FaultClass.STORAGE, cheap=True),
        _mean("node_processes_blocked"),
    ),
    Column(
        Feature("pressure_io_full_ratio", Plane.HOST, 1, FaultClass.STORAGE, cheap=True),
        _mean("node_pressure_io_full_seconds_total"),
    ),
    Column(
        Feature("pressure_memory_full_ratio", Plane.HOST, 1, FaultClass.HOST, cheap=True),
        _mean("node_pressure_memory_full_seconds_total"),
    ),
    Column(
        Feature("memory_corrected_24h", Plane.COUNTERS, 1, FaultClass.HOST, cheap=True),
        _grown_24h("node_memory_corrected_errors_total"),
    ),
    Column(
        Feature("memory_events_24h", Plane.EVENTS, 1, FaultClass.HOST, cheap=True),
        _events_24h(EventGroup.HOST_MEMORY),
    ),
    Column(
        Feature("stall_events_24h", Plane.EVENTS, 1, FaultClass.HOST, cheap=True),
        _events_24h(EventGroup.HOST_STALL),
    ),
    Column(
        Feature("storage_events_24h", Plane.EVENTS, 1, FaultClass.STORAGE, cheap=True),
        _events_24h(EventGroup.STORAGE),
    ),
)
"""How each is made, in the order of the matrix."""

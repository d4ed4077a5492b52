"""Who has trouble now: what an entity's neighbours are asked, and the events that say so."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.detectors.reading import Bool, of_nodes
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.making import by_node, events_1h
from gpuwarden_verdict.features.scene import Look, made
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

BUS = (EventGroup.XID_BUS, EventGroup.GPU_LOST, EventGroup.AER_UNCORRECTABLE)
OTHER = (EventGroup.XID_OTHER, EventGroup.SXID, EventGroup.CHECK_FAILED)
DRIVER = (EventGroup.XID_DRIVER, EventGroup.DRIVER)
APPLICATION = (EventGroup.XID_APPLICATION, EventGroup.XID_ECHO)
HARDWARE = (EventGroup.XID_MEMORY, EventGroup.XID_NVLINK, *BUS, *OTHER, *DRIVER)
_OF_HOSTS = (
    EventGroup.HOST_MEMORY,
    EventGroup.NIC,
    EventGroup.STORAGE,
    EventGroup.HOST_STALL,
    EventGroup.DRIVER,
)

SILENCE_GRACE_S = 60.0
"""A GPU may lag behind its node's other GPUs by this much before it counts as silent."""
_LONGEST_SILENCE_S = 3600.0

# What every GPU gives as long as it answers at all.
_ALWAYS_READ = "gpu_temperature_celsius"

_HALF = 0.5
"""Counts decay with an hour: an event is trouble of now for some forty minutes."""


@made(
    "by how much it lags behind its node's other GPUs, less a minute, at most an hour",
    "the whole node is silent",
)
def silence(look: Look) -> F32:
    """Seconds by which a GPU's latest reading lags behind its node's latest GPU reading.

    Less SILENCE_GRACE_S, 0..3600; by the agent's own clock. NaN for a node that is silent as a
    whole. An agent says of a lost GPU that it is not present, an exporter says nothing: both are
    silence.
    """
    return look.once("silence", lambda: _silence(look))


def _silence(look: Look) -> F32:
    view = look.view
    seen, nodes = view.last_seen_at(), view.node_rows
    lost = np.flatnonzero(view.last("gpu_present") == 0)
    if lost.size:
        seen = seen.copy()
        seen[lost] -= np.nan_to_num(view.lag_s(_ALWAYS_READ)[lost])
    if seen.size == 0:
        return np.empty(0, np.float32)
    latest = np.full(int(nodes.max()) + 1, -np.inf)
    known = ~np.isnan(seen)
    np.maximum.at(latest, nodes[known], seen[known])
    behind = latest[nodes] - seen
    behind -= SILENCE_GRACE_S
    np.clip(behind, 0.0, _LONGEST_SILENCE_S, out=behind)
    behind[of_nodes(look.state, view, look.fleet.silent_nodes)] = np.nan
    return behind.astype(np.float32)


@made("GPUs that should show and do not, by the agent's count or the server's record")
def gpus_missing(look: Look) -> F32:
    """Of nodes: GPUs that should show and do not, by the agent's count or the server's record."""
    told = look.latest("node_gpus_expected")
    kept = by_node(look, {node: float(count) for node, count in look.fleet.gpus_expected.items()})
    return np.maximum(np.fmax(told, kept) - look.latest("node_gpus_visible"), np.float32(0.0))


def gpu_troubled(look: Look) -> Bool:
    """GPUs with any event of the last hour, or silent, shape (N,)."""

    def make() -> Bool:
        with np.errstate(invalid="ignore"):
            told = events_1h(*HARDWARE, *APPLICATION)(look) > _HALF
            trouble: Bool = told | (silence(look) > 0)
        return trouble

    return look.once(("troubled", look.now), make)


def node_troubled(look: Look) -> Bool:
    """Nodes with an event of their own in the last hour, or a GPU with trouble, shape (N,)."""

    def make() -> Bool:
        gpus = look.at(EntityKind.GPU)
        sick = np.bincount(gpus.view.node_rows[gpu_troubled(gpus)], minlength=len(look.view)) > 0
        with np.errstate(invalid="ignore"):
            trouble: Bool = sick | (events_1h(*_OF_HOSTS)(look) > _HALF)
        return trouble

    return look.once(("troubled", look.now), make)


def nic_troubled(look: Look) -> Bool:
    """Ports with an event in the last hour, shape (N,)."""
    with np.errstate(invalid="ignore"):
        trouble: Bool = events_1h(EventGroup.NIC)(look) > _HALF
    return trouble

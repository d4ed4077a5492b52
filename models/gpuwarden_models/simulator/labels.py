"""The truth about a simulated fleet: rows of labels.csv."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.topology import Topology
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Label:
    """One row of a recording's labels.csv.

    Attributes:
        entity_kind: gpu, node, nic, mount, fabric or job.
        entity: gpu_uuid, node, "node/device", mount point, leaf or job id.
        fault_class: Where the fault lies.
        start: Epoch seconds from which action is needed.
        end: Epoch seconds of the repair; infinite where it outlasts the recording.
        action_needed: False for confounders.
        note: `mechanism=` and the fault's name; of what needs action `shows=` from when anything
            that is read or logged is changed, or "never"; `precursor_start=` where it may be
            flagged before `start`.
    """

    entity_kind: str
    entity: str
    fault_class: FaultClass
    start: float
    end: float
    action_needed: bool
    note: str


_PLACES = {"leaf": "fabric", "mount": "mount"}


def labels_of(active: ActiveFault, start: float, topology: Topology) -> Iterator[Label]:
    """The rows of one fault.

    A place that is at fault has a row of its own; nodes behind it, and behind what is nobody's
    fault, have rows that say that nobody may be excluded for it.

    Args:
        active: The fault.
        start: Epoch seconds of the simulation's start.
        topology: The fleet.
    """
    fault = active.fault
    onset = start + fault.at_s
    note = f"simulated mechanism={fault.name}"
    if fault.kind.action_needed:
        shown = "never" if active.shows_at is None else f"{active.shows_at:.3f}"
        note = f"{note} shows={shown}"
    if fault.kind.action_needed and fault.needed_after_s > 0:
        note = f"{note} precursor_start={onset:.3f}"
    begin, end = onset + fault.needed_after_s, onset + fault.duration_s

    def row(kind: str, entity: str, *, needed: bool) -> Label:
        return Label(kind, entity, fault.kind.fault_class, begin, end, needed, note)

    kind, _, name = fault.entity.partition(":")
    if fault.kind.entity_kind is EntityKind.PLACE:
        if kind in _PLACES and fault.kind.action_needed:
            yield row(_PLACES[kind], name, needed=True)
        for node in topology.nodes_at(fault.entity).tolist():
            yield row("node", topology.nodes[node], needed=False)
    elif fault.kind.entity_kind is EntityKind.NIC:
        device = fault.entity.rsplit("/", 1)[0]
        yield row("nic", device, needed=fault.kind.action_needed)
    else:
        yield row(fault.kind.entity_kind.value, active.entity, needed=fault.kind.action_needed)
    if active.job_id:
        yield row("job", active.job_id, needed=False)

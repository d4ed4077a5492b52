"""Keeps the ledger of parts: what came true is put on record of the part that it was about."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.domain import Outcome, StateMove
from gpuwarden_verdict.entities import EntityRef, EntityState, Severity
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.job_ends import JobEnd, JobOutcome
from gpuwarden_verdict.ledger import SEVERE, LedgerReading, Mark, PartLedger, part_name
from gpuwarden_verdict.policy.document import Decision, DecisionPhase
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR
from gpuwarden_wire.metrics import EntityKind

_GRAVE = frozenset({Severity.ERROR, Severity.CRITICAL})
_HELD_BY_NODE = frozenset({EntityKind.DISK, EntityKind.MOUNT})
_REPAIR_ENDED = (EntityState.IN_REPAIR, EntityState.PROBATION)


class Chronicle:
    """Writes the ledger; used in the judge's thread, `latest` from any.

    Attributes:
        ledger: What is on record.
        latest: The newest reading; replaced whole.
    """

    def __init__(self, directory: Directory, ledger: PartLedger | None = None) -> None:
        """Go on with a ledger.

        Args:
            directory: Which serial number a GPU has, and which slot and job.
            ledger: None for an empty one.
        """
        self.ledger = ledger if ledger is not None else PartLedger()
        self.latest = self.ledger.reading()
        self._directory = directory
        self._read_at = self.ledger.version
        self._slots: dict[str, dict[str, str]] = {}
        for gpu in directory.all_gpus():
            if gpu.present:
                self._slots.setdefault(gpu.node_id, {})[gpu.pci_bus_id] = gpu.gpu_uuid

    def reading(self) -> LedgerReading:
        """The ledger as it is now; the same object while nothing changes."""
        if self._read_at != self.ledger.version:
            self.latest = self.ledger.reading()
            self._read_at = self.ledger.version
        return self.latest

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Put on record what came true."""
        for outcome in outcomes:
            for past in outcome.history:
                begun = min((item.first_at for item in past.incident.evidence), default=past.at)
                self._note_incident(past.incident, begun)
            for move in outcome.incident_moves:
                self._note_incident(move.incident, move.incident.opened_at)
            for made in outcome.decision_moves:
                self._note_decision(made.decision)
            if outcome.state_move is not None:
                self._note_state(outcome.state_move)

    def note_job_end(self, node_id: str, end: JobEnd) -> None:
        """Put a job that failed on record of its node, and of the GPUs that it ran on there.

        One of many nodes says little about each: it counts for as much less.
        """
        if end.outcome is not JobOutcome.BAD:
            return
        weight = 1.0 / math.sqrt(max(1, end.nodes))
        node = EntityRef(EntityKind.NODE, node_id, node_id)
        self.ledger.note(part_name(node), node, Mark.FAILED_JOB, end.at, weight)
        for gpu in self._directory.gpus_of(node_id):
            if self._directory.job_at(gpu.gpu_uuid, end.at) == end.job:
                ref = EntityRef(EntityKind.GPU, gpu.gpu_uuid, node_id)
                self.ledger.note(self._part(ref), ref, Mark.FAILED_JOB, end.at, weight)

    def note_inventory(self, node_ids: Iterable[str], now: float) -> None:
        """Put on record of nodes that another board sits in a slot than before.

        Args:
            node_ids: Nodes of which an inventory came.
            now: Epoch seconds.
        """
        for node_id in node_ids:
            held = self._directory.gpus_of(node_id)
            here = {gpu.pci_bus_id: gpu.gpu_uuid for gpu in held if gpu.present}
            before = self._slots.get(node_id, {})
            new = {slot for slot, uuid in here.items() if uuid not in before.values()}
            if new & before.keys():
                node = EntityRef(EntityKind.NODE, node_id, node_id)
                self.ledger.note(part_name(node), node, Mark.REPLACEMENT, now)
            self._slots[node_id] = before | here

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        self.ledger.rename_node(old, new)
        if old in self._slots:
            self._slots[new] = self._slots.pop(old)

    def _note_incident(self, incident: Incident, at: float) -> None:
        """A severe event: of the part, and of the node for what happened to a GPU in it."""
        mark, ref = SEVERE.get(incident.fault_class), _holder(incident.entity)
        if mark is None or ref is None:
            return
        node = EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)
        marked = [(ref, mark)]
        if ref.kind is EntityKind.GPU:
            marked.append((node, Mark.GPU))
        if incident.parent_id is not None or incident.acquitted_until is not None:
            for one, what in marked:  # a place was the cause, or a person said that it is sound
                self.ledger.retract(self._part(one), what, at)
        elif any(_is_grave(item) for item in incident.evidence):
            for one, what in marked:
                self.ledger.note(self._part(one), one, what, at)

    def _note_decision(self, decision: Decision) -> None:
        ref, at = decision.entity, decision.decided_at
        if covers(decision):
            self.ledger.note(self._part(ref), ref, Mark.EXCLUSION, at)
        elif decision.phase is DecisionPhase.REVOKED:
            self.ledger.retract(self._part(ref), Mark.EXCLUSION, at)

    def _note_state(self, move: StateMove) -> None:
        if (move.before.state, move.after.state) == _REPAIR_ENDED:
            ref = move.entity
            self.ledger.note(self._part(ref), ref, Mark.REPAIR, move.after.since)

    def _part(self, ref: EntityRef) -> str:
        gpu = self._directory.gpu(ref.key) if ref.kind is EntityKind.GPU else None
        return part_name(ref, gpu.serial if gpu is not None else "")


def _holder(ref: EntityRef) -> EntityRef | None:
    """The part that an entity's fault is on record of; None for a place, which is no part."""
    if ref.kind is EntityKind.PLACE:
        return None
    if ref.kind in _HELD_BY_NODE:
        return EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)
    return ref


def _is_grave(item: EvidenceItem) -> bool:
    """Evidence of a fault of the hardware by a rule: a score must not confirm itself."""
    sound = item.echo or item.application_possible or item.detector == LEARNED_DETECTOR
    return not sound and item.severity in _GRAVE

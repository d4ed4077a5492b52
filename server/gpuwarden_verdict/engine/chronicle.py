"""Keeps the ledger of parts: what came true is put on record of the part that it was about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.domain import Outcome, StateMove
from gpuwarden_verdict.entities import EntityRef, EntityState, Severity, renamed_ref
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase
from gpuwarden_verdict.job_ends import JobEnd, JobOutcome
from gpuwarden_verdict.ledger import (
    SEVERE,
    SEVERE_MARKS,
    LedgerReading,
    Mark,
    PartLedger,
    part_name,
)
from gpuwarden_verdict.policy.document import Decision, DecisionPhase
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR
from gpuwarden_wire.metrics import EntityKind

_GRAVE = frozenset({Severity.ERROR, Severity.CRITICAL})
_HELD_BY_NODE = frozenset({EntityKind.DISK, EntityKind.MOUNT})
_REPAIR_ENDED = (EntityState.IN_REPAIR, EntityState.PROBATION)

_Key = tuple[str, Mark, float]
_Marks = dict[_Key, EntityRef]
"""Marks by part, kind and time, each with the entity that the part was."""


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
        self._marked: dict[str, _Marks] = {}  # of live incidents, by id
        self._laid: Counter[_Key] = Counter()  # how many of them put the same there
        self._words: dict[str, bool] = {}  # of live incidents, by id: was it the hardware
        for gpu in directory.all_gpus():
            if gpu.present:
                self._slots.setdefault(gpu.node_id, {})[gpu.pci_bus_id] = gpu.gpu_uuid

    def reading(self) -> LedgerReading:
        """The ledger as it is now; the same object while nothing changes."""
        if self._read_at != self.ledger.version:
            self.latest = self.ledger.reading()
            self._read_at = self.ledger.version
        return self.latest

    def recall(self, incidents: Iterable[Incident]) -> None:
        """Go on with live incidents: what they put on record may still be taken back."""
        for incident in incidents:
            self._hold(incident.id, self._marks_of(incident, incident.opened_at))

    def take_word(self, incident: Incident, hardware: bool | None) -> None:
        """A person says what an incident was: that outweighs what rules say of it.

        Args:
            incident: It, live or over.
            hardware: Whether the hardware was at fault; None where nobody says so any more.
        """
        self._words.pop(incident.id, None)
        if hardware is not None:
            self._words[incident.id] = hardware
        at = self._noted_at(incident)
        if incident.id not in self._marked:  # it is over, or has put nothing there
            self._hold(incident.id, self._marks_of(incident, at))
        self._note_incident(incident, at)

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Put on record what came true."""
        for outcome in outcomes:
            for past in outcome.history:
                self._note_incident(past.incident, _begun(past.incident))
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
        former, self._marked, self._laid = self._marked, {}, Counter()
        for incident_id, marks in former.items():
            self._hold(incident_id, _renamed(marks, old, new))
        if old in self._slots:
            self._slots[new] = self._slots.pop(old)

    def _note_incident(self, incident: Incident, at: float) -> None:
        """A severe event: of the part, and of the node for what happened to a GPU in it.

        What the incident put on record before and deserves no more is taken back: it names another
        cause now, a place was the cause, or a person said that the part is sound. A person who says
        that it was the hardware is believed, whatever else speaks.
        """
        word = self._words.get(incident.id)
        marks = self._marks_of(incident, at)
        held = self._marked.pop(incident.id, {})
        self._laid.subtract(held.keys())
        sound = incident.parent_id is not None or incident.acquitted_until is not None
        sound = sound if word is None else not word
        grave = word or any(_is_grave(item) for item in incident.evidence)
        kept = {key: ref for key, ref in marks.items() if not sound and (grave or key in held)}
        for key in [key for key in held if key not in kept]:  # the part's own, then the node's
            if not (self._laid[key] or self._of_another(key, held[key])):
                self.ledger.retract(*key)
        if grave:
            for (part, mark, when), ref in kept.items():
                self.ledger.note(part, ref, mark, when)
        for key in held:
            if not self._laid[key]:
                del self._laid[key]
        if incident.phase is IncidentPhase.RESOLVED:
            self._words.pop(incident.id, None)
        else:
            self._hold(incident.id, kept)

    def _of_another(self, key: _Key, ref: EntityRef) -> bool:
        """Whether another GPU of the node failed at that very moment, in an incident that is over.

        Live ones that put the same on record are counted.
        """
        _, mark, at = key
        held = self._directory.gpus_of(ref.node_id) if mark is Mark.GPU else ()
        parts = (self._part(EntityRef(EntityKind.GPU, gpu.gpu_uuid, ref.node_id)) for gpu in held)
        return any(
            which in SEVERE_MARKS and when == at
            for part in parts
            for which, when, _ in self.ledger.marks_of(part)
        )

    def _noted_at(self, incident: Incident) -> float:
        """Under which time it is on record: one that was history when it was told, by its begin."""
        begun = _begun(incident)
        told = {
            (which, when)
            for part, which, when in self._marks_of(incident, begun)
            if (which, when) in {marks[:2] for marks in self.ledger.marks_of(part)}
        }
        return begun if told else incident.opened_at

    def _hold(self, incident_id: str, marks: _Marks) -> None:
        if marks:
            self._marked[incident_id] = marks
            self._laid.update(marks.keys())

    def _marks_of(self, incident: Incident, at: float) -> _Marks:
        """What an incident of this class, if it is grave, puts on record."""
        mark, ref = SEVERE.get(incident.fault_class), _holder(incident.entity)
        if mark is None or ref is None:
            return {}
        marks = {(self._part(ref), mark, at): ref}
        if ref.kind is EntityKind.GPU:
            node = EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)
            marks[part_name(node), Mark.GPU, at] = node
        return marks

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


def _begun(incident: Incident) -> float:
    return min((item.first_at for item in incident.evidence), default=incident.opened_at)


def _is_grave(item: EvidenceItem) -> bool:
    """Evidence of a fault of the hardware by a rule: a score must not confirm itself."""
    sound = item.echo or item.application_possible or item.detector == LEARNED_DETECTOR
    return not sound and item.severity in _GRAVE


def _renamed(marks: _Marks, old: str, new: str) -> _Marks:
    """The same marks once node `old` is called `new`; a GPU's part keeps its name."""
    renamed: _Marks = {}
    for (part, mark, at), ref in marks.items():
        called = renamed_ref(ref, old, new)
        name = part if called.key == ref.key else part_name(called)
        renamed[name, mark, at] = called
    return renamed

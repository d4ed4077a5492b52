"""What a diagnosis that nobody asked for tells the judge: evidence that excludes nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_verdict.diagnosis.domain import (
    FAULT_CLASS,
    NETWORK,
    Culprit,
    CulpritKind,
    Diagnosis,
)
from gpuwarden_verdict.diagnosis.words import culprit_words
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.incidents.diagnosed import DIAGNOSIS
from gpuwarden_verdict.places import PlaceKind, place_ref
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, RecoveryKind, Signal
from gpuwarden_wire.metrics import EntityKind

VERSION = 1
SURE = 0.5
"""Confidence from which a diagnosis opens an incident."""
_TTL_S = 3600.0
_PARTS = {
    CulpritKind.GPU: EntityKind.GPU,
    CulpritKind.HOST: EntityKind.NODE,
    CulpritKind.NIC: EntityKind.NIC,
    CulpritKind.DISK: EntityKind.DISK,
    CulpritKind.MOUNT_CLIENT: EntityKind.MOUNT,
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """A culprit that slows a job now.

    Attributes:
        signal: For the judge.
        hit: Nodes that suffer from it.
    """

    signal: Signal
    hit: frozenset[str]


def detector_of(job: str) -> str:
    """Name under which a job's diagnosis is evidence: of each job for itself."""
    return f"{DIAGNOSIS}{job}"


def alarm_of(told: Diagnosis, diagnosis_id: str, why: str, now: float) -> Alarm | None:
    """What a diagnosis of a job gives cause to tell.

    Whatever it blames, it may only be looked at (`Rung.OBSERVE`): its members are acquitted, and no
    GPU is excluded for a fault of storage or fabric.

    Args:
        told: The diagnosis.
        diagnosis_id: Under which it is kept.
        why: What gave cause to it.
        now: Epoch seconds.

    Returns:
        None where nothing is abnormal, or the evidence does not decide.
    """
    if told.kind in (None, CulpritKind.NOTHING) or told.confidence < SURE or not told.culprits:
        return None
    first = told.culprits[0]
    acquitted = ", ".join(one.what for one in told.acquitted)
    innocent = f"; innocent: {acquitted}" if acquitted else ""
    signal = Signal(
        entity=entity_of(first),
        fault_class=class_of(first),
        score=told.confidence,
        severity=Severity.WARNING,
        plane=Plane.HOST,
        sentence=f"{told.job} is slowed by {culprit_words(first)}: {_chain(first)}; "
        f"{first.scale.sentence}{innocent} (diagnosis {diagnosis_id}, made since {why})",
        detector=detector_of(told.job),
        detector_version=VERSION,
        observed_at=now,
        expires_at=now + _TTL_S,
        persistence=Persistence.LEVEL,
        action=RecommendedAction.INVESTIGATE,
        numbers={"hit_nodes": float(len(first.hit)), "lost_share": told.lost},
        max_rung=Rung.OBSERVE,
        source="diagnosis",
        job=told.job,
    )
    return Alarm(signal, frozenset(first.hit))


def alarm_over(entity: EntityRef, job: str, reason: str, now: float) -> Recovery:
    """A job is slowed by it no more."""
    detectors = frozenset({detector_of(job)})
    return Recovery(entity, RecoveryKind.READING_CLEAR, now, reason, detectors)


def entity_of(culprit: Culprit) -> EntityRef:
    """What an incident is about; a rail and the whole network are places."""
    if culprit.kind in (CulpritKind.INPUT, CulpritKind.IMBALANCE):
        return place_ref(PlaceKind.JOB, culprit.entity)
    if culprit.node and culprit.kind in _PARTS:
        return EntityRef(_PARTS[culprit.kind], culprit.entity, culprit.node)
    key = f"{PlaceKind.FLEET.value}:all" if culprit.entity == "fleet:" else culprit.entity
    return EntityRef(EntityKind.PLACE, key, "")


def class_of(culprit: Culprit) -> FaultClass:
    """Where the fault lies; of what is no part of a node it is the fabric's, not a NIC's."""
    if culprit.kind in NETWORK and not culprit.node:
        return FaultClass.FABRIC
    return FAULT_CLASS[culprit.kind]


def _chain(culprit: Culprit) -> str:
    return "; ".join(link.sentence for link in culprit.evidence[:2])

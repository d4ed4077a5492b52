"""A GPU that was told lost and is read again: the loss is over, also where no agent says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.device_missing import PRESENT, answering_gpus
from gpuwarden_verdict.detectors.gpu_lost import PROBE_DETECTOR
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.signals import Persistence, Recovery, RecoveryKind
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.metrics import EntityKind

ANSWERS = "gpu_answers"
"""What this is called where it fails."""
_SPEAKS_FOR = frozenset({PROBE_DETECTOR})
_WHY = "the GPU answers again, as its readings tell"


def detect_answers(
    state: FleetReading, fleet: FleetContext, open_incidents: Sequence[Incident], now: float
) -> list[Recovery]:
    """Recoveries of GPUs told lost that are read present twice since.

    An agent whose memory was lost with the loss never takes it back. Readings count that came after
    it: present after having been absent, or read in a newer boot. A reading from just before the
    loss must not end it, so the times of both are held against each other: they are one agent's, or
    were set back to the time of receipt where its clock was ahead.
    """
    told = [(one.entity, item) for one in open_incidents for item in _standing(one)]
    if not told:
        return []
    answering = answering_gpus(state, fleet)
    return [
        Recovery(ref, RecoveryKind.READING_CLEAR, now, _WHY, _SPEAKS_FOR)
        for ref, item in told
        if ref.key in answering and _is_later(state, fleet, ref, item, now)
    ]


def _standing(incident: Incident) -> Iterator[EvidenceItem]:
    if incident.entity.kind is EntityKind.GPU:
        for item in incident.evidence:
            level = item.persistence is Persistence.LEVEL and item.cleared_at is None
            if level and item.detector == PROBE_DETECTOR:
                yield item


def _is_later(
    state: FleetReading, fleet: FleetContext, ref: EntityRef, item: EvidenceItem, now: float
) -> bool:
    view = state.view(EntityKind.GPU)
    row = int(state.rows_of(EntityKind.GPU, [ref.key])[0])
    changed_at = float(view.last_change_at(PRESENT)[row])
    read_at = changed_at + float(np.nan_to_num(view.steady_s(PRESENT)[row]))
    ahead_s = max(0.0, read_at - now)
    boot_id = fleet.boot_ids.get(view.refs[row].node_id, "")
    newer_boot = bool(item.boot_id) and boot_id not in ("", item.boot_id)
    since = read_at if newer_boot else changed_at
    return since - ahead_s > item.last_at

"""A diagnosis in one line, and its culprits by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_never

from gpuwarden_verdict.diagnosis.domain import Culprit, CulpritKind, Diagnosis, Layer
from gpuwarden_verdict.diagnosis.window import Window
from gpuwarden_verdict.places import place_words

_LAYERS = {
    Layer.NONE: "",
    Layer.POWER: " (power)",
    Layer.CLOCK: " (clock)",
    Layer.THERMAL: " (heat)",
    Layer.PCIE: " (PCIe)",
    Layer.SERVER: " (the server answers slowly)",
    Layer.RPC_QUEUE: " (RPC queue saturation in its clients)",
    Layer.RETRANSMIT: " (packets are lost and sent again)",
}


def culprit_words(culprit: Culprit) -> str:
    """A culprit by name: "the storage behind /scratch (RPC queue saturation in its clients)"."""
    return _name(culprit) + _LAYERS[culprit.layer]


def _name(culprit: Culprit) -> str:
    entity = culprit.entity
    match culprit.kind:
        case CulpritKind.GPU:
            return f"one GPU, {entity} of {culprit.node}"
        case CulpritKind.HOST:
            return f"the host {entity}"
        case CulpritKind.NIC:
            return f"rail {entity[5:]}" if entity.startswith("rail:") else f"one NIC, {entity}"
        case CulpritKind.FABRIC:
            return "the fabric" if entity == "fleet:" else place_words(entity)
        case CulpritKind.DISK:
            return f"one local disk, {entity}"
        case CulpritKind.MOUNT_CLIENT:
            return f"one client of a mount, {entity}"
        case CulpritKind.STORAGE:
            return f"the storage behind {entity.removeprefix('mount:')}"
        case CulpritKind.INPUT:
            return "the job's own input pipeline"
        case CulpritKind.IMBALANCE:
            return "unequal work of the job's own ranks"
        case CulpritKind.NOTHING:
            return "nothing abnormal"
        case _:
            assert_never(culprit.kind)


def line_of(diagnosis: Diagnosis, window: Window) -> str:
    """The answer in one line."""
    whose = diagnosis.job or "the fleet"
    if diagnosis.kind is CulpritKind.NOTHING:
        return f"{whose}: nothing abnormal (confidence {diagnosis.confidence:.2f})"
    if diagnosis.kind is None:
        seen = [culprit_words(one) for one in diagnosis.culprits[:2]]
        look = f"; look at {' and '.join(seen)}" if seen else ""
        lost = f": it lost {diagnosis.lost:.0%} of its pace" if diagnosis.lost > 0 else ""
        blind = f"; not read: {', '.join(diagnosis.blind)}" if diagnosis.blind else ""
        return f"{whose}: undecided{lost}{look}{blind}"
    first = diagnosis.culprits[0]
    why = first.evidence[0].sentence if first.evidence else ""
    since = moment(float(window.times[first.run.first]))
    also = [one for one in diagnosis.culprits[1:2] if one.score >= 0.6]
    more = f"; also {culprit_words(also[0])}" if also else ""
    return (
        f"{whose}: {culprit_words(first)} since {since}: {why} "
        f"(confidence {diagnosis.confidence:.2f}){more}"
    )


def moment(at: float) -> str:
    """A time as logs write it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%MZ")

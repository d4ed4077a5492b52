"""Cases to decide about: one piece of evidence, one incident, one decision."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Severity,
)
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase
from gpuwarden_verdict.policy.document import (
    Cap,
    Decision,
    Mode,
    PoolPolicy,
)
from gpuwarden_verdict.policy.evaluate import (
    EntityCase,
    PoolLoad,
    decide,
)
from gpuwarden_verdict.policy.parse import BUILT_IN
from gpuwarden_verdict.signals import Persistence, Plane
from tests.builders.verdict import START, counter_of, gpu_ref

GPU = gpu_ref(0, 0)
ACT = replace(BUILT_IN, mode=Mode.ACT, cap=Cap(100, 100.0))
ROOM = PoolLoad(gpu_nodes=100)
NOW = START + 100.0


def item(**changes: object) -> EvidenceItem:
    base = EvidenceItem(
        detector="xid:79",
        sentence="XID 79",
        score=0.95,
        severity=Severity.CRITICAL,
        persistence=Persistence.BOOT,
        acts_alone=True,
        first_at=START,
        last_at=START,
        expires_at=START + 86400,
        count=1,
        numbers={},
        event_ids=("e1",),
        plane=Plane.EVENTS,
        action=RecommendedAction.REBOOT_NODE,
        fault_class=FaultClass.BUS,
        received_at=START,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of EvidenceItem by name


def incident(entity: EntityRef = GPU, *items: EvidenceItem, **changes: object) -> Incident:
    evidence = items or (item(),)
    base = Incident(
        id=f"inc-{entity.key}",
        entity=entity,
        fault_class=FaultClass.BUS,
        severity=max((i.severity for i in evidence), key=list(Severity).index),
        phase=IncidentPhase.OPEN,
        why=evidence[0].sentence,
        action=RecommendedAction.REBOOT_NODE,
        confidence=0.95,
        opened_at=START,
        updated_at=START,
        resolved_at=None,
        boot_id="boot-1",
        evidence=evidence,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of Incident by name


def one(
    case: EntityCase, pool: PoolPolicy = ACT, load: PoolLoad = ROOM, now: float = NOW
) -> Decision | None:
    moves = decide(case, pool, "v1", load, now, counter_of("dec"))
    assert len(moves) <= 1
    return moves[0].decision if moves else None


def made(case: EntityCase, pool: PoolPolicy = ACT, load: PoolLoad = ROOM) -> Decision:
    decision = one(case, pool, load)
    assert decision is not None
    return decision


pools = st.builds(
    replace,
    st.just(ACT),
    mode=st.sampled_from(list(Mode)),
    exclude_confidence=st.floats(0, 1),
    settle_s=st.floats(0, 60),
)

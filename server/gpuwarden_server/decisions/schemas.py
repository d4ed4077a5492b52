"""JSON forms of decisions and of the exclusion feed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.decisions.feed import exclusion_form
from gpuwarden_server.decisions.ports import PublishedFeed, Shown
from gpuwarden_server.decisions.repository import StoredDecisionMove
from gpuwarden_server.incidents.schemas import ReasonBody, entity_form
from gpuwarden_verdict.entities import EntityState, FaultClass, Rung
from gpuwarden_verdict.policy.document import Decision, DecisionPhase, Mode
from gpuwarden_verdict.policy.guards import guard_words

_EXCLUSION: JsonDict = {
    "entity_kind": "gpu",
    "entity": "GPU-5b1f0c9e-0000-4a3e-9d5f-2f6c8a1b7e33",
    "node_id": "gpu-017",
    "gpu_uuid": "GPU-5b1f0c9e-0000-4a3e-9d5f-2f6c8a1b7e33",
    "pci_bus_id": "0000:1b:00.0",
    "gpu_index": 1,
    "rung": "exclude",
    "since": 1764500000.1,
    "reason": "XID 79: GPU has fallen off the bus",
    "decision_id": "dec-5d0c8a1b7e33",
    "decided_by": "rule",
    "expires_at": 1764586400.1,
    "joiner": "gpu-099",
}


class ApproveBody(ReasonBody):
    """A person's approval, and of what."""

    rung: Literal["exclude", "drain", "evict"] | None = Field(
        default=None,
        description="what was shown: where the decision asks for another by now nothing is "
        "approved (409)",
    )

    def shown(self) -> Shown | None:
        """What the caller saw, None where they do not say."""
        return None if self.rung is None else Shown(Rung[self.rung.upper()])


class HoldBody(Body):
    """How long a decision goes no further."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"duration_s": 7200, "reason": "checkpoint under way"}]},
    )

    duration_s: float = Field(gt=0, le=30 * 86_400, description="seconds from now")
    reason: str = Field(min_length=1, max_length=1000, description="Kept in history and audit.")


class StayView(BaseModel):
    """Who holds a decision, why and until when."""

    by: str
    reason: str
    until: float


class CostView(BaseModel):
    """What a decision saved and lost so far, by stated assumptions; null where it is unknown."""

    outcome: Literal["right", "wrong", "unsettled"] = Field(
        description="what it turned out to be: an unsettled one has saved and lost nothing yet"
    )
    why: str = Field(description="how that is known")
    acted: bool = Field(description="false: it was never in force: what would have been")
    saved_gpu_hours: float
    lost_gpu_hours: float
    saved_kwh: float | None
    lost_kwh: float | None
    saved_money: float | None
    lost_money: float | None
    currency: str = Field(examples=["USD"])
    if_right_gpu_hours: float = Field(description="what it saves if it was right")
    if_wrong_gpu_hours: float = Field(description="what it costs so far if it was wrong")
    says: list[str] = Field(description="what is assumed or unknown here")


class DecisionView(BaseModel):
    """One decision."""

    id: str
    entity_kind: str
    entity: str
    node_id: str
    rung: str = Field(description="suspect, exclude, drain or evict", examples=["exclude"])
    phase: DecisionPhase
    mode: Mode
    fault_class: FaultClass
    reasons: list[str]
    confidence: float
    decided_by: str = Field(examples=["rule", "score", "operator:ana"])
    incident_id: str | None
    policy_version: str
    model_version: str
    decided_at: float
    expires_at: float | None
    guard: str = Field(description="which guard held it back, empty for none")
    ledger: CostView | None = Field(
        default=None,
        description="what it saved or lost; null where it excludes nothing, or was not asked for",
    )
    guard_says: str = Field(description="the same in words")
    advised: str = Field(
        description="higher rung that waits for approval while this one is in force, empty for none"
    )
    jobs: list[str] = Field(
        description="jobs on its node when it was made", examples=[["slurm:47"]]
    )
    held: StayView | None = Field(description="until when a person lets it go no further")


class DecisionMoveView(BaseModel):
    """A stored change of a decision."""

    before: str | None
    after: str
    rung: str
    reason: str
    author: str
    at: float


class DecisionDetailView(DecisionView):
    """One decision with its history and what it was made from."""

    moves: list[DecisionMoveView]
    snapshot: dict[str, Any]


class DecisionPage(BaseModel):
    """A page of decisions, newest first."""

    items: list[DecisionView]
    next_cursor: str | None


class ExclusionView(BaseModel):
    """One entity that must not be used."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXCLUSION]})

    entity_kind: str
    entity: str
    node_id: str
    gpu_uuid: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    rung: str
    since: float
    reason: str
    decision_id: str
    decided_by: str
    expires_at: float | None
    joiner: str | None = Field(description="spare that works for its node, null: none")


class PlannedView(BaseModel):
    """A node that will be excluded at a time."""

    id: str
    node_id: str
    at: float = Field(description="epoch seconds from which it may not be used")
    until: float | None = Field(description="epoch seconds of its end, null where not said")
    reason: str
    by: str


class ExclusionsView(BaseModel):
    """The exclusion set; an empty set counts only with a valid epoch and count."""

    feed_id: str
    epoch: int
    count: int
    digest: str = Field(description='sha256 hex over the sorted lines "entity_kind:entity"')
    exclusions: list[ExclusionView]
    would_exclude: list[ExclusionView]
    planned: list[PlannedView] = Field(description="leaves ahead of their time, not in the digest")


class RepairView(BaseModel):
    """Where an entity stands after a repair was begun, or its node retired."""

    entity_kind: str
    entity: str
    state: EntityState


def rung_name(rung: int) -> str:
    """How a rung is written outside."""
    return Rung(rung).name.lower()


def decision_view(decision: Decision, ledger: CostView | None = None) -> DecisionView:
    """The JSON form of a decision."""
    return DecisionView(**_decision_form(decision), ledger=ledger)


def decision_detail(
    decision: Decision,
    moves: list[StoredDecisionMove],
    snapshot: dict[str, Any],
    ledger: CostView | None = None,
) -> DecisionDetailView:
    """The JSON form of a decision with its history."""
    told = [
        DecisionMoveView(
            before=move.before,
            after=move.after,
            rung=rung_name(move.rung),
            reason=move.reason,
            author=move.author,
            at=move.at,
        )
        for move in moves
    ]
    form = _decision_form(decision)
    return DecisionDetailView(**form, moves=told, snapshot=snapshot, ledger=ledger)


def exclusions_view(feed: PublishedFeed) -> ExclusionsView:
    """The JSON form of the exclusion set."""
    head = feed.head
    return ExclusionsView(
        feed_id=head.feed_id,
        epoch=head.epoch,
        count=head.count,
        digest=head.digest,
        exclusions=[ExclusionView(**exclusion_form(one)) for one in feed.exclusions],
        would_exclude=[ExclusionView(**exclusion_form(one)) for one in feed.would_exclude],
        planned=[PlannedView(**msgspec.to_builtins(one)) for one in feed.planned],
    )


def _decision_form(decision: Decision) -> dict[str, Any]:
    return {
        **entity_form(decision.entity),
        "id": decision.id,
        "rung": rung_name(decision.rung),
        "phase": decision.phase,
        "mode": decision.mode,
        "fault_class": decision.fault_class,
        "reasons": list(decision.reasons),
        "confidence": decision.confidence,
        "decided_by": decision.decided_by,
        "incident_id": decision.incident_id,
        "policy_version": decision.policy_version,
        "model_version": decision.model_version,
        "decided_at": decision.decided_at,
        "expires_at": decision.expires_at,
        "guard": decision.guard,
        "held": None if decision.stay is None else msgspec.to_builtins(decision.stay),
        "guard_says": guard_words(decision.guard),
        "advised": rung_name(decision.advised) if decision.advised else "",
        "jobs": list(decision.jobs),
    }

"""/v1/gpus/{uuid}/why and /v1/nodes/{id}/why: the whole case about one entity."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.api.telling import ExplanationView, explanation_view
from gpuwarden_server.api.verdicts import VerdictView
from gpuwarden_server.decisions import repository as decision_rows
from gpuwarden_server.decisions.pins.schemas import PinView, pin_view
from gpuwarden_server.decisions.schemas import DecisionView, decision_view
from gpuwarden_server.incidents import repository as incident_rows
from gpuwarden_server.incidents.schemas import IncidentView, incident_view
from gpuwarden_server.judging.repository import read_state_moves
from gpuwarden_verdict.engine.snapshot import risk_form
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.policy.document import Pin
from gpuwarden_verdict.signals import Risk
from gpuwarden_wire.acknowledgement import EntityVerdict, Usable
from gpuwarden_wire.metrics import EntityKind

NEWEST = 20


class ContributionView(BaseModel):
    """One term of the log-odds."""

    name: str
    plane: str | None
    value: float | None
    log_odds: float


class RiskView(BaseModel):
    """What the learnt score says; contributions sum to the log-odds."""

    probability: float
    fault_class: str
    model_version: str
    schema_hash: str
    scored_at: float
    contributions: list[ContributionView]


class GateView(BaseModel):
    """Whether the score may exclude by itself."""

    open: bool
    missing: list[str]


class StateMoveView(BaseModel):
    """A change of state."""

    before: str
    after: str
    reason: str
    author: str
    at: float


class WhyView(BaseModel):
    """The whole case about one entity; `risk_missing` says why `risk` is null, else it is "".

    `explanation` is null where `risk` is, and until the next sweep after another model judges.
    """

    entity: str
    entity_kind: str
    node_id: str
    verdict: VerdictView
    incidents: list[IncidentView]
    decisions: list[DecisionView]
    pins: list[PinView] = Field(description="what people ordered, a node's for its GPUs too")
    states: list[StateMoveView]
    risk: RiskView | None
    risk_missing: str
    explanation: ExplanationView | None
    gate: GateView
    standby: str = Field(
        description="what the book of spares says of its node, empty for nothing",
        examples=["replaced by gpu-099 (lease 3: same leaf switch, warm, proven 2.0 h ago)"],
    )


def why_router(sources: ReadSources) -> APIRouter:
    """Routes that explain."""
    router = APIRouter(prefix="/v1", tags=["why"])

    @router.get("/gpus/{gpu_uuid}/why", summary="Why a GPU stands where it stands")
    def why_gpu(gpu_uuid: str) -> WhyView:
        gpu = sources.gpu(gpu_uuid)
        said = {v.entity: v for v in sources.board.node_verdict(gpu.node_id).gpus}.get(gpu_uuid)
        ref = EntityRef(EntityKind.GPU, gpu_uuid, gpu.node_id)
        return _why(sources, ref, said if said is not None else _left(ref))

    @router.get("/nodes/{node_id}/why", summary="Why a node stands where it stands")
    def why_node(node_id: str) -> WhyView:
        sources.node(node_id)
        ref = EntityRef(EntityKind.NODE, node_id, node_id)
        return _why(sources, ref, sources.board.node_verdict(node_id).node)

    return router


def _left(ref: EntityRef) -> EntityVerdict:
    """A GPU that left its node with nothing open against it."""
    return EntityVerdict(
        entity_kind=ref.kind.value,
        entity=ref.key,
        usable=Usable.UNKNOWN,
        why="no longer in its node's inventory",
    )


def _why(sources: ReadSources, ref: EntityRef, verdict: EntityVerdict) -> WhyView:
    standing = sources.board.standing(ref)
    with sources.state.read() as connection:
        incidents = incident_rows.read_of_entity(connection, ref, NEWEST)
        decisions = decision_rows.read_of_entity(connection, ref, NEWEST)
        states = read_state_moves(connection, (ref.kind.value, ref.key), NEWEST)
    costs = sources.costs(decisions)
    # What is live is told as the judge holds it: evidence may be newer there than on disk.
    live = {incident.id: incident for incident in standing.incidents}
    risk = _risk(sources, ref)
    explanation = None if risk is None else sources.scorer.explain(risk)
    gate = sources.scorer.gate(risk, sources.placements.pool(ref.node_id))
    return WhyView(
        entity=ref.key,
        entity_kind=ref.kind.value,
        node_id=ref.node_id,
        verdict=VerdictView(**_plain(verdict)),
        incidents=[incident_view(live.get(incident.id, incident)) for incident in incidents],
        decisions=[decision_view(decision, costs.get(decision.id)) for decision in decisions],
        pins=[pin_view(pin) for pin in _pins(sources, ref)],
        states=[StateMoveView.model_validate(move) for move in states],
        risk=None if risk is None else RiskView.model_validate(risk_form(risk)),
        risk_missing="" if risk is not None else _why_no_risk(sources, ref),
        explanation=None if explanation is None else explanation_view(explanation),
        gate=GateView(open=gate.open, missing=list(gate.missing)),
        standby=sources.standby(ref.node_id),
    )


def _pins(sources: ReadSources, ref: EntityRef) -> tuple[Pin, ...]:
    """Pins that speak of an entity."""
    node = EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)
    others = () if node == ref else sources.board.pins_of(node)
    return (*sources.board.pins_of(ref), *others)


def _risk(sources: ReadSources, ref: EntityRef) -> Risk | None:
    """What the last sweep said of a suspect; of any other a score made now, and not kept."""
    judged = sources.board.risk(ref)
    if judged is not None or ref.kind not in FEATURE_SETS:
        return judged
    return sources.scorer.score_one(sources.scene(), ref, sources.clock.now())


def _why_no_risk(sources: ReadSources, ref: EntityRef) -> str:
    if ref.kind not in FEATURE_SETS:
        return f"only entities of kind {', '.join(FEATURE_SETS)} are scored"
    what = {EntityKind.GPU: "GPU", EntityKind.NIC: "port"}.get(ref.kind, ref.kind.value)
    return sources.scorer.trouble or f"no reading of this {what} has come in yet"


def _plain(verdict: EntityVerdict) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(verdict)
    return form

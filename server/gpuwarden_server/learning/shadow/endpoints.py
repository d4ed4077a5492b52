"""/v1/shadow, and trials that were made elsewhere."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.bodies import Body
from gpuwarden_server.learning.registry.domain import NAME
from gpuwarden_server.learning.registry.schemas import Kind
from gpuwarden_server.learning.shadow.backtests import ToldBacktest
from gpuwarden_server.learning.shadow.desk import ShadowDesk, Stand, finite
from gpuwarden_server.learning.shadow.domain import Outcome, Role, WouldExclude, trial_of
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.fusion.gate import TOLERATED_PER_GPU_DAY, TrialKind, TrialRun
from gpuwarden_wire.metrics import EntityKind

_VERSION = "gpu-20261130-3f9a0c1b"
_DIGEST = r"[0-9a-f]{64}"
_Entity = Annotated[str, Field(min_length=1, max_length=255)]


class WouldExcludeView(BaseModel):
    """An exclusion that a score would have made."""

    id: str = Field(examples=["shadow-3f9a0c1b2d4e"])
    entity_kind: str
    entity: str
    node_id: str
    since: float
    until: float | None = Field(description="null while it goes on")
    probability: float = Field(examples=[0.91])
    fault_class: FaultClass
    planes: list[str] = Field(description="kinds of evidence", examples=[["counters", "peers"]])
    outcome: Outcome = Field(
        description="needed: hardware failed within the horizon; false: nothing came, or people "
        "say so; pending; hidden: our own exclusion hid what would have come",
        examples=["pending"],
    )


class TrialView(BaseModel):
    """A trial of a model on this fleet."""

    trial: TrialKind = Field(examples=["shadow"])
    version: str = Field(examples=[_VERSION])
    healthy_days: float = Field(description="entities x days", examples=[52000.0])
    false_actions: int = Field(description="what is not settled counts", examples=[0])
    bound_per_day: float | None = Field(
        description="upper 95 % bound of false exclusions an entity and day; null without any day",
        examples=[5.8e-5],
    )
    exclude_confidence: float = Field(
        description="lowest limit that it speaks for: what would be excluded from there on counted",
        examples=[0.8],
    )
    digest: str = Field(description="SHA-256 of the MANIFEST.json of the model that was tried")
    recorded_at: float


class ShadowView(BaseModel):
    """How one model stands in shadow."""

    kind: Kind = Field(examples=["gpu"])
    version: str = Field(examples=[_VERSION])
    role: Role = Field(examples=["promoted"])
    begun_at: float
    seen_at: float = Field(examples=[1764500000.1])
    healthy_days: float = Field(description="entities x days that were healthy", examples=[812.5])
    exclude_confidence: float = Field(
        description="the highest of the pools' limits by which it was tried", examples=[0.8]
    )
    would_exclude: int = Field(description="exclusions that it would have made", examples=[2])
    needed: int = Field(description="of these, rightly", examples=[1])
    false: int = Field(description="wrongly", examples=[0])
    unsettled: int = Field(description="not known yet; counts as false", examples=[1])
    bound_per_day: float | None = Field(
        description="upper 95 % bound of false exclusions an entity and day", examples=[0.0058]
    )
    tolerated_per_day: float = Field(
        description="the bound that the gate wants", examples=[TOLERATED_PER_GPU_DAY]
    )
    missing: list[str] = Field(
        description="what is missing before it may exclude by itself; none: evidence of two "
        "planes is still asked each time"
    )
    trials: list[TrialView]
    exclusions: list[WouldExcludeView] = Field(description="newest first, at most 100")


class ShadowsView(BaseModel):
    """All models in a role."""

    items: list[ShadowView]


class TrialBody(Body):
    """A backtest of a version on this fleet's own history."""

    model_config = ConfigDict(extra="forbid")

    version: str = Field(pattern=NAME, examples=[_VERSION])
    digest: str = Field(
        pattern=f"^{_DIGEST}$", description="SHA-256 of the MANIFEST.json of the model that played"
    )
    healthy_days: float = Field(gt=0, le=1e9, description="entities x days", examples=[52000.0])
    false_actions: int = Field(
        ge=0,
        le=1_000_000,
        description="exclusions that no fault explains, those of confounders among them",
        examples=[0],
    )
    exclude_confidence: float = Field(
        ge=0, le=1, description="the highest of the pools' that were played", examples=[0.8]
    )
    entities: list[_Entity] = Field(
        min_length=1,
        max_length=100_000,
        description="what was watched: UUIDs of GPUs, or nodes; this server must know most of it",
    )
    origin: str = Field(
        max_length=100, description="what made the recording, '' where it does not say"
    )
    recording_digest: str = Field(
        pattern=f"^({_DIGEST})?$",
        description="SHA-256 over the recording's files, '' for one that has none",
        examples=[""],
    )
    reason: str = Field(min_length=1, max_length=1000, description="Kept in the audit.")


def shadow_router(desk: ShadowDesk) -> APIRouter:
    """Routes of shadow runs and trials."""
    router = APIRouter(prefix="/v1", tags=["models"])

    @router.get("/shadow", summary="What scores would have excluded, and what the gate misses")
    def read_shadow(
        node: Annotated[str | None, Query(description="only exclusions of this node")] = None,
    ) -> ShadowsView:
        return ShadowsView(items=[_view(stand, node) for stand in desk.stands()])

    @router.post("/models/{model_kind}/trials", summary="Record a backtest of a version")
    def record_trial(model_kind: Kind, body: TrialBody, caller: Caller) -> TrialView:
        told = ToldBacktest(
            body.version,
            body.digest,
            body.healthy_days,
            body.false_actions,
            body.exclude_confidence,
            frozenset(body.entities),
            body.origin,
            body.recording_digest,
        )
        return _trial(desk.record(EntityKind(model_kind), told, body.reason, caller))

    return router


def _view(stand: Stand, node: str | None) -> ShadowView:
    run, tally = stand.told.run, stand.told.tally
    kind: Kind = "gpu" if stand.kind is EntityKind.GPU else _other(stand.kind)
    shown = [pair for pair in stand.told.newest if node in (None, pair[0].entity.node_id)]
    return ShadowView(
        kind=kind,
        version=run.version,
        role=stand.role,
        begun_at=run.begun_at,
        seen_at=run.seen_at,
        healthy_days=run.healthy_days,
        exclude_confidence=run.exclude_confidence,
        would_exclude=tally.needed + tally.false + tally.unsettled,
        needed=tally.needed,
        false=tally.false,
        unsettled=tally.unsettled,
        bound_per_day=finite(trial_of(run, tally).bound_per_gpu_day),
        tolerated_per_day=TOLERATED_PER_GPU_DAY,
        missing=list(stand.missing),
        trials=[_trial(trial) for trial in stand.trials],
        exclusions=[_exclusion(one, outcome) for one, outcome in shown],
    )


def _other(kind: EntityKind) -> Kind:
    return "node" if kind is EntityKind.NODE else "nic"


def _trial(trial: TrialRun) -> TrialView:
    return TrialView(
        trial=trial.kind,
        version=trial.model_version,
        healthy_days=trial.gpu_days,
        false_actions=trial.false_actions,
        bound_per_day=finite(trial.bound_per_gpu_day),
        exclude_confidence=trial.exclude_confidence,
        digest=trial.model_digest,
        recorded_at=trial.recorded_at,
    )


def _exclusion(one: WouldExclude, outcome: Outcome) -> WouldExcludeView:
    return WouldExcludeView(
        id=one.id,
        entity_kind=one.entity.kind.value,
        entity=one.entity.key,
        node_id=one.entity.node_id,
        since=one.since,
        until=one.until,
        probability=one.probability,
        fault_class=FaultClass(one.fault_class),
        planes=list(one.planes),
        outcome=outcome,
    )

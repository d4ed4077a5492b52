"""/v1/fleet and /v1/policy: the summary, and the rules in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.api.meters import agent_versions
from gpuwarden_server.api.sources import ReadSources
from gpuwarden_verdict.entities import Contact, EntityState
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_verdict.policy.costs import Costs
from gpuwarden_verdict.policy.document import PolicyDocument, PoolPolicy
from gpuwarden_verdict.tuning.parse import tuning_form
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.version import __version__


class CallerView(BaseModel):
    """Who asks, so that a page shows only what they may do."""

    name: str
    role: str


class ModelView(BaseModel):
    """The learnt model in use."""

    version: str = Field(description="empty where rules judge alone")
    trouble: str = Field(description="why no model is loaded and what to do, empty where one is")


class FleetView(BaseModel):
    """Summary of the fleet."""

    nodes: int = Field(description="of the fleet: retired ones are in node_states alone")
    gpus: int
    node_states: dict[str, int]
    gpu_states: dict[str, int]
    silent_nodes: int
    unusable_nodes: int
    open_incidents: int
    mode: str = Field(description="of the default pool, with others where pools differ")
    pools: dict[str, int] = Field(description="nodes by pool")
    feed_id: str
    epoch: int
    excluded: int = Field(description="exclusions in force: a node's is one, whatever it holds")
    excluded_by_kind: dict[str, int] = Field(description="the same, nodes and GPUs apart")
    would_exclude: int
    version: str
    agent_versions: dict[str, int] = Field(description="nodes by their agent's version")
    policy_version: str
    model: ModelView
    caller: CallerView


class CostsView(BaseModel):
    """What mistakes of the learnt score cost, and what follows."""

    gpu_hour_false_exclusion: float = Field(description="an hour of a sound GPU that is not used")
    gpu_hour_missed_fault: float = Field(description="an hour of a GPU that should not be used")
    operating_point: float = Field(
        description="probability from which acting costs less than waiting", examples=[0.2]
    )


class PolicyView(BaseModel):
    """The policy in force."""

    version: str
    pools: list[dict[str, Any]] = Field(description="in order: the first that matches has a node")
    detectors: dict[str, list[dict[str, Any]]] = Field(
        description="what it says of detectors, by name: the first that speaks of a pool holds"
    )
    learning: CostsView


def fleet_router(sources: ReadSources) -> APIRouter:
    """Routes of the summary and the policy."""
    router = APIRouter(prefix="/v1", tags=["fleet"])

    @router.get("/fleet", summary="Counts by state, mode, feed, versions, model")
    def read_fleet(caller: Caller) -> FleetView:
        known = sources.facts.node_ids()
        node_ids = [one for one in known if sources.facts.contact_of(one) is not Contact.RETIRED]
        members = frozenset(node_ids)
        gpus = sum(gpu.present and gpu.node_id in members for gpu in sources.directory.gpus())
        feed = sources.board.published()
        modes = _modes(sources.placements.policy)
        return FleetView(
            nodes=len(node_ids),
            gpus=gpus,
            node_states=_states(sources.board.states(EntityKind.NODE), len(known)),
            gpu_states=_states(sources.board.states(EntityKind.GPU), gpus),
            silent_nodes=len(sources.facts.silent_nodes()),
            unusable_nodes=len({exclusion.node_id for exclusion in feed.exclusions}),
            open_incidents=sources.board.open_incidents(),
            mode=", ".join(modes),
            pools=dict(Counter(sources.placements.pool(node_id).name for node_id in node_ids)),
            feed_id=feed.head.feed_id,
            epoch=feed.head.epoch,
            excluded=feed.head.count,
            excluded_by_kind=_by_kind(feed.exclusions),
            would_exclude=len(feed.would_exclude),
            version=__version__,
            agent_versions=agent_versions(sources),
            policy_version=sources.placements.policy.version,
            model=ModelView(version=sources.scorer.version, trouble=sources.scorer.trouble),
            caller=CallerView(name=caller.name, role=caller.role.value),
        )

    @router.get("/policy", summary="The rules in force")
    def read_policy() -> PolicyView:
        policy = sources.placements.policy
        pools = [_pool(pool) for pool in policy.pools]
        detectors = tuning_form(policy.tuning)
        return PolicyView(
            version=policy.version, pools=pools, detectors=detectors, learning=_costs(policy.costs)
        )

    return router


def _modes(policy: PolicyDocument) -> list[str]:
    """Every mode that holds somewhere, the default pool's first."""
    modes: dict[str, None] = {}
    for pool in reversed(policy.pools):
        said = (rule.mode for rule in pool.rules if rule.mode is not None)
        modes |= dict.fromkeys(mode.value for mode in (pool.mode, *said))
    return list(modes)


def _pool(pool: PoolPolicy) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(pool)
    for rule, shown in zip(pool.rules, form["rules"], strict=True):
        shown["rungs"] = [rung.name.lower() for rung in rule.rungs]
    return form


def _costs(costs: Costs) -> CostsView:
    return CostsView(
        gpu_hour_false_exclusion=costs.gpu_hour_false_exclusion,
        gpu_hour_missed_fault=costs.gpu_hour_missed_fault,
        operating_point=costs.operating_point,
    )


def _by_kind(exclusions: Iterable[Exclusion]) -> dict[str, int]:
    counts = Counter(exclusion.entity_kind for exclusion in exclusions)
    return {kind.value: counts[kind] for kind in (EntityKind.NODE, EntityKind.GPU)}


def _states(others: Counter[EntityState], total: int) -> dict[str, int]:
    healthy = max(0, total - sum(others.values()))
    return {EntityState.HEALTHY.value: healthy, **{s.value: n for s, n in others.items()}}

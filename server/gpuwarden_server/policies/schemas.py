"""JSON forms of policies by version, of their differences, and of decisions judged again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.policies.history import Rejudged
from gpuwarden_server.policies.repository import PolicyText
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.policy.diff import Change, Moved
from gpuwarden_verdict.policy.forms import MOST_CASES, comparison_form, stand_form
from gpuwarden_verdict.policy.replay import Effect, Replayed

LARGEST_POLICY = 1_000_000
POLICY_FORMAT = "gpuwarden-policy"
"""What the OpenAPI document calls a text that is a policy."""
_TEXT = '[defaults]\nmode = "advise"\n'


class PolicyVersionView(BaseModel):
    """A policy that a server has begun with."""

    version: str = Field(examples=["f2e6f3562409"])
    mode: str = Field(description="of GPUWARDEN_MODE, empty for none", examples=[""])
    first_at: float
    last_at: float = Field(description="when a server last began with it")
    in_force: bool


class PolicyVersionsView(BaseModel):
    """Policies by version, the newest first."""

    items: list[PolicyVersionView]


class PolicyTextView(PolicyVersionView):
    """A policy with the text that it was read from."""

    text: str = Field(description="TOML, empty for the built-in rules", examples=[_TEXT])


class _Body(Body):
    model_config = ConfigDict(extra="forbid")


_PolicyText = Annotated[
    str,
    Field(
        max_length=LARGEST_POLICY,
        description="TOML",
        json_schema_extra={"format": POLICY_FORMAT},
    ),
]


class DiffBody(_Body):
    """Two policies; null is the one in force."""

    before: _PolicyText | None = Field(None, examples=[None])
    after: _PolicyText | None = Field(None, examples=[_TEXT])


class ChangeView(BaseModel):
    """Something that the other policy says otherwise."""

    pool: str = Field(description="empty for what holds in all", examples=["train"])
    what: str = Field(examples=["mode at drain"])
    before: str = Field(description="empty where it is new", examples=["act"])
    after: str = Field(description="empty where it is gone", examples=["advise"])


class MovedView(BaseModel):
    """A node that the other policy puts into another pool."""

    node_id: str
    before: str
    after: str


class DiffView(BaseModel):
    """What differs between two policies."""

    before: str = Field(description="version")
    after: str = Field(description="version")
    changes: list[ChangeView]
    nodes: list[MovedView]


class SimulationBody(_Body):
    """A policy, and since when."""

    policy: _PolicyText = Field(examples=[_TEXT])
    since: float = Field(ge=0, strict=True, description="epoch seconds", examples=[1_764_500_000.0])


class StandView(BaseModel):
    """What a decision does to its entity."""

    effect: Effect = Field(
        description="excluded; held_back by a guard; advised: waits for a person; observed; "
        "suspect; nothing",
        examples=["held_back"],
    )
    rung: str = Field(description="empty for nothing", examples=["exclude"])
    guard: str = Field(examples=["cap_rack"])
    guard_says: str
    advised: str = Field(description="higher rung that waits for a person, empty for none")


class EffectView(BaseModel):
    """How often something was done, and for how long."""

    effect: Effect
    cases: int
    gpu_hours: float


class TallyView(BaseModel):
    """What was done in one pool about one class of fault."""

    pool: str
    fault_class: FaultClass
    before: list[EffectView]
    after: list[EffectView]


class CaseView(BaseModel):
    """A fault of which the policies make something else."""

    entity_kind: str
    entity: str
    node_id: str
    fault_class: FaultClass
    at: float
    before: StandView
    before_gpu_hours: float
    after: StandView
    after_gpu_hours: float
    reason: str


class SimulationView(BaseModel):
    """What another policy would have made of stored decisions."""

    before: str = Field(description="version in force")
    after: str = Field(description="version of the policy that was asked about")
    since: float
    decisions: int
    unread: dict[str, int] = Field(description="snapshots that could not be read, by why")
    is_cut: bool = Field(description="there are more: ask about a shorter time")
    by: list[TallyView]
    cases: list[CaseView] = Field(description=f"those that differ, the first {MOST_CASES}")
    differing: int
    notes: list[str] = Field(description="what judging again cannot know")


class ReplayBody(_Body):
    """By which policy; null is the one that decided."""

    policy: _PolicyText | None = Field(None, examples=[None])


class StepView(BaseModel):
    """The decision at one of its moves, judged again."""

    at: float
    policy_version: str
    pool: str
    then: StandView
    now: StandView
    same: bool
    notes: list[str]


class ReplayView(BaseModel):
    """A decision judged again."""

    decision_id: str
    own_policy: bool = Field(description="whether it was judged by the policies that decided")
    same: bool = Field(description="every step came out the same")
    steps: list[StepView]


def version_view(kept: PolicyText, in_force: str) -> PolicyVersionView:
    """A policy without its text."""
    return PolicyVersionView(
        version=kept.version,
        mode=kept.mode,
        first_at=kept.first_at,
        last_at=kept.last_at,
        in_force=kept.version == in_force,
    )


def diff_view(
    versions: tuple[str, str], changes: Iterable[Change], moved: Iterable[Moved]
) -> DiffView:
    """What differs between two versions."""
    return DiffView(
        before=versions[0],
        after=versions[1],
        changes=[
            ChangeView(pool=one.pool, what=one.what, before=one.before, after=one.after)
            for one in changes
        ],
        nodes=[MovedView(node_id=one.node_id, before=one.before, after=one.after) for one in moved],
    )


def simulation_view(versions: tuple[str, str], since: float, found: Rejudged) -> SimulationView:
    """What another policy would have made of stored decisions."""
    compared = comparison_form(found.before, found.after)
    return SimulationView(
        before=versions[0],
        after=versions[1],
        since=since,
        decisions=len(found.before),
        unread=dict(found.unread),
        is_cut=found.is_cut,
        notes=list(found.notes),
        **compared,
    )


def replay_view(decision_id: str, steps: Iterable[Replayed], *, own_policy: bool) -> ReplayView:
    """A decision judged again."""
    views = [
        StepView(
            at=one.at,
            policy_version=one.policy_version,
            pool=one.pool,
            then=StandView(**stand_form(one.then)),
            now=StandView(**stand_form(one.now)),
            same=one.same,
            notes=list(one.notes),
        )
        for one in steps
    ]
    same = all(one.same for one in views)
    return ReplayView(decision_id=decision_id, own_policy=own_policy, same=same, steps=views)

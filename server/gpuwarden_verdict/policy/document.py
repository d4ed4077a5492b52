"""The policy as a value: what may be done, where, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.policy.costs import EQUAL, Costs
from gpuwarden_verdict.tuning.rules import NO_TUNING, Tuning


class Mode(StrEnum):
    """How far gpuwarden may go in a pool."""

    OBSERVE = "observe"  # decides and records what it would do; nothing changes
    ADVISE = "advise"  # the same, and waits for a person's approval
    ACT = "act"  # the exclusion comes into force


@dataclass(frozen=True, slots=True)
class Cap:
    """How many nodes of a pool may be excluded by gpuwarden at once; both limits hold.

    Attributes:
        max_nodes: Absolute.
        max_percent: Of the pool's GPU nodes, rounded down, but never below one node; 0 allows none.
    """

    max_nodes: int
    max_percent: float


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Rules of one pool.

    Attributes:
        name: Pool name.
        nodes: Shell-style patterns of node ids; the first pool that matches a node has it.
        labels: Shell-style patterns by label of the inventory: a node that has all of them is of
            the pool too, whatever its name.
        mode: observe, advise or act.
        cap: Limit of exclusions in force.
        exclude_confidence: Least confidence for the exclude rung, 0..1.
        settle_s: Wait before evidence that an application can cause, or an echo, is judged.
        dwell_s: How long recovery evidence must hold before an exclusion ends by itself.
        dwell_s_of: The same by class of fault, where it differs.
        exclusion_ttl_s: Expiry of an exclusion whose evidence is not renewed.
        score_may_exclude: Whether the learnt score alone may exclude (the gate must also be open).
    """

    name: str
    nodes: tuple[str, ...]
    mode: Mode
    cap: Cap
    exclude_confidence: float
    settle_s: float
    dwell_s: float
    exclusion_ttl_s: float
    score_may_exclude: bool
    labels: tuple[tuple[str, str], ...] = ()
    dwell_s_of: tuple[tuple[FaultClass, float], ...] = ()

    def dwell_of(self, fault_class: FaultClass) -> float:
        """How long recovery from a fault of a class must hold, seconds."""
        return next((s for named, s in self.dwell_s_of if named is fault_class), self.dwell_s)


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A validated policy.

    Attributes:
        version: First 12 hex digits of the SHA-256 of its canonical form.
        pools: In file order; the last is the default pool "default" with pattern "*".
        tuning: What it says of detectors.
        costs: What mistakes of the learnt score cost.
    """

    version: str
    pools: tuple[PoolPolicy, ...]
    tuning: Tuning = NO_TUNING
    costs: Costs = EQUAL


class DecisionPhase(StrEnum):
    """Life of a decision."""

    PROPOSED = "proposed"  # observe mode, or advice not yet approved: not in force
    IN_FORCE = "in_force"
    REVOKED = "revoked"
    EXPIRED = "expired"
    LIFTED = "lifted"  # ended on evidence of recovery
    HELD_BACK = "held_back"  # a guard (cap) said no; judged again at each sweep


LIVE_PHASES = (DecisionPhase.PROPOSED, DecisionPhase.IN_FORCE, DecisionPhase.HELD_BACK)
"""A decision in one of these may still change."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one entity, and why.

    Attributes:
        id: "dec-" and 12 hex digits.
        entity: Target.
        rung: SUSPECT is advice; EXCLUDE and above are exclusions.
        phase: Where in its life.
        mode: Mode of the pool when it was made.
        fault_class: Of the leading incident.
        reasons: Sentences: first what decided, with the first sign before it.
        confidence: 0..1.
        decided_by: "rule", "score", "operator:NAME" or "pin".
        incident_id: Leading incident, None for pins.
        policy_version: Policy that decided.
        model_version: Model whose risk took part, "" for none.
        decided_at: Epoch seconds.
        expires_at: Epoch seconds, None for never.
        guard: Which guard held it back, "" for none.
    """

    id: str
    entity: EntityRef
    rung: Rung
    phase: DecisionPhase
    mode: Mode
    fault_class: FaultClass
    reasons: tuple[str, ...]
    confidence: float
    decided_by: str
    incident_id: str | None
    policy_version: str
    model_version: str
    decided_at: float
    expires_at: float | None
    guard: str = ""


@dataclass(frozen=True, slots=True)
class DecisionMove:
    """A stored fact: a decision changed.

    Attributes:
        decision: The decision after the move.
        before: Phase before, None where it was made now.
        reason: Why, in words.
        author: "gpuwarden" or the operator's key name.
        at: Epoch seconds.
    """

    decision: Decision
    before: DecisionPhase | None
    reason: str
    author: str
    at: float


class PinKind(StrEnum):
    """A person's standing word about an entity; it outlasts acquittals and evidence."""

    EXCLUDE = "exclude"
    ALLOW = "allow"  # gpuwarden may advise, never exclude


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's pin.

    Attributes:
        entity: Target.
        kind: exclude or allow.
        by: Operator's key name.
        reason: In the operator's words.
        set_at: Epoch seconds.
        expires_at: Epoch seconds, None for never.
    """

    entity: EntityRef
    kind: PinKind
    by: str
    reason: str
    set_at: float
    expires_at: float | None = None

"""The policy as a value: what may be done, where, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.policy.costs import EQUAL, Costs
from gpuwarden_verdict.standby.rules import NO_PROMOTION, StandbyRules
from gpuwarden_verdict.tuning.rules import NO_TUNING, Tuning

T = TypeVar("T")
_ACTING = (Rung.EXCLUDE, Rung.DRAIN, Rung.EVICT)


def _up_to(rung: Rung) -> tuple[Rung, ...]:
    """The rungs that a rung includes: who makes a job leave has excluded its place."""
    return tuple(one for one in _ACTING if one <= rung) or (rung,)


class Mode(StrEnum):
    """How far gpuwarden may go in a pool."""

    OBSERVE = "observe"  # decides and records what it would do; nothing changes
    ADVISE = "advise"  # the same, and waits for a person's approval
    ACT = "act"  # the exclusion comes into force


class InMaintenance(StrEnum):
    """What may be decided about a node while a maintenance window holds there."""

    HOLD = "hold"  # nothing, until the window ends
    ACTS_ALONE = "acts_alone"  # an exclusion on a code of the catalogue that acts alone


@dataclass(frozen=True, slots=True)
class Cap:
    """How many nodes of a pool may be excluded by gpuwarden at once; all limits hold.

    Attributes:
        max_nodes: Absolute.
        max_percent: Of the pool's GPU nodes, rounded down, but never below one node; 0 allows none.
        max_per_rack: In one rack of the inventory, None for no such limit.
        max_per_job: That run one job, or ran it when they were excluded; None for no such limit.
        min_in_service: GPU nodes of the pool that must stay heard of, out of maintenance and not
            excluded by anybody.
    """

    max_nodes: int
    max_percent: float
    max_per_rack: int | None = None
    max_per_job: int | None = None
    min_in_service: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds in a pool for some classes of fault and some rungs; None where it says nothing.

    Attributes:
        classes: Of fault, () for all.
        rungs: Of exclude, drain and evict; () for all three.
        mode: How far gpuwarden may go.
        confidence: Least for the rung, 0..1.
        persistence_s: How long evidence must have stood for the rung, also what acts alone.
        cool_down_s: See `PoolPolicy`.
        approvers: See `PoolPolicy`.
    """

    classes: tuple[FaultClass, ...] = ()
    rungs: tuple[Rung, ...] = ()
    mode: Mode | None = None
    confidence: float | None = None
    persistence_s: float | None = None
    cool_down_s: float | None = None
    approvers: tuple[str, ...] | None = None

    def fits(self, fault_class: FaultClass, rung: Rung) -> bool:
        """Whether it speaks of a class of fault and a rung."""
        return fault_class in (self.classes or (fault_class,)) and rung in (self.rungs or (rung,))


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
        standby: How its nodes are replaced by spares.
        exclusion_ttl_s: Expiry of an exclusion whose evidence is not renewed.
        score_may_exclude: Whether the learnt score alone may exclude (the gate must also be open).
        rules: What differs by class of fault and rung; the first that fits and says it holds. Ask
            by `mode_of` and its like, never by `mode` alone.
        cool_down_s: After an exclusion of our own ended, how long only evidence that acts alone
            may exclude the same entity again; on probation the first symptom does all the same.
        approvers: Who may approve advice, and pin: patterns of key names, or "role:ROLE"; () for
            whoever may by the key's role.
        in_maintenance: What may be decided during maintenance; the windows stand elsewhere.
        leave_check: Whether its nodes return from a planned leave over a passed check only, where
            who plans the leave says nothing of it.
        score_settle_s: A learnt score must have stood for so long, and settle_s at least: readings
            that were odd for a moment are no fault.
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
    rules: tuple[Rule, ...] = ()
    cool_down_s: float = 0.0
    approvers: tuple[str, ...] = ()
    in_maintenance: InMaintenance = InMaintenance.HOLD
    leave_check: bool = False
    score_settle_s: float = 300.0

    def mode_of(self, fault_class: FaultClass, rung: Rung) -> Mode:
        """How far gpuwarden may go for a class of fault at a rung.

        No further than the pool's own mode, nor than at a lower rung: observe means observe.
        """
        said = (self._said(lambda rule: rule.mode, fault_class, one) for one in _up_to(rung))
        modes = (self.mode, *(mode for mode in said if mode is not None))
        return min(modes, key=list(Mode).index)

    def confidence_of(self, fault_class: FaultClass, rung: Rung) -> float | None:
        """Least confidence that a rule names for a rung, None where none does."""
        return self._said(lambda rule: rule.confidence, fault_class, rung)

    def persistence_of(self, fault_class: FaultClass, rung: Rung) -> float:
        """How long evidence must have stood for a rung, in seconds; for a lower one no longer."""
        waits = (
            self._said(lambda rule: rule.persistence_s, fault_class, one) for one in _up_to(rung)
        )
        return max(wait or 0.0 for wait in waits)

    def cool_down_of(self, fault_class: FaultClass, rung: Rung) -> float:
        """How long after a return only what acts alone may exclude, seconds.

        No shorter than for a lower rung.
        """
        waits = (
            self._said(lambda rule: rule.cool_down_s, fault_class, one) for one in _up_to(rung)
        )
        return max(self.cool_down_s if wait is None else wait for wait in waits)

    def approvers_of(self, fault_class: FaultClass, rung: Rung) -> tuple[str, ...]:
        """Who may approve advice of a class of fault at a rung, () for whoever may by role."""
        said = self._said(lambda rule: rule.approvers, fault_class, rung)
        return self.approvers if said is None else said

    def _said(
        self, key: Callable[[Rule], T | None], fault_class: FaultClass, rung: Rung
    ) -> T | None:
        said = (key(rule) for rule in self.rules if rule.fits(fault_class, rung))
        return next((one for one in said if one is not None), None)

    standby: StandbyRules = NO_PROMOTION

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
class Stay:
    """A person's word that a decision goes no further for a time.

    Attributes:
        by: Operator's key name.
        reason: In the operator's words.
        until: Epoch seconds.
    """

    by: str
    reason: str
    until: float


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
        advised: Higher rung that the evidence asks for and that waits for a person's approval,
            OBSERVE for none.
        jobs: Jobs on its node when it was made ("slurm:4711"), sorted.
        stay: Until when it goes no further, None where nobody said so.
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
    advised: Rung = Rung.OBSERVE
    jobs: tuple[str, ...] = ()
    stay: Stay | None = None

    def is_held(self, now: float) -> bool:
        """Whether a person holds it at a time, epoch seconds."""
        return self.stay is not None and now < self.stay.until


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
        id: "pin-" and 12 hex digits.
        starts_at: Epoch seconds from which it holds, None for at once.
        leave: It is a planned leave: known ahead of its time.
        check: What it excluded returns over a passed check only.
        window_id: Maintenance window that goes with it, "" for none.
        source: What a planned leave follows, such as "aws:instance-event-…"; "" for a person's.
    """

    entity: EntityRef
    kind: PinKind
    by: str
    reason: str
    set_at: float
    expires_at: float | None = None
    id: str = ""
    starts_at: float | None = None
    leave: bool = False
    check: bool = False
    window_id: str = ""
    source: str = ""

    def holds(self, now: float) -> bool:
        """Whether it holds at a time, epoch seconds."""
        return (self.starts_at is None or self.starts_at <= now) and not self.is_over(now)

    def is_over(self, now: float) -> bool:
        """Whether its time has passed, epoch seconds."""
        return self.expires_at is not None and self.expires_at <= now

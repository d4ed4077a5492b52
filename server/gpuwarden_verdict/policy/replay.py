"""Judges what was judged before once more: by the same policy, or by another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat

from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.policy.document import (
    LIVE_PHASES,
    Decision,
    DecisionMove,
    DecisionPhase,
    Mode,
    PolicyDocument,
    PoolPolicy,
)
from gpuwarden_verdict.policy.evaluate import decide
from gpuwarden_verdict.policy.guards import BY_PIN, PoolLoad
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR
from gpuwarden_verdict.policy.parse import pool_of
from gpuwarden_verdict.policy.snapshots import DecisionSnapshot


class Effect(StrEnum):
    """What a decision does to its entity, mildest first."""

    NOTHING = "nothing"
    SUSPECT = "suspect"  # shown as advice below an exclusion
    OBSERVED = "observed"  # would be excluded, in observe mode
    ADVISED = "advised"  # waits for a person
    HELD_BACK = "held_back"  # a guard said no
    EXCLUDED = "excluded"


EFFECT_RANK = {effect: rank for rank, effect in enumerate(Effect)}


@dataclass(frozen=True, slots=True)
class Stand:
    """How a decision stands.

    Attributes:
        effect: What it does.
        rung: Of what is decided.
        guard: Which guard held it back, "" for none.
        advised: Higher rung that waits for a person, OBSERVE for none.
    """

    effect: Effect = Effect.NOTHING
    rung: Rung = Rung.OBSERVE
    guard: str = ""
    advised: Rung = Rung.OBSERVE


@dataclass(frozen=True, slots=True)
class Replayed:
    """A judgement made again.

    Attributes:
        at: When it was made, epoch seconds.
        policy_version: Policy that it was made again by.
        pool: Pool of its node by that policy.
        then: How it stood.
        now: How it stands when judged again.
        same: The very same decision, every word and number; of another policy, how it stands.
        notes: What the replay cannot know, in sentences.
    """

    at: float
    policy_version: str
    pool: str
    then: Stand
    now: Stand
    same: bool
    notes: tuple[str, ...] = ()


def replay(snapshot: DecisionSnapshot, document: PolicyDocument) -> Replayed:
    """Judge it again.

    Args:
        snapshot: What it rested on.
        document: The policy that decided, or another one.
    """
    node = snapshot.case.entity.node_id
    pool = pool_of(document, node, snapshot.labels)
    load, notes = _load(snapshot, pool)
    made = (move.decision.id for move in snapshot.moves if move.before is None)
    ids = chain(made, repeat("dec-replayed"))
    moves = decide(snapshot.case, pool, document.version, load, snapshot.at, lambda: next(ids))
    then, now = (_standing(snapshot, told) for told in (snapshot.moves, moves))
    own = document.version == snapshot.policy_version
    if not own:
        notes += _unknown(snapshot)
    same = tuple(moves) == snapshot.moves if own else then == now
    return Replayed(snapshot.at, document.version, pool.name, then, now, same, notes)


def stand_of(decision: Decision | None) -> Stand:
    """How a decision stands; None and one that ended do nothing."""
    if decision is None or decision.phase not in LIVE_PHASES:
        return Stand()
    return Stand(_effect(decision), decision.rung, decision.guard, decision.advised)


def _effect(decision: Decision) -> Effect:
    if covers(decision):
        return Effect.EXCLUDED
    if decision.rung < Rung.EXCLUDE:
        return Effect.SUSPECT
    if decision.phase is DecisionPhase.HELD_BACK:
        return Effect.HELD_BACK
    return Effect.ADVISED if decision.mode is Mode.ADVISE else Effect.OBSERVED


def _standing(snapshot: DecisionSnapshot, moves: Iterable[DecisionMove]) -> Stand:
    """Of gpuwarden's decisions after some moves, the one that does most."""
    after = {one.id: one for one in snapshot.case.decisions}
    after |= {move.decision.id: move.decision for move in moves}
    stands = [stand_of(one) for one in after.values() if one.decided_by != BY_PIN]
    return max(stands, key=lambda one: (EFFECT_RANK[one.effect], one.rung), default=Stand())


def _load(snapshot: DecisionSnapshot, pool: PoolPolicy) -> tuple[PoolLoad, tuple[str, ...]]:
    known = snapshot.loads.get(pool.name)
    if known is not None:
        return known, ()
    own = snapshot.loads.get(snapshot.pool, PoolLoad(gpu_nodes=0))
    note = (
        f"the policy of then had no pool {pool.name!r}: what was out in pool {snapshot.pool!r} "
        "counts in its place"
    )
    return own, (note,)


def _unknown(snapshot: DecisionSnapshot) -> tuple[str, ...]:
    """What another policy might have changed before anything was decided."""
    notes = ["evidence is as detectors found it under the policy of then"]
    if _scored(snapshot.case.incidents):
        notes.append("the learnt score weighs what its gate allowed then")
    return tuple(notes)


def _scored(incidents: Sequence[Incident]) -> bool:
    items = (item for incident in incidents for item in incident.evidence)
    return any(item.detector == LEARNED_DETECTOR for item in items)

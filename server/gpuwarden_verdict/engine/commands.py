"""What people's commands amount to; the caller makes it true and says who did it."""

from __future__ import annotations

from dataclasses import replace

from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.domain import Key, Outcome, StateMove, key_of
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.incidents.clearing import clear
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove
from gpuwarden_verdict.incidents.moves import acquit_all, acquittals_of
from gpuwarden_verdict.policy.document import DecisionMove
from gpuwarden_verdict.policy.evaluate import decision_target
from gpuwarden_verdict.policy.states import Trigger, judge_state, step_record
from gpuwarden_wire.metrics import EntityKind

_OUT = frozenset({EntityState.EXCLUDED, EntityState.DRAINING})


def decided(book: Book, pools: PoolBook, move: DecisionMove, now: float) -> Outcome:
    """A decision that a person moved, and the state that its target has after it."""
    target = move.decision.entity
    key = key_of(target)
    decisions = {one.id: one for one in book.decisions_of(key)}
    decisions[move.decision.id] = move.decision
    before = book.record_of(key)
    dwell_s = pools.pool(target.node_id).dwell_s
    after = judge_state(before, tuple(decisions.values()), now, dwell_s)
    moved = None
    if after.state is not before.state:
        moved = StateMove(target, before, after, move.reason, move.author)
    return Outcome(target, decision_moves=(move,), state_move=moved)


def revoked(book: Book, pools: PoolBook, move: DecisionMove, now: float) -> Outcome:
    """A decision that a person ended, and the acquittal of all that is open against its target.

    Of everything, not only of the leading incident: the person has seen the whole case and says
    that the target is sound, and the next sweep must not say otherwise on the same evidence.
    """
    opened = book.incidents_of(key_of(move.decision.entity))
    acquitted = tuple(acquit_all(opened, move.author, move.reason, now))
    return replace(
        decided(book, pools, move, now),
        incident_moves=acquitted,
        acquittals=acquittals_of([one.incident for one in acquitted], now),
    )


def cleared(incident: Incident, by: str, reason: str, now: float) -> tuple[IncidentMove, Outcome]:
    """An incident that a person closes; it comes back on new evidence only.

    Raises:
        LifecycleError: It is resolved already.
    """
    move, known = clear(incident, by, reason, now)
    target = decision_target(incident.entity)
    return move, Outcome(target, incident_moves=(move,), clearances=known)


def repairs_begun(
    book: Book, target: EntityRef, by: str, reason: str, now: float
) -> tuple[Outcome, ...]:
    """What of a target goes into repair: only what is excluded; a node takes its GPUs along."""
    keys = [key_of(target)]
    if target.kind is EntityKind.NODE:
        keys = sorted(book.targets_on(target.node_id))
    begun = (_repair_begun(book, key, by, reason, now) for key in keys)
    return tuple(outcome for outcome in begun if outcome is not None)


def _repair_begun(book: Book, key: Key, by: str, reason: str, now: float) -> Outcome | None:
    ref, before = book.ref(key), book.record_of(key)
    if ref is None or before.state not in _OUT:
        return None
    after = step_record(before, Trigger.REPAIR_BEGUN, now)
    return Outcome(ref, state_move=StateMove(ref, before, after, reason, by))

"""Nodes that are out of the fleet for good, and what brings one back: that its agent sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.decisions.ports import Author
from gpuwarden_server.judging.ledger import decision_audit
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.domain import Outcome, StateMove, key_of
from gpuwarden_verdict.engine.events import HISTORY_FLAGS, StoredEvent
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.moves import GPUWARDEN, retire
from gpuwarden_verdict.policy.evaluate import revoke
from gpuwarden_verdict.policy.states import EntityRecord, Trigger, step_record
from gpuwarden_wire.metrics import EntityKind

RETURNED = "its agent sends again"
OUTSIDE = frozenset({"alertmanager", "event"})
"""Who tells of nodes and speaks for none."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What leaving or coming back amounts to, to be committed together."""

    outcomes: tuple[Outcome, ...]
    audits: tuple[AuditEntry, ...]


class Retirement:
    """Leaving the fleet and coming back; used in the judge's thread."""

    def __init__(self, book: Book, facts: FleetFacts) -> None:
        """Make it.

        Args:
            book: What is true now.
            facts: Which GPUs sit in a node now, and who is heard of.
        """
        self._book = book
        self._facts = facts

    def leave(self, node_id: str, author: Author, now: float) -> Conclusion:
        """Everything open, decided or pinned about a node and the GPUs in it ends.

        A GPU that meanwhile sits in another node is that node's. Nothing is acquitted: evidence
        that comes after a return decides as any other.
        """
        node = _node_ref(node_id)
        gpus = (self._book.ref((EntityKind.GPU.value, one)) for one in self._facts.gpus_in(node_id))
        known = sorted((ref for ref in gpus if ref is not None), key=lambda ref: ref.key)
        outcomes = [self._closed(node, Trigger.RETIRED, author, now)]
        outcomes += [self._closed(gpu, Trigger.NODE_RETIRED, author, now) for gpu in known]
        entry = self._node_audit("retire_node", outcomes[0], author, now)
        ended = [audit for outcome in outcomes for audit in self._ended_audits(outcome, author)]
        taken = tuple(outcome for outcome in outcomes if not outcome.is_empty)
        return Conclusion(taken, (entry, *ended))

    def senders(self, events: Iterable[StoredEvent]) -> frozenset[str]:
        """Nodes among the senders of events whose agents speak for them now."""
        return frozenset(
            one.node_id
            for one in events
            if not HISTORY_FLAGS & one.flags and one.event.attributes.get("told_by") not in OUTSIDE
        )

    def heard(self) -> frozenset[str]:
        """Retired nodes of which a batch was taken since."""
        return frozenset(node_id for node_id in self._book.retired if self._is_heard(node_id))

    def come_back(self, node_ids: frozenset[str], now: float) -> Conclusion:
        """Those of some nodes that are retired are healthy again; others are left as they are."""
        system = Author(GPUWARDEN, None, RETURNED)
        outcomes = tuple(
            self._moved(_node_ref(node_id), Trigger.RETURNED, system, now)
            for node_id in sorted(node_ids & self._book.retired)
        )
        audits = (self._node_audit("return_node", one, system, now) for one in outcomes)
        return Conclusion(outcomes, tuple(audits))

    def _is_heard(self, node_id: str) -> bool:
        since = self._book.record_of(key_of(_node_ref(node_id))).since
        presence = self._facts.presence(node_id)
        return presence is not None and presence.last_seen_at > since

    def _closed(self, ref: EntityRef, trigger: Trigger, author: Author, now: float) -> Outcome:
        key, reason = key_of(ref), f"node retired: {author.reason}"
        moved = self._moved(ref, trigger, Author(author.name, author.key_id, reason), now)
        return Outcome(
            ref,
            incident_moves=tuple(
                retire(incident, author.name, reason, now)
                for incident in self._book.incidents_of(key)
            ),
            decision_moves=tuple(
                revoke(decision, author.name, reason, now)
                for decision in self._book.decisions_of(key)
            ),
            state_move=moved.state_move,
            ended_pins=self._book.pins_of(key),
        )

    def _moved(self, ref: EntityRef, trigger: Trigger, author: Author, now: float) -> Outcome:
        before = self._book.record_of(key_of(ref))
        after = step_record(before, trigger, now)
        if after.state is before.state:
            return Outcome(ref)
        return Outcome(ref, state_move=StateMove(ref, before, after, author.reason, author.name))

    def _node_audit(self, action: str, outcome: Outcome, author: Author, now: float) -> AuditEntry:
        move = outcome.state_move
        return AuditEntry(
            at=now,
            author=author.name,
            key_id=author.key_id,
            action=action,
            target=f"{EntityKind.NODE.value}:{outcome.target.key}",
            reason=author.reason,
            before=_state(move.before) if move else None,
            after=_state(move.after) if move else None,
        )

    def _ended_audits(self, outcome: Outcome, author: Author) -> list[AuditEntry]:
        return [
            AuditEntry(
                at=move.at,
                author=author.name,
                key_id=author.key_id,
                action="end_exclusion",
                target=f"{outcome.target.kind.value}:{outcome.target.key}",
                reason=move.reason,
                before=decision_audit(before),
                after=decision_audit(move.decision),
            )
            for move in outcome.decision_moves
            if (before := self._book.find_decision(move.decision.id)) and covers(before)
        ]


def _node_ref(node_id: str) -> EntityRef:
    return EntityRef(EntityKind.NODE, node_id, node_id)


def _state(record: EntityRecord) -> dict[str, object]:
    return {"state": record.state.value}

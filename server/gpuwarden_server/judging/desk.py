"""Takes stored events in and makes findings of them; remembers what detectors ask about a node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuwarden_server.ingest.domain import EventFlag, StoredEvent
from gpuwarden_server.ingest.sessions import Presence
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.judging.book import Book
from gpuwarden_server.judging.boots import booted_at
from gpuwarden_server.judging.domain import Findings, Key, key_of
from gpuwarden_server.judging.facts import FleetFacts
from gpuwarden_server.judging.troubles import TroubleBook
from gpuwarden_verdict.context import CHAIN_S, NodeContext, RecentEvent, occurrences, remember
from gpuwarden_verdict.detectors import detect_event, detect_recovery
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.event_groups import group_of
from gpuwarden_verdict.policy.evaluate import decision_target
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

HOLD_S = 60.0
"""A node that said "more events follow" and sent none for so long is judged as it stands."""

RECENT_KEPT = 256
"""Recent events kept of a node: a storm must not make every further event dearer."""

_CAUSES = frozenset({EventKind.KERNEL_LOG, EventKind.NVML_XID, EventKind.GPU_LOST})
_HISTORY_FLAGS = frozenset({EventFlag.BACKLOG, EventFlag.HISTORY})


class Standing(StrEnum):
    """Whether an event may act."""

    PRESENT = "present"
    HISTORY = "history"


@dataclass(slots=True)
class _NodeMemory:
    """What is remembered of a node between events."""

    recent: tuple[RecentEvent, ...] = ()
    held_from: float | None = None


class EventDesk:
    """From stored events to findings; used in the judge's thread."""

    def __init__(
        self, book: Book, facts: FleetFacts, guarded: GuardedState, troubles: TroubleBook
    ) -> None:
        """Make a desk.

        Args:
            book: What is true now.
            facts: What is known of nodes.
            guarded: Columnar state, in which events are counted.
            troubles: Where agents' own trouble is noted.
        """
        self._book = book
        self._facts = facts
        self._guarded = guarded
        self._troubles = troubles
        self._nodes: dict[str, _NodeMemory] = {}

    def recall(self, events: Iterable[StoredEvent]) -> None:
        """Take note of events that were judged before a restart: causes that chains refer to."""
        for stored in events:
            _note(self._memory(stored.node_id), stored)

    def findings_of(self, stored: StoredEvent, now: float) -> list[Findings]:
        """Findings of one event, at most one a target."""
        memory = self._memory(stored.node_id)
        memory.held_from = now if EventFlag.MORE_EVENTS in stored.flags else None
        self._troubles.note(stored.node_id, stored.event)
        self._note_boot(stored)
        context = self._facts.node_context(stored.node_id)
        context = replace(context, boot_id=stored.boot_id, recent=memory.recent)
        found = self._recovery_findings(stored, context)
        signals = detect_event(stored.event, stored.ref, context)
        self._count(stored, memory.recent)
        _note(memory, stored)
        for signal in signals:
            target = decision_target(signal.entity)
            findings = found.setdefault(key_of(target), Findings(target))
            if self._standing(stored, context, key_of(target)) is Standing.HISTORY:
                findings.history.append(signal)
            else:
                findings.signals.append(signal)
        own = decision_target(stored.ref)
        found.setdefault(key_of(own), Findings(own))
        return list(found.values())

    def is_held(self, node_id: str, presence: Presence | None, now: float) -> bool:
        """Whether the node's decisions wait for further events.

        They do from an event that says so until a batch that no longer does, or HOLD_S.
        """
        memory = self._nodes.get(node_id)
        if memory is None or memory.held_from is None or now - memory.held_from >= HOLD_S:
            return False
        later = presence is not None and presence.last_seen_at > memory.held_from
        return not later or (presence is not None and presence.more_events)

    def _note_boot(self, stored: StoredEvent) -> None:
        at = booted_at(stored.event)
        if at is not None and not _HISTORY_FLAGS & stored.flags:
            self._facts.note_boots({stored.node_id: at})

    def _count(self, stored: StoredEvent, recent: tuple[RecentEvent, ...]) -> None:
        if stored.event.kind is EventKind.CHECK_PASSED and not _HISTORY_FLAGS & stored.flags:
            # As in training: what was counted before a passed check is no evidence after it.
            with self._guarded.lock:
                self._guarded.state.note_repair(stored.ref)
        group = group_of(stored.event)
        count = occurrences(stored.event, stored.ref, recent) if group is not None else 0
        if group is not None and count > 0:
            with self._guarded.lock:
                self._guarded.state.note_event(stored.ref, group, stored.event.observed_at, count)

    def _memory(self, node_id: str) -> _NodeMemory:
        return self._nodes.setdefault(node_id, _NodeMemory())

    def _recovery_findings(self, stored: StoredEvent, context: NodeContext) -> dict[Key, Findings]:
        if _HISTORY_FLAGS & stored.flags:
            return {}  # what was well before is not evidence of being well now
        found: dict[Key, Findings] = {}
        for target in self._spoken_of(stored.ref):
            key = key_of(target)
            in_repair = self._book.record_of(key).state is EntityState.IN_REPAIR
            recoveries = detect_recovery(stored.event, stored.ref, context, in_repair=in_repair)
            checked = stored.event.kind is EventKind.CHECK_PASSED
            if recoveries or checked:
                at = stored.event.observed_at if checked else None
                found[key] = Findings(target, recoveries=recoveries, checked_at=at)
        return found

    def _spoken_of(self, ref: EntityRef) -> list[EntityRef]:
        """Targets that an event covers: a node's also covers everything in it."""
        own = decision_target(ref)
        if ref.kind is not EntityKind.NODE:
            return [own]
        keys = self._book.targets_on(ref.node_id)
        others = [self._book.ref(key) for key in sorted(keys) if key != key_of(own)]
        return [own, *(one for one in others if one is not None)]

    def _standing(self, stored: StoredEvent, context: NodeContext, key: Key) -> Standing:
        if _HISTORY_FLAGS & stored.flags:
            return Standing.HISTORY
        at = stored.event.observed_at
        checked_at = self._book.checked_at(key)
        if checked_at is not None and at < checked_at:
            return Standing.HISTORY
        # Clocks of a node and of the server differ; a boot is noticed at once, so CHAIN_S is room.
        old = context.booted_at is not None and at < context.booted_at - CHAIN_S
        return Standing.HISTORY if old else Standing.PRESENT


def _note(memory: _NodeMemory, stored: StoredEvent) -> None:
    if stored.event.kind in _CAUSES:
        memory.recent = remember(memory.recent, stored.event, stored.ref)[-RECENT_KEPT:]

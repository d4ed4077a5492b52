"""Takes stored events in and makes findings of them; remembers what detectors ask about a node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from gpuwarden_verdict.context import (
    CHAIN_S,
    NodeContext,
    RecentEvent,
    forget,
    occurrences,
    remember,
)
from gpuwarden_verdict.detectors import detect_event, detect_recovery
from gpuwarden_verdict.detectors.plug_in_check import is_plug_in, proves_repair
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.clocks import booted_at, in_our_time
from gpuwarden_verdict.engine.domain import Findings, Key, Step, key_of, renamed_key
from gpuwarden_verdict.engine.events import HISTORY_FLAGS, EventFlag, StoredEvent
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.engine.ports import Counting, Troubles
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.entities import EntityRef, EntityState, Rung, renamed_ref
from gpuwarden_verdict.event_groups import group_of
from gpuwarden_verdict.job_ends import told_end
from gpuwarden_verdict.policy.evaluate import Hold, decision_target
from gpuwarden_verdict.signals import Persistence, Recovery, RecoveryKind, Signal
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

HOLD_S = 60.0
"""A node that said "more events follow" and sent none for so long is judged as it stands."""

RECENT_KEPT = 256
"""Recent events kept of a node: a storm must not make every further event dearer."""

_CAUSES = frozenset({EventKind.KERNEL_LOG, EventKind.NVML_XID, EventKind.GPU_LOST})


class Standing(StrEnum):
    """What an event may do."""

    PRESENT = "present"  # acts
    ADVICE = "advice"  # there before the agent first looked: shown, excludes not by itself
    HISTORY = "history"  # of an older boot, from before a passed check, or expired: put on record


@dataclass(slots=True)
class _NodeMemory:
    """What is remembered of a node between events.

    Attributes:
        recent: Causes that chains refer to.
        held_from: Since when its decisions are held, None while they are not.
        hold: What the newest event lets wait.
        checks: Passed checks, by target; the book has them only after the pass.
    """

    recent: tuple[RecentEvent, ...] = ()
    held_from: float | None = None
    hold: Hold = Hold.NONE
    checks: dict[Key, float] = field(default_factory=dict)


class EventDesk:
    """From stored events to findings; used in the judge's thread."""

    def __init__(
        self, book: Book, facts: FleetFacts, counting: Counting, troubles: Troubles
    ) -> None:
        """Make a desk.

        Args:
            book: What is true now.
            facts: What is known of nodes.
            counting: Where events are counted.
            troubles: Where agents' own trouble is noted.
        """
        self._book = book
        self._facts = facts
        self._counting = counting
        self._troubles = troubles
        self._nodes: dict[str, _NodeMemory] = {}

    def recall(self, events: Iterable[StoredEvent]) -> None:
        """Take note of events that were judged before a restart: causes that chains refer to."""
        for stored in events:
            _note(self._memory(stored.node_id), in_our_time(stored))

    def findings_of(self, came: StoredEvent, now: float) -> list[Findings]:
        """Findings of one event, at most one a target."""
        stored = in_our_time(came)
        memory = self._memory(stored.node_id)
        memory.hold = _hold(stored)
        memory.held_from = None if memory.hold is Hold.NONE else now
        if not HISTORY_FLAGS & stored.flags:
            self._troubles.note(stored.node_id, stored.event)
            self._note_boot(came)
            self._note_job_end(stored)
        context = self._facts.node_context(stored.node_id)
        context = replace(context, boot_id=stored.boot_id, recent=memory.recent)
        found = self._recovery_findings(stored, context, memory)
        signals = [self._in_job(one) for one in detect_event(stored.event, stored.ref, context)]
        self._count(stored, memory.recent)
        _note(memory, stored)
        for signal in signals:
            target = decision_target(signal.entity)
            findings = found.setdefault(key_of(target), Findings(target))
            match self._standing(stored, context, signal, now):
                case Standing.HISTORY:
                    findings.history.append(signal)
                case Standing.ADVICE:
                    findings.add(signals=[_as_advice(signal)])
                case Standing.PRESENT:
                    findings.add(signals=[signal])
                case other:
                    assert_never(other)
        own = decision_target(stored.ref)
        found.setdefault(key_of(own), Findings(own))
        return list(found.values())

    def hold_of(self, node_id: str, presence: Presence | None, now: float) -> Hold:
        """Which of the node's decisions wait for further events.

        They do from an event that says so until a batch that no longer does, or HOLD_S.
        """
        memory = self._nodes.get(node_id)
        if memory is None or memory.held_from is None or now - memory.held_from >= HOLD_S:
            return Hold.NONE
        later = presence is not None and presence.last_seen_at > memory.held_from
        holds = not later or (presence is not None and presence.more_events)
        return memory.hold if holds else Hold.NONE

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        memory = self._nodes.pop(old, None)
        if memory is None:
            return
        memory.recent = tuple(
            replace(past, ref=renamed_ref(past.ref, old, new)) for past in memory.recent
        )
        memory.checks = {renamed_key(key, old, new): at for key, at in memory.checks.items()}
        self._nodes[new] = memory

    def _note_boot(self, stored: StoredEvent) -> None:
        at = booted_at(stored.event, stored.received_at)
        if at is not None:
            self._facts.note_boots({stored.node_id: at})

    def _note_job_end(self, stored: StoredEvent) -> None:
        end = told_end(stored.event)
        if end is not None:
            self._facts.note_job_end(stored.node_id, end)

    def _in_job(self, signal: Signal) -> Signal:
        job = self._facts.job_of(signal.entity, signal.observed_at)
        return replace(signal, job=job) if job else signal

    def _count(self, stored: StoredEvent, recent: tuple[RecentEvent, ...]) -> None:
        if _is_before(stored, self._checked(decision_target(stored.ref))):
            return
        if self._is_proof(stored) and not HISTORY_FLAGS & stored.flags:
            # As in training: what was counted before a passed check is no evidence after it.
            self._counting.note_repair(stored.ref)
        group = group_of(stored.event)
        count = occurrences(stored.event, stored.ref, recent) if group is not None else 0
        if group is not None and count > 0:
            self._counting.note_event(stored.ref, group, stored.event.observed_at, count)

    def _is_proof(self, stored: StoredEvent) -> bool:
        """A passed check; a plug-in's only of what is in repair, and where it may end a repair."""
        if stored.event.kind is not EventKind.CHECK_PASSED or not is_plug_in(stored.event):
            return stored.event.kind is EventKind.CHECK_PASSED
        record = self._book.record_of(key_of(decision_target(stored.ref)))
        return proves_repair(stored.event) and record.state is EntityState.IN_REPAIR

    def _memory(self, node_id: str) -> _NodeMemory:
        return self._nodes.setdefault(node_id, _NodeMemory())

    def _recovery_findings(
        self, stored: StoredEvent, context: NodeContext, memory: _NodeMemory
    ) -> dict[Key, Findings]:
        if HISTORY_FLAGS & stored.flags:
            return {}  # what was well before is not evidence of being well now
        found: dict[Key, Findings] = {}
        for target in self._spoken_of(stored.ref):
            key = key_of(target)
            in_repair = self._book.record_of(key).state is EntityState.IN_REPAIR
            recoveries = detect_recovery(stored.event, stored.ref, context, in_repair=in_repair)
            if recoveries:
                found[key] = Findings(target, [Step(recoveries)])
            if any(_is_whole_check(recovery) for recovery in recoveries):
                found[key].checked_at = stored.event.observed_at
                memory.checks[key] = max(memory.checks.get(key, 0.0), stored.event.observed_at)
                memory.recent = forget(memory.recent, target, stored.event.observed_at)
        return found

    def _spoken_of(self, ref: EntityRef) -> list[EntityRef]:
        """Targets that an event covers: a node's also covers everything in it."""
        own = decision_target(ref)
        if ref.kind is not EntityKind.NODE:
            return [own]
        keys = self._book.targets_on(ref.node_id)
        others = [self._book.ref(key) for key in sorted(keys) if key != key_of(own)]
        return [own, *(one for one in others if one is not None)]

    def _standing(
        self, stored: StoredEvent, context: NodeContext, signal: Signal, now: float
    ) -> Standing:
        past = (
            bool(HISTORY_FLAGS & stored.flags)
            or self._facts.is_older_boot(stored.node_id, stored.boot_id)
            # Clocks drift, and a boot is noticed at once, so CHAIN_S is room.
            or _is_before(stored, (context.booted_at or 0.0) - CHAIN_S)
            or _is_before(stored, self._checked(decision_target(signal.entity)))
            or (signal.persistence is Persistence.EVENT and signal.expires_at <= now)
        )
        if past:
            return Standing.HISTORY
        return Standing.ADVICE if EventFlag.FIRST_LOOK in stored.flags else Standing.PRESENT

    def _checked(self, target: EntityRef) -> float:
        """When the target, or its node and all in it, last passed a check; 0 for never."""
        checks = self._memory(target.node_id).checks
        node = (EntityKind.NODE.value, target.node_id)
        times = [self._book.checked_at(key) for key in (key_of(target), node)]
        times += [checks.get(key) for key in (key_of(target), node)]
        return max((at for at in times if at is not None), default=0.0)


def _is_before(stored: StoredEvent, mark: float) -> bool:
    """Whether it happened before a mark that was set earlier; one in its future is no time."""
    return stored.event.observed_at < mark <= stored.received_at


def _hold(stored: StoredEvent) -> Hold:
    if EventFlag.MORE_EVENTS not in stored.flags:
        return Hold.NONE
    return Hold.ALL if EventFlag.LATE in stored.flags else Hold.CORROBORATED


def _is_whole_check(recovery: Recovery) -> bool:
    """A check that names what it followed speaks of that alone."""
    checks = (RecoveryKind.CHECK_PASSED, RecoveryKind.CHECK_AFTER_REPAIR)
    return recovery.kind in checks and not recovery.detectors


def _as_advice(signal: Signal) -> Signal:
    """Evidence that may have been dealt with: seen by people, and a support to evidence of now."""
    return replace(
        signal,
        acts_alone=False,
        max_rung=min(signal.max_rung, Rung.SUSPECT),
        sentence=f"{signal.sentence}, in the log before the agent first read it",
    )


def _note(memory: _NodeMemory, stored: StoredEvent) -> None:
    if stored.event.kind in _CAUSES:
        memory.recent = remember(memory.recent, stored.event, stored.ref)[-RECENT_KEPT:]

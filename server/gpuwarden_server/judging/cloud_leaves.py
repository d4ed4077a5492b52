"""Planned leaves that follow what clouds announce; used in the judge's thread.

A leave of a cloud's is made where the pool acts, by the agent's word of its own node, and ends when
the cloud announces it no more. What people set is never touched, and what they ended stays ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from gpuwarden_server.core.ids import new_id
from gpuwarden_server.decisions.pins.schemas import FARTHEST_LEAVE_S
from gpuwarden_server.decisions.ports import Author
from gpuwarden_server.judging.meters import JudgeMeters
from gpuwarden_server.judging.pins import Pinning
from gpuwarden_server.judging.worker import Concluded, DueLeaves
from gpuwarden_verdict.cloud_events import Announcement, CloudEvent, announced
from gpuwarden_verdict.engine.domain import key_of
from gpuwarden_verdict.engine.events import HISTORY_FLAGS, StoredEvent
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.case import Hold
from gpuwarden_verdict.policy.document import Mode, Pin, PinKind
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

MOVED_S = 1.0
"""An announced time that moved by less is the same."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CloudSight:
    """What following clouds asks about.

    Attributes:
        hold_of: Which of a node's decisions wait for further events.
        mode_of: A node's pool's mode.
        made_for: Sources of leaves that were made for a node, those that people ended among them.
        lead_s: A node leaves so long before its cloud may begin, seconds.
    """

    hold_of: Callable[[str], Hold]
    mode_of: Callable[[str], Mode]
    made_for: Callable[[str], frozenset[str]]
    lead_s: float


class CloudLeaves:
    """Implements `LeaveMaker` of the worker."""

    def __init__(self, pinning: Pinning, sight: CloudSight, meters: JudgeMeters) -> None:
        self._pinning = pinning
        self._sight = sight
        self._meters = meters
        self._newest: dict[str, StoredEvent] = {}

    def note(self, events: Iterable[StoredEvent]) -> None:
        """What was announced last holds; history says nothing about now."""
        for stored in events:
            if stored.event.kind is EventKind.CLOUD_EVENTS and not HISTORY_FLAGS & stored.flags:
                self._newest[stored.node_id] = stored

    def due(self, now: float) -> list[DueLeaves]:
        """What is to be committed, a node at a time; nodes of which more events follow wait."""
        if not self._newest:
            return []
        ready = [n for n in self._newest if self._sight.hold_of(n) is Hold.NONE]
        taken = [self._newest.pop(node_id) for node_id in sorted(ready)]
        found = ((stored, self._follow(stored, now)) for stored in taken)
        return [DueLeaves(stored, one) for stored, one in found if one is not None]

    def _follow(self, stored: StoredEvent, now: float) -> Concluded | None:
        told = announced(stored.event)
        if told is None:
            self._meters.cloud_leaves.labels(outcome="not_understood").inc()
            _log.warning("cloud_events_not_understood", node_id=stored.node_id)
            return None
        node = EntityRef(EntityKind.NODE, stored.node_id, stored.node_id)
        if stored.node_id in self._pinning.book.retired:
            return None
        ours = {
            pin.source: pin
            for pin in self._pinning.book.pins_of(key_of(node))
            if pin.source.startswith(f"{told.provider}:")
        }
        coming = {one.source: one for one in told.events if one.takes_node}
        over = [pin for source, pin in ours.items() if told.complete and source not in coming]
        plans = self._plans(node, coming.values(), ours, now)
        moved = [ours[plan.source] for plan in plans if plan.source in ours]
        planned = {plan.source for plan in plans}
        for source, pin in ours.items():  # a time that moved where none is made voids the old
            if source in coming and source not in planned:
                over += [pin] if _moves(pin, self._leave(node, coming[source], now), now) else []
        return self._concluded(node, told, plans, over, moved, now)

    def _plans(
        self, node: EntityRef, coming: Iterable[CloudEvent], ours: dict[str, Pin], now: float
    ) -> list[Pin]:
        """Leaves to be made: of what is news, and of what moved before its time."""
        wanted = [self._leave(node, one, now) for one in coming]
        wanted = [one for one in wanted if (one.starts_at or now) - now <= FARTHEST_LEAVE_S]
        news = [one for one in wanted if one.source not in ours]
        moved = [one for one in wanted if one.source in ours and _moves(ours[one.source], one, now)]
        if news:
            known = self._sight.made_for(node.node_id)
            news = [one for one in news if one.source not in known]
        if not news and not moved:
            return []
        if why := self._why_not(node, now):
            self._meters.cloud_leaves.labels(outcome="withheld").inc(len(news) + len(moved))
            _log.info(
                "cloud_leave_withheld",
                node_id=node.node_id,
                sources=[one.source for one in (*news, *moved)],
                why=why,
            )
            return []
        return [*news, *moved]

    def _why_not(self, node: EntityRef, now: float) -> str:
        """Why nothing is planned for a node, "" where it may be."""
        mode = self._sight.mode_of(node.node_id)
        if mode is not Mode.ACT:
            return f"the mode of its pool is {mode.value}"
        for pin in self._pinning.book.pins_of(key_of(node)):
            if pin.kind is PinKind.ALLOW and pin.holds(now):
                return f"{pin.by} keeps it in"
        return ""

    def _leave(self, node: EntityRef, one: CloudEvent, now: float) -> Pin:
        at = now if one.not_before is None else one.not_before - self._sight.lead_s
        leave = Pin(
            entity=node,
            kind=PinKind.EXCLUDE,
            by=author_of(one.source),
            reason=f"the cloud announces {one.words}"[:1000],
            set_at=now,
            id=new_id("pin"),
            starts_at=max(now, at),
            leave=True,
            window_id=new_id("sil"),
            source=one.source,
        )
        return self._pinning.as_pool_says(leave)

    def _concluded(
        self,
        node: EntityRef,
        told: Announcement,
        plans: Sequence[Pin],
        over: Sequence[Pin],
        moved: Sequence[Pin],
        now: float,
    ) -> Concluded | None:
        if not plans and not over:
            return None
        for outcome, count in (
            ("made", len(plans) - len(moved)),
            ("moved", len(moved)),
            ("ended", len(over)),
        ):
            self._meters.cloud_leaves.labels(outcome=outcome).inc(count)
        reason = "; ".join(pin.reason for pin in plans) or "the cloud announces it no more"
        author = Author(author_of(f"{told.provider}:"), None, reason)
        return self._pinning.follow(node, plans, [*over, *moved], author, now)


def author_of(source: str) -> str:
    """Who stands behind what follows a cloud."""
    return f"cloud_events ({source.partition(':')[0]})"


def _moves(has: Pin, wants: Pin, now: float) -> bool:
    """Whether a leave that has not begun is to begin at another time."""
    begins, wanted = has.starts_at, wants.starts_at
    if begins is None or wanted is None or begins <= now:
        return False
    return abs(begins - wanted) > MOVED_S

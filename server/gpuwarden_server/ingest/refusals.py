"""Batches refused because two machines speak for one node: shown beside it, never a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuwarden_server.core.clock import Clock

REFUSAL_FRESH_S = 300.0
"""Without a further refusal for so long it is over; agents try again every 15 s at most."""

KEPT_A_NODE = 4
"""Refused spools kept of a node, the latest: a key may send any number of names."""


class Clash(StrEnum):
    """How two machines met; the values are the codes that agents are answered with."""

    NODE_CLAIMED = "node_claimed"
    SEQUENCE_CONFLICT = "sequence_conflict"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A spool whose batches are refused.

    Attributes:
        clash: Why.
        spool_id: The refused spool; of a conflict, the one that both machines have.
        since: Server's epoch seconds of the first refusal.
        first_at: The same by the clock that never jumps.
        last_at: Newest refusal, by that clock.
        proven: Both machines send: not an agent that was started anew with an empty spool.
    """

    clash: Clash
    spool_id: str
    since: float
    first_at: float
    last_at: float
    proven: bool


class RefusalBook:
    """Written on the event loop, read by any thread: values are replaced whole."""

    def __init__(self, clock: Clock) -> None:
        """Make an empty one."""
        self._clock = clock
        self._by_node: dict[str, tuple[Refusal, ...]] = {}

    def of(self, node_id: str) -> tuple[Refusal, ...]:
        """What is refused now and proves two machines, by clash and spool."""
        return tuple(one for one in self._fresh(node_id) if one.proven)

    def note_claim(self, node_id: str, spool_id: str, heard_at: float) -> None:
        """A batch of a second spool was refused.

        Args:
            node_id: The node.
            spool_id: The second spool.
            heard_at: When the live one was last heard of, by the clock that never jumps: after the
                first refusal, both are alive.
        """
        self._note(node_id, Clash.NODE_CLAIMED, spool_id, heard_at)

    def note_conflict(self, node_id: str, spool_id: str) -> bool:
        """A batch had the sequence of another one of the same spool, with other content.

        Returns:
            Whether it is news.
        """
        is_news = all(one.spool_id != spool_id for one in self.of(node_id))
        self._note(node_id, Clash.SEQUENCE_CONFLICT, spool_id, float("inf"))
        return is_news

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        self._replace(new, self._by_node.pop(old, ()))

    def end_claims(self, node_id: str) -> None:
        """A spool took the node over: nobody contests it any more."""
        kept = (one for one in self._fresh(node_id) if one.clash is not Clash.NODE_CLAIMED)
        self._replace(node_id, kept)

    def _note(self, node_id: str, clash: Clash, spool_id: str, heard_at: float) -> None:
        now = self._clock.monotonic()
        fresh = self._fresh(node_id)
        same = [one for one in fresh if (one.clash, one.spool_id) == (clash, spool_id)]
        rest = [one for one in fresh if one not in same]
        first = same[0] if same else Refusal(clash, spool_id, self._clock.now(), now, now, False)
        noted = replace(first, last_at=now, proven=first.proven or heard_at > first.first_at)
        latest = sorted([*rest, noted], key=lambda one: one.last_at)[-KEPT_A_NODE:]
        self._replace(node_id, latest)

    def _fresh(self, node_id: str) -> tuple[Refusal, ...]:
        now = self._clock.monotonic()
        held = self._by_node.get(node_id, ())
        return tuple(one for one in held if now - one.last_at < REFUSAL_FRESH_S)

    def _replace(self, node_id: str, refusals: Iterable[Refusal]) -> None:
        kept = tuple(sorted(refusals, key=lambda one: (one.clash, one.spool_id)))
        if kept:
            self._by_node[node_id] = kept
        else:
            self._by_node.pop(node_id, None)

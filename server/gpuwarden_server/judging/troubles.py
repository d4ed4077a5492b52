"""Agents' own trouble, by node and source: shown beside the verdict, never a hardware verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from gpuwarden_server.ingest.refusals import Clash, Refusal, RefusalBook
from gpuwarden_wire.events import Event, EventKind


@dataclass(frozen=True, slots=True)
class Trouble:
    """One source of an agent that does not work, or a second agent of the same node.

    Attributes:
        source: Collector, spool …; of batches that are refused, the code that refuses them.
        reason: Why.
        since: Epoch seconds, never later than the server heard of it.
        mend: What to do about it, "" where nothing is known.
    """

    source: str
    reason: str
    since: float
    mend: str = ""


class TroubleBook:
    """What stands now; written by the judge's thread, read by any: values are replaced whole."""

    def __init__(self, refusals: RefusalBook) -> None:
        """Make an empty one; `refusals` tells of batches that the front door refuses."""
        self._by_node: dict[str, tuple[Trouble, ...]] = {}
        self._refusals = refusals

    def of(self, node_id: str) -> tuple[Trouble, ...]:
        """Standing trouble of a node's agent, by source, then of those who speak for it too."""
        refused = map(_of_refusal, self._refusals.of(node_id))
        return (*self._by_node.get(node_id, ()), *refused)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        if old in self._by_node:
            self._by_node[new] = self._by_node.pop(old)

    def note(self, node_id: str, event: Event) -> None:
        """Take an event over; a boot ends what stood before it."""
        match event.kind:
            case EventKind.COLLECTOR_TROUBLE:
                self._replace(node_id, _source(event), _trouble(event))
            case EventKind.COLLECTOR_RECOVERED:
                self._replace(node_id, _source(event), None)
            case EventKind.NODE_BOOT:
                self._by_node.pop(node_id, None)

    def _replace(self, node_id: str, source: str, trouble: Trouble | None) -> None:
        rest = [one for one in self._by_node.get(node_id, ()) if one.source != source]
        now = [*rest, trouble] if trouble is not None else rest
        self._by_node[node_id] = tuple(sorted(now, key=lambda one: one.source))


def _source(event: Event) -> str:
    return str(event.attributes.get("source", ""))


def _trouble(event: Event) -> Trouble:
    reason = str(event.attributes.get("reason", "")) or event.text
    mend = str(event.attributes.get("mend", ""))
    return Trouble(_source(event), reason, event.observed_at, mend)


def _of_refusal(refusal: Refusal) -> Trouble:
    spool_id = refusal.spool_id
    match refusal.clash:
        case Clash.NODE_CLAIMED:
            reason = f"refused spool {spool_id} of another machine: it speaks for the same node"
            mend = "Stop the agent there, or give that machine a GPUWARDEN_AGENT_NODE_ID of its own"
        case Clash.SEQUENCE_CONFLICT:
            reason = (
                f"conflicting batches of spool {spool_id}: two machines send with it; what comes "
                "second is set aside and not judged"
            )
            mend = "A copied spool folder makes this: stop the copy's agent and delete it there"
        case _:
            assert_never(refusal.clash)
    return Trouble(refusal.clash.value, reason, refusal.since, mend)

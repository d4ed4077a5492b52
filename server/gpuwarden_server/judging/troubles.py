"""Agents' own trouble, by node and source: shown beside the verdict, never a hardware verdict."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_wire.events import Event, EventKind


@dataclass(frozen=True, slots=True)
class Trouble:
    """One source of an agent that does not work.

    Attributes:
        source: Collector, spool …
        reason: Why, as the agent says.
        since: Epoch seconds, the agent's clock.
    """

    source: str
    reason: str
    since: float


class TroubleBook:
    """What stands now; written by the judge's thread, read by any: values are replaced whole."""

    def __init__(self) -> None:
        self._by_node: dict[str, tuple[Trouble, ...]] = {}

    def of(self, node_id: str) -> tuple[Trouble, ...]:
        """Standing trouble of a node's agent, by source."""
        return self._by_node.get(node_id, ())

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
        rest = [one for one in self.of(node_id) if one.source != source]
        now = [*rest, trouble] if trouble is not None else rest
        self._by_node[node_id] = tuple(sorted(now, key=lambda one: one.source))


def _source(event: Event) -> str:
    return str(event.attributes.get("source", ""))


def _trouble(event: Event) -> Trouble:
    reason = str(event.attributes.get("reason", "")) or event.text
    return Trouble(_source(event), reason, event.observed_at)

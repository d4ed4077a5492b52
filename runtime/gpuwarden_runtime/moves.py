"""Following moves of incidents and states, without network: what a client of either kind drives.

Takes what the stream says, and keeps where it stands and how long to wait before the next
connection, so that nothing is missed over lost connections and restarts of the server.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from gpuwarden_runtime.errors import GpuwardenError
from gpuwarden_runtime.told_records import IncidentMove, StateMove

Move = TypeVar("Move")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Told(Generic[Move]):
    """What a stream told.

    Attributes:
        event_id: Give it back as `last_event_id` to hear what comes after.
        move: What moved; None where something was missed or nothing was heard before: read the
            list now, what moves from here on is told.
    """

    event_id: str
    move: Move | None


class MoveStream(Generic[Move]):
    """One stream and where its reader stands.

    Attributes:
        path: Its route.
        query: What narrows it.
        event_id: Of what came last, None for nothing yet.
    """

    def __init__(
        self,
        path: str,
        event: str,
        kind: type[Move],
        query: Mapping[str, object],
        last_event_id: str | None,
    ) -> None:
        """Make one.

        Args:
            path: Route.
            event: Name of its events.
            kind: What they carry.
            query: What narrows it.
            last_event_id: Where to go on, None for now.
        """
        self.path = path
        self.query = query
        self.event_id = last_event_id
        self._event = event
        self._kind = kind
        self._failures = 0

    def take(self, event: str, data: str, event_id: str) -> Told[Move] | None:
        """Take one server-sent event; None where there is nothing to tell.

        Raises:
            msgspec.DecodeError: It is unreadable.
        """
        if event_id:
            self.event_id = event_id
        if event == self._event:
            return Told(event_id, msgspec.json.decode(data, type=self._kind))
        return Told(event_id, None) if event == "position" else None

    def note_contact(self) -> None:
        """Note that the stream is open."""
        self._failures = 0

    def note_failure(self, trouble: GpuwardenError) -> float:
        """Note that the stream ended or did not open.

        Returns:
            Seconds to wait before the next try; jittered, so that readers do not return together.

        Raises:
            GpuwardenError: `trouble` itself, where trying again is of no use.
        """
        if not trouble.retryable:
            raise trouble
        self._failures += 1
        ceiling = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._failures, 10))
        return random.uniform(0.1, ceiling)


def incident_moves(
    nodes: Sequence[str] = (), pools: Sequence[str] = (), *, last_event_id: str | None = None
) -> MoveStream[IncidentMove]:
    """Each move of an incident as it happens, over lost connections and restarts of the server.

    Args:
        nodes: Only about these nodes.
        pools: Only about nodes of these pools.
        last_event_id: `event_id` of what was heard last, to hear what was missed since.
    """
    where = {"node": list(nodes), "pool": list(pools)}
    return MoveStream("/v1/incidents/stream", "incident", IncidentMove, where, last_event_id)


def state_moves(
    nodes: Sequence[str] = (), pools: Sequence[str] = (), *, last_event_id: str | None = None
) -> MoveStream[StateMove]:
    """Each change of state of a node or GPU as it happens; otherwise as `follow_incidents`.

    Args:
        nodes: Only about these nodes and their GPUs.
        pools: Only about nodes of these pools.
        last_event_id: `event_id` of what was heard last, to hear what was missed since.
    """
    where: dict[str, Any] = {"node": list(nodes), "pool": list(pools)}
    return MoveStream("/v1/states/stream", "entity_state", StateMove, where, last_event_id)

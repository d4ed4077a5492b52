"""What a cloud announces for a node, as its agent tells it, and what of it takes the node away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwarden_wire.events import Event, EventKind

MOST_EVENTS = 32

TAKES_NODE = frozenset(
    {
        # AWS, events/maintenance/scheduled and spot/instance-action
        "instance-reboot",
        "system-reboot",
        "system-maintenance",
        "instance-retirement",
        "instance-stop",
        "spot-terminate",
        "spot-stop",
        "spot-hibernate",
        # Azure, EventType
        "Reboot",
        "Redeploy",
        "Preempt",
        "Terminate",
    }
)
"""What interrupts the node. What is not here is told and followed by nothing: Azure's Freeze is a
pause of seconds, a rebalance recommendation has no time, and an unknown word may mean anything."""


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One thing that a cloud will do to a node.

    Attributes:
        source: The cloud and its id of it, "aws:instance-event-…": names a leave made for it.
        code: The cloud's word for what happens.
        not_before: Epoch seconds before which nothing happens, None: it has begun.
        text: What the cloud says about it.
    """

    source: str
    code: str
    not_before: float | None
    text: str

    @property
    def takes_node(self) -> bool:
        """Whether the node is away meanwhile."""
        return self.code in TAKES_NODE

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.code} ({self.source}): {self.text}" if self.text else self.what

    @property
    def what(self) -> str:
        """What and which."""
        return f"{self.code} ({self.source})"


@dataclass(frozen=True, slots=True)
class Announcement:
    """All that a cloud announces for one node.

    Attributes:
        provider: aws, azure.
        complete: All of it was understood: what is not among it is announced no more.
        events: By source, in the agent's order.
    """

    provider: str
    complete: bool
    events: tuple[CloudEvent, ...]


def announced(event: Event) -> Announcement | None:
    """What a CLOUD_EVENTS event says; None for any other, and for one that is not of that form."""
    said = event.attributes
    provider = said.get("provider")
    if event.kind is not EventKind.CLOUD_EVENTS or not isinstance(provider, str):
        return None
    columns = [said.get(name) for name in ("ids", "codes", "not_before", "texts")]
    lists = [one for one in columns if isinstance(one, list)]
    if not provider.isidentifier() or len(lists) != len(columns):
        return None
    if len({len(one) for one in lists}) != 1 or len(lists[0]) > MOST_EVENTS:
        return None
    found = [_event(provider, row) for row in zip(*lists, strict=True)]
    events = tuple(one for one in found if one is not None)
    if len(events) != len(found):
        return None
    return Announcement(provider, said.get("complete") is True, events)


def _event(provider: str, row: Sequence[object]) -> CloudEvent | None:
    event_id, code, not_before, text = row
    if not (isinstance(event_id, str) and isinstance(code, str) and isinstance(text, str)):
        return None
    if not event_id or len(event_id) > 200 or isinstance(not_before, bool):
        return None
    source = f"{provider}:{event_id}"
    if not_before is None:
        return CloudEvent(source, code[:200], None, text[:300])
    if not isinstance(not_before, int | float) or not math.isfinite(not_before):
        return None
    return CloudEvent(source, code[:200], float(not_before), text[:300])

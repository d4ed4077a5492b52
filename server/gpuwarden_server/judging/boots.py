"""When a node booted."""

from __future__ import annotations

from gpuwarden_wire.events import Event, EventKind


def booted_at(event: Event) -> float | None:
    """When the node booted, epoch seconds, as a boot event tells; None where it does not."""
    told = event.attributes.get("booted_at") if event.kind is EventKind.NODE_BOOT else None
    return float(told) if isinstance(told, int | float) else None

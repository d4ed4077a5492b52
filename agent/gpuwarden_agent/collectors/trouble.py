"""Events about our own plumbing; never a hardware verdict."""

from __future__ import annotations

import time
from typing import Any

from gpuwarden_wire.events import Event, EventKind


def trouble_event(
    source: str, reason: str, mend: str, boot_id: str, now: float, **facts: Any
) -> Event:
    """A part of the agent does not do its work.

    Args:
        source: Name of the collector, follower or other part.
        reason: Short stable phrase.
        mend: What the operator can do about it, "" where nothing.
        boot_id: The present boot.
        now: Epoch seconds.
        facts: Further attributes.
    """
    return Event(
        id=_own_id(EventKind.COLLECTOR_TROUBLE, boot_id, source),
        kind=EventKind.COLLECTOR_TROUBLE,
        observed_at=now,
        severity="warning",
        text=f"{source}: {reason}. {mend}".strip()[:1000],
        attributes={"source": source, "reason": reason[:200], "mend": mend[:500], **facts},
    )


def recovered_event(source: str, boot_id: str, now: float) -> Event:
    """A part of the agent does its work again."""
    return Event(
        id=_own_id(EventKind.COLLECTOR_RECOVERED, boot_id, source),
        kind=EventKind.COLLECTOR_RECOVERED,
        observed_at=now,
        text=f"{source} works again",
        attributes={"source": source},
    )


def _own_id(kind: EventKind, boot_id: str, source: str) -> str:
    # Since boot, suspend included: rises over restarts of the agent within one boot.
    return f"{kind}:{boot_id}:{source}:{time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000}"

"""Whether the kernel itself wrote a line: a program's words are told, and never an order."""

from __future__ import annotations

from gpuwarden_kernel_log import xid_entry
from gpuwarden_wire.events import Event, EventKind


def origin_proven(event: Event) -> bool:
    """Whether an event is what it says it is.

    Any user can write to syslog or have the kernel quote a text, and only the agent sees the line
    with its wrapper: it says "unproven" (older agents: "relayed" for records of /dev/kmsg that user
    space wrote; else they left "acts_alone" out of a code that acts alone).
    """
    if event.kind is not EventKind.KERNEL_LOG:
        return True
    read = event.attributes
    if read.get("unproven") or read.get("relayed"):
        return False
    entry = xid_entry(event.xid) if event.xid is not None else None
    withheld = "fault_class" in read and not read.get("acts_alone")
    return not (withheld and entry is not None and entry.acts_alone)

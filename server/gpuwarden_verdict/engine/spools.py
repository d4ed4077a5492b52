"""Which spool speaks for a node. Pure.

One spool is live; a second one takes over when the live one was silent for three intervals, and is
refused while it is not: two agents with one name, or a cloned disk. A superseded spool may deliver
its backlog as history.

What remote write brings goes by a spool of its own, DOOR_SPOOL, and an agent's word goes before it:
an agent takes over from the door at once, and the door from an agent that is gone.
"""

from __future__ import annotations

from enum import StrEnum

SILENT_INTERVALS = 3
# Until an agent says its cadence: the agents' own default.
DEFAULT_INTERVAL_S = 5.0
DOOR_SPOOL = "d0" * 16
TOLD_SPOOL = "d1" * 16
"""Of events that neither an agent nor remote write tells; no spool of its own at all."""


class Standing(StrEnum):
    """What a spool may do."""

    LIVE = "live"
    SUPERSEDED = "superseded"


class Claim(StrEnum):
    """What a batch's spool is to its node."""

    LIVE = "live"  # speaks for the node
    FIRST = "first"  # the node's first spool: becomes live
    TAKES_OVER = "takes_over"  # new, and the live one is silent: becomes live
    HISTORY = "history"  # superseded: its events never act
    REFUSED = "refused"  # new, while the live one is not silent: 409 node_claimed


def claim_of(standing: Standing | None, live: bool, silent_s: float, interval_s: float) -> Claim:
    """Judge a batch's spool.

    Args:
        standing: Of this spool, None where it is new.
        live: Whether the node has a live spool.
        silent_s: Seconds since that one was heard of.
        interval_s: Its telemetry cadence, seconds; 0 unknown.
    """
    match standing:
        case Standing.LIVE:
            return Claim.LIVE
        case Standing.SUPERSEDED:
            return Claim.HISTORY
    if not live:
        return Claim.FIRST
    patience_s = SILENT_INTERVALS * (interval_s or DEFAULT_INTERVAL_S)
    return Claim.TAKES_OVER if silent_s >= patience_s else Claim.REFUSED


def standing_beside_door(
    spool_id: str, standing: Standing | None, live_spool: str, newest_agent: str
) -> Standing | None:
    """The standing by which a batch is judged, where agents and the door speak for one node.

    Args:
        spool_id: The batch's spool.
        standing: Its standing, None where it is new.
        live_spool: The spool that speaks for the node, "" none.
        newest_agent: The latest spool of an agent, "" none.

    Returns:
        None, as if it were new, where it may speak again: the door, and the agent's own spool that
        the door has replaced.
    """
    replaced = live_spool == DOOR_SPOOL and spool_id == newest_agent
    return None if spool_id != live_spool and (spool_id == DOOR_SPOOL or replaced) else standing

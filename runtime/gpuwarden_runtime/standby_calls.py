"""Routes of spares as values; see `calls.py`."""

from __future__ import annotations

from gpuwarden_runtime.call import Call, act, get, read_json, segment, write
from gpuwarden_runtime.records import Page
from gpuwarden_runtime.standby_records import Lease, Spare, Standby


def standby() -> Call[Standby]:
    """Spares, leases that hold, and nodes that nobody replaces yet."""
    return get("/v1/standby", Standby)


def standby_leases(limit: int = 100) -> Call[tuple[Lease, ...]]:
    """Leases, newest first, those that ended too."""
    read = read_json(Page[Lease])
    return Call("GET", "/v1/standby/leases", lambda body: read(body).items, {"limit": limit})


def add_standby(
    node_id: str,
    reason: str,
    *,
    pool: str | None = None,
    state: str = "cold",
    proven: bool = False,
) -> Call[Spare]:
    """Let a node stand by, or say how far a spare is.

    Args:
        node_id: The node.
        reason: Why.
        pool: Pool of the policy whose nodes it may replace, None for its own.
        state: cold, warming or warm.
        proven: You vouch for its health as of now.
    """
    body = {"node_id": node_id, "pool": pool, "state": state, "proven": proven, "reason": reason}
    return write("/v1/standby", Spare, body)


def remove_standby(node_id: str, reason: str) -> Call[Spare]:
    """Let a node stand by no more."""
    return act(f"/v1/standby/{segment(node_id)}/remove", Spare, reason)


def promote_standby(
    leaver: str, reason: str, *, joiner: str | None = None, lease_s: float | None = None
) -> Call[Lease]:
    """Lease a spare for a node that is excluded, or whose exclusion waits; that then is in force.

    Args:
        leaver: The node.
        reason: Why.
        joiner: The spare, None for the best.
        lease_s: How long; None as the policy says, 0 until it is released.
    """
    body = {"leaver": leaver, "joiner": joiner, "lease_s": lease_s, "reason": reason}
    return write("/v1/standby/promotions", Lease, body)


def release_standby(node_id: str, keep: str, reason: str) -> Call[Lease]:
    """End a spare's lease; `keep` says who goes on in service: leaver or joiner."""
    body = {"keep": keep, "reason": reason}
    return write(f"/v1/standby/{segment(node_id)}/release", Lease, body)

"""Routes of history, notifications and silences as values; see `calls.py`."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_runtime.call import Call, Cursor, act, get, read_json, rows_of, segment, write
from gpuwarden_runtime.records import Page, RowPage
from gpuwarden_runtime.told_records import (
    AttemptRecord,
    DeliveryRecord,
    EndpointRecord,
    HistoryRecord,
    MessageRecord,
    Replayed,
    SilenceRecord,
)

_TOLD = "/v1/notifications"


def history(
    entity_kind: str,
    metrics: Sequence[str],
    *,
    entity: str | None = None,
    node: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    step_s: int | None = None,
    resolution: str = "auto",
) -> Call[HistoryRecord]:
    """What metrics were: the series of one entity, or of all entities of a kind in a node.

    Args:
        entity_kind: node, gpu, nic, disk or mount.
        metrics: Names.
        entity: A GPU's uuid, a node, or "node/device".
        node: Instead of an entity: all of this node.
        begin: Epoch seconds; None for an hour before `end`.
        end: Epoch seconds; None for now.
        step_s: Length of a step; None lets the server choose by the range.
        resolution: auto, readings, minutes or quarters.
    """
    where = {"entity_kind": entity_kind, "metric": list(metrics), "entity": entity, "node": node}
    query = {**where, "from": begin, "to": end, "step": step_s, "resolution": resolution}
    return get("/v1/history", HistoryRecord, query)


# Notifications and silences


def endpoints() -> Call[tuple[EndpointRecord, ...]]:
    """Who is told of incidents, and how that goes."""
    return Call(
        "GET", f"{_TOLD}/endpoints", lambda body: read_json(Page[EndpointRecord])(body).items
    )


def test_endpoint(name: str) -> Call[tuple[AttemptRecord, ...]]:
    """Send a test to an endpoint now; how it went, by address."""
    path = f"{_TOLD}/endpoints/{segment(name)}/test"
    read = read_json(Page[AttemptRecord])
    return Call("POST", path, lambda body: read(body).items, writes=True)


def enable_endpoint(name: str, reason: str) -> Call[EndpointRecord]:
    """Send again to an endpoint that was disabled."""
    return act(f"{_TOLD}/endpoints/{segment(name)}/enable", EndpointRecord, reason)


def replay_messages(name: str, reason: str, *, message_id: str | None = None) -> Call[Replayed]:
    """Tell an endpoint anew what was given up: one message, or all."""
    body = {"reason": reason, "message_id": message_id}
    return write(f"{_TOLD}/endpoints/{segment(name)}/replay", Replayed, body)


def messages(
    endpoint: str | None = None,
    phase: str | None = None,
    cursor: Cursor = None,
    limit: int = 1000,
) -> Call[Page[MessageRecord]]:
    """One page of notifications in order; `phase` is waiting, delivered or given_up."""
    query = {"endpoint": endpoint, "phase": phase, "after": cursor or 0, "limit": limit}
    read = rows_of(RowPage[MessageRecord], limit)
    return Call("GET", f"{_TOLD}/messages", read, query)


def deliveries(
    endpoint: str | None = None,
    message_id: str | None = None,
    cursor: Cursor = None,
    limit: int = 1000,
) -> Call[Page[DeliveryRecord]]:
    """One page of the delivery log, in order: every attempt."""
    query = {"endpoint": endpoint, "message_id": message_id, "after": cursor or 0, "limit": limit}
    read = rows_of(RowPage[DeliveryRecord], limit)
    return Call("GET", f"{_TOLD}/deliveries", read, query)


def silences(*, active: bool = True, limit: int = 1000) -> Call[tuple[SilenceRecord, ...]]:
    """Silences and maintenance windows, those that end last first.

    Args:
        active: Only those that hold or will.
        limit: At most so many.
    """
    query = {"active": active, "limit": limit}
    read = read_json(Page[SilenceRecord])
    return Call("GET", "/v1/silences", lambda body: read(body).items, query)


def create_silence(
    matchers: Sequence[str],
    duration_s: float,
    reason: str,
    *,
    kind: str = "silence",
    starts_at: float | None = None,
) -> Call[SilenceRecord]:
    """Tell nobody what matches, for a while.

    Args:
        matchers: LABEL=PATTERN or LABEL!=PATTERN; all must hold.
        duration_s: How long.
        reason: For those who wonder.
        kind: silence or maintenance.
        starts_at: Epoch seconds, None for now.
    """
    body = {"kind": kind, "matchers": list(matchers), "duration_s": duration_s, "reason": reason}
    return write("/v1/silences", SilenceRecord, body | {"starts_at": starts_at})


def expire_silence(silence_id: str, reason: str) -> Call[SilenceRecord]:
    """End a silence now."""
    return act(f"/v1/silences/{segment(silence_id)}/expire", SilenceRecord, reason)

"""What the routes of history, notifications, silences and streams tell, as typed values."""

from __future__ import annotations

import msgspec


class IncidentMove(msgspec.Struct, frozen=True, kw_only=True):
    """An incident moved.

    Attributes:
        row: Rises with each move of any incident.
        before: Phase before, None where it opened.
        after: Phase after; the same where only its evidence or its node's name changed.
        at: Epoch seconds.
    """

    row: int
    incident_id: str
    entity_kind: str
    entity: str
    node_id: str
    before: str | None = None
    after: str
    fault_class: str = ""
    severity: str = ""
    reason: str = ""
    author: str = ""
    at: float = 0.0


class StateMove(msgspec.Struct, frozen=True, kw_only=True):
    """A node or GPU came into another state.

    Attributes:
        row: Rises with each move of any entity.
        at: Epoch seconds.
    """

    row: int
    entity_kind: str
    entity: str
    node_id: str
    before: str
    after: str
    reason: str = ""
    author: str = ""
    at: float = 0.0


class GapRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Places of the times, both ends included, where a series has no number.

    Attributes:
        kind: not_supported, unavailable, stale or nothing_received.
        reason: The agent's words, "" for none.
    """

    first: int
    last: int
    kind: str
    reason: str = ""


class SeriesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one entity; each list is as long as the times, None where there is no number.

    Attributes:
        value: Readings as they were; None in roll-ups.
        min: Of gauges and states, as mean and max.
        last: Last number of each step.
        increase: Growth of a counter in each step, resets guarded.
    """

    entity: str
    node_id: str
    metric: str
    unit: str = ""
    kind: str = ""
    value: tuple[float | None, ...] | None = None
    min: tuple[float | None, ...] | None = None
    mean: tuple[float | None, ...] | None = None
    max: tuple[float | None, ...] | None = None
    last: tuple[float | None, ...] | None = None
    increase: tuple[float | None, ...] | None = None
    gaps: tuple[GapRecord, ...] = ()


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Series on one grid of times.

    Attributes:
        resolution: readings, minutes or quarters.
        step_s: Length of a step, None where these are readings.
        times: Epoch seconds: where each step begins.
    """

    resolution: str
    step_s: int | None = None
    times: tuple[float, ...] = ()
    series: tuple[SeriesRecord, ...] = ()


class LaneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One address of an endpoint.

    Attributes:
        failing_since: Epoch seconds since the last success, None while it works.
        disabled_at: Epoch seconds, None where it is not disabled.
    """

    lane: str
    waiting: int = 0
    given_up: int = 0
    failing_since: float | None = None
    disabled_at: float | None = None
    disabled_why: str = ""


class EndpointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of incidents; never where or with what secret."""

    name: str
    kind: str = ""
    severity: str = ""
    pools: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    lanes: tuple[LaneRecord, ...] = ()


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a test went at one address."""

    lane: str
    at: float = 0.0
    duration_s: float = 0.0
    delivered: bool = False
    http_status: int | None = None
    error: str = ""


class MessageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A notification on its way, or at its end; `phase` is waiting, delivered or given_up."""

    row: int
    lane: str
    message_id: str
    sequence: int = 0
    kind: str = ""
    subject: str = ""
    created_at: float = 0.0
    since: float = 0.0
    phase: str = ""
    attempts: int = 0
    refusals: int = 0
    next_attempt_at: float = 0.0
    error: str = ""


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a notification."""

    row: int
    lane: str
    message_id: str
    attempt: int = 0
    at: float = 0.0
    duration_s: float = 0.0
    http_status: int | None = None
    error: str = ""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many notifications wait anew."""

    replayed: int


class SilenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which what matches is not told.

    Attributes:
        kind: silence or maintenance.
        phase: pending, active or ended.
        matchers: LABEL=PATTERN or LABEL!=PATTERN; all must hold.
        expired_at: When a person ended it early, None else.
    """

    id: str
    kind: str = ""
    phase: str = ""
    matchers: tuple[str, ...] = ()
    starts_at: float = 0.0
    ends_at: float = 0.0
    reason: str = ""
    author: str = ""
    created_at: float = 0.0
    expired_at: float | None = None
    expired_by: str | None = None

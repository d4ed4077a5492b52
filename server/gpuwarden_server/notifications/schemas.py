"""What the routes of notifications take and give."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.notifications.domain import Attempt
from gpuwarden_server.notifications.quiet.domain import LONGEST_S, Silence, SilenceKind


class LaneView(BaseModel):
    """One address of an endpoint, as it goes."""

    lane: str
    waiting: int
    given_up: int
    failing_since: float | None
    disabled_at: float | None
    disabled_why: str


class EndpointView(BaseModel):
    """An endpoint, without address and secrets: both may hold tokens."""

    name: str
    kind: str
    severity: str
    pools: list[str]
    labels: dict[str, str]
    lanes: list[LaneView]


class EndpointListView(BaseModel):
    """All endpoints, in the order of the file."""

    items: list[EndpointView]


class AttemptView(BaseModel):
    """How a test went."""

    lane: str
    at: float
    duration_s: float
    delivered: bool
    http_status: int | None
    error: str


class TestView(BaseModel):
    """How a test went, by address."""

    items: list[AttemptView]


class MessageView(BaseModel):
    """A message on its way, or at its end."""

    row: int
    lane: str
    message_id: str
    sequence: int
    kind: str
    subject: str
    created_at: float
    since: float
    phase: str
    attempts: int
    refusals: int
    next_attempt_at: float
    error: str


class MessagePage(BaseModel):
    """A page of messages, oldest first; pass `next_after` as `after` for the next."""

    items: list[MessageView]
    next_after: int


class DeliveryView(BaseModel):
    """One attempt."""

    row: int
    lane: str
    message_id: str
    attempt: int
    at: float
    duration_s: float
    http_status: int | None
    error: str


class DeliveryPage(BaseModel):
    """A page of the delivery log, oldest first; pass `next_after` as `after` for the next."""

    items: list[DeliveryView]
    next_after: int


class ReplayBody(Body):
    """Which messages that were given up are told anew."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "the receiver is back"}]}
    )

    message_id: str | None = Field(None, max_length=160, description="none: all of the endpoint")
    reason: str = Field(min_length=1, max_length=1000)


class ReplayView(BaseModel):
    """How many wait anew."""

    replayed: int


_Matcher = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(!?=|!~)[^\s\u0085\ufeff].*$",
        max_length=65_536,
        examples=["rack=r12"],
    ),
]


class SilenceBody(Body):
    """A silence to make."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "kind": "maintenance",
                    "matchers": ["rack=r12"],
                    "duration_s": 7200,
                    "reason": "new switches",
                }
            ]
        },
    )

    kind: SilenceKind = SilenceKind.SILENCE
    matchers: list[_Matcher] = Field(
        min_length=1,
        max_length=20,
        description="LABEL=PATTERN, LABEL!=PATTERN, LABEL=~REGEX, LABEL!~REGEX; all must hold",
    )
    starts_at: float | None = Field(None, description="epoch seconds; none: now")
    duration_s: float = Field(gt=0, le=LONGEST_S)
    reason: str = Field(min_length=1, max_length=1000)


class SilenceView(BaseModel):
    """A silence."""

    id: str
    kind: SilenceKind
    phase: Literal["pending", "active", "ended"]
    matchers: list[str]
    starts_at: float
    ends_at: float
    reason: str
    author: str
    created_at: float
    expired_at: float | None
    expired_by: str | None


class SilenceListView(BaseModel):
    """Silences, those that end last first."""

    items: list[SilenceView]


def silence_view(silence: Silence, now: float) -> SilenceView:
    """A silence as it is shown at `now`."""
    phase: Literal["pending", "active", "ended"] = "ended"
    if silence.active(now):
        phase = "active"
    elif silence.expired_at is None and now < silence.starts_at:
        phase = "pending"
    return SilenceView(
        id=silence.id,
        kind=silence.kind,
        phase=phase,
        matchers=[str(one) for one in silence.matchers],
        starts_at=silence.starts_at,
        ends_at=silence.ends_at,
        reason=silence.reason,
        author=silence.author,
        created_at=silence.created_at,
        expired_at=silence.expired_at,
        expired_by=silence.expired_by,
    )


def attempt_view(lane: str, attempt: Attempt) -> AttemptView:
    """How an attempt went."""
    return AttemptView(
        lane=lane,
        at=attempt.at,
        duration_s=attempt.duration_s,
        delivered=attempt.delivery.delivered,
        http_status=attempt.delivery.http_status,
        error=attempt.delivery.error,
    )

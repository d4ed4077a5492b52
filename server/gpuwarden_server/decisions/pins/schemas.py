"""JSON forms of pins and planned leaves."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.bodies import Body
from gpuwarden_verdict.policy.document import Pin, PinKind

LONGEST_S = 90 * 86_400.0
LONGEST_PIN_S = 3650 * 86_400.0
FARTHEST_LEAVE_S = 400 * 86_400.0
"""A leave is planned at most so far ahead: what is farther is milliseconds, or a slip."""
_REASON = Field(min_length=1, max_length=1000, description="Kept in history and audit.")


class PinBody(Body):
    """A person's standing word about a node or GPU."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "entity_kind": "node",
                    "entity": "gpu-017",
                    "kind": "exclude",
                    "duration_s": 7200,
                    "reason": "smells burnt",
                }
            ]
        },
    )

    entity_kind: Literal["node", "gpu"]
    entity: str = Field(min_length=1, max_length=255)
    kind: PinKind = Field(description="exclude keeps it out, allow keeps it in")
    duration_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_PIN_S,
        allow_inf_nan=False,
        description="seconds; null: until a person ends it",
    )
    reason: str = _REASON


class LeaveBody(Body):
    """Nodes that will leave at a time."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "nodes": ["gpu-017"],
                    "at": 1764500000.0,
                    "duration_s": 7200,
                    "reason": "new riser",
                }
            ]
        },
    )

    nodes: list[str] = Field(min_length=1, max_length=1000)
    at: float = Field(
        ge=0,
        allow_inf_nan=False,
        description="epoch seconds, at most 400 days ahead; what has passed is now",
    )
    duration_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_S,
        allow_inf_nan=False,
        description="seconds; null: until a person ends it",
    )
    check: bool | None = Field(
        default=None,
        description="return over a passed check only; null: as the policy of the pool says",
    )
    reason: str = _REASON


class PinView(BaseModel):
    """A pin or planned leave that holds or will."""

    id: str
    entity_kind: str
    entity: str
    node_id: str
    kind: PinKind
    leave: bool = Field(description="told ahead of its time, with a maintenance window")
    by: str
    reason: str
    set_at: float
    starts_at: float | None
    expires_at: float | None
    check: bool


class PinList(BaseModel):
    """Pins and planned leaves, the newest first."""

    items: list[PinView]


def pin_view(pin: Pin) -> PinView:
    """The JSON form of a pin."""
    return PinView(
        id=pin.id,
        entity_kind=pin.entity.kind.value,
        entity=pin.entity.key,
        node_id=pin.entity.node_id,
        kind=pin.kind,
        leave=pin.leave,
        by=pin.by,
        reason=pin.reason,
        set_at=pin.set_at,
        starts_at=pin.starts_at,
        expires_at=pin.expires_at,
        check=pin.check,
    )

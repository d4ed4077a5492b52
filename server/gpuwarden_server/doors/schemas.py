"""What the JSON doors take and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.ids import NODE_ID_PATTERN
from gpuwarden_server.doors.outside import Condition
from gpuwarden_verdict.entities import FaultClass

MAX_ITEMS = 1_000
_Text = Annotated[str, StringConstraints(max_length=1000)]
_Name = Annotated[str, StringConstraints(max_length=200)]
_Labels = dict[_Name, str]


class AlertBody(Body):
    """One alert of Alertmanager's webhook."""

    model_config = ConfigDict(extra="ignore")

    status: Literal["firing", "resolved"]
    labels: _Labels = Field(
        default_factory=dict,
        examples=[{"alertname": "GpuHot", "severity": "warning", "node": "gpu-017", "gpu": "3"}],
    )
    annotations: dict[_Name, str] = Field(default_factory=dict)
    startsAt: AwareDatetime = Field(examples=["2026-11-30T09:00:00Z"])
    endsAt: datetime | None = Field(default=None, examples=["0001-01-01T00:00:00Z"])
    generatorURL: str = ""
    fingerprint: _Name = Field(default="", examples=["1a2b3c4d5e6f7081"])


class AlertsBody(Body):
    """Alertmanager's webhook, version 4."""

    model_config = ConfigDict(extra="ignore")

    version: Literal["4"] = "4"
    receiver: str = ""
    groupKey: str = ""
    truncatedAlerts: int = Field(default=0, description="left out by max_alerts of the receiver")
    alerts: list[AlertBody] = Field(max_length=MAX_ITEMS)


class EventBody(Body):
    """One event."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(min_length=1, max_length=40)] = Field(
        description="what was looked at: its ok clears what the same name said, and nothing else",
        examples=["dcgm_diag_r2"],
    )
    state: Condition = Field(description="info is put on record and is no evidence")
    node: Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)] | None = Field(
        default=None, description="may be left out where gpu_uuid names a GPU that was seen"
    )
    gpu_uuid: _Name | None = None
    pci_bus_id: _Name | None = Field(default=None, examples=["0000:3b:00.0"])
    gpu_index: int | None = Field(default=None, ge=0, le=1024)
    nic: _Name | None = Field(default=None, examples=["mlx5_0/1"])
    disk: _Name | None = Field(default=None, examples=["nvme0n1"])
    mount: _Name | None = Field(default=None, examples=["/scratch"])
    text: _Text = ""
    observed_at: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="epoch seconds; none: now"
    )
    id: _Name | None = Field(
        default=None,
        description="names the fact, so that sending it again changes nothing; none: made from "
        "what is said, which needs observed_at",
    )
    fault_class: FaultClass | None = None
    proves_repair: bool = Field(
        default=False, description="ok ends a repair; for keys of role operator and admin"
    )


class JobEndBody(Body):
    """How a job ended."""

    model_config = ConfigDict(extra="forbid")

    job: Annotated[
        str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\s\u0085\ufeff]+$")
    ] = Field(
        description="KIND:ID with KIND slurm, kubernetes or torchrun; an id alone where a job of "
        "that id was seen to run",
        examples=["slurm:4711"],
    )
    state: Annotated[str, StringConstraints(min_length=1, max_length=40)] = Field(
        description="in the words of Slurm or Kubernetes", examples=["FAILED"]
    )
    exit_code: int | None = Field(default=None, ge=-255, le=65_535)
    user: _Name = Field(default="", description="whose it was: bad ends of several users weigh")
    nodes: list[Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]] = Field(
        default_factory=list,
        max_length=10_000,
        description="where it ran; none: where the inventories saw it",
    )
    ended_at: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="epoch seconds; none: now"
    )


class EventsBody(Body):
    """One event or many, ends of jobs beside them."""

    model_config = ConfigDict(extra="forbid")

    events: list[EventBody] = Field(default_factory=list, min_length=1, max_length=MAX_ITEMS)
    job_ends: list[JobEndBody] = Field(
        default_factory=list, min_length=1, max_length=MAX_ITEMS, description="how jobs ended"
    )


class ItemView(BaseModel):
    """What became of one item."""

    index: int = Field(description="place in what was sent, from 0; job_ends come after events")
    outcome: Literal["stored", "duplicate", "refused"]
    event_id: str | None = None
    node_id: str | None = None
    code: str | None = Field(default=None, description="why it was refused")
    detail: str = ""
    mend: str = ""


class ItemsView(BaseModel):
    """What became of each item: the others are stored where one is refused."""

    stored: int
    duplicates: int
    refused: int
    items: list[ItemView]

    @classmethod
    def of(cls, items: list[ItemView]) -> ItemsView:
        """The answer about these."""
        counts: dict[str, Any] = dict.fromkeys(("stored", "duplicate", "refused"), 0)
        for item in items:
            counts[item.outcome] += 1
        return cls(
            stored=counts["stored"],
            duplicates=counts["duplicate"],
            refused=counts["refused"],
            items=items,
        )

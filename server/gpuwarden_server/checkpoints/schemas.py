"""Checkpoints as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_verdict.diagnosis.saves import Save, SaveProfile, profile_of


class CheckpointView(BaseModel):
    """One checkpoint on one mount."""

    model_config = ConfigDict(from_attributes=True)

    job: str
    mount: str = Field(description="mount point, or local disks")
    begin: float = Field(description="epoch seconds")
    end: float
    duration_s: float
    nodes: int = Field(description="that wrote")
    size_bytes: float
    bytes_per_second: float
    request_s: float | None = Field(description="what a request took; null: not read")
    queue_share: float | None = Field(description="of a request, the wait in the client")
    round_trip_share: float | None = Field(description="of a request, network and server")
    rest_share: float | None = Field(description="of a request, the client itself")
    lost_s: float | None = Field(description="time that the job lost; null: not known")


class CheckpointProfileView(BaseModel):
    """A job's checkpoints on one mount; medians where not said."""

    model_config = ConfigDict(from_attributes=True)

    job: str
    mount: str
    count: int
    size_bytes: float
    duration_s: float
    best_bytes_per_second: float = Field(description="of the quickest")
    latest_of_best: float = Field(description="throughput of the latest against the best, 0..1")
    queue_share: float | None
    round_trip_share: float | None
    rest_share: float | None
    lost_s: float = Field(description="time that the job lost, in all")
    trend_per_week: float | None = Field(
        description="change of throughput a week as a share; null before six over three days"
    )


class CheckpointsView(BaseModel):
    """Checkpoints, newest first, and what they come to by job and mount."""

    profiles: list[CheckpointProfileView]
    items: list[CheckpointView]
    left_out: bool = Field(description="there are more; ask for a shorter time")


def checkpoints_view(saves: Sequence[Save], limit: int) -> CheckpointsView:
    """As JSON.

    Args:
        saves: Newest first.
        limit: How many are shown at most.
    """
    shown = saves[:limit]
    groups: dict[tuple[str, str], list[Save]] = {}
    for one in reversed(shown):
        groups.setdefault((one.job, one.mount), []).append(one)
    return CheckpointsView(
        profiles=[_profile(profile_of(own)) for _, own in sorted(groups.items())],
        items=[CheckpointView.model_validate(one) for one in shown],
        left_out=len(saves) > limit,
    )


def _profile(profile: SaveProfile) -> CheckpointProfileView:
    return CheckpointProfileView.model_validate(profile)

"""A job's loss that is not finite, or that jumps: a reason to look, never a verdict.

A bad learning rate does it far more often than a GPU that computes wrong numbers. It is told with
the rank, so that the same rank's part is found when it comes again in another job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.events import Event, EventKind

LEAST_PAST = 16
"""Losses that must have been told before one is said to jump."""
KEPT = 64
SPIKE_SPREADS = 12.0
"""Distances of the usual kind above the median, from which a loss jumps."""
SPIKE_RATIO = 2.0
"""And how far above it in any case: late in a training losses hardly differ."""


class LossFault(StrEnum):
    """What is odd about a loss."""

    NOT_FINITE = "not_finite"
    SPIKE = "spike"


@dataclass(frozen=True, slots=True)
class JobLoss:
    """An odd loss.

    Attributes:
        job: "KIND:ID".
        fault: What is odd.
        step: At which step of the training.
        rank: Of the process that told it, None where it did not say.
        loss: As it was told: "nan", "inf", "-inf" or a number.
        usual: Median of the losses before, None where not known.
        at: Epoch seconds.
    """

    job: str
    fault: LossFault
    step: int
    rank: int | None
    loss: str
    usual: float | None
    at: float

    @property
    def words(self) -> str:
        """Such as "loss nan at step 1200 on rank 17 of slurm:4711"."""
        rank = "" if self.rank is None else f" on rank {self.rank}"
        usual = "" if self.usual is None else f", {self.usual:.4g} before"
        return f"loss {self.loss} at step {self.step}{rank} of {self.job}{usual}"


def odd_loss(past: Sequence[float], loss: float) -> tuple[LossFault, float | None] | None:
    """What is odd about a loss, and the usual one; None where nothing is.

    Args:
        past: Finite losses before it, at most KEPT are worth giving.
        loss: The loss.
    """
    usual = median(past) if past else None
    if not math.isfinite(loss):
        return LossFault.NOT_FINITE, usual
    if usual is None or len(past) < LEAST_PAST:
        return None
    spread = median(abs(one - usual) for one in past)
    limit = usual + max(SPIKE_SPREADS * spread, (SPIKE_RATIO - 1.0) * abs(usual))
    return (LossFault.SPIKE, usual) if loss > limit else None


def loss_event(event_id: str, told: JobLoss, ref: EntityRef) -> Event:
    """The event by which it is told of the GPU or node that the rank ran on.

    Args:
        event_id: Natural id.
        told: What is odd.
        ref: The GPU or node.
    """
    return Event(
        id=event_id,
        kind=EventKind.JOB_LOSS,
        observed_at=told.at,
        entity_kind=ref.kind,
        entity=ref.key,
        text=told.words,
        attributes={
            "job": told.job,
            "fault": told.fault.value,
            "step": told.step,
            "rank": told.rank,
            "loss": told.loss,
            "usual": told.usual,
        },
    )


def told_loss(event: Event) -> JobLoss | None:
    """What a JOB_LOSS event says; None for any other, and for one that says nothing."""
    said = event.attributes
    job, fault, step, rank, usual = (
        said.get(name) for name in ("job", "fault", "step", "rank", "usual")
    )
    if event.kind is not EventKind.JOB_LOSS or not isinstance(job, str):
        return None
    if fault not in tuple(LossFault):
        return None
    return JobLoss(
        job,
        LossFault(str(fault)),
        step if isinstance(step, int) else 0,
        rank if isinstance(rank, int) else None,
        str(said.get("loss", "")),
        float(usual) if isinstance(usual, float | int) else None,
        event.observed_at,
    )

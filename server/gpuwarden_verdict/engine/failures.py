"""What could not be judged, and who is told of it."""

from __future__ import annotations

from dataclasses import dataclass

SWEEP_STAGE = "sweep"
"""Stage of what a sweep is made of: a detector, the score, the search for common causes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One event, entity or part of a sweep that could not be judged; the others are.

    Attributes:
        stage: "detect", "reassess" or "sweep".
        entity: Key of the entity that it was about; of a sweep, name of the detector or part.
        event_id: The event, "" where it was none.
        error: What was raised.
    """

    stage: str
    entity: str
    event_id: str
    error: Exception


def raise_failure(failure: Failure) -> None:
    """Where nobody must go on without it."""
    raise failure.error

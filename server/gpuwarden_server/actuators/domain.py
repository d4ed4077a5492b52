"""A step outside as it is stored: begun before it, ended after what was read back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.actuation import Act, Hold


class Phase(StrEnum):
    """How far a step came."""

    ASKED = "asked"  # a person asked for it, and its turn has not come
    BEGUN = "begun"  # written before the first byte goes out
    DONE = "done"  # read back as wanted
    FAILED = "failed"  # the consumer refused, or shows something else; tried again
    LOST = "lost"  # the server ended in between, and the consumer shows nothing of it
    DRY_RUN = "dry_run"  # would have been done


@dataclass(frozen=True, slots=True)
class Actuation:
    """One step at one node.

    Attributes:
        row: Number, rising.
        actuator: Whose.
        node_id: The node.
        act: What.
        phase: How far it came.
        decisions: For which decisions.
        jobs: That were to leave.
        reason: In words.
        before: How the consumer held the node.
        after: As read back, None before.
        detail: What went wrong, or what was read back.
        begun_at: Epoch seconds.
        ended_at: Epoch seconds, None while it is under way.
    """

    row: int
    actuator: str
    node_id: str
    act: Act
    phase: Phase
    decisions: tuple[str, ...]
    jobs: tuple[str, ...]
    reason: str
    before: Hold
    after: Hold | None
    detail: str
    begun_at: float
    ended_at: float | None

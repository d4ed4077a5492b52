"""Entity states: one table of triggers, checked against TRANSITIONS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import EntityState
from gpuwarden_verdict.policy.document import Decision


class Trigger(StrEnum):
    """What can move an entity's state."""

    SUSPECTED = "suspected"
    CLEARED = "cleared"
    EXCLUDED = "excluded"
    DRAIN_ASKED = "drain_asked"
    LIFTED = "lifted"
    REVOKED = "revoked"
    REPAIR_BEGUN = "repair_begun"
    CHECK_PASSED = "check_passed"
    PROBATION_OVER = "probation_over"


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """State of an entity and since when (epoch seconds)."""

    state: EntityState
    since: float


def next_state(state: EntityState, trigger: Trigger) -> EntityState:
    """The state after a trigger; the same where the trigger means nothing there."""
    raise NotImplementedError


def judge_state(
    record: EntityRecord, decisions: Sequence[Decision], now: float, dwell_s: float
) -> EntityRecord:
    """The record after looking at the entity's decisions (terminal ones of now included)."""
    raise NotImplementedError

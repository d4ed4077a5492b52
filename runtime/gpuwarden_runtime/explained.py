"""What a server says of a learnt score: its lines, what leads, and what it would be without."""

from __future__ import annotations

import msgspec


class LineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an explanation's sum: intercept, calibration, a plane, veto or rule_floor."""

    name: str
    log_odds: float
    sentence: str = ""


class LeadingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that moves the score much; `value` is None where it is missing."""

    feature: str
    log_odds: float
    plane: str = ""
    value: float | None = None
    sentence: str = ""
    said: str = ""


class WithoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The score with one feature as on healthy entities; left out where `healthy` is None."""

    feature: str
    probability: float
    healthy: float | None = None
    sentence: str = ""


class ExplanationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The learnt score explained; `lines` sum to `log_odds`."""

    probability: float
    log_odds: float
    lines: tuple[LineRecord, ...] = ()
    leading: tuple[LeadingRecord, ...] = ()
    without: tuple[WithoutRecord, ...] = ()

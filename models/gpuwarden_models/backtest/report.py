"""What a backtest answers, and its JSON form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from gpuwarden_models.backtest.blind import BlindPlane
from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.scores import LabelOutcome, Rate, Scores
from gpuwarden_verdict.entities import Rung


@dataclass(frozen=True, slots=True)
class Played:
    """What was played.

    Attributes:
        source: Where it came from.
        start: Epoch seconds.
        end: Epoch seconds.
        interval_s: Time between frames.
        frames: Number of frames.
        nodes: Number of nodes.
        gpus: Number of GPUs.
        events: Events judged: kernel lines, boots, changes of inventory.
        cpu_s: Processor time, seconds.
    """

    source: str
    start: float
    end: float
    interval_s: float
    frames: int
    nodes: int
    gpus: int
    events: int
    cpu_s: float

    @property
    def gpu_days(self) -> float:
        """GPUs times days."""
        return self.gpus * (self.end - self.start) / 86400.0


@dataclass(frozen=True, slots=True)
class Report:
    """The answer.

    Attributes:
        played: What was played.
        model_version: Of the learnt scores, "" for rules alone.
        policy_version: Of the rules.
        flags: Earliest first.
        blind: Planes without any reading.
        scores: None without labels.
        gpus: UUIDs of the GPUs.
        exclude_confidence: The highest confidence from which any pool of the fleet excluded.
    """

    played: Played
    model_version: str
    policy_version: str
    flags: tuple[Flag, ...]
    blind: tuple[BlindPlane, ...]
    scores: Scores | None
    gpus: tuple[str, ...] = ()
    exclude_confidence: float = 1.0

    def alarms_a_day(self) -> dict[str, dict[str, int]]:
        """Flags by the UTC day on which they began, and by rung; days without one are there."""
        days: dict[str, Counter[str]] = {}
        at = self.played.start
        while at <= self.played.end:
            days[_day(at)] = Counter()
            at += 86400.0
        for flag in self.flags:
            days.setdefault(_day(flag.first_flagged_at), Counter())[word(flag.rung)] += 1
        return {day: dict(counts) for day, counts in sorted(days.items())}

    def by_class(self) -> dict[str, dict[str, int]]:
        """Flags by fault class and rung."""
        found: dict[str, Counter[str]] = {}
        for flag in self.flags:
            found.setdefault(flag.fault_class.value, Counter())[word(flag.rung)] += 1
        return {name: dict(counts) for name, counts in sorted(found.items())}

    def form(self) -> dict[str, Any]:
        """As JSON; without scores where there are no labels."""
        form: dict[str, Any] = {
            "recording": {**asdict(self.played), "gpu_days": self.played.gpu_days},
            "model": {"version": self.model_version or None, "gate": "open"},
            "policy": {
                "version": self.policy_version,
                "mode": "act",
                "exclude_confidence": self.exclude_confidence,
            },
            "flags": [_flag_form(flag) for flag in self.flags],
            "blind_planes": [one.plane for one in self.blind],
            "blind_planes_why": {one.plane: f"{one.why}: {one.mend}" for one in self.blind},
            "alarms_a_day": self.alarms_a_day(),
            "by_class": self.by_class(),
        }
        if self.scores is not None:
            form["scores"] = scores_form(self.scores)
        return form


def word(rung: Rung) -> str:
    """The rung as it is written."""
    return rung.name.lower()


def count_rungs(flags: Sequence[Flag], least: Rung) -> int:
    """Flags of a rung or higher."""
    return sum(flag.rung >= least for flag in flags)


def scores_form(scores: Scores) -> dict[str, Any]:
    """Scores as JSON; what cannot be told is null."""
    return {
        "recall": _finite(scores.recall),
        "stood_before": scores.stood_before,
        "false_alarms": _rate_form(scores.false_alarms),
        "false_exclusions": _rate_form(scores.false_exclusions),
        "confounders": scores.confounders,
        "confounders_excluded": scores.confounders_excluded,
        "confounders_flagged": scores.confounders_flagged,
        "labels_outside": scores.not_judged,
        "by_class": {name: asdict(one) for name, one in scores.by_class.items()},
        "labels": [_outcome_form(one) for one in scores.outcomes],
    }


def _flag_form(flag: Flag) -> dict[str, Any]:
    return {
        "entity_kind": flag.name.kind,
        "entity": flag.name.entity,
        "node": flag.name.node,
        "fault_class": flag.fault_class.value,
        "risk": round(flag.risk, 4),
        "rung": word(flag.rung),
        "rung_gated": word(flag.rung_gated),
        "first_flagged_at": flag.first_flagged_at,
        "first_excluded_at": flag.first_excluded_at,
        "last_flagged_at": flag.last_flagged_at,
        "held_back": flag.held_back,
        "reasons": list(flag.reasons),
    }


def _outcome_form(one: LabelOutcome) -> dict[str, Any]:
    return {
        "entity_kind": one.label.entity_kind,
        "entity": one.label.entity,
        "fault_class": one.label.fault_class.value,
        "start": one.label.start,
        "end": _finite(one.label.end),
        "flagged_at": one.flagged_at,
        "excluded_at": one.excluded_at,
        "lead_s": one.lead_s,
        "by": one.by,
        "stood_before": one.stood_before,
    }


def _rate_form(rate: Rate) -> dict[str, Any]:
    return {
        "count": rate.count,
        "gpu_days": rate.days,
        "a_gpu_day": _finite(rate.a_day),
        "a_gpu_day_below_95": _finite(rate.bound_a_day),
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")

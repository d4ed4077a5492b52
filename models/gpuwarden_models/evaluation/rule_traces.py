"""Rule sets on a recording, and which of their rules a budget allows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf

from gpuwarden_models.backtest.flags import QUIET_S
from gpuwarden_models.backtest.naming import Name
from gpuwarden_models.evaluation.ground import DAY_S, Ground, Incident
from gpuwarden_models.evaluation.rules.contract import Fired
from gpuwarden_models.evaluation.traces import IncidentTrace, Trace

REPEAT_S = 900.0
"""The same rule for the same entity again within this time is not kept."""


@dataclass(frozen=True, slots=True)
class RuleIncident:
    """One incident, and when each rule first fired for it.

    Attributes:
        incident: The incident.
        first: Epoch seconds of the first time that it fired afresh, by rule.
    """

    incident: Incident
    first: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A rule set on one recording.

    Attributes:
        incidents: All of them.
        false: Rules that fired without a fault, of each entity and day.
        fleet_days: Days at risk of 500 healthy GPUs.
    """

    incidents: tuple[RuleIncident, ...]
    false: tuple[tuple[str, ...], ...]
    fleet_days: float


class Firings:
    """What a rule set said, without its repetitions."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._last: dict[tuple[Name, str], float] = {}
        self.kept: list[Fired] = []

    def add(self, fired: Sequence[Fired]) -> None:
        """Take what fired at a frame."""
        for one in fired:
            key = one.name, one.rule
            if one.at - self._last.get(key, float("-inf")) >= REPEAT_S:
                self._last[key] = one.at
                self.kept.append(one)


def trace_rules(ground: Ground, fired: Sequence[Fired]) -> RuleTrace:
    """Hold what fired against the truth."""
    numbers = {(name.kind, name.entity): place for place, name in enumerate(ground.names)}
    by_entity: dict[int, list[Fired]] = defaultdict(list)
    false: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in fired:
        number = numbers.get((one.name.kind, one.name.entity))
        if number is None:
            continue
        by_entity[number].append(one)
        if not ground.is_right(number, one.at):
            false[number, int((one.at - ground.start) // DAY_S)].add(one.rule)
    incidents = tuple(
        RuleIncident(incident, _first(incident, [by_entity.get(n, []) for n in sorted(concerned)]))
        for incident, concerned in zip(ground.incidents, ground.concerned, strict=True)
    )
    kept = tuple(tuple(sorted(rules)) for _, rules in sorted(false.items()))
    return RuleTrace(incidents, kept, ground.healthy_fleet_days)


def _first(incident: Incident, fired: Sequence[Sequence[Fired]]) -> dict[str, float]:
    first: dict[str, float] = {}
    for some in fired:
        last: dict[str, float] = {}
        for one in some:
            is_fresh = one.at - last.get(one.rule, -inf) > QUIET_S
            if is_fresh and incident.precursor_start <= one.at < incident.end:
                first[one.rule] = min(one.at, first.get(one.rule, one.at))
            last[one.rule] = one.at
    return first


def choose_rules(traces: Sequence[RuleTrace], budget: float) -> frozenset[str]:
    """Rules that a budget allows: those that find most for a false alarm first.

    Args:
        traces: Recordings kept for tuning.
        budget: False alarms a day on 500 GPUs.
    """
    allowed = floor(budget * sum(one.fleet_days for one in traces) + 1e-9)
    finds = Counter(rule for trace in traces for one in trace.incidents for rule in one.first)
    wrong = Counter(rule for trace in traces for rules in trace.false for rule in rules)
    chosen: set[str] = set()
    spent = 0
    for rule in sorted(finds, key=lambda rule: (wrong[rule] / finds[rule], -finds[rule], rule)):
        more = sum(
            rule in rules and not chosen.intersection(rules)
            for trace in traces
            for rules in trace.false
        )
        if spent + more <= allowed:
            chosen.add(rule)
            spent += more
    return frozenset(chosen)


def as_trace(trace: RuleTrace, chosen: frozenset[str]) -> Trace:
    """A rule set with the chosen rules as a scorer of one height."""
    incidents = tuple(
        IncidentTrace(
            one.incident,
            tuple(
                (at, 0.0, 1.0)
                for at in sorted(at for rule, at in one.first.items() if rule in chosen)[:1]
            ),
        )
        for one in trace.incidents
    )
    false = sum(bool(chosen.intersection(rules)) for rules in trace.false)
    return Trace(incidents, (1.0,) * false, trace.fleet_days)

"""One recording through the judge, with all rule baselines looking on."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuwarden_kernel_log import xid_entry
from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.history import History
from gpuwarden_models.backtest.naming import Name, name_of
from gpuwarden_models.backtest.running import backtest, nodes_behind, silent
from gpuwarden_models.backtest.scores import SETTLING_S
from gpuwarden_models.evaluation.ground import Ground
from gpuwarden_models.evaluation.rule_traces import Firings, RuleTrace, trace_rules
from gpuwarden_models.evaluation.rules.absence import AbsenceRules
from gpuwarden_models.evaluation.rules.catalogue import CatalogueRules
from gpuwarden_models.evaluation.rules.contract import Fired, RuleSet, event_name
from gpuwarden_models.evaluation.rules.open_rules import OpenRules
from gpuwarden_models.evaluation.traces import (
    Climb,
    IncidentTrace,
    Trace,
    fresh,
    look_of,
    trace_flags,
)
from gpuwarden_models.frames import Frame
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.metrics import EntityKind

CATALOGUE, OPEN_RULES, ABSENCE = "catalogue rules", "open rule set", "missing-metric alert"
_NAMED = frozenset({EntityKind.GPU, EntityKind.NODE, EntityKind.NIC})


@dataclass(frozen=True, slots=True)
class Played:
    """What the whole system and the rule baselines made of a recording.

    Attributes:
        system: The judge with the learnt scores, their gate open: suspect and excluded.
        rules: The judge by its rules alone. Times of an exclusion that the score made first are
            those of the score.
        rules_at_looks: The same as somebody sees it who looks every LOOK_S, as scorers of rows do.
        baselines: Rule sets of others, by name; they look every LOOK_S too.
        confounders: Labels that must not lead to an exclusion, by mechanism.
        confounders_excluded: Of these, such that did.
    """

    system: Trace
    rules: Trace
    rules_at_looks: Trace
    baselines: dict[str, RuleTrace]
    confounders: dict[str, int]
    confounders_excluded: dict[str, int]

    @property
    def traced(self) -> Trace:
        """The system's trace without faults that change nothing that is read or logged."""
        left = tuple(one for one in self.system.incidents if one.incident.leaves_trace)
        return replace(self.system, incidents=left)


class _Onlooker:
    """Looks on: who is there, lines that act alone, rules of others.

    Rules follow all readings and lines, as features do. What they say is known at the next look,
    and not before, though it holds no more by then.
    """

    def __init__(self) -> None:
        self._sets: dict[str, RuleSet] = {
            CATALOGUE: CatalogueRules(),
            OPEN_RULES: OpenRules(),
            ABSENCE: AbsenceRules(),
        }
        self._keys: dict[EntityKind, int] = {}
        self._said: dict[str, list[Fired]] = {name: [] for name in self._sets}
        self.looks: list[float] = []
        self.firings = {name: Firings() for name in self._sets}
        self.names: dict[tuple[str, str], Name] = {}
        self.lines: list[tuple[Name, float]] = []

    def look(self, frame: Frame) -> None:
        for table in frame.tables:
            if table.kind in _NAMED and self._keys.get(table.kind) != id(table.keys):
                self._keys[table.kind] = id(table.keys)
                for key, node in zip(table.keys, table.node_of.tolist(), strict=True):
                    self.add(name_of(EntityRef(table.kind, key, frame.nodes[node])))
        for told in frame.events:
            code = told.event.xid
            entry = xid_entry(code) if code is not None else None
            if entry is not None and entry.acts_alone:
                self.lines.append((event_name(told), told.event.observed_at))
        is_look = self._is_look(frame.at)
        for name, rules in self._sets.items():
            self._said[name] += rules.look(frame)
            if is_look:
                said, self._said[name] = self._said[name], []
                self.firings[name].add([replace(one, at=frame.at) for one in said])
        if is_look:
            self.looks.append(frame.at)

    def _is_look(self, at: float) -> bool:
        looks = self.looks
        return not looks or look_of(at, looks[0]) > look_of(looks[-1], looks[0])

    def add(self, name: Name) -> None:
        self.names.setdefault((name.kind, name.entity), name)


def play(history: History, models: FusionModels) -> Played:
    """Play a recording once.

    Args:
        history: With labels.
        models: The learnt scores.

    Raises:
        RecordingError: A file of it broke off in the middle.
    """
    onlooker = _Onlooker()
    report = backtest(history, "", parse_policy(""), models, silent, look=onlooker.look)
    for flag in report.flags:
        onlooker.add(flag.name)
    names = tuple(onlooker.names.values())
    behind = nodes_behind(history)
    ground = Ground(names, history.labels, behind, history.start, history.end)
    ruled = [one for flag in report.flags if (one := _by_rules(flag)) is not None]
    confounders, excluded = _confounders(ground, report.flags)
    rules = _with_lines(trace_flags(ground, ruled), onlooker.lines)
    return Played(
        system=_with_lines(trace_flags(ground, report.flags), onlooker.lines),
        rules=rules,
        rules_at_looks=_at_looks(rules, onlooker.looks),
        baselines={name: trace_rules(ground, one.kept) for name, one in onlooker.firings.items()},
        confounders=confounders,
        confounders_excluded=excluded,
    )


def _by_rules(flag: Flag) -> Flag | None:
    """The flag as it would be with the score's gate closed; None where rules say nothing."""
    if flag.rung_gated < Rung.SUSPECT:
        return None
    out = flag.first_excluded_at if flag.rung_gated >= Rung.EXCLUDE else None
    return replace(flag, rung=flag.rung_gated, first_excluded_at=out)


def _at_looks(trace: Trace, looks: Sequence[float]) -> Trace:
    return replace(
        trace,
        incidents=tuple(
            replace(one, climbs=_climbs_at(one.climbs, looks, one.incident.end))
            for one in trace.incidents
        ),
    )


def _climbs_at(climbs: Sequence[Climb], looks: Sequence[float], end: float) -> tuple[Climb, ...]:
    """Climbs when the next look sees them; one that the fault's end comes before is none."""
    later = [
        (looks[place], below, to)
        for at, below, to in climbs
        if (place := bisect_left(looks, at)) < len(looks) and looks[place] < end
    ]
    return fresh(later)


def _with_lines(trace: Trace, lines: Sequence[tuple[Name, float]]) -> Trace:
    return replace(
        trace, incidents=tuple(replace(one, line_at=_line(one, lines)) for one in trace.incidents)
    )


def _line(one: IncidentTrace, lines: Sequence[tuple[Name, float]]) -> float | None:
    incident = one.incident
    return min(
        (
            at
            for name, at in lines
            if incident.precursor_start <= at < incident.end
            and ((name.kind, name.entity) == (incident.kind, incident.entity)
                 or (incident.kind == "node" and name.node == incident.entity))
        ),
        default=None,
    )  # fmt: skip


def _confounders(ground: Ground, flags: Sequence[Flag]) -> tuple[dict[str, int], dict[str, int]]:
    """Confounders by mechanism, and those that a wrong exclusion touches."""
    numbers = {(name.kind, name.entity): place for place, name in enumerate(ground.names)}
    wrong = [
        (number, flag.first_excluded_at)
        for flag in flags
        if flag.first_excluded_at is not None
        and not ground.is_right(
            number := numbers[flag.name.kind, flag.name.entity], flag.first_excluded_at
        )
    ]
    all_of, excluded = Counter[str](), Counter[str]()
    for label in ground.confounders:
        all_of[label.mechanism] += 1
        whose = ground.concerned_by(label.entity_kind, label.entity)
        excluded[label.mechanism] += any(
            number in whose and label.start <= at <= label.end + SETTLING_S for number, at in wrong
        )
    return dict(all_of), {name: count for name, count in excluded.items() if count}

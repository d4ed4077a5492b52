"""Alarms against the truth: first alarms count, budgets hold, bounds are exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.naming import Name
from gpuwarden_models.evaluation.budgets import operating, threshold_for
from gpuwarden_models.evaluation.ground import DAY_S, Ground
from gpuwarden_models.evaluation.playing import Played
from gpuwarden_models.evaluation.row_traces import SURE, joined
from gpuwarden_models.evaluation.rule_traces import as_trace, choose_rules, trace_rules
from gpuwarden_models.evaluation.rules.contract import Fired
from gpuwarden_models.evaluation.traces import (
    EXCLUDED,
    SUSPECT,
    Trace,
    alarms_of,
    shown_counts,
    trace_alarms,
    trace_flags,
)
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.entities import FaultClass, Rung

NAMES = (
    Name("gpu", "g0", "n0"),
    Name("gpu", "g1", "n0"),
    Name("gpu", "g2", "n1"),
    Name("node", "n0", "n0"),
    Name("node", "n1", "n1"),
    Name("fabric", "l0", ""),
)
HOUR = 3600.0
END = 10 * DAY_S


def label(entity: str, hour: float, *, kind: str = "gpu", ahead_h: float = 2.0) -> LabelRow:
    start = hour * HOUR
    return LabelRow(
        entity_kind=kind,
        entity=entity,
        fault_class=FaultClass.MEMORY,
        start=start,
        end=start + HOUR,
        action_needed=True,
        precursor_start=start - ahead_h * HOUR,
        mechanism="ecc_wear",
    )


def ground(
    *labels: LabelRow, behind: dict[tuple[str, str], frozenset[str]] | None = None
) -> Ground:
    return Ground(NAMES, labels, behind or {}, 0.0, END)


def trace(on: Ground, *alarms: tuple[int, float, float]) -> Trace:
    who, hours, scores = zip(*alarms, strict=True)
    return trace_alarms(on, alarms_of(who, [hour * HOUR for hour in hours], scores))


def test_the_first_alarm_counts_and_one_after_the_end_is_none() -> None:
    found = trace(ground(label("g0", 50)), (0, 49, 0.4), (0, 50.5, 0.9), (0, 51.2, 0.99))
    (one,) = found.incidents
    assert one.first_alarm(0.3) == 49 * HOUR
    assert one.first_alarm(0.8) == 50.5 * HOUR
    assert one.first_alarm(0.95) is None
    assert found.false == (0.99,)  # an hour after the repair it is a false one


def test_an_alarm_before_the_precursor_is_false_and_finds_nothing() -> None:
    found = trace(ground(label("g0", 50)), (0, 47, 0.9))
    assert found.incidents[0].climbs == ()
    assert found.false == (0.9,)


def test_a_node_speaks_for_its_gpu_and_a_gpu_for_its_node_but_not_for_its_neighbour() -> None:
    on = ground(label("g0", 50), label("n1", 100, kind="node"))
    found = trace(on, (3, 49, 0.5), (2, 100.1, 0.6), (1, 49, 0.7))
    assert [one.first_alarm(0.1) for one in found.incidents] == [49 * HOUR, 100.1 * HOUR]
    assert found.false == (0.7,)


def test_what_stands_behind_a_place_at_fault_is_no_false_alarm() -> None:
    at_fault = label("l0", 50, kind="fabric")
    found = trace(
        ground(at_fault, behind={("fabric", "l0"): frozenset({"n0"})}), (1, 50, 0.5), (2, 50, 0.4)
    )
    assert found.false == (0.4,)
    assert found.incidents[0].climbs == ()  # nobody blamed the place


def test_repeats_within_a_day_are_one_false_alarm() -> None:
    found = trace(ground(), (0, 1, 0.5), (0, 2, 0.7), (0, 30, 0.6), (1, 1, 0.2))
    assert found.false == (0.7, 0.6, 0.2)


def test_the_threshold_keeps_to_the_budget() -> None:
    healthy = [Trace((), (0.9, 0.8, 0.8, 0.3), 100.0)]
    assert operating(healthy, threshold_for(healthy, 0.01), 1).false == 1
    assert operating(healthy, threshold_for(healthy, 0.03), 1).false == 3
    assert operating(healthy, threshold_for(healthy, 0.0), 1).false == 0
    assert operating(healthy, threshold_for(healthy, 0.84), 1).false == 4


def test_precision_is_told_at_the_rates_of_life() -> None:
    on = ground(label("g0", 50))
    found = trace(on, (0, 49, 0.9), (1, 5, 0.9))
    one = operating([Trace(found.incidents, found.false, 10.0)], 0.5, 1)
    assert one.false_a_day == pytest.approx(0.1)
    assert one.false_bound == pytest.approx(0.4744, abs=1e-3)
    assert one.precision == pytest.approx((0.31 / 0.41, 0.12 / 0.22))
    assert one.precision_floor[0] == pytest.approx(0.31 / (0.31 + 0.4744), abs=1e-3)
    assert (one.ahead, one.by_class["memory"].median_lead_s) == (1, HOUR)


def flag(entity: str, hours: Sequence[float], excluded: float | None, rung: Rung) -> Flag:
    return Flag(
        name=next(name for name in NAMES if name.entity == entity),
        fault_class=FaultClass.MEMORY,
        risk=0.9,
        rung=rung,
        rung_gated=rung,
        first_flagged_at=hours[0] * HOUR,
        first_excluded_at=None if excluded is None else excluded * HOUR,
        last_flagged_at=hours[1] * HOUR,
        reasons=(),
    )


def test_flags_of_the_whole_system_have_two_heights() -> None:
    on = ground(label("g0", 50))
    flags = [
        flag("g0", (49, 51), 50.2, Rung.EXCLUDE),
        flag("g1", (10, 200), 11, Rung.EXCLUDE),
        flag("n1", (5, 6), None, Rung.SUSPECT),
    ]
    found = trace_flags(on, flags)
    assert found.incidents[0].first_alarm(SUSPECT) == 49 * HOUR
    assert found.incidents[0].first_alarm(EXCLUDED) == 50.2 * HOUR
    assert found.false == (EXCLUDED, SUSPECT)


def test_rules_are_chosen_by_what_they_find_for_a_false_alarm() -> None:
    on = ground(label("g0", 50), label("g2", 80))
    fired = [
        Fired(NAMES[0], 50.1 * HOUR, "good"),
        Fired(NAMES[2], 80.1 * HOUR, "noisy"),
        *(Fired(NAMES[1], hour * HOUR, "noisy") for hour in range(0, 200, 24)),
        Fired(NAMES[1], 5 * HOUR, "useless"),
    ]
    traced = trace_rules(on, fired)
    few = [traced.__class__(traced.incidents, traced.false, 100.0)]
    assert choose_rules(few, 0.03) == {"good"}
    assert choose_rules(few, 0.84) == {"good", "noisy"}
    one = operating([as_trace(few[0], frozenset({"good"}))], 1.0, 1)
    assert (one.found, one.false) == (1, 0)


def test_what_rules_exclude_is_sure_whatever_the_score_says() -> None:
    on = ground(label("g0", 50), label("g2", 80))
    rules = trace_flags(on, [flag("g2", (80.1, 81), 80.1, Rung.EXCLUDE)])
    both = joined(trace(on, (0, 49, 0.4), (2, 80.5, 0.2)), rules, EXCLUDED)
    assert [one.first_alarm(0.3) for one in both.incidents] == [49 * HOUR, 80.1 * HOUR]
    assert both.incidents[1].climbs == ((80.1 * HOUR, 0.0, SURE),)


def test_a_row_score_that_stood_before_the_precursor_finds_nothing_until_it_rises_afresh() -> None:
    on = ground(label("g0", 50))
    standing = [(0, 40 + n / 6, 0.6) for n in range(70)]  # from hour 40 to the fault's end and on
    found = trace(on, *standing)
    assert found.incidents[0].first_alarm(0.5) is None
    assert found.false == (0.6, 0.6), "two days of a standing false alarm"
    higher = trace(on, *standing, (0, 49.5, 0.9))
    assert higher.incidents[0].first_alarm(0.8) == 49.5 * HOUR, "above what stood it is fresh"
    assert higher.incidents[0].first_alarm(0.5) is None
    quiet = [one for one in standing if one[1] < 47 or one[1] > 48.5]
    assert trace(on, *quiet).incidents[0].first_alarm(0.5) == pytest.approx(48.5 * HOUR, abs=601)


def test_a_flag_that_stood_before_is_false_and_finds_only_what_it_then_excludes() -> None:
    on = ground(label("g0", 50))
    early = trace_flags(on, [flag("g0", (40, 60), None, Rung.SUSPECT)])
    assert (early.incidents[0].climbs, early.false) == ((), (SUSPECT,))
    excluded = trace_flags(on, [flag("g0", (40, 60), 41, Rung.EXCLUDE)])
    assert (excluded.incidents[0].climbs, excluded.false) == ((), (EXCLUDED,))
    later = trace_flags(on, [flag("g0", (40, 60), 50.5, Rung.EXCLUDE)])
    assert later.incidents[0].first_alarm(EXCLUDED) == 50.5 * HOUR
    assert later.incidents[0].first_alarm(SUSPECT) is None
    assert later.false == (SUSPECT,)
    late = trace_flags(on, [flag("g0", (50, 60), 55, Rung.EXCLUDE)])
    assert late.false == (EXCLUDED,), "the fault was over for hours when it excluded"


def test_a_fault_of_what_stands_excluded_rightly_for_an_earlier_one_is_left_out_and_told() -> None:
    on = ground(label("g0", 50), label("g0", 60))
    found = trace_flags(on, [flag("g0", (50, 65), 50.5, Rung.EXCLUDE)])
    one = operating([found], EXCLUDED, 1)
    assert (one.incidents, one.found, one.covered, one.false) == (1, 1, 1, 0)
    suspect = trace_flags(on, [flag("g0", (50, 65), None, Rung.SUSPECT)])
    missed = operating([suspect], EXCLUDED, 1)
    assert (missed.incidents, missed.found, missed.covered) == (2, 0, 0), "it was not excluded"
    falsely = operating([trace_flags(on, [flag("g0", (40, 65), 41, Rung.EXCLUDE)])], EXCLUDED, 1)
    assert (falsely.incidents, falsely.found, falsely.covered, falsely.false) == (2, 0, 0, 1)


def test_a_rule_that_fired_all_along_finds_nothing() -> None:
    on = ground(label("g0", 50))
    standing = [Fired(NAMES[0], (40 + n / 3) * HOUR, "warm") for n in range(40)]
    anew = [Fired(NAMES[0], hour * HOUR, "errors") for hour in (46, 49)]
    (one,) = trace_rules(on, [*standing, *anew]).incidents
    assert one.first == {"errors": 49 * HOUR}


def test_a_fault_leaves_a_trace_where_its_generator_says_so() -> None:
    faults = (
        replace(label("g0", 50), shows_at=48.5 * HOUR),
        replace(label("g1", 50), never_shows=True),
        replace(label("g2", 50), shows_at=52 * HOUR),  # it was repaired before
        label("n0", 80, kind="node"),  # nobody says
    )
    on = ground(*faults)
    assert [one.leaves_trace for one in on.incidents] == [True, False, False, True]
    nobody = trace_flags(on, [])
    played = Played(nobody, nobody, nobody, {}, {}, {})
    assert [one.incident.entity for one in played.traced.incidents] == ["g0", "n0"], (
        "what nobody found counts too"
    )


def test_a_place_counts_as_found_where_it_is_shown_and_a_program_to_blame_is_no_alarm() -> None:
    on = ground(label("l0", 50, kind="fabric"), label("g1", 50))
    of_place = flag("l0", (50.1, 51), None, Rung.SUSPECT)
    found = trace_flags(on, [of_place, flag("g1", (50.1, 51), None, Rung.SUSPECT)])
    assert [one.first_alarm(EXCLUDED) for one in found.incidents] == [None, None]
    shown = shown_counts(found)
    assert [one.first_alarm(EXCLUDED) for one in shown.incidents] == [50.1 * HOUR, None]
    program = replace(flag("l0", (10, 11), None, Rung.SUSPECT), fault_class=FaultClass.APPLICATION)
    assert trace_flags(on, [program]).false == ()
    assert trace_flags(on, [replace(program, fault_class=FaultClass.FABRIC)]).false == (SUSPECT,)
    gpu = replace(flag("g0", (10, 11), None, Rung.SUSPECT), fault_class=FaultClass.APPLICATION)
    assert trace_flags(on, [gpu]).false == (SUSPECT,)

"""What an incident turned out to be: the strongest word about it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from gpuwarden_server.learning.labels.domain import (
    Case,
    End,
    GivenVerdict,
    Label,
    Source,
    Step,
    Truth,
    Verdict,
    label_of,
)
from gpuwarden_verdict.entities import EntityState
from gpuwarden_verdict.incidents.domain import Incident, IncidentPhase
from tests.builders.cases import GPU, incident, item
from tests.builders.verdict import START

END = START + 600.0
SOFT = item(detector="learned_score", acts_alone=False, sentence="learnt risk 80%")
HARD = item()
OTHER = item(detector="peers", acts_alone=False, sentence="slower than its peers")
_S = EntityState


def over(*items: Any, **changes: Any) -> Incident:
    opened = incident(GPU, *(items or (SOFT,)))
    ended: dict[str, Any] = {
        "phase": IncidentPhase.RESOLVED,
        "opened_at": START,
        "resolved_at": END,
    }
    return replace(opened, **(ended | changes))


def label(case: Case) -> tuple[Truth, Source, bool | None]:
    found: Label = label_of(case)
    return found.truth, found.source, found.needed


def steps(*names: EntityState) -> list[Step]:
    pairs = pairwise(names)
    return [Step(a, b, START + 60.0 * n) for n, (a, b) in enumerate(pairs, 1)]


REPAIRED = steps(_S.EXCLUDED, _S.IN_REPAIR, _S.PROBATION)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_persons_verdict_goes_before_all_else(verdict: Verdict) -> None:
    given = GivenVerdict(verdict, "", "ana", END)
    case = Case(over(HARD), given, steps=REPAIRED, excluded_at=0.0)
    found = label_of(case)
    assert (found.truth, found.source, found.author) == (verdict.value, Source.VERDICT, "ana")
    needed = {"hardware": True, "unknown": None}.get(verdict.value, False)
    assert found.needed is needed


def test_a_repair_after_which_a_check_passed_was_needed() -> None:
    assert label(Case(over(SOFT, OTHER), steps=REPAIRED)) == (Truth.HARDWARE, Source.REPAIR, True)


def test_a_repair_under_way_settles_nothing_yet() -> None:
    begun = steps(_S.EXCLUDED, _S.IN_REPAIR)
    assert label(Case(over(), steps=begun)) == (Truth.UNKNOWN, Source.REPAIR, None)


def test_a_repair_that_was_revoked_says_nothing() -> None:
    revoked = steps(_S.EXCLUDED, _S.IN_REPAIR, _S.HEALTHY)
    assert label(Case(over(), steps=revoked)) == (Truth.UNKNOWN, Source.NONE, None)


def test_a_repair_weeks_later_is_of_something_else() -> None:
    late = [replace(step, at=step.at + 30 * 86_400.0) for step in REPAIRED]
    assert label(Case(over(), steps=late))[1] is Source.NONE


@pytest.mark.parametrize("detector", ["check_failed", "check:dcgmi"])
def test_a_failed_check_is_hardware(detector: str) -> None:
    failed = item(detector=detector, acts_alone=False)
    assert label(Case(over(SOFT, failed))) == (Truth.HARDWARE, Source.CHECK, True)


def test_a_fault_that_needs_no_second_opinion_is_hardware() -> None:
    assert label(Case(over(HARD))) == (Truth.HARDWARE, Source.EVIDENCE, True)
    program = item(application_possible=True)
    assert label(Case(over(program)))[0] is Truth.UNKNOWN


def test_a_check_that_passed_without_a_repair_is_a_false_alarm_of_what_is_soft_only() -> None:
    passed = [START + 60.0]
    assert label(Case(over(), passed_at=passed)) == (Truth.FALSE_ALARM, Source.CHECK, False)
    assert label(Case(over(HARD), passed_at=passed))[0] is Truth.HARDWARE


def test_a_check_that_passed_after_a_boot_or_a_reset_tells_nothing() -> None:
    passed = [START + 60.0]
    cured = Case(over(), passed_at=passed, restarted_at=[START + 30.0])
    assert label(cured) == (Truth.UNKNOWN, Source.NONE, None)
    later = replace(cured, restarted_at=[START + 90.0])
    assert label(later) == (Truth.FALSE_ALARM, Source.CHECK, False)


def test_a_job_that_ran_through_it_and_ended_well_is_a_false_alarm() -> None:
    good = End("COMPLETED", START - 60.0, END + 60.0)
    assert label(Case(over(), ends=[good])) == (Truth.FALSE_ALARM, Source.JOB_END, False)
    for other in (
        replace(good, state="FAILED"),
        replace(good, state="CANCELLED"),
        replace(good, since=START + 1.0),
        replace(good, at=END - 1.0),
        replace(good, since=None),
    ):
        assert label(Case(over(), ends=[other]))[0] is Truth.UNKNOWN
    bad = End("FAILED", START, START + 30.0)
    assert label(Case(over(), ends=[good, bad]))[0] is Truth.UNKNOWN


def test_what_our_own_exclusion_hid_is_uncertain_unless_something_settles_it() -> None:
    assert label(Case(over(), excluded_at=0.0)) == (Truth.UNCERTAIN, Source.NONE, None)
    assert label(Case(over(HARD), excluded_at=0.0))[0] is Truth.HARDWARE
    assert label(Case(over(OTHER), steps=REPAIRED, excluded_at=0.0))[0] is Truth.HARDWARE


@pytest.mark.parametrize("excluded", [True, False])
def test_a_score_does_not_confirm_itself_by_the_repair_that_it_asked_for(excluded: bool) -> None:
    """A sound GPU passes its check after a repair too."""
    echo = replace(OTHER, echo=True)
    case = Case(over(SOFT, echo), steps=REPAIRED, excluded_at=0.0 if excluded else None)
    assert label(case) == (Truth.UNCERTAIN, Source.REPAIR, None)
    failed = item(detector="check_failed", acts_alone=False)
    assert label(replace(case, incident=over(SOFT, failed)))[0] is Truth.HARDWARE
    told = GivenVerdict(Verdict.HARDWARE, "", "ana", END)
    assert label(replace(case, given=told))[2] is True


def test_a_member_of_a_places_fault_teaches_nothing_about_its_part() -> None:
    member = over(HARD, parent_id="inc-place")
    assert label(Case(member)) == (Truth.UNKNOWN, Source.EVIDENCE, None)


def test_what_is_open_is_unknown() -> None:
    live = over(phase=IncidentPhase.OPEN, resolved_at=None)
    assert "open" in label_of(Case(live)).why

"""Who is blamed, who never is, and what is said where something could not be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_models.diagnosis.scenarios import Case, make_case
from gpuwarden_verdict.diagnosis import CulpritKind, Diagnosis, Window, diagnose
from gpuwarden_verdict.diagnosis.domain import COMPONENTS
from gpuwarden_wire.metrics import EntityKind

NODES = 16


@pytest.mark.parametrize("name", ["gpu", "host", "rail", "leaf", "disk", "mount_client"])
def test_the_part_that_is_slow_is_named_with_its_evidence(name: str) -> None:
    case = make_case(name, NODES, 4)
    told = diagnose(case.window, case.job)
    (truth,) = case.truths
    assert (told.kind, told.culprits[0].entity) == (truth.kind, truth.entity), told.line
    assert told.culprits[0].evidence
    assert all(one.numbers and one.sentence for one in told.culprits[0].evidence)
    assert 0.0 < told.confidence <= 1.0


@pytest.mark.parametrize("name", ["burst", "io_heavy", "warm_day", "imbalanced"])
def test_no_sound_part_is_blamed(name: str) -> None:
    case = make_case(name, NODES, 3)
    assert diagnose(case.window, case.job).kind not in COMPONENTS


def test_the_same_readings_give_the_same_words() -> None:
    case = make_case("leaf", NODES, 4)
    assert diagnose(case.window, case.job).line == diagnose(case.window, case.job).line


def test_the_network_is_blamed_less_where_compute_and_storage_were_not_read() -> None:
    case = make_case("leaf", NODES, 4)
    whole, half = (
        diagnose(one, case.job) for one in (case.window, without(case, EntityKind.MOUNT))
    )
    assert any("storage" in words for words in half.blind)
    assert score(half) < score(whole)


def test_without_any_reading_nothing_is_decided() -> None:
    case = make_case("calm", NODES, 3)
    told = diagnose(without(case, *EntityKind), case.job)
    assert told.kind is None
    assert told.confidence == 0.0
    assert len(told.blind) == 5
    assert told.acquitted == ()
    assert "undecided" in told.line


def test_what_is_seen_early_is_what_was_read_until_then() -> None:
    case = make_case("gpu", NODES, 3)
    assert diagnose(case.window.until(case.onset - 1), case.job).kind is CulpritKind.NOTHING


def without(case: Case, *kinds: EntityKind) -> Window:
    strips = {kind: one for kind, one in case.window.strips.items() if kind not in kinds}
    return replace(case.window, strips=strips)


def score(told: Diagnosis) -> float:
    return max((one.score for one in told.culprits if one.kind is CulpritKind.FABRIC), default=0.0)

"""Drift of features and alarms beside what a model learnt from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_server.learning.drift.domain import LEAST_S, DriftWatch
from gpuwarden_verdict.fusion import FusionModel
from tests.builders.simulated import shipped_model
from tests.builders.verdict import START

DAY_S = 86_400.0
TRAINED = np.random.default_rng(1).normal(size=20_000)
DECILES = tuple(np.quantile(TRAINED, np.arange(1, 10) / 10).tolist())
RARE = (0.0,) * 9  # a counter that is 0 in nine of ten rows at least


def model(*features: tuple[float, ...], alarms: float | None = None) -> FusionModel:
    """The shipped model with these deciles of its first features; the others say nothing."""
    shipped = shipped_model()
    rest = ((),) * (len(shipped.features) - len(features))
    return replace(
        shipped,
        quantiles=(*features, *rest),
        missing_share=(0.0,) * len(shipped.features),
        alarms_per_entity_day=alarms,
    )


def shown(watch: DriftWatch, first: np.ndarray, hours: int = 3) -> list[str]:
    """Show it these values of the first feature for some hours; what has drifted then."""
    matrix = np.zeros((first.size, len(watch.model.features)), np.float32)
    matrix[:, 0] = first
    for number in range(12 * hours):
        watch.add_rows(matrix, START + 300.0 * number)
    return [one.feature for one in watch.report(START + 3600.0 * hours).drifted]


def sample(size: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(2).normal(size=size) + shift


def test_a_fleet_like_the_training_has_not_drifted() -> None:
    for size in (8, 40, 400):
        assert shown(DriftWatch(model(DECILES)), sample(size)) == []


def test_a_fleet_that_lies_elsewhere_has() -> None:
    first = model(DECILES).features.names[0]
    for shift in (1.5, -1.5):
        assert shown(DriftWatch(model(DECILES)), sample(400, shift)) == [first]
    assert shown(DriftWatch(model(DECILES)), sample(16, 5.0)) == [first]


def test_a_small_fleet_must_lie_further_away_than_a_large_one() -> None:
    assert shown(DriftWatch(model(DECILES)), sample(400, 1.0)) != []
    assert shown(DriftWatch(model(DECILES)), sample(10, 1.0)) == []
    assert shown(DriftWatch(model(DECILES)), sample(5, 9.0)) == [], "too few to say anything"


def test_a_counter_that_is_never_raised_any_more_has_not_drifted() -> None:
    watch = DriftWatch(model(RARE))
    assert shown(watch, np.zeros(400)) == []
    assert shown(DriftWatch(model(RARE)), np.ones(400)) != []


def test_a_feature_that_went_missing_has_drifted() -> None:
    assert shown(DriftWatch(model(DECILES)), np.full(100, np.nan)) != []


def test_nothing_is_said_in_the_first_hour_or_of_a_model_that_does_not_say() -> None:
    early = DriftWatch(model(DECILES))
    early.add_rows(np.full((100, len(early.model.features)), 9.0, np.float32), START)
    assert early.report(START + LEAST_S - 1.0).shifts == ()
    assert shown(DriftWatch(shipped_model_without()), sample(400, 9.0)) == []


def shipped_model_without() -> FusionModel:
    return replace(shipped_model(), quantiles=(), missing_share=())


def test_what_was_long_ago_is_forgotten() -> None:
    watch = DriftWatch(model(DECILES))
    assert shown(watch, sample(400, 3.0)) != []
    matrix = np.zeros((400, len(watch.model.features)), np.float32)
    matrix[:, 0] = sample(400)
    for number in range(5 * 288):
        watch.add_rows(matrix, START + 3 * 3600.0 + 300.0 * number)
    assert watch.report(START + 6 * DAY_S).drifted == ()


@pytest.mark.parametrize(("a_day", "rose"), [(2, False), (20, True)])
def test_alarms_that_come_far_more_often_are_said(a_day: int, rose: bool) -> None:
    watch = DriftWatch(model(alarms=0.01))
    now = START
    for number in range(3 * 1440):  # a minute each, 200 entities
        now = START + 60.0 * number
        fires = number % (1440 // a_day) == 0
        watch.add_alarms([f"gpu-{number}"] if fires else [], 200, now)
    report = watch.report(now)
    assert report.alarms_rose is rose
    assert report.alarms_a_day == pytest.approx(a_day / 200, rel=0.2)
    assert ("alarms come" in report.warning) is rose


def test_an_alarm_that_goes_on_is_one() -> None:
    watch = DriftWatch(model(alarms=0.01))
    for number in range(1440):
        watch.add_alarms(["gpu-1"] if number else [], 200, START + 60.0 * number)
    report = watch.report(START + DAY_S)
    assert report.alarms_a_day == pytest.approx(1 / 200, rel=0.2)

"""Four decisions whose costs were worked out by hand."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.savings import (
    Assumptions,
    Cost,
    Facts,
    Outcome,
    concentration_of,
    cost_of,
    false_rates,
    outcome_of,
    totals_of,
)

NOW = 100_000.0
HOUR_S = 3600.0
ASSUMED = Assumptions(
    hang_s=1800.0,
    restart_s=360.0,
    failures=1.0,
    job_gpus=8.0,
    currency="USD",
    gpu_hour_prices=(("*H100*", 2.0),),
)
H100 = "NVIDIA H100 80GB HBM3"
RIGHT = Facts(
    *("a", "n1", FaultClass.BUS, Rung.EXCLUDE, True, NOW - 9 * HOUR_S, None, 1, 64, H100),
    *(600.0, 80.0, Outcome.RIGHT),
)
"""64 GPUs would have stood still for 1800 + 360 s: 38.4 h, at 600 W 23.04 kWh, at 2 USD 76.80."""
WRONG = Facts(
    *(
        "b",
        "n2",
        FaultClass.NIC,
        Rung.EXCLUDE,
        True,
        NOW - 5 * HOUR_S,
        NOW - 2 * HOUR_S,
        8,
        8,
        H100,
    ),
    *(600.0, 100.0, Outcome.WRONG),
)
"""8 sound GPUs out for 3 h: 24 h, at 100 W 2.4 kWh, 48 USD."""
MOVED = Facts(
    *("c", "n2", FaultClass.NIC, Rung.DRAIN, True, NOW - HOUR_S, NOW - 0.5 * HOUR_S, 1, 16, H100),
    *(600.0, None, Outcome.WRONG),
)
"""1 GPU out for 0.5 h, and 16 GPUs stood still for 360 s as their job moved: 2.1 h, 4.20 USD."""
OPEN = Facts("d", "n3", FaultClass.BUS, Rung.EXCLUDE, True, NOW - 2 * HOUR_S, None, 1)
"""Nobody can tell: 8 GPUs assumed x 0.6 h = 4.8 h if right, 2 h so far if wrong."""
ALL = (RIGHT, WRONG, MOVED, OPEN)


def cost(facts: Facts) -> Cost:
    return cost_of(facts, ASSUMED, NOW)


def test_each_decision_costs_what_was_worked_out() -> None:
    right, wrong, moved, still_open = (cost(one) for one in ALL)
    assert (right.saved_gpu_hours, right.lost_gpu_hours) == pytest.approx((38.4, 0.0))
    assert (right.saved_kwh, right.saved_money) == pytest.approx((23.04, 76.8))
    assert (wrong.saved_gpu_hours, wrong.lost_gpu_hours) == pytest.approx((0.0, 24.0))
    assert (wrong.lost_kwh, wrong.lost_money) == pytest.approx((2.4, 48.0))
    assert (moved.lost_gpu_hours, moved.lost_kwh) == pytest.approx((2.1, None))
    assert moved.lost_money == pytest.approx(4.2)
    assert (still_open.saved_gpu_hours, still_open.lost_gpu_hours) == (0.0, 0.0)
    assert still_open.if_right_gpu_hours == pytest.approx(4.8)
    assert still_open.if_wrong_gpu_hours == pytest.approx(2.0)


def test_the_sums_are_those_of_the_hand_computed_case() -> None:
    totals = totals_of((one, cost(one)) for one in ALL)
    assert (totals.decisions, totals.right, totals.wrong, totals.unsettled) == (4, 1, 2, 1)
    assert totals.saved_gpu_hours == pytest.approx(38.4)
    assert totals.lost_gpu_hours == pytest.approx(26.1)
    assert (totals.saved_kwh, totals.lost_kwh) == pytest.approx((23.04, 2.4))
    assert (totals.saved_money, totals.lost_money) == pytest.approx((76.8, 52.2))
    assert (totals.kwh_unknown, totals.money_unknown) == (1, 0)
    assert totals.open_saved_gpu_hours == pytest.approx(4.8)
    assert totals.open_lost_gpu_hours == pytest.approx(2.0)


def test_what_is_unknown_is_said_and_never_zero() -> None:
    unpriced = cost_of(RIGHT, Assumptions(), NOW)
    assert unpriced.saved_money is None
    assert any("no price for GPU model" in said for said in unpriced.says)
    said = " ".join(cost(OPEN).says)
    assert "one of 8 GPUs assumed" in said
    assert "energy lost is unknown" in " ".join(cost(MOVED).says)
    by_energy = Assumptions(gpu_hour_prices=(("*", 1.0),), kwh_price=0.5)
    assert cost_of(RIGHT, by_energy, NOW).saved_money == pytest.approx(
        64 * 2188 / 3600 * (1.0 + 0.6 * 0.5)
    )
    assert cost_of(MOVED, by_energy, NOW).lost_money is None, "its energy is unknown"


def test_the_outcome_is_that_of_the_label() -> None:
    found = [outcome_of(needed) for needed in (True, False, None)]
    assert found == [Outcome.RIGHT, Outcome.WRONG, Outcome.UNSETTLED]


def test_false_rates_have_exact_bounds_by_fleet_class_and_rung() -> None:
    rates = {(one.of, one.name): one for one in false_rates(ALL)}
    assert sorted(rates) == [
        ("class", "bus"),
        ("class", "nic"),
        ("fleet", ""),
        ("rung", "drain"),
        ("rung", "exclude"),
    ]
    fleet = rates["fleet", ""]
    assert (fleet.wrong, fleet.settled, fleet.unsettled) == (2, 3, 1)
    assert fleet.share == pytest.approx(2 / 3)
    assert (fleet.low, fleet.high) == pytest.approx((0.0943, 0.9916), abs=1e-4)
    assert fleet.high_if_open_are_false == pytest.approx(0.9937, abs=1e-4)
    assert rates["class", "nic"].share == 1.0
    (empty,) = false_rates(())
    assert (empty.share, empty.low, empty.high) == (None, 0.0, 1.0)


def test_concentration_counts_nodes_that_were_never_out_too() -> None:
    found = concentration_of(["n1", "n1", "n1", "n2"], ["n1", "n2", "n3", "n4"])
    assert found.top == ((1, 0.75), (3, 1.0), (10, 1.0))
    assert found.gini == pytest.approx(0.625)
    assert found.worst == (("n1", 3),)
    assert (found.nodes, found.nodes_excluded) == (4, 2)
    nothing = concentration_of([], ["n1"])
    assert (nothing.gini, nothing.top) == (None, ())

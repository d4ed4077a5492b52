from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.signals import Signal
from tests.builders.verdict import Fleet, gpu_ref

ODD = gpu_ref(3, 7)
USUAL: Mapping[str, float] = {
    "gpu_temperature_celsius": 58.0,
    "gpu_memory_temperature_celsius": 66.0,
    "gpu_utilization_ratio": 0.95,
    "gpu_power_watts": 550.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_slowdown_temperature_celsius": 87.0,
}
HOT: Mapping[str, float] = {"gpu_temperature_celsius": 82.0, "gpu_memory_temperature_celsius": 89.0}


def play(fleet: Fleet, odd: Mapping[str, float], who: tuple[EntityRef, ...] = (ODD,)) -> set[str]:
    said: list[Signal] = []
    for _ in range(60):
        others = [ref for ref in fleet.all_gpus() if ref not in who]
        fleet.tell(others, at=fleet.now, **USUAL)
        fleet.tell(list(who), at=fleet.now, **{**USUAL, **odd})
        said = fleet.sweep(20.0)
    return {signal.detector for signal in said if signal.entity == ODD}


def test_a_gpu_that_would_be_at_its_limit_and_far_above_its_peers_is_told_not_excluded() -> None:
    fleet = Fleet()
    assert {"cooling_lost", "memory_temperature_peers"} <= play(fleet, HOT)
    assert fleet.excluded_names() == []  # the same heat makes a warm slot of a sound chassis
    assert "cooling_lost" not in play(fleet, {})


def test_heat_of_its_own_that_slows_the_gpu_down_excludes_it() -> None:
    fleet = Fleet()
    others = [ref for ref in fleet.all_gpus() if ref != ODD]
    for step in range(60):
        fleet.tell(others, at=fleet.now, **USUAL, gpu_thermal_slowdown_seconds_total=0.0)
        slowed = {**USUAL, **HOT, "gpu_thermal_slowdown_seconds_total": 10.0 * step}
        fleet.tell([ODD], at=fleet.now, **slowed)
        fleet.sweep(20.0)
    assert fleet.excluded_names() == [ODD.key]


@pytest.mark.parametrize(
    "odd",
    [
        {"gpu_temperature_celsius": 68.0, "gpu_memory_temperature_celsius": 78.0},
        {**HOT, "gpu_power_watts": 800.0, "gpu_power_limit_watts": 800.0},
        {**HOT, "gpu_memory_temperature_celsius": 66.0},
        {**HOT, "gpu_slowdown_temperature_celsius": 110.0},
    ],
    ids=["room is left", "its draw explains it", "the other sensor is cool", "its limit is far"],
)
def test_heat_that_another_cause_explains_says_nothing(odd: Mapping[str, float]) -> None:
    assert "cooling_lost" not in play(Fleet(), odd)


def test_a_whole_board_that_is_hot_accuses_no_gpu_of_it() -> None:
    fleet = Fleet()
    board = tuple(ref for ref in fleet.all_gpus() if ref.node_id == ODD.node_id)
    assert "cooling_lost" not in play(fleet, HOT, board)
    assert fleet.excluded_names() == []


@pytest.mark.parametrize(("slowed", "rung"), [(1, Rung.EXCLUDE), (4, Rung.SUSPECT)])
def test_a_slowdown_for_heat_may_exclude_where_few_of_the_board_show_it(
    slowed: int, rung: Rung
) -> None:
    fleet = Fleet()
    board = [ref for ref in fleet.all_gpus() if ref.node_id == ODD.node_id]
    hot = board[-slowed:]
    rungs: list[Rung] = []
    for step in range(20):
        fleet.tell(fleet.all_gpus(), at=fleet.now, gpu_thermal_slowdown_seconds_total=0.0)
        fleet.tell(hot, at=fleet.now, gpu_thermal_slowdown_seconds_total=12.0 * step)
        said = fleet.sweep(20.0)
        rungs = [one.max_rung for one in said if one.detector == "thermal_slowdown"]
    assert rungs == [rung] * slowed
    assert fleet.excluded_names() == []

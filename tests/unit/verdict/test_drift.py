from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuwarden_verdict.detectors.drift import DRIFT_DETECTORS
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet, gpu_ref

HOUR = 3600.0
STEP = 300.0
ODD = gpu_ref(0, 0)
Celsius = Callable[[float], float]


def heat(
    hours: float, rest: Celsius, odd: Celsius, busy: Celsius = lambda _at: 0.95
) -> list[Signal]:
    """Temperatures by seconds since the start; what was said at any time."""
    fleet = Fleet(nodes=2)
    said: list[Signal] = []
    while fleet.now < START + hours * HOUR:
        at = fleet.now - START
        for refs, celsius in ((fleet.all_gpus()[1:], rest(at)), ([ODD], odd(at))):
            fleet.tell(refs, gpu_temperature_celsius=celsius, gpu_utilization_ratio=busy(at))
        said += fleet.sweep(STEP)
    return said


def steady(_at: float) -> float:
    return 60.0


def step(at: float) -> float:
    return 60.0 if at < 4 * HOUR else 72.0


def creep(at: float) -> float:
    return 60.0 + 2.0 * max(0.0, at / HOUR - 4.0)


def by_load(at: float) -> float:
    """Hot while a job runs: every second hour."""
    return 0.95 if int(at // HOUR) % 2 else 0.0


@pytest.mark.parametrize("odd", [step, creep])
def test_a_step_or_a_creep_of_one_gpu_is_told(odd: Celsius) -> None:
    said = heat(12.0, steady, odd)
    assert {(s.detector, s.entity) for s in said} == {("temperature_drift", ODD)}
    assert min(s.observed_at for s in said) > START + 4 * HOUR
    assert said[-1].max_rung is Rung.SUSPECT


def test_noise_and_what_moves_with_all_are_no_drift() -> None:
    assert heat(12.0, step, step) == []
    assert heat(12.0, steady, lambda at: 60.0 + (at // STEP) % 5) == []


def test_a_change_of_load_is_no_drift() -> None:
    def by_load_heat(at: float) -> float:
        return 75.0 if by_load(at) else 35.0

    assert heat(16.0, by_load_heat, by_load_heat, by_load) == []
    own_load = Fleet(nodes=2)
    said: list[Signal] = []
    while own_load.now < START + 12 * HOUR:
        works = by_load(own_load.now - START)
        own_load.tell(
            own_load.all_gpus()[1:], gpu_temperature_celsius=75.0, gpu_utilization_ratio=0.95
        )
        own_load.tell(
            [ODD], gpu_temperature_celsius=35.0 + 40.0 * works, gpu_utilization_ratio=works
        )
        said += own_load.sweep(STEP)
    assert said == []


def test_a_power_cap_that_ends_is_no_drift() -> None:
    fleet = Fleet(nodes=2)
    said: list[Signal] = []
    while fleet.now < START + 9 * HOUR:
        watts = 400.0 if fleet.now < START + 5 * HOUR else 650.0
        for refs, drawn in ((fleet.all_gpus()[1:], 650.0), ([ODD], watts)):
            fleet.tell(
                refs,
                gpu_temperature_celsius=25.0 + 0.055 * drawn,
                gpu_power_watts=drawn,
                gpu_utilization_ratio=0.95,
            )
        said += fleet.sweep(STEP)
    assert [s for s in said if s.detector == "temperature_drift"] == []


def test_counts_of_errors_are_held_against_their_own_past() -> None:
    fleet = Fleet(nodes=2)
    port = EntityRef(EntityKind.NIC, "n0/mlx5_0/1", "n0")
    corrected = symbols = 0.0
    said: list[Signal] = []
    while fleet.now < START + 8 * HOUR:
        worse = fleet.now > START + 4 * HOUR
        corrected += 30.0 if worse else 0.0
        symbols += 8.0 if worse else 0.5
        fleet.tell([ODD], gpu_ecc_corrected_volatile_total=corrected, gpu_probe_seconds=0.01)
        fleet.tell([port], nic_symbol_errors_total=symbols)
        said += fleet.sweep(STEP)
    told = {(s.detector, s.entity.key) for s in said}
    assert ("ecc_corrected_drift", ODD.key) in told
    assert ("symbol_error_drift", port.key) in told
    assert fleet.excluded_names() == []


def test_a_driver_that_gets_slower_is_told_and_clears_when_it_is_quick_again() -> None:
    fleet = Fleet(nodes=1)
    told: list[Signal] = []
    for seconds in (*[0.02] * 36, *[1.5] * 24, *[0.02] * 60):
        fleet.tell(fleet.all_gpus()[1:], gpu_probe_seconds=0.02)
        fleet.tell([ODD], gpu_probe_seconds=seconds)
        told += [s for s in fleet.sweep(STEP) if s.detector == "probe_drift"]
    assert {s.entity for s in told} == {ODD}
    (mine,) = [i for i in fleet.incidents.values() if i.entity == ODD]
    (item,) = [one for one in mine.evidence if one.detector == "probe_drift"]
    assert item.cleared_at is not None


def test_own_past_alone_never_excludes() -> None:
    assert all(one.max_rung is Rung.SUSPECT for one in DRIFT_DETECTORS)

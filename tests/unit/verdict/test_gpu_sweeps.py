"""Sweep detectors of memory and PCIe: what fires, and what only looks so."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.detectors.ecc_corrected import EccCorrectedDetector
from gpuwarden_verdict.detectors.pcie_downtrained import PCIE_GENERATION, PCIE_WIDTH
from gpuwarden_verdict.detectors.remap_trend import RemapTrendDetector
from gpuwarden_verdict.detectors.retired_pages import RetiredPagesDetector
from gpuwarden_verdict.entities import FaultClass, Rung, Severity
from gpuwarden_wire.batches import MissingKind
from tests.builders.sweeping import DAY, GPU, clears, hold, told
from tests.builders.verdict import START, Fleet, gpu_ref

# --- row remapping, retired pages


def remapped(fleet: Fleet, rows: float, at: float) -> None:
    fleet.tell(
        [GPU],
        at=at,
        gpu_rows_remapped_correctable_total=rows,
        gpu_rows_remapped_uncorrectable_total=0.0,
    )
    fleet.now = at


def test_remaps_over_weeks_are_told_in_the_first_of_them() -> None:
    """254 correctable remaps in three weeks, no XID at any time, then the GPU is gone."""
    fleet = Fleet()
    first: float | None = None
    for hour in range(0, 21 * 24, 6):
        remapped(fleet, 254.0 * hour / (21 * 24), START + hour * 3600)
        if told(RemapTrendDetector(), fleet):
            first = fleet.now - START
            break
    assert first is not None and first <= 1.5 * DAY


def test_many_remaps_are_told_however_old_and_few_are_not() -> None:
    many, few = Fleet(), Fleet()
    for at in (0, 5, 10):
        remapped(many, 254.0, START + at)
        remapped(few, 100.0, START + at)
    (signal,) = told(RemapTrendDetector(), many)
    assert (signal.max_rung, signal.severity) == (Rung.SUSPECT, Severity.WARNING)
    assert "254 of 512" in signal.sentence
    assert told(RemapTrendDetector(), few) == []


def test_one_more_remap_is_no_trend_on_a_sound_gpu_and_is_one_on_a_worn_gpu() -> None:
    sound, worn = Fleet(), Fleet()
    for at, more in ((0, 0), (5, 0), (10, 1), (15, 1)):
        remapped(sound, 2.0 + more, START + at)
        remapped(worn, 20.0 + more, START + at)
    assert told(RemapTrendDetector(), sound) == []
    assert len(told(RemapTrendDetector(), worn)) == 1
    assert clears(RemapTrendDetector(), worn, GPU) == []
    remapped(worn, 21.0, START + 8 * DAY)
    assert told(RemapTrendDetector(), worn) == []
    assert clears(RemapTrendDetector(), worn, GPU) == [GPU.key]


def test_remaps_that_are_not_read_say_nothing() -> None:
    fleet = Fleet()
    remapped(fleet, 254.0, START)
    fleet.silent.add("n0")
    assert told(RemapTrendDetector(), fleet) == []
    assert clears(RemapTrendDetector(), fleet, GPU) == []
    other = Fleet()
    other.tell([GPU], gpu_rows_remapped_correctable_total=MissingKind.NOT_SUPPORTED)
    assert told(RemapTrendDetector(), other) == []


def retired(fleet: Fleet, pages: float, at: float) -> None:
    fleet.tell(
        [GPU],
        at=at,
        gpu_retired_pages_corrected_total=pages,
        gpu_retired_pages_uncorrected_total=MissingKind.NOT_SUPPORTED,
    )
    fleet.now = at


def test_retired_pages_by_nvidias_two_limits() -> None:
    standing, growing, full = Fleet(), Fleet(), Fleet()
    for at, more in ((0, 0), (5, 1), (10, 1)):
        retired(standing, 20.0, START + at)
        retired(growing, 15.0 + more, START + at)
        retired(full, 61.0, START + at)
    assert told(RetiredPagesDetector(), standing) == []
    (soft,) = told(RetiredPagesDetector(), growing)
    assert soft.max_rung is Rung.SUSPECT
    (hard,) = told(RetiredPagesDetector(), full)
    assert (hard.max_rung, hard.action) == (Rung.EXCLUDE, "repair")
    retired(growing, 16.0, START + 8 * DAY)
    assert clears(RetiredPagesDetector(), growing, GPU) == [GPU.key]
    assert clears(RetiredPagesDetector(), full, GPU) == []


# --- corrected ECC errors


def corrects(fleet: Fleet, a_second: float, seconds: float, total: float = 0.0) -> None:
    for number in range(int(seconds / 10) + 1):
        count = total + a_second * 10 * number
        fleet.tell([GPU], at=fleet.now + 10 * number, gpu_ecc_corrected_volatile_total=count)
    fleet.now += 10 * int(seconds / 10)


def test_17000_corrected_errors_a_second_make_a_suspect_and_no_more() -> None:
    """NVSentinel#1748 and DCGM#313: 54.7 billion errors, and every health check passed."""
    fleet = Fleet()
    corrects(fleet, 17_700.0, 120.0)
    (signal,) = told(EccCorrectedDetector(), fleet)
    assert (signal.fault_class, signal.max_rung) == (FaultClass.MEMORY, Rung.SUSPECT)
    assert 0.3 <= signal.score < 0.8
    fleet.sweep()
    fleet.sweep(40.0)
    assert fleet.excluded_names() == []
    assert [d.rung for d in fleet.decisions.values()] == [Rung.SUSPECT]


@pytest.mark.parametrize(("a_second", "seconds"), [(0.5, 3600.0), (0.0, 600.0)])
def test_a_few_corrected_errors_are_what_ecc_is_for(a_second: float, seconds: float) -> None:
    fleet = Fleet()
    corrects(fleet, a_second, seconds, total=54.7e9)
    assert told(EccCorrectedDetector(), fleet) == []


def test_a_rate_that_quickens_over_the_day_is_told_before_it_is_high() -> None:
    fleet = Fleet()
    total, rate = 0.0, 0.01
    for quarter in range(4 * 26):
        rate = 0.01 if quarter < 4 * 24 else 0.5
        total += rate * 900
        at = START + 900 * quarter
        fleet.tell([GPU], at=at, gpu_ecc_dram_corrected_volatile_total=total)
        fleet.now = at
    (signal,) = told(EccCorrectedDetector(), fleet)
    assert signal.score < 0.4
    assert clears(EccCorrectedDetector(), fleet, GPU) == []


def test_corrected_errors_that_stop_are_over() -> None:
    fleet = Fleet()
    corrects(fleet, 17_700.0, 120.0)
    for hours in range(1, 12):
        fleet.tell(
            [GPU],
            at=fleet.now + 3600 * hours,
            gpu_ecc_corrected_volatile_total=17_700.0 * 120,
        )
    fleet.now += 11 * 3600
    assert clears(EccCorrectedDetector(), fleet, GPU) == [GPU.key]


# --- PCIe


def link(width: float, use: float, **more: float | MissingKind) -> dict[str, float | MissingKind]:
    return {
        "gpu_pcie_link_width": width,
        "gpu_pcie_link_width_max": 16.0,
        "gpu_utilization_ratio": use,
        **more,
    }


def test_half_the_lanes_under_load_is_told_and_at_idle_is_normal() -> None:
    fleet = Fleet()
    hold(fleet, [GPU], 200.0, **link(8.0, 0.95))
    hold(fleet, [gpu_ref(1, 0)], 10.0, **link(8.0, 0.0))
    fleet.tell([GPU], at=fleet.now, **link(8.0, 0.95))
    (signal,) = told(PCIE_WIDTH, fleet)
    assert (signal.entity, signal.fault_class) == (GPU, FaultClass.BUS)
    assert signal.action == "check_cable"
    assert "8 of 16 lanes" in signal.sentence
    assert clears(PCIE_WIDTH, fleet, GPU) == []
    fleet.tell([GPU], at=fleet.now + 5, **link(16.0, 0.95))
    assert clears(PCIE_WIDTH, fleet, GPU) == [GPU.key]


def test_a_link_that_idles_is_slow_by_design_and_says_nothing_of_recovery() -> None:
    fleet = Fleet()
    read = {"gpu_pcie_link_generation": 1.0, "gpu_pcie_link_generation_max": 5.0}
    hold(fleet, [GPU], 200.0, gpu_utilization_ratio=0.02, **read)
    assert told(PCIE_GENERATION, fleet) == []
    assert clears(PCIE_GENERATION, fleet, GPU) == []
    fleet.tell([GPU], at=fleet.now + 5, gpu_utilization_ratio=1.0, **read)
    fleet.now += 5
    assert told(PCIE_GENERATION, fleet) == []  # the work has only just begun


def test_slots_that_are_narrow_on_most_machines_are_no_fault() -> None:
    fleet = Fleet()
    hold(fleet, fleet.all_gpus(), 200.0, **link(8.0, 0.95))
    assert told(PCIE_WIDTH, fleet) == []
    hold(fleet, fleet.all_gpus()[1:], 200.0, **link(16.0, 0.95))
    fleet.tell([GPU], at=fleet.now, **link(8.0, 0.95))
    assert [signal.entity for signal in told(PCIE_WIDTH, fleet)] == [GPU]


@pytest.mark.parametrize("how", ["silent", "unsupported", "boot", "no load known"])
def test_a_narrow_link_is_not_judged_where_it_cannot_be(how: str) -> None:
    fleet = Fleet()
    use: float | MissingKind = 0.95
    if how == "no load known":
        use = MissingKind.NOT_SUPPORTED
    values = {**link(8.0, 0.0), "gpu_utilization_ratio": use}
    if how == "unsupported":
        values["gpu_pcie_link_width_max"] = MissingKind.NOT_SUPPORTED
    hold(fleet, [GPU], 200.0, **values)
    if how == "silent":
        fleet.silent.add("n0")
    if how == "boot":
        fleet.booted_at["n0"] = fleet.now - 100
    assert told(PCIE_WIDTH, fleet) == []


def test_load_by_power_where_utilisation_is_not_given() -> None:
    fleet = Fleet()
    values = {**link(8.0, 0.0), "gpu_utilization_ratio": MissingKind.NOT_SUPPORTED}
    hold(fleet, [GPU], 200.0, gpu_power_watts=500.0, gpu_power_limit_watts=700.0, **values)
    assert len(told(PCIE_WIDTH, fleet)) == 1

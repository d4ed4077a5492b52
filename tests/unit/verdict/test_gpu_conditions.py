"""Sweep detectors of fabric, heat, power and hangs: what fires, and what only looks so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpuwarden_verdict.detectors import detect_clears, detect_sweep
from gpuwarden_verdict.detectors.contract import SweepDetector
from gpuwarden_verdict.detectors.fabric_service import FabricServiceDetector
from gpuwarden_verdict.detectors.hung_kernel import HungKernelDetector
from gpuwarden_verdict.detectors.power_brake import PowerBrakeDetector
from gpuwarden_verdict.detectors.probe_slow import POLL_SLOW, PROBE_SLOW
from gpuwarden_verdict.detectors.thermal import MEMORY_HOT, SHUTDOWN_NEAR, THERMAL_MARGIN
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_wire.batches import MissingKind
from tests.builders.sweeping import DAY, GPU, NODE, clears, hold, told
from tests.builders.verdict import START, Fleet, gpu_ref, node_ref

# --- fabric


def fabric(fleet: Fleet, running: float, switches: float, state: float, seconds: float) -> None:
    for at in range(0, int(seconds) + 1, 20):
        fleet.tell(
            [NODE],
            at=fleet.now + at,
            node_fabric_manager_running=running,
            node_nvswitches=switches,
        )
        gpus = [gpu_ref(0, gpu) for gpu in range(8)]
        fleet.tell(gpus, at=fleet.now + at, gpu_fabric_state=state)
    fleet.now += int(seconds)


def test_a_dead_fabric_manager_is_the_nodes_for_as_long_as_it_lasts() -> None:
    fleet = Fleet()
    fabric(fleet, 0.0, 4.0, 3.0, 40.0)
    (signal,) = told(FabricServiceDetector(), fleet)
    assert (signal.entity, signal.fault_class) == (NODE, FaultClass.FABRIC)
    assert 0.3 <= signal.score < 0.8  # the fabric still stands
    fleet.now += 12 * DAY
    fabric(fleet, 0.0, 4.0, 3.0, 40.0)
    assert len(told(FabricServiceDetector(), fleet)) == 1
    assert clears(FabricServiceDetector(), fleet, NODE) == []
    fabric(fleet, 1.0, 4.0, 3.0, 40.0)
    assert told(FabricServiceDetector(), fleet) == []
    assert clears(FabricServiceDetector(), fleet, NODE) == [NODE.key]


def test_gpus_that_join_no_fabric_make_it_certain() -> None:
    fleet = Fleet()
    fabric(fleet, 0.0, 4.0, 1.0, 400.0)
    (signal,) = told(FabricServiceDetector(), fleet)
    assert signal.entity == NODE
    assert signal.score >= 0.8
    assert "100%" in signal.sentence


def test_one_gpu_apart_is_that_gpus() -> None:
    fleet = Fleet()
    fabric(fleet, 1.0, 4.0, 3.0, 400.0)
    hold(fleet, [GPU], 400.0, 20.0, gpu_fabric_state=2.0)
    fleet.tell([NODE], at=fleet.now, node_fabric_manager_running=1.0, node_nvswitches=4.0)
    (signal,) = told(FabricServiceDetector(), fleet)
    assert (signal.entity, signal.fault_class) == (GPU, FaultClass.NVLINK)


@pytest.mark.parametrize(
    ("running", "switches", "state"),
    [
        (0.0, 0.0, 0.0),  # PCIe boards: no switch, no fabric
        (0.0, 0.0, 3.0),  # a rack whose fabric manager runs elsewhere
        (1.0, 4.0, 3.0),
    ],
)
def test_no_fabric_manager_where_none_is_needed(
    running: float, switches: float, state: float
) -> None:
    fleet = Fleet()
    fabric(fleet, running, switches, state, 400.0)
    fleet.tell([NODE], at=fleet.now, node_imex_running=0.0)
    assert told(FabricServiceDetector(), fleet) == []


@pytest.mark.parametrize("how", ["boot", "silent", "once", "unsupported"])
def test_a_fabric_manager_that_cannot_be_judged(how: str) -> None:
    fleet = Fleet()
    if how == "once":
        fabric(fleet, 1.0, 4.0, 3.0, 40.0)
        fleet.tell([NODE], at=fleet.now + 5, node_fabric_manager_running=0.0)
        fleet.now += 5
    else:
        fabric(fleet, 0.0, 4.0, 1.0, 400.0)
    if how == "boot":
        fleet.booted_at["n0"] = fleet.now - 200
    if how == "silent":
        fleet.silent.add("n0")
    if how == "unsupported":
        fleet.tell([NODE], at=fleet.now + 5, node_nvswitches=MissingKind.NOT_SUPPORTED)
        fleet.tell(fleet.all_gpus(), at=fleet.now + 5, gpu_fabric_state=MissingKind.NOT_SUPPORTED)
    assert told(FabricServiceDetector(), fleet) == []


# --- heat and power


def test_little_margin_for_a_minute_is_told_and_a_peak_is_not() -> None:
    fleet = Fleet()
    hold(fleet, [GPU], 300.0, gpu_temperature_margin_celsius=20.0)
    fleet.tell([GPU], at=fleet.now + 5, gpu_temperature_margin_celsius=1.0)
    fleet.now += 5
    assert told(THERMAL_MARGIN, fleet) == []
    hold(fleet, [GPU], 400.0, gpu_temperature_margin_celsius=1.0)
    (signal,) = told(THERMAL_MARGIN, fleet)
    assert (signal.fault_class, signal.max_rung) == (FaultClass.THERMAL, Rung.SUSPECT)
    hold(fleet, [GPU], 400.0, gpu_temperature_margin_celsius=-1.0)
    assert told(THERMAL_MARGIN, fleet)[0].severity is Severity.ERROR
    hold(fleet, [GPU], 400.0, gpu_temperature_margin_celsius=5.0)
    assert told(THERMAL_MARGIN, fleet) == []
    assert clears(THERMAL_MARGIN, fleet, GPU) == []  # between the two nothing is said
    hold(fleet, [GPU], 400.0, gpu_temperature_margin_celsius=20.0)
    assert clears(THERMAL_MARGIN, fleet, GPU) == [GPU.key]


@pytest.mark.parametrize(
    ("detector", "metric", "limit"),
    [
        (SHUTDOWN_NEAR, "gpu_temperature_celsius", "gpu_shutdown_temperature_celsius"),
        (MEMORY_HOT, "gpu_memory_temperature_celsius", "gpu_memory_temperature_max_celsius"),
    ],
)
def test_heat_is_held_against_the_gpus_own_limit(
    detector: SweepDetector, metric: str, limit: str
) -> None:
    hot, sound, unknown = Fleet(), Fleet(), Fleet()
    hold(hot, [GPU], 200.0, **{metric: 93.0, limit: 95.0})
    hold(sound, [GPU], 200.0, **{metric: 85.0, limit: 95.0})
    hold(unknown, [GPU], 200.0, **{metric: 120.0})
    hold(unknown, [GPU], 200.0, **{limit: MissingKind.NOT_SUPPORTED})
    assert len(told(detector, hot)) == 1
    assert told(detector, sound) == []
    assert told(detector, unknown) == []
    assert clears(detector, hot, GPU) == []
    assert clears(detector, sound, GPU) == [GPU.key]
    hot.silent.add("n0")
    assert told(detector, hot) == []


def braked(fleet: Fleet, refs: Sequence[EntityRef], seconds: float) -> None:
    for number in range(11):
        total = 100.0 + seconds * number / 10
        fleet.tell(refs, at=fleet.now + 30 * number, gpu_power_brake_seconds_total=total)
    fleet.now += 300


def test_a_power_brake_on_most_gpus_is_the_nodes_and_on_one_is_its_own() -> None:
    fleet = Fleet()
    everything = [gpu_ref(0, gpu) for gpu in range(8)]
    braked(fleet, everything, 60.0)
    (signal,) = told(PowerBrakeDetector(), fleet)
    assert (signal.entity, signal.fault_class) == (NODE, FaultClass.POWER)
    assert clears(PowerBrakeDetector(), fleet, NODE, GPU) == []
    for gpu in everything:
        fleet.tell([gpu], at=fleet.now + 3700, gpu_power_brake_seconds_total=160.0)
    fleet.now += 3700
    assert told(PowerBrakeDetector(), fleet) == []
    assert clears(PowerBrakeDetector(), fleet, NODE, GPU) == [GPU.key, NODE.key]
    single = Fleet()
    braked(single, [GPU], 60.0)
    assert [signal.entity for signal in told(PowerBrakeDetector(), single)] == [GPU]
    short = Fleet()
    braked(short, everything, 2.0)
    assert told(PowerBrakeDetector(), short) == []


# --- hung kernel, slow probes


IDLE: dict[str, float | MissingKind] = {
    "gpu_utilization_ratio": 0.0,
    "gpu_memory_utilization_ratio": 0.0,
    "gpu_power_watts": 114.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_sm_clock_hertz": 1.98e9,
    "gpu_sm_clock_max_hertz": 1.98e9,
}
HUNG: dict[str, float | MissingKind] = {
    **IDLE,
    "gpu_utilization_ratio": 1.0,
    "gpu_power_watts": 117.0,
}


def beside_idle(fleet: Fleet, seconds: float = 600.0, /, **values: float | MissingKind) -> None:
    hold(fleet, fleet.all_gpus()[8:], seconds, 60.0, **IDLE)
    fleet.now -= seconds
    hold(fleet, [GPU], seconds, 60.0, **values)


def test_full_use_at_idle_power_for_minutes_is_a_hung_kernel() -> None:
    fleet = Fleet()
    beside_idle(fleet, **HUNG)
    (signal,) = told(HungKernelDetector(), fleet)
    assert (signal.entity, signal.max_rung) == (GPU, Rung.SUSPECT)
    assert signal.thresholds["gpu_power_watts"] == pytest.approx(1.1 * 114, rel=1e-4)
    assert clears(HungKernelDetector(), fleet, GPU) == []
    hold(fleet, [GPU], 600.0, 60.0, **{**HUNG, "gpu_power_watts": 420.0})
    assert told(HungKernelDetector(), fleet) == []
    assert clears(HungKernelDetector(), fleet, GPU) == [GPU.key]


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_power_watts": 265.0},  # light work
        {"gpu_memory_utilization_ratio": 0.3},  # memory is used
        {"gpu_utilization_ratio": 0.6},
        {"gpu_utilization_ratio": MissingKind.NOT_SUPPORTED},  # MIG
        {"gpu_power_watts": MissingKind.UNAVAILABLE},
    ],
)
def test_what_only_looks_like_a_hung_kernel(change: dict[str, float | MissingKind]) -> None:
    fleet = Fleet()
    beside_idle(fleet, **{**HUNG, **change})
    assert told(HungKernelDetector(), fleet) == []


def test_a_hung_kernel_takes_minutes_and_a_node_that_is_heard_of() -> None:
    fleet = Fleet()
    beside_idle(fleet, 120.0, **HUNG)
    assert told(HungKernelDetector(), fleet) == []
    beside_idle(fleet, 600.0, **HUNG)
    fleet.silent.add("n0")
    assert told(HungKernelDetector(), fleet) == []


def test_without_idle_peers_the_power_limit_tells() -> None:
    alone, unknown = Fleet(), Fleet()
    hold(alone, [GPU], 600.0, 60.0, **HUNG)
    hold(unknown, [GPU], 600.0, 60.0, **{**HUNG, "gpu_power_limit_watts": MissingKind.UNAVAILABLE})
    assert len(told(HungKernelDetector(), alone)) == 1
    assert told(HungKernelDetector(), unknown) == []


def test_a_probe_far_slower_than_at_peers_is_told() -> None:
    fleet = Fleet()
    hold(fleet, fleet.all_gpus()[1:], 300.0, gpu_probe_seconds=0.03)
    fleet.now -= 300.0
    hold(fleet, [GPU], 300.0, gpu_probe_seconds=12.0)
    (signal,) = told(PROBE_SLOW, fleet)
    assert (signal.entity, signal.fault_class) == (GPU, FaultClass.DRIVER)
    assert signal.max_rung is Rung.SUSPECT
    assert clears(PROBE_SLOW, fleet, GPU) == []
    hold(fleet, fleet.all_gpus(), 600.0, gpu_probe_seconds=0.03)
    assert clears(PROBE_SLOW, fleet, GPU) == [GPU.key]


@pytest.mark.parametrize("how", ["all slow", "one slow probe", "boot", "silent", "unsupported"])
def test_what_only_looks_like_a_slow_probe(how: str) -> None:
    fleet = Fleet()
    slow = fleet.all_gpus() if how == "all slow" else [GPU]
    hold(fleet, fleet.all_gpus(), 300.0, gpu_probe_seconds=0.03)
    if how == "one slow probe":
        fleet.tell([GPU], at=fleet.now + 5, gpu_probe_seconds=12.0)
    else:
        hold(fleet, slow, 300.0, gpu_probe_seconds=12.0)
    if how == "boot":
        fleet.booted_at["n0"] = fleet.now - 100
    if how == "silent":
        fleet.silent.add("n0")
    if how == "unsupported":
        fleet.tell([GPU], at=fleet.now + 5, gpu_probe_seconds=MissingKind.NOT_SUPPORTED)
    assert told(PROBE_SLOW, fleet) == []


def test_a_node_whose_poll_takes_long() -> None:
    fleet = Fleet(nodes=12)
    hold(fleet, [node_ref(node) for node in range(1, 12)], 300.0, node_nvml_poll_seconds=0.3)
    fleet.now -= 300.0
    hold(fleet, [NODE], 300.0, node_nvml_poll_seconds=45.0)
    assert [signal.entity for signal in told(POLL_SLOW, fleet)] == [NODE]


def test_a_sound_busy_fleet_is_silent_to_every_detector() -> None:
    fleet = Fleet()
    nodes = [node_ref(node) for node in range(4)]
    for number in range(40):
        at = START + 30 * number
        fleet.tell(
            fleet.all_gpus(),
            at=at,
            gpu_utilization_ratio=0.97,
            gpu_memory_utilization_ratio=0.4,
            gpu_power_watts=690.0,
            gpu_power_limit_watts=700.0,
            gpu_power_cap_seconds_total=27.0 * number,  # the cap holds in 90 % of the time
            gpu_temperature_celsius=62.0,
            gpu_temperature_margin_celsius=25.0,
            gpu_memory_temperature_celsius=80.0,
            gpu_memory_temperature_max_celsius=95.0,
            gpu_pcie_link_width=16.0,
            gpu_pcie_link_width_max=16.0,
            gpu_pcie_link_generation=5.0,
            gpu_pcie_link_generation_max=5.0,
            gpu_pcie_replay_total=3.0,
            gpu_nvlink_crc_errors_total=12.0,
            gpu_nvlinks_active=18.0,
            gpu_nvlinks_inactive=0.0,
            gpu_ecc_corrected_volatile_total=float(number // 10),
            gpu_rows_remapped_correctable_total=1.0,
            gpu_row_remap_banks_max=640.0,
            gpu_row_remap_banks_none=0.0,
            gpu_inforom_valid=1.0,
            gpu_fabric_state=3.0,
            gpu_fabric_health=1.0,
            gpu_probe_seconds=0.03,
            gpu_recovery_action=0.0,
        )
        fleet.tell(
            nodes,
            at=at,
            node_fabric_manager_running=1.0,
            node_nvswitches=4.0,
            node_imex_running=0.0,
            node_nvml_poll_seconds=0.3,
            node_uptime_seconds=1e6 + 30 * number,
        )
    fleet.now = START + 30 * 39
    assert detect_sweep(fleet.state, fleet.fleet_context(), fleet.now) == []
    assert detect_clears(fleet.state, fleet.fleet_context(), [], fleet.now) == []
    pools = replace(fleet.fleet_context(), models={})
    assert detect_sweep(fleet.state, pools, fleet.now) == []

"""The simulator: the same again by seed, plausible, and each fault as it is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from gpuwarden_kernel_log import parse_line
from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FAULT_KINDS, FaultName, ScriptedFault
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

SETTING = Setting(4, 8, seed=17, interval_s=5.0)
GPUS = [gpu.gpu_uuid for gpu in Simulation(SETTING).topology.gpus]


def table(frame: Frame, kind: EntityKind) -> FrameTable:
    return next(table for table in frame.tables if table.kind is kind)


def gpus(frame: Frame, metric: str) -> NDArray[np.float64]:
    return table(frame, EntityKind.GPU).column(metric)


def play(*faults: ScriptedFault, frames: int = 60, setting: Setting = SETTING) -> list[Frame]:
    return list(Simulation(setting, faults).frames(frames))


def xids(frames: list[Frame], entity: str = "") -> list[int | None]:
    events = [item.event for frame in frames for item in frame.events]
    return [
        event.xid
        for event in events
        if event.kind is EventKind.KERNEL_LOG and entity in ("", event.entity)
    ]


def test_equal_seeds_give_equal_frames_and_other_seeds_do_not() -> None:
    fault = ScriptedFault(FaultName.ECC_WEAR, GPUS[3], 20.0, ramp_s=100.0)
    first, again = play(fault), play(fault)
    for one, other in zip(first, again, strict=True):
        assert one.at == other.at and one.events == other.events
        for a, b in zip(one.tables, other.tables, strict=True):
            assert np.array_equal(a.values, b.values) and np.array_equal(a.reported, b.reported)
    stranger = play(setting=Setting(4, 8, seed=18, interval_s=5.0))
    assert not np.array_equal(stranger[-1].tables[0].values, first[-1].tables[0].values)


def test_a_fault_does_not_change_the_background_of_other_nodes() -> None:
    calm = play()
    sick = play(ScriptedFault(FaultName.ECC_WEAR, GPUS[3], 20.0, ramp_s=100.0))
    others = table(calm[-1], EntityKind.GPU).node_of != 0
    told = ("gpu_temperature_celsius", "gpu_power_watts", "gpu_pcie_replay_total")
    for metric in (*told, "gpu_ecc_corrected_volatile_total"):
        assert np.array_equal(gpus(calm[-1], metric)[others], gpus(sick[-1], metric)[others])


def test_levels_are_those_of_public_h100_runs() -> None:
    frames = play(frames=400, setting=Setting(16, 8, seed=40, interval_s=30.0))
    watts = np.concatenate([gpus(frame, "gpu_power_watts") for frame in frames])
    heat = np.concatenate([gpus(frame, "gpu_temperature_celsius") for frame in frames])
    load = np.concatenate([gpus(frame, "gpu_utilization_ratio") for frame in frames])
    busy, idle = watts[load > 0.9], watts[load < 0.01]
    assert 500 < np.median(busy) < 700 and busy.max() <= 700
    assert 60 < np.median(idle) < 130
    assert 45 < np.median(heat[load > 0.9]) < 77 and 20 < np.median(heat[load < 0.01]) < 40
    assert 0.4 < np.corrcoef(watts, heat)[0, 1] < 0.99


def test_counters_never_go_back_and_gpus_of_one_node_differ() -> None:
    frames = play(frames=200)
    for before, after in pairwise(frames):
        for a, b in zip(before.tables, after.tables, strict=True):
            split = a.schema.f32_count
            assert (b.values[split:] >= a.values[split:]).all()
    heat = gpus(frames[-1], "gpu_temperature_celsius")[:8]
    assert 2.0 <= np.ptp(heat) <= 14.0


def test_readings_get_lost_now_and_then() -> None:
    frames = play(frames=400, setting=Setting(16, 1, seed=5, interval_s=30.0))
    reported = np.array([table(frame, EntityKind.NODE).reported for frame in frames])
    assert 0.002 < (~reported).mean() < 0.1
    assert np.array_equal([table(frame, EntityKind.GPU).reported for frame in frames], reported), (
        "a node is heard as a whole or not at all"
    )


def test_row_remap_failure_builds_up_then_fails() -> None:
    frames = play(ScriptedFault(FaultName.ROW_REMAP_FAILURE, GPUS[6], 20.0, ramp_s=200.0))
    failed = [gpus(frame, "gpu_row_remap_failure")[6] for frame in frames]
    rows = [gpus(frame, "gpu_rows_remapped_correctable_total")[6] for frame in frames]
    moment = failed.index(1.0)
    assert 40 <= moment <= 46 and rows[moment] >= 2
    codes = xids(frames, GPUS[6])
    assert 63 in codes and codes[-2:] == [64, 154]
    assert gpus(frames[-1], "gpu_row_remap_pending")[6] == 1.0
    assert sum(gpus(frames[-1], "gpu_row_remap_failure")) == 1.0


def test_a_gpu_off_the_bus_stops_and_comes_back_repaired() -> None:
    frames = play(ScriptedFault(FaultName.GPU_OFF_BUS, GPUS[9], 50.0, duration_s=100.0))
    present = [table(frame, EntityKind.GPU).column("gpu_present")[9] for frame in frames]
    assert present[9] == 1 and not any(present[10:30]) and present[30] == 1
    heat = [table(frame, EntityKind.GPU).column("gpu_temperature_celsius")[9] for frame in frames]
    assert np.isnan(heat[10:30]).all() and not np.isnan(heat[9])
    visible = [table(f, EntityKind.NODE).column("node_gpus_visible")[1] for f in frames]
    assert visible[9] == 8 and visible[10] == 7 and visible[30] == 8
    events = [
        item.event for frame in frames[1:] for item in frame.events if item.node_id == "gpu-0002"
    ]
    assert [event.xid for event in events if event.xid] == [79, 154]
    kinds = [event.kind for event in events if event.kind is not EventKind.KERNEL_LOG]
    assert kinds == [
        EventKind.INVENTORY,  # its job has ended
        EventKind.GPU_LOST,
        EventKind.INVENTORY,
        EventKind.GPU_BACK,
        EventKind.INVENTORY,
        EventKind.CHECK_PASSED,
    ]
    inventories = [event.inventory for event in events if event.inventory is not None]
    assert [len(inventory.gpus) for inventory in inventories] == [8, 8, 8]
    assert not inventories[0].jobs


def test_an_overheating_gpu_creeps_and_a_severe_one_slows_down() -> None:
    mild = ScriptedFault(FaultName.SLOW_OVERHEATING, GPUS[12], 0.0, ramp_s=100.0)
    grave = ScriptedFault(FaultName.SLOW_OVERHEATING, GPUS[12], 0.0, ramp_s=100.0, severity=2.0)
    calm, warm, hot = play(frames=100), play(mild, frames=100), play(grave, frames=100)

    def excess(frames: list[Frame], number: int) -> float:
        heat = gpus(frames[number], "gpu_temperature_celsius")[12]
        return float(heat - gpus(calm[number], "gpu_temperature_celsius")[12])

    assert 1 <= excess(warm, 8) < excess(warm, 16) < excess(warm, 60)
    assert 14 <= excess(warm, 99) <= 22
    slow = "gpu_thermal_slowdown_seconds_total"
    assert gpus(warm[-1], slow).sum() == 0.0
    assert gpus(hot[-1], slow)[12] > 60.0
    assert gpus(hot[-1], "gpu_sm_clock_hertz")[12] < gpus(calm[-1], "gpu_sm_clock_hertz")[12]
    assert int(gpus(hot[-1], "gpu_clock_event_reasons")[12]) & 0x20
    assert xids(hot) == []


def test_wear_raises_corrected_errors_before_the_first_uncorrected() -> None:
    fault = ScriptedFault(FaultName.ECC_WEAR, GPUS[2], 0.0, ramp_s=1500.0)
    frames = play(fault, frames=450)
    corrected = [gpus(frame, "gpu_ecc_corrected_volatile_total")[2] for frame in frames]
    uncorrected = [gpus(frame, "gpu_ecc_uncorrected_volatile_total")[2] for frame in frames]
    assert corrected[299] >= 3 and uncorrected[299] == 0 and uncorrected[301] == 1
    codes = xids(frames, GPUS[2])
    assert codes[:3] == [48, 94, 63]


def test_a_burst_hits_every_gpu_of_the_job_and_ends_it() -> None:
    frames = play(ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0002", 50.0))
    hit = {item.event.entity for frame in frames for item in frame.events if item.event.xid == 31}
    assert len(hit) >= 8 and set(GPUS[8:16]) <= hit
    assert set(xids(frames)) == {31, 43}
    assert gpus(frames[20], "gpu_utilization_ratio")[8:16].max() < 0.1


def test_a_port_goes_down_with_its_traffic() -> None:
    frames = play(
        ScriptedFault(FaultName.NIC_PORT_DOWN, "gpu-0003/mlx5_2/1", 50.0, duration_s=100.0)
    )
    states = [table(frame, EntityKind.NIC).column("nic_port_state")[18] for frame in frames]
    assert states[9] == 4 and states[10] == 1 and states[30] == 4
    moved = [
        table(frame, EntityKind.NIC).column("nic_received_bytes_total")[18] for frame in frames
    ]
    assert moved[12] == moved[28] and moved[32] > moved[30]
    assert table(frames[-1], EntityKind.NIC).column("nic_link_downed_total").sum() == 1
    links = [
        (item.event.entity, item.event.family)
        for frame in frames
        for item in frame.events
        if item.event.kind is EventKind.KERNEL_LOG
    ]
    assert links == [("mlx5_2/1", "nic_link")] * 2


def test_confounders_touch_all_alike() -> None:
    calm = play(frames=100)
    aisle = play(ScriptedFault(FaultName.HOT_AISLE, "*", 0.0, ramp_s=60.0), frames=100)
    warmer = gpus(aisle[-1], "gpu_temperature_celsius") - gpus(calm[-1], "gpu_temperature_celsius")
    assert warmer.min() >= 6 and warmer.max() <= 10
    cap = play(ScriptedFault(FaultName.POWER_CAP, "gpu-0001", 0.0, ramp_s=10.0), frames=100)
    assert gpus(cap[-1], "gpu_power_watts")[:8].max() <= 470.0
    assert gpus(cap[-1], "gpu_power_limit_watts")[8:].min() == 700.0


def test_every_kernel_line_is_one_that_the_reader_knows() -> None:
    story = [
        ScriptedFault(name, entity, 5.0, ramp_s=20.0)
        for name, entity in (
            (FaultName.ROW_REMAP_FAILURE, GPUS[0]),
            (FaultName.GPU_OFF_BUS, GPUS[1]),
            (FaultName.ECC_WEAR, GPUS[2]),
            (FaultName.APPLICATION_BURST, "gpu-0002"),
            (FaultName.NIC_PORT_DOWN, "gpu-0003/mlx5_0/1"),
        )
    ]
    frames = play(*story, frames=300)
    events = [item.event for frame in frames for item in frame.events]
    lines = [event for event in events if event.kind is EventKind.KERNEL_LOG]
    assert {31, 43, 48, 63, 64, 79, 94, 95, 154} <= {event.xid for event in lines}
    for event in lines:
        found = parse_line(event.text)
        assert found is not None and found.xid == event.xid
    ids = [event.id for event in events]
    assert len(ids) == len(set(ids))


def test_two_runs_with_their_own_salt_share_no_event_id() -> None:
    def ids(salt: str) -> set[str]:
        frames = play(setting=Setting(2, 2, seed=1, salt=salt), frames=3)
        return {item.event.id for frame in frames for item in frame.events}

    assert ids("a") and ids("a").isdisjoint(ids("b"))


def test_faults_can_be_started_and_ended_while_it_runs() -> None:
    simulation = Simulation(SETTING)
    list(simulation.frames(10))
    simulation.inject(ScriptedFault(FaultName.GPU_OFF_BUS, GPUS[0], at_s=0.0))
    lost = list(simulation.frames(3))
    assert xids(lost)[0] == 79
    assert simulation.repair(GPUS[0]) == 1
    assert simulation.repair(GPUS[1]) == 0
    (after,) = simulation.frames(1)
    assert bool(table(after, EntityKind.GPU).reported[0])
    (label,) = simulation.labels()
    assert label.entity == GPUS[0] and label.end - label.start == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Simulation(Setting(0)), "nodes is 0"),
        (lambda: Simulation(Setting(1, 9)), "gpus_per_node is 9: use 1 to 8"),
        (lambda: Simulation(Setting(1, interval_s=0.0)), "interval_s"),
        (
            lambda: Simulation(SETTING, [ScriptedFault(FaultName.ECC_WEAR, "GPU-none", 0.0)]),
            "no gpu 'GPU-none'.*one that exists: GPU-",
        ),
    ],
)
def test_wrong_settings_are_named(make: Callable[[], Simulation], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_every_fault_has_a_kind() -> None:
    assert set(FAULT_KINDS) == set(FaultName)

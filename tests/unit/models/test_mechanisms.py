"""Mechanisms of faults: each leaves its trace, its label and a sound machine behind."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from gpuwarden_kernel_log import parse_line
from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultName
from gpuwarden_models.simulator.parameters import JobParameters, Parameters
from gpuwarden_models.simulator.player_spool import NodeSpool
from gpuwarden_models.simulator.schedule import one_each
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import Repair, ScriptedFault, Shape
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

STEADY = Parameters(jobs=JobParameters(length_s=(1e6, 2e6), checkpoint_every_s=(5e5, 6e5)))
SETTING = Setting(2, 4, seed=21, interval_s=30.0, parameters=STEADY)
GPUS = [gpu.gpu_uuid for gpu in Simulation(SETTING).topology.gpus]
ENTITIES = {
    EntityKind.GPU: GPUS[1],
    EntityKind.NODE: "gpu-0001",
    EntityKind.NIC: "gpu-0001/mlx5_1/1",
}
SINGLE = [name for name, kind in FAULT_KINDS.items() if kind.entity_kind is not EntityKind.PLACE]
NEEDED = [name for name in SINGLE if FAULT_KINDS[name].action_needed]
FRAMES = 100
ONSET_S, RAMP_S, LASTING_S = 300.0, 900.0, 1500.0
UNSEEN = {FaultName.LATE_READINGS}
"""What only a sink with a time of arrival shows."""


def table(frame: Frame, kind: EntityKind) -> FrameTable:
    return next(table for table in frame.tables if table.kind is kind)


def scripted(name: FaultName, repair: Repair = Repair.IN_PLACE) -> ScriptedFault:
    hours = 40.0  # a storm, so that what repeats is there in an hour
    return ScriptedFault(
        name,
        ENTITIES[FAULT_KINDS[name].entity_kind],
        ONSET_S,
        ramp_s=RAMP_S,
        duration_s=RAMP_S + LASTING_S,
        severity=1.2,
        repair=repair,
        echo=True,
        storm_per_hour=hours,
    )


@cache
def calm() -> list[Frame]:
    return list(Simulation(SETTING).frames(FRAMES))


def play(fault: ScriptedFault) -> tuple[Simulation, list[Frame]]:
    simulation = Simulation(SETTING, [fault])
    return simulation, list(simulation.frames(FRAMES))


@cache
def played(name: FaultName) -> tuple[Simulation, list[Frame]]:
    return play(scripted(name))


def events(frames: Iterable[Frame]) -> list[Event]:
    return [one.event for frame in frames for one in frame.events]


def differs(frames: list[Frame], number: int) -> bool:
    for sick, sound in zip(frames[number].tables, calm()[number].tables, strict=True):
        same = np.array_equal(sick.values, sound.values, equal_nan=True)
        if not (same and np.array_equal(sick.reported, sound.reported)):
            return True
    return False


@pytest.mark.parametrize("name", [name for name in SINGLE if name not in UNSEEN])
def test_every_mechanism_leaves_a_trace_and_only_after_its_onset(name: FaultName) -> None:
    simulation, frames = played(name)
    assert not any(differs(frames, number) for number in range(10))
    said = [event for event in events(frames[10:]) if event.kind is EventKind.KERNEL_LOG]
    assert said or any(differs(frames, number) for number in range(10, 90))
    for event in said:
        found = parse_line(event.text)
        assert found is not None and found.xid == event.xid
    ids = [event.id for event in events(frames)]
    assert len(ids) == len(set(ids))
    first = simulation.labels()[0]
    kind = FAULT_KINDS[name]
    assert (first.fault_class, first.action_needed) == (kind.fault_class, kind.action_needed)
    assert first.note.split()[1] == f"mechanism={name}"
    if kind.action_needed:
        word, _, at = first.note.split()[2].partition("=")
        assert word == "shows" and at != "never"
        seen = min(n for n in range(10, len(frames)) if differs(frames, n) or _told(frames, n))
        # What it draws may stay as it is for a while: a count of 0, a whole degree.
        assert frames[10].at <= float(at) <= frames[min(seen + 60, 89)].at


def _told(frames: list[Frame], number: int) -> bool:
    return any(e.kind is EventKind.KERNEL_LOG for e in events(frames[number : number + 1]))


def test_a_fault_that_nothing_shows_says_so() -> None:
    node, gpu = "gpu-0001", GPUS[0]
    empty = ScriptedFault(FaultName.MAINTENANCE_DRAIN, node, 0.0, duration_s=900.0)
    hung = ScriptedFault(FaultName.HUNG_KERNEL, gpu, 300.0, duration_s=300.0)
    busy, idle = Simulation(SETTING, [hung]), Simulation(SETTING, [empty, hung])
    shown = []
    for run in (busy, idle):
        list(run.frames(30))
        (note,) = (row.note for row in run.labels() if row.entity == gpu)
        shown.append(note.split()[2])
    assert shown == [f"shows={SETTING.start + 300.0:.3f}", "shows=never"]


@pytest.mark.parametrize("name", NEEDED)
def test_counters_rise_until_the_repair_says_that_a_check_passed(name: FaultName) -> None:
    _, frames = played(name)
    last = round((ONSET_S + RAMP_S + LASTING_S) / SETTING.interval_s)
    for before, after in pairwise(frames[:last]):
        for one, other in zip(before.tables, after.tables, strict=True):
            split, rebooted = one.schema.f32_count, before.boot_ids != after.boot_ids
            assert rebooted or not (other.values[split:] < one.values[split:]).any()
    passed = [event for event in events(frames[last:]) if event.kind is EventKind.CHECK_PASSED]
    assert len(passed) == 1 and passed[0].entity_kind is FAULT_KINDS[name].entity_kind


def test_another_part_has_another_serial_and_the_label_keeps_the_former() -> None:
    simulation, frames = play(scripted(FaultName.ROW_REMAP_FAILURE, Repair.REPLACE))
    list(simulation.frames(130))
    old, new = simulation.parts[1].gpu, simulation.parts[-1].gpu
    assert len(simulation.parts) == 9 and new.pci_bus_id == old.pci_bus_id
    assert new.gpu_uuid != old.gpu_uuid and new.serial != old.serial
    frame = simulation.next_frame()
    assert table(frame, EntityKind.GPU).keys[1] == new.gpu_uuid
    for metric in ("gpu_row_remap_failure", "gpu_ecc_uncorrected_aggregate_total"):
        assert table(frame, EntityKind.GPU).column(metric)[1] == 0.0
        assert table(frames[45], EntityKind.GPU).column(metric)[1] == 1.0
    assert simulation.labels()[0].entity == old.gpu_uuid
    assert frame.boot_ids[0] != frames[0].boot_ids[0] and frame.boot_ids[1] == frames[0].boot_ids[1]


def test_a_reboot_takes_the_node_away_and_brings_it_back_sound() -> None:
    simulation, _ = play(scripted(FaultName.GPU_OFF_BUS, Repair.REBOOT))
    frames = list(simulation.frames(20))
    heard = [bool(table(frame, EntityKind.NODE).reported[0]) for frame in frames]
    assert heard[-1] and table(frames[-1], EntityKind.GPU).column("gpu_present")[1] == 1.0
    assert len(simulation.parts) == 8


def test_a_job_that_lost_a_rank_spins_and_then_fails() -> None:
    simulation, frames = play(scripted(FaultName.GSP_TIMEOUT))
    at = round((ONSET_S + RAMP_S) / SETTING.interval_s) + 2
    gpus = table(frames[at], EntityKind.GPU)
    load, watts = gpus.column("gpu_utilization_ratio"), gpus.column("gpu_power_watts")
    assert load[1] < 0.1 and load[[0, 2, 3]].min() > 0.9 and watts[:4].max() < 200.0
    assert any(job.state == "FAILED" for job in simulation.board_jobs())


def test_peers_of_a_failed_link_say_it_too_now_and_then() -> None:
    topology = Simulation(Setting(30, 8, seed=2)).topology
    faults = one_each(FaultName.NVLINK_DOWN, [g.gpu_uuid for g in topology.gpus[::8]], 2, 0.0)
    frames = list(Simulation(Setting(30, 8, seed=2, interval_s=60.0), faults).frames(2))
    gpus = {event.entity for event in events(frames) if event.xid == 74}
    assert 30 < len(gpus) < 80


def test_late_readings_are_marked_for_sinks_with_a_time_of_arrival() -> None:
    _, frames = play(scripted(FaultName.LATE_READINGS))
    assert [frame.late for frame in (frames[9], frames[11])] == [frozenset(), frozenset({0})]
    assert frames[-1].late == frozenset() and not differs(frames, 40)


@pytest.mark.parametrize("shape", Shape)
def test_shapes_of_precursors_rise_from_little_to_all(shape: Shape) -> None:
    grown = [shape.grown(step / 10, 1000.0) for step in range(11)]
    assert grown[-1] == 1.0 and max(grown) <= 1.0 and grown[1] < 0.4


def test_a_node_that_is_taken_out_gets_no_job_until_the_repair() -> None:
    fault = ScriptedFault(
        FaultName.STRAGGLER_CLOCK, GPUS[1], 0.0, ramp_s=0.0, duration_s=2400.0, drained=True
    )
    jobs = JobParameters(length_s=(1e6, 2e6), checkpoint_every_s=(5e5, 6e5), nodes=(1,))
    setting = Setting(2, 4, seed=21, interval_s=30.0, parameters=Parameters(jobs=jobs))
    frames = list(Simulation(setting, [fault]).frames(150))
    load = [table(f, EntityKind.GPU).column("gpu_utilization_ratio")[:4].max() for f in frames]
    assert min(load[2:30]) > 0.5 and max(load[32:80]) < 0.1 and max(load[81:]) > 0.5


def test_late_readings_wait_in_the_spool_and_events_do_not() -> None:
    spool = NodeSpool("gpu-0001", "boot", 30.0)
    spool.late = True
    spool.seal(Stream.TELEMETRY, 1.0)
    assert spool.next_batch(0.0) is None and spool.held_back() == spool.waiting() == 1
    spool.seal(Stream.EVENTS, 2.0)
    waiting = spool.next_batch(0.0)
    assert waiting is not None and waiting.stream is Stream.EVENTS
    spool.reject(waiting)
    spool.late = False
    waiting = spool.next_batch(0.0)
    assert waiting is not None and waiting.stream is Stream.TELEMETRY and not spool.held_back()

"""Faults of many entities at once: each shows what it should, and tells who is innocent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_kernel_log import parse_line
from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_models.simulator.labels import Label
from gpuwarden_models.simulator.parameters import JobParameters, Parameters
from gpuwarden_models.simulator.schedule import COMMON, random_story
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_models.simulator.topology import EXPORTS, build_topology
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

# Jobs that neither end nor checkpoint while a test looks.
STEADY = Parameters(jobs=JobParameters(length_s=(1e6, 2e6), checkpoint_every_s=(5e5, 6e5)))
SETTING = Setting(8, 2, seed=5, interval_s=10.0, parameters=STEADY)
POINT = next(iter(EXPORTS))


def play(
    name: FaultName, entity: str, setting: Setting = SETTING, *, ramp_s: float | None = None
) -> tuple[Simulation, list[Frame]]:
    """A fault from 100 s to 700 s, watched for 900 s."""
    fault = ScriptedFault(name, entity, 100.0, ramp_s=ramp_s, duration_s=600.0)
    simulation = Simulation(setting, [fault])
    return simulation, list(simulation.frames(90))


def table(frame: Frame, kind: EntityKind) -> FrameTable:
    return next(table for table in frame.tables if table.kind is kind)


def events(frames: Iterable[Frame]) -> list[Event]:
    return [item.event for frame in frames for item in frame.events]


def rows(labels: Iterable[Label]) -> set[tuple[str, str, bool]]:
    return {(label.entity_kind, label.entity, label.action_needed) for label in labels}


def test_a_leaf_takes_all_its_ports_down_and_brings_them_back() -> None:
    simulation, frames = play(FaultName.LEAF_REBOOT, "leaf:leaf-01")
    states = [table(frame, EntityKind.NIC).column("nic_port_state") for frame in frames]
    assert (states[9] == 4).all() and (states[11] == 1).all() and (states[70] == 4).all()
    lines = [event.text for event in events(frames) if event.kind is EventKind.KERNEL_LOG]
    assert len(lines) == 32 and all(parse_line(line) for line in lines)
    told = rows(simulation.labels())
    assert ("fabric", "leaf-01", True) in told and ("node", "gpu-0003", False) in told
    assert any(kind == "job" and not needed for kind, _, needed in told)


def test_a_stalled_mount_shows_at_sixty_nodes_and_not_at_four() -> None:
    few = Setting(4, 1, seed=5, interval_s=10.0, parameters=STEADY)
    small, large = (
        [table(frame, EntityKind.MOUNT) for frame in play(FaultName.MOUNT_STALL, place, setting)[1]]
        for setting in (few, replace(few, nodes=60))
        for place in (f"mount:{POINT}",)
    )
    assert max(one.column("mount_backlog_requests").max() for one in small) == 0.0
    waits = [one.column("mount_backlog_requests").mean() for one in large]
    assert waits[9] == 0.0 and waits[40] > 10 and waits[80] == 0.0
    trips = [
        np.diff([one.column("mount_round_trip_seconds_total")[0] for one in large]),
        np.diff([one.column("mount_operations_total")[0] for one in large]),
    ]
    round_trip_s = trips[0] / trips[1]
    assert round_trip_s[40] > 3 * round_trip_s[5]


def test_clients_of_a_stalled_mount_say_so_and_say_when_it_is_over() -> None:
    setting = Setting(60, 1, seed=5, interval_s=10.0, parameters=STEADY)
    simulation, frames = play(FaultName.MOUNT_STALL, f"mount:{POINT}", setting)
    lines = Counter(event.text for event in events(frames) if event.family == "nfs_timeout")
    assert len(lines) == 2 and all(count > 50 for count in lines.values())
    assert ("mount", POINT, True) in rows(simulation.labels())


def test_an_outage_silences_nodes_and_their_counters_start_anew() -> None:
    _, frames = play(FaultName.FACILITY_OUTAGE, "power:power-01")
    heard = [table(frame, EntityKind.NODE).reported.sum() for frame in frames]
    assert heard[9] == 8 and heard[30] == 0 and heard[75] == 8
    up = [table(frame, EntityKind.NODE).column("node_uptime_seconds")[0] for frame in frames]
    assert up[9] > 80_000 and up[75] < 100
    assert frames[9].boot_ids[0] != frames[75].boot_ids[0]
    boots = [event for event in events(frames[1:]) if event.kind is EventKind.NODE_BOOT]
    assert len(boots) == 8 and all("booted_at" in event.attributes for event in boots)
    assert not events(frames[11:69]), "who has no power says nothing"


def test_a_planned_reboot_goes_from_node_to_node_and_trains_links() -> None:
    simulation, frames = play(FaultName.PLANNED_REBOOT, "rack:rack-01", ramp_s=120.0)
    heard = np.array([table(frame, EntityKind.NODE).reported for frame in frames])
    assert heard[:, 4:].mean() > 0.95, "the other rack stays"
    first_gone = [int(np.flatnonzero(~heard[:, node])[0]) for node in range(4)]
    assert first_gone == sorted(first_gone) and first_gone[0] < first_gone[3]
    training = [
        (table(frame, EntityKind.GPU).column("gpu_nvlinks_inactive") > 0)
        & table(frame, EntityKind.GPU).reported
        for frame in frames
    ]
    assert np.array(training).any(axis=0).tolist() == [True] * 8 + [False] * 8
    assert not training[-1].any()
    assert {needed for _, _, needed in rows(simulation.labels())} == {False}


def test_an_upgrade_of_the_driver_hides_gpus_and_not_their_nodes() -> None:
    _, frames = play(FaultName.DRIVER_UPGRADE, "rack:rack-01", ramp_s=60.0)
    gpus = [table(frame, EntityKind.GPU).reported for frame in frames]
    nodes = [table(frame, EntityKind.NODE).reported for frame in frames]
    assert not gpus[40][:8].any() and gpus[40][8:].any() and nodes[40][:4].any()
    age = table(frames[40], EntityKind.NODE).column("node_nvml_call_age_seconds")
    assert age[:4].min() > 200 and age[4:].max() == 0
    kinds = Counter(event.kind for event in events(frames))
    assert kinds[EventKind.COLLECTOR_TROUBLE] == kinds[EventKind.COLLECTOR_RECOVERED] == 4


def test_a_crash_is_one_fault_and_echoes_on_all_others_of_the_job() -> None:
    simulation, frames = play(FaultName.CRASH_STORM, "gpu-0003")
    xids = Counter(event.xid for event in events(frames) if event.xid)
    assert xids[45] == 15 and xids[31] + xids[13] == 1
    first = next(event for event in events(frames) if event.xid in (13, 31))
    assert first.entity == simulation.topology.gpus[4].gpu_uuid
    ended = next(job for job in simulation.board_jobs() if job.state == "FAILED")
    assert ("job", ended.job_id, False) in rows(simulation.labels())


def test_what_is_normal_shows_on_all_nodes_alike() -> None:
    _, burst = play(FaultName.CHECKPOINT_BURST, "*")
    load = [table(frame, EntityKind.GPU).column("gpu_utilization_ratio") for frame in burst]
    assert load[9].min() > 0.8 and load[40].max() < 0.1 and load[80].min() > 0.8
    _, capped = play(FaultName.SOFTWARE_POWER_CAP, "*")
    reasons = np.array(
        [table(frame, EntityKind.GPU).column("gpu_clock_event_reasons") for frame in capped[20:60]]
    )
    assert 0.8 < (reasons == 4).mean() <= 1.0


def test_inventories_say_which_job_runs() -> None:
    simulation, frames = play(FaultName.CRASH_STORM, "gpu-0003")
    told = [event.inventory for event in events(frames) if event.inventory is not None]
    assert {len(inventory.jobs) for inventory in told[:8]} == {2}
    assert {len(inventory.jobs) for inventory in told[8:16]} == {0}
    assert told[0].labels == {
        "rack": "rack-01",
        "leaf": "leaf-01",
        "power": "power-01",
        "mounts": POINT,
    }
    assert told[0].jobs[0].job_id == simulation.board_jobs()[0].job_id


def test_jobs_end_in_all_the_ways_of_a_scheduler() -> None:
    short = JobParameters(length_s=(60.0, 120.0), gap_s=(10.0, 20.0), nodes=(1,))
    setting = Setting(20, 1, seed=2, interval_s=30.0, parameters=Parameters(jobs=short))
    simulation = Simulation(setting)
    list(simulation.frames(120))
    ended = Counter(job.state for job in simulation.board_jobs())
    assert set(ended) == {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "RUNNING"}
    assert ended["COMPLETED"] > 5 * ended["FAILED"] > 0


def test_stories_of_common_causes_are_those_of_their_seed() -> None:
    topology = build_topology(64, 1, 7)
    story = random_story(topology, 24.0, 7, COMMON, stream=4)
    assert story == random_story(topology, 24.0, 7, COMMON, stream=4)
    assert {fault.name for fault in story} <= set(COMMON) and len(story) > 10
    Simulation(Setting(64, 1, seed=7), story)


@pytest.mark.parametrize("entity", ["leaf:leaf-09", "*"])
def test_a_place_that_is_not_there_is_named(entity: str) -> None:
    name = FaultName.LEAF_REBOOT if entity != "*" else FaultName.MOUNT_STALL
    with pytest.raises(ValueError, match=r"no place .*one that exists: rack:rack-01"):
        Simulation(SETTING, [ScriptedFault(name, entity, 0.0)])

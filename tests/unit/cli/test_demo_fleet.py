"""The demo's story rests on what the played fleet does meanwhile."""

from __future__ import annotations

import numpy as np

from gpuwarden_cli.demo import stage
from gpuwarden_cli.demo.fleet import GPUS_PER_NODE, NODES, build_simulation, node_names
from gpuwarden_cli.demo.pace import BRISK, STROLL
from gpuwarden_cli.demo.story import story

STORY_S = 300.0


def test_jobs_run_without_a_pause_where_the_story_needs_them() -> None:
    simulation = build_simulation(5.0, 1_772_323_200.0, "test")
    gpu_row = {
        (simulation.topology.nodes[gpu.node], gpu.index): row
        for row, gpu in enumerate(simulation.topology.gpus)
    }
    rows = [gpu_row[stage.HOT], gpu_row[stage.WORN], gpu_row[stage.LOST], gpu_row["gpu-0003", 0]]
    for frame in simulation.frames(int(STORY_S / 5.0)):
        load = frame.tables[0].column("gpu_utilization_ratio")[rows]
        assert np.all(load > 0.8)


def test_burst_takes_a_job_of_eight_nodes_and_none_that_another_fault_needs() -> None:
    simulation = build_simulation(5.0, 1_772_323_200.0, "test")
    job = next(job for job in simulation.board_jobs() if stage.BURST_NODE in job.nodes)
    assert len(job.nodes) == 8
    others = {stage.WORN[0], stage.LOST[0], stage.HOT[0], stage.PORT_NODE, stage.SPARE}
    assert not others & set(job.nodes)


def test_every_name_of_the_story_exists() -> None:
    names = node_names()
    assert len(names) == NODES
    topology = build_simulation(5.0, 0.0, "test").topology
    assert f"{stage.PORT_NODE}/{stage.PORT}" in topology.nic_row
    assert GPUS_PER_NODE * NODES == len(topology.gpus) == 128
    assert stage.SPARE in names


def test_both_paces_tell_the_same_story_and_the_brisk_one_fits_its_two_minutes() -> None:
    assert [step.name for step in story(STROLL)] == [step.name for step in story(BRISK)]
    holds = sum(step.hold_s + BRISK.pause_s for step in story(BRISK))
    assert holds + BRISK.dwell_s + BRISK.wear_s < 60.0

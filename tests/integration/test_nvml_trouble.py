"""A driver that hangs, a child that is stopped or ended, a library that is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.collectors.contract import CollectorError, Harvest
from gpuwarden_agent.sources.nvml import ProbeState
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Stale, Unavailable
from tests.builders import nvml
from tests.builders.nvml import (
    NodeScenario,
    StubbedNode,
    child_pids,
    is_running,
    stubbed_node,
    wait_until,
)

Start = Callable[..., StubbedNode]
QUICK = {"call_deadline_s": 0.2, "stuck_after_s": 0.8}
POWER = "nvmlDeviceGetPowerUsage"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    started: list[StubbedNode] = []

    def begin(node: NodeScenario, **settings: Any) -> StubbedNode:
        started.append(stubbed_node(tmp_path, monkeypatch, node, **settings))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def hang(node: StubbedNode, gpu: int, call: str = POWER) -> None:
    node.scenario.change(lambda n: n.gpu(gpu).rules.append(f"hang {call}"))


def release(node: StubbedNode, gpu: int) -> None:
    node.scenario.change(lambda n: n.gpu(gpu).rules.clear())


def node_row(harvest: Harvest) -> dict[str, Reading]:
    return dict(harvest.rows[EntityKind.NODE][""])


def collect_until(node: StubbedNode, kind: EventKind) -> list[Harvest]:
    harvests: list[Harvest] = []

    def seen() -> bool:
        try:
            harvests.append(node.collect())
        except CollectorError:
            return False  # on a busy machine a child that starts may seem silent
        return any(event.kind is kind for event in harvests[-1].events)

    wait_until(seen)
    return harvests


def settle(node: StubbedNode) -> None:
    """Wait for the first answer: on a busy machine the child takes its time to start."""
    wait_until(lambda: node.probe.poll().answer is not None)
    node.collect()


def trouble_of(node: StubbedNode) -> str:
    with pytest.raises(CollectorError) as raised:
        node.collect()
    return raised.value.reason


def collected_again(node: StubbedNode) -> Harvest:
    """The first harvest that comes without trouble."""
    harvests: list[Harvest] = []

    def works() -> bool:
        try:
            harvests.append(node.collect())
        except CollectorError:
            return False
        return True

    wait_until(works)
    return harvests[-1]


def test_a_call_that_hangs_makes_the_driver_stuck_and_its_return_ends_it(start: Start) -> None:
    node = start(nvml.h100_node(), **QUICK)
    settle(node)
    hang(node, 2)
    began = time.monotonic()
    first = node.collect()
    assert time.monotonic() - began < 20.0, "the call hangs until it is released"
    uuid = node.scenario.node.gpu(2).uuid
    assert all(isinstance(row["gpu_present"], Stale) for row in first.rows[EntityKind.GPU].values())
    assert first.events == ()
    harvests = collect_until(node, EventKind.DRIVER_STUCK)
    (stuck,) = harvests[-1].events
    assert stuck.attributes["call"] == POWER
    assert stuck.attributes["gpu_uuid"] == uuid
    told_s = stuck.attributes["age_s"]
    assert isinstance(told_s, float)
    assert told_s >= 0.8
    age_s = node_row(harvests[-1])["node_nvml_call_age_seconds"]
    assert isinstance(age_s, float)
    assert age_s >= 0.8
    still = [node.collect() for _ in range(3)]
    assert [harvest.events for harvest in still] == [(), (), ()]
    assert len(child_pids()) == 1
    release(node, 2)
    harvests = collect_until(node, EventKind.DRIVER_RESPONDS)
    assert harvests[-1].rows[EntityKind.GPU][uuid]["gpu_power_watts"] == 648.125
    assert node_row(harvests[-1])["node_nvml_call_age_seconds"] == 0.0
    assert len(child_pids()) == 1


def test_while_the_driver_is_stuck_a_poll_does_not_wait(start: Start) -> None:
    node = start(nvml.h100_node(1), call_deadline_s=1.0, stuck_after_s=0.5)
    node.collect()
    hang(node, 0)
    collect_until(node, EventKind.DRIVER_STUCK)
    began = time.monotonic()
    for _ in range(5):
        node.collect()
    assert time.monotonic() - began < 4.0, "each that waited would take a second"


def test_a_slow_call_is_not_stuck(start: Start) -> None:
    scenario = nvml.h100_node(1)
    node = start(scenario, **QUICK)
    settle(node)
    node.scenario.change(lambda n: n.gpu(0).rules.append(f"delay {POWER} 500"))
    assert node.collect().events == ()
    assert node.probe.condition().call == POWER
    wait_until(lambda: node.probe.condition().state is ProbeState.READY)
    release(node, 0)
    harvest = node.collect()
    assert harvest.events == ()
    assert harvest.rows[EntityKind.GPU][scenario.gpu(0).uuid]["gpu_power_watts"] == 648.125


def test_a_hang_at_initialisation_is_a_stuck_driver_too(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.rules.append("hang nvmlInitWithFlags")
    node = start(scenario, **QUICK)
    (stuck,) = collect_until(node, EventKind.DRIVER_STUCK)[-1].events
    assert stuck.attributes["call"] == "nvmlInit"
    node.scenario.change(lambda n: n.rules.clear())
    collect_until(node, EventKind.DRIVER_RESPONDS)


def test_a_hang_in_the_wait_for_events_is_seen_though_polls_go_on(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.rules.append("hang nvmlEventSetWait_v2")
    node = start(scenario, **QUICK)
    settle(node)
    harvest = collect_until(node, EventKind.DRIVER_STUCK)[-1]
    assert harvest.events[0].attributes["call"] == "nvmlEventSetWait_v2"
    uuid = node.scenario.node.gpu(0).uuid
    assert harvest.rows[EntityKind.GPU][uuid]["gpu_power_watts"] == 648.125
    node.scenario.change(lambda n: n.rules.clear())
    collect_until(node, EventKind.DRIVER_RESPONDS)


REMAPS = "nvmlDeviceGetRemappedRows"


def test_a_hang_in_a_look_of_the_fast_lane_is_a_stuck_driver_and_nothing_reads_well(
    start: Start,
) -> None:
    node = start(nvml.h100_node(), fast_interval_s=0.05, **QUICK)
    hurried: list[None] = []
    node.probe.on_change(lambda: hurried.append(None))
    settle(node)
    hang(node, 2, REMAPS)  # nobody polls: the next look runs into it
    wait_until(lambda: node.probe.condition().state is ProbeState.STUCK)
    assert node.probe.condition().call == REMAPS
    assert node.probe.stuck_call() == REMAPS
    harvest = node.collect()
    assert [event.kind for event in harvest.events] == [EventKind.DRIVER_STUCK]
    readings = [one for row in harvest.rows[EntityKind.GPU].values() for one in row.items()]
    assert not [m for m, one in readings if isinstance(one, float) and not m.startswith("gpu_aer")]
    assert hurried == []
    release(node, 2)
    harvests = collect_until(node, EventKind.DRIVER_RESPONDS)
    uuid = node.scenario.node.gpu(2).uuid
    assert harvests[-1].rows[EntityKind.GPU][uuid]["gpu_row_remap_pending"] == 0.0


def test_a_look_that_fails_makes_one_poll_worth_making_which_says_why(start: Start) -> None:
    node = start(nvml.h100_node(2), fast_interval_s=0.05)
    hurried: list[None] = []
    node.probe.on_change(lambda: hurried.append(None))
    settle(node)
    node.scenario.change(lambda n: n.gpu(1).rules.append(f"fail {REMAPS} 999"))
    wait_until(lambda: hurried)
    rows = node.collect().rows[EntityKind.GPU]
    sound, sick = (rows[node.scenario.node.gpu(number).uuid] for number in (0, 1))
    assert sick["gpu_row_remap_pending"] == Unavailable("unknown_error")
    assert sound["gpu_row_remap_pending"] == 0.0
    time.sleep(0.3)  # further looks leave out what cannot be looked at
    assert len(hurried) == 1


def test_a_stopped_child_is_own_trouble(start: Start) -> None:
    node = start(nvml.h100_node(), **QUICK)
    settle(node)
    (pid,) = child_pids()
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: node.probe.condition().state is ProbeState.STOPPED)
    assert [trouble_of(node) for _ in range(3)] == ["nvml_child_stopped"] * 3
    assert node.probe.condition().mend == f"Continue it: kill -CONT {pid}"
    assert node.probe.stuck_call() == ""  # no call is to blame
    os.kill(pid, signal.SIGCONT)
    harvest = collected_again(node)
    assert harvest.events == ()
    assert child_pids() == [pid]


def test_a_child_stopped_inside_a_call_is_not_a_stuck_driver(start: Start) -> None:
    node = start(nvml.h100_node(1), **QUICK)
    settle(node)
    node.scenario.change(lambda n: n.gpu(0).rules.append(f"delay {POWER} 300"))
    node.collect()
    (pid,) = child_pids()
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: node.probe.condition().call_age_s > 0.8)
    assert trouble_of(node) == "nvml_child_stopped"
    release(node, 0)
    os.kill(pid, signal.SIGCONT)
    assert collected_again(node).events == ()


def test_a_killed_child_is_own_trouble_and_is_started_again(start: Start) -> None:
    node = start(nvml.h100_node(), restart_after_s=0.3)
    node.collect()
    (pid,) = child_pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: node.probe.condition().state is ProbeState.EXITED)
    assert trouble_of(node) == "nvml_child_exited"
    assert "signal 9" in node.probe.condition().mend
    harvest = collected_again(node)
    assert harvest.events == ()
    assert len(harvest.rows[EntityKind.GPU]) == 8
    assert child_pids() != [pid]


def test_starts_back_off_while_the_child_does_not_live(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.rules.append("fail nvmlInitWithFlags 9")
    node = start(scenario, restart_after_s=0.1)
    seen: set[int] = set()
    deadline = time.monotonic() + 0.65
    while time.monotonic() < deadline:
        assert trouble_of(node) == "nvml_driver_not_loaded"
        seen.update(child_pids())
        time.sleep(0.01)
    # Starts at 0, 0.1, 0.3 s and not before 0.7 s, each plus what starting takes.
    assert len(seen) <= 3
    node.scenario.change(lambda n: n.rules.clear())
    assert len(collected_again(node).rows[EntityKind.GPU]) == 1


def test_a_driver_that_is_unloaded_and_replaced_is_met_afresh(start: Start) -> None:
    node = start(nvml.h100_node(2))
    assert node.collect().inventory is not None
    node.scenario.change(lambda n: n.rules.append("fail nvmlDeviceGetCount_v2 1"))
    assert trouble_of(node) == "nvml_uninitialized"

    def upgrade(scenario: NodeScenario) -> None:
        scenario.rules.clear()
        scenario.driver = "590.10.01"

    node.scenario.change(upgrade)
    harvest = collected_again(node)
    assert harvest.events == ()
    assert harvest.inventory is not None
    assert {gpu.driver_version for gpu in harvest.inventory.gpus} == {"590.10.01"}


def test_a_lost_gpu_is_looked_for_by_a_fresh_child(start: Start) -> None:
    node = start(nvml.h100_node(2), renew_after_s=0.2)
    node.collect()
    (first,) = child_pids()
    node.scenario.change(lambda n: n.gpu(1).lose())
    lost = [event.attributes["probes"] for _ in range(3) for event in node.collect().events]
    time.sleep(0.25)
    node.collect()
    wait_until(lambda: not is_running(first))
    harvest = node.collect()
    assert lost == [1, 2]
    assert harvest.events == ()
    assert child_pids() != [first]
    node.scenario.change(lambda n: n.gpu(1).restore())
    assert [event.kind for event in node.collect().events] == [EventKind.GPU_BACK]


def test_no_library_says_what_to_install(start: Start, tmp_path: Path) -> None:
    missing = tmp_path / "libnvidia-ml.so.1"
    node = start(nvml.h100_node(1), library_path=missing)
    with pytest.raises(CollectorError) as raised:
        node.collect()
    assert raised.value.reason == "nvml_library_not_found"
    assert "driver" in raised.value.mend


def test_a_node_without_gpus_and_library_is_quiet(start: Start, tmp_path: Path) -> None:
    node = start(NodeScenario(), library_path=tmp_path / "libnvidia-ml.so.1")
    harvest = node.collect()
    assert node_row(harvest)["node_gpus_on_pci"] == 0.0
    assert harvest.events == ()


def test_closing_leaves_a_stuck_child_to_end_by_itself(start: Start) -> None:
    node = start(nvml.h100_node(1), **QUICK)
    settle(node)
    hang(node, 0)
    collect_until(node, EventKind.DRIVER_STUCK)
    (pid,) = child_pids()
    began = time.monotonic()
    node.collector.close()
    assert time.monotonic() - began < 20.0, "the call hangs until it is released"
    assert is_running(pid)
    release(node, 0)
    wait_until(lambda: not is_running(pid))


def test_closing_ends_an_idle_child(start: Start) -> None:
    node = start(nvml.h100_node(1))
    node.collect()
    (pid,) = child_pids()
    node.collector.close()
    assert not is_running(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_child_waits_for_the_call(start: Start, number: signal.Signals) -> None:
    node = start(nvml.h100_node(1), **QUICK)
    settle(node)
    hang(node, 0)
    node.collect()
    (pid,) = child_pids()
    os.kill(pid, number)
    time.sleep(0.2)
    assert is_running(pid)


AGENT = """
import sys, time
from pathlib import Path
from gpuwarden_agent.sources.nvml import NvmlSettings
from gpuwarden_agent.sources.nvml_process import NvmlProbeProcess
probe = NvmlProbeProcess(NvmlSettings(boot_id="b"))
assert probe.poll().answer is not None
print(Path(f"/proc/self/task/{__import__('os').getpid()}/children").read_text(), flush=True)
time.sleep(60)
"""


def test_a_killed_agent_leaves_no_child_behind(tmp_path: Path) -> None:
    scenario = nvml.ScenarioFile(tmp_path / "scenario", nvml.h100_node(1))
    environment = os.environ | nvml.stub_environment(scenario.path)
    with subprocess.Popen(
        [sys.executable, "-c", AGENT], env=environment, stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        assert is_running(pid)
        agent.kill()
    wait_until(lambda: not is_running(pid))

"""Processes on GPUs through real pynvml over the compiled stub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.sources.nvml_frames import Answer, GpuAnswer
from gpuwarden_agent.sources.nvml_process import processes_after
from tests.builders import nvml
from tests.builders.nvml import NodeScenario, StubbedNode, stubbed_node

Start = Callable[..., StubbedNode]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    started: list[StubbedNode] = []

    def begin(node: NodeScenario, **settings: Any) -> StubbedNode:
        started.append(stubbed_node(tmp_path, monkeypatch, node, **settings))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def test_processes_are_read_once_and_again_only_when_it_is_their_turn(start: Start) -> None:
    scenario = nvml.h100_node(3)
    scenario.gpu(0).pids = [4712, 4711]
    scenario.gpu(2).rules.append("unsupported nvmlDeviceGetComputeRunningProcesses_v3")
    node = start(scenario)
    assert node.probe.processes() is None, "nobody asked yet"
    node.collect()
    found = node.probe.processes()
    assert found == {scenario.gpu(0).uuid: (4711, 4712), scenario.gpu(1).uuid: ()}
    node.scenario.change(lambda changed: changed.gpu(0).pids.clear())
    node.collect()
    assert node.probe.processes() is found, "not asked at every poll"
    node.scenario.change(lambda changed: changed.gpu(0).lose())
    node.collect()
    after = node.probe.processes()
    assert after == {scenario.gpu(0).uuid: None, scenario.gpu(1).uuid: ()}, "unknown, not none"


def answer(*gpus: GpuAnswer) -> Answer:
    return Answer(number=1, driver_version="", count=len(gpus), gpus=gpus)


def gpu(uuid: str, code: int = 0, pids: tuple[int, ...] | None = None) -> GpuAnswer:
    return GpuAnswer(uuid=uuid, pci_bus_id="", index=0, code=code, pids=pids)


def test_what_an_answer_does_not_say_stays_as_it_was() -> None:
    assert processes_after(None, answer(gpu("a"), gpu("b", code=15))) is None
    before = processes_after(None, answer(gpu("a", pids=(1,)), gpu("b")))
    assert before == {"a": (1,)}
    assert processes_after(before, answer(gpu("a"), gpu("b"))) is before
    again = processes_after(before, answer(gpu("a", pids=(1,)), gpu("b", pids=())))
    assert again == {"a": (1,), "b": ()}
    lost = processes_after(again, answer(gpu("a", code=15), gpu("b")))
    assert lost == {"a": None, "b": ()}
    assert processes_after(lost, answer(gpu("a", code=15), gpu("b"))) is lost

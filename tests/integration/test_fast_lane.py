"""What announces a fault reaches the server between two collections."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuwarden_agent.port_watch import PortWatch
from gpuwarden_agent.sources.state_glance import StateGlance
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.schema import Schema
from tests.builders.nvml import NodeScenario, ScenarioFile, h100_node
from tests.builders.processes import agent_environment, agent_program, started
from tests.builders.sysfs import Sysfs
from tests.fakes.ingest_server import FakeIngestServer
from tests.fakes.waiting import wait_for

INTERVAL_S = 60.0
"""Of collection: nothing that a test waits for comes by it."""


@dataclass
class Node:
    """A running agent, and what its server knows."""

    server: FakeIngestServer
    scenario: ScenarioFile
    sysfs: Sysfs
    schemas: dict[str, Schema] = field(default_factory=dict)

    def readings(self, metric: str, entity: str) -> list[float]:
        """All numbers of a metric that arrived, in order."""
        found = []
        for one in [one.batch for one in self.server.received]:
            self.schemas.update({schema.hash: schema for schema in one.schemas})
            for table in one.tables:
                names = self.schemas[table.schema].names
                if metric in names and entity in table.entities:
                    place = names.index(metric) * len(table.entities)
                    cells = memoryview(table.f32).cast("f")
                    found.append(cells[place + table.entities.index(entity)])
        return found

    def wait_for(self, metric: str, entity: str, number: float) -> None:
        """Until a number arrived."""
        wait_for(lambda: self.readings(metric, entity)[-1] == number, timeout_s=20.0, what=metric)

    def batches(self) -> int:
        """Batches of telemetry so far."""
        return len(self.server.seqs(Stream.TELEMETRY))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running(tmp_path, fast_interval_s=0.2) as one:
        yield one


@contextmanager
def running(folder: Path, fast_interval_s: float) -> Iterator[Node]:
    """An agent that has sent its first readings."""
    with FakeIngestServer() as server:
        gpus, cadence = h100_node(2), {"interval_s": INTERVAL_S, "fast_interval_s": fast_interval_s}
        variables = agent_environment(folder, server.url, "gw_x", "node-1", gpus, **cadence)
        sysfs = Sysfs(folder / "sys")
        sysfs.port("mlx5_0")
        with started([agent_program(), "run"], folder / "agent.log", variables):
            one = Node(server, ScenarioFile(folder / "scenario", gpus), sysfs)
            wait_for(lambda: one.readings("gpu_row_remap_pending", gpus.gpu(1).uuid))
            wait_for(lambda: one.readings("nic_port_state", "mlx5_0/1"))
            yield one


def edit(number: str) -> Callable[[NodeScenario], None]:
    return lambda node: node.gpu(1).set(number, 1)


@pytest.mark.serial
def test_a_fault_is_told_between_two_collections_and_nothing_else_is_sent(node: Node) -> None:
    uuid = node.scenario.node.gpu(1).uuid
    time.sleep(0.5)  # looks at which nothing changed
    quiet = node.batches()
    for number, metric in (
        ("remap_pending", "gpu_row_remap_pending"),
        ("field_230", "gpu_recovery_action"),
    ):
        node.scenario.change(edit(number))
        node.wait_for(metric, uuid, 1.0)
    node.sysfs.write({"class/infiniband/mlx5_0/ports/1/state": "1: DOWN"})
    node.wait_for("nic_port_state", "mlx5_0/1", 1.0)
    assert node.batches() == quiet + 3
    node.scenario.change(lambda one: one.gpu(0).lose())
    wait_for(lambda: any(e.kind == "gpu_lost" for e in node.server.events.values()), timeout_s=20.0)


DRAM_RETIREMENT = 0x400  # nvmlEventTypeDramRetirementEvent
MIG_CHANGE = 0x100  # nvmlEventMigConfigChange: what it is about is else read each minute


@pytest.mark.serial
@pytest.mark.parametrize(
    ("event", "number", "metric"),
    [
        (DRAM_RETIREMENT, "remap_pending", "gpu_row_remap_pending"),
        (MIG_CHANGE, "mig_mode", "gpu_mig_mode"),
    ],
)
def test_what_the_driver_announces_is_read_and_sent_at_once_without_any_look(
    tmp_path: Path, event: int, number: str, metric: str
) -> None:
    with running(tmp_path, fast_interval_s=0.0) as node:
        uuid = node.scenario.node.gpu(1).uuid
        for name in ("mig_devices_max", "mig_devices", number):
            node.scenario.change(edit(name))

        def told() -> bool:
            # Again and again: what happened before the child waits for events is not delivered.
            node.scenario.change(lambda one: one.announce(1, event))
            return node.readings(metric, uuid)[-1] == 1.0

        wait_for(told, timeout_s=20.0)


class Ports:
    def __init__(self) -> None:
        self.said = {"mlx5_0/1": "4: ACTIVE", "mlx5_1/1": "4: ACTIVE"}
        self.broken = False
        self.hangs = ""
        self.free = threading.Event()
        self.looks: Counter[str] = Counter()

    def ports(self) -> tuple[str, ...]:
        return tuple(self.said)

    def glance(self, port: str) -> str:
        self.looks[port] += 1
        if self.broken:
            raise ZeroDivisionError
        if port == self.hangs:
            self.free.wait(60)
        return self.said[port]


def test_each_change_of_a_port_hurries_its_own_collector_once() -> None:
    hurried: list[str] = []
    ports, others = Ports(), Ports()
    watch = PortWatch({"rdma": ports, "net": others}, hurried.append, 0.01)
    watch.start()
    wait_for(lambda: ports.looks.total() > 4)
    ports.said["mlx5_1/1"] = "1: DOWN"
    wait_for(lambda: hurried)
    others.broken = True  # a bug of one leaves the other
    seen = ports.looks.total()
    wait_for(lambda: ports.looks.total() > seen + 6)
    ports.said["mlx5_1/1"] = "4: ACTIVE"
    wait_for(lambda: len(hurried) > 1)
    watch.stop()
    assert hurried == ["rdma", "rdma"]


def test_a_port_that_hangs_hides_no_other_and_is_looked_at_again_when_it_comes_back() -> None:
    hurried: list[str] = []
    ports, clock = Ports(), [0.0]
    watch = PortWatch({"rdma": ports}, hurried.append, 0.01, clock=lambda: clock[0])
    ports.hangs = "mlx5_0/1"
    watch.start()
    wait_for(lambda: ports.looks["mlx5_0/1"])
    watch.look_after()
    held = [watch.held]  # it may be slow only
    clock[0] = 1.0
    watch.look_after()
    held.append(watch.held)
    wait_for(lambda: ports.looks["mlx5_1/1"] > 2)
    ports.said["mlx5_1/1"] = "1: DOWN"
    wait_for(lambda: hurried)
    assert ports.looks["mlx5_0/1"] == 1
    ports.hangs = ""
    ports.free.set()
    wait_for(lambda: ports.looks["mlx5_0/1"] > 3)
    ports.said["mlx5_0/1"] = "1: DOWN"
    wait_for(lambda: len(hurried) > 1)
    assert [*held, watch.held] == [(), (("rdma", "mlx5_0/1"),), ()]
    watch.stop()
    assert hurried == ["rdma", "rdma"]


def test_while_closed_a_glance_opens_nothing_and_says_what_it_said(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("4: ACTIVE\n")
    glance = StateGlance()
    assert glance.paths == ()
    paths = (str(state), str(tmp_path / "gone"))
    glance.follow(paths)
    assert list(map(glance.look, glance.paths)) == ["4: ACTIVE", "no_such_file"]
    glance.close()
    state.write_text("1: DOWN\n")
    assert list(map(glance.look, glance.paths)) == ["4: ACTIVE", "no_such_file"]
    glance.follow(paths)
    assert list(map(glance.look, glance.paths)) == ["1: DOWN", "no_such_file"]

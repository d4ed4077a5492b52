"""What the kernel said while no agent ran, through the real agent and the real server."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders.agent import XID_79
from tests.builders.feed import exclusions_of, get, quick_settings, reading_feed, wait_sweeps
from tests.builders.nvml import h100_node
from tests.builders.processes import agent_environment, started
from tests.builders.server import Running, running_server, wait_until

NODE = "node-1"
BOOTS = ["0b00b00b-0000-4000-8000-000000000001", "0b00b00b-0000-4000-8000-000000000002"]


@dataclass
class Machine:
    """A node whose agent comes and goes, and which can be booted anew."""

    server: Running
    folder: Path
    key: str

    def __post_init__(self) -> None:
        self.boot(BOOTS[0], 5000.0)
        self._environment = agent_environment(
            self.folder,
            self.server.url,
            self.key,
            NODE,
            h100_node(),
            interval_s=0.5,
            backoff_max_s=0.5,
            proc_root=self.folder / "proc",
        )

    def boot(self, boot_id: str, uptime_s: float) -> None:
        random = self.folder / "proc" / "sys" / "kernel" / "random"
        random.mkdir(parents=True, exist_ok=True)
        (random / "boot_id").write_text(boot_id + "\n")
        (self.folder / "proc" / "uptime").write_text(f"{uptime_s} 0.0\n")

    @contextmanager
    def agent(self) -> Iterator[None]:
        """The agent runs; it is known to have read its log when the block begins."""
        command = [Path(sys.executable).with_name("gpuwarden-agent"), "run"]
        with started(command, self.folder / "agent.log", self._environment):
            wait_until(lambda: len(get(self.server, "/v1/gpus")["items"]) == 8, "8 GPUs", 30)
            yield

    def says(self, line: str) -> None:
        with (self.folder / "kern.log").open("a") as log:
            log.write(line + "\n")

    def falls_off(self, gpu: dict[str, Any]) -> None:
        self.says(XID_79.replace("0000:3b:00", gpu["pci_bus_id"].rsplit(".", 1)[0]))

    def stored(self, **wanted: object) -> list[dict[str, Any]]:
        """Stored events with these fields."""
        events = get(self.server, "/v1/events", node=NODE, limit=1000)["items"]
        return [one for one in events if wanted.items() <= one.items()]

    def catches_up(self) -> None:
        """Wait until a line of now has arrived: all before it has been read."""
        text = f"nfs: server store-{time.monotonic_ns()} not responding, still trying"
        self.says(text)
        wait_until(lambda: self.stored(text=text), "the latest line", 20)
        wait_sweeps(self.server)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with running_server(quick_settings(tmp_path)) as server:
        yield Machine(server, tmp_path / "node", server.mint("agent", NODE))


@pytest.mark.serial
def test_a_fault_while_the_agent_is_down_excludes_once_and_one_before_a_reboot_never(
    machine: Machine,
) -> None:
    server = machine.server
    with machine.agent():
        machine.catches_up()
    news, history, *_ = get(server, "/v1/gpus")["items"]
    machine.falls_off(news)
    with reading_feed(server) as feed, machine.agent():
        feed.wait_added(news["gpu_uuid"])
    (fault,) = machine.stored(xid=79)
    assert set(fault["flags"]) <= {"more_events"}  # not history, nor a first look

    shutil.rmtree(machine.folder / "spool")  # all is read anew, into a spool of another name
    with machine.agent():
        machine.catches_up()
    assert machine.stored(xid=79) == [fault]
    assert len(get(server, "/v1/decisions", node=NODE)["items"]) == 1

    machine.falls_off(history)
    machine.boot(BOOTS[1], 1.0)
    with machine.agent():
        machine.catches_up()
        (past,) = get(server, f"/v1/gpus/{history['gpu_uuid']}/why")["incidents"]
        assert past["phase"] == "resolved"
    assert history["gpu_uuid"] not in {one["entity"] for one in exclusions_of(server)["exclusions"]}
    entities = [one["entity"] for one in get(server, "/v1/decisions", node=NODE)["items"]]
    assert history["gpu_uuid"] not in entities

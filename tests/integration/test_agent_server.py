"""The real agent, with GPUs of the compiled NVML stub, against the real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.builders.agent import XID_79
from tests.builders.nvml import ScenarioFile, h100_node, stub_environment
from tests.builders.server import Running, ServerProcess, make_settings, running_server
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for


class AgentProcess:
    """The agent as a process of its own."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self.log = folder / "kern.log"
        self.log.touch()
        self.verdict_file = folder / "run" / "verdict.json"
        self.metrics_port = free_port()
        self._folder = folder
        self.scenario = ScenarioFile(folder / "scenario", h100_node())
        flags = {
            "server-url": url,
            "key": key,
            "node-id": "node-1",
            "interval-s": 0.5,
            "kmsg-path": self.log,
            "spool-folder": folder / "spool",
            "verdict-file": self.verdict_file,
            "backoff-max-s": 0.5,
            "metrics-port": self.metrics_port,
        }
        self._command = [sys.executable, "-m", "gpuwarden_agent.cli", "run"]
        self._command += [f"--{name}={value}" for name, value in flags.items()]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> AgentProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(10) == 0

    def start(self) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("GPUWARDEN_")}
        with (self._folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environ | stub_environment(self.scenario.path), stderr=log
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def write_line(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(line + "\n")


def get(server: Running, path: str) -> Any:
    answer = server.admin.get(path)
    answer.raise_for_status()
    return answer.json()


def stored(server: Running) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = get(server, "/v1/events?node=node-1&limit=1000")["items"]
    return events


@pytest.mark.serial
def test_a_fault_in_the_kernel_log_is_joined_to_its_gpu_at_the_server(tmp_path: Path) -> None:
    with (
        running_server(make_settings(tmp_path)) as server,
        AgentProcess(tmp_path, server.url, server.mint("agent", "node-1")) as agent,
    ):
        gpus = wait_for(lambda: get(server, "/v1/gpus")["items"], 20)
        assert len(gpus) == 8
        assert {gpu["node_id"] for gpu in gpus} == {"node-1"}
        wait_for(agent.verdict_file.exists)
        pci = gpus[3]["pci_bus_id"]
        agent.write_line(XID_79.replace("0000:3b:00", pci.rsplit(".", 1)[0]))
        found = wait_for(lambda: [e for e in stored(server) if e.get("xid") == 79])
        assert found[0]["entity"] == gpus[3]["gpu_uuid"]
        metrics = httpx.get(f"http://127.0.0.1:{agent.metrics_port}/metrics").text
    uuid = gpus[3]["gpu_uuid"]
    assert f'gpuwarden_gpu_temperature_celsius{{gpu_uuid="{uuid}",node="node-1"}}' in metrics
    joined = f'gpu_uuid="{uuid}",node="node-1",pci_bus_id="{pci}",source="kernel_log",xid="79"'
    assert f"gpuwarden_xid_events_total{{{joined}}} 1.0" in metrics
    assert 'gpuwarden_gpu_info{driver_version="' in metrics


@pytest.mark.serial
def test_a_killed_server_and_a_killed_agent_lose_and_double_no_event(tmp_path: Path) -> None:
    process = ServerProcess(make_settings(tmp_path, port=free_port()))
    server = process.start()
    agent = AgentProcess(tmp_path, server.url, server.mint("agent", "node-1"))
    written = 0
    with closing(process), agent:
        wait_for(lambda: stored(server), 20)
        for _ in range(20):
            agent.write_line(_line_about(written))
            written += 1
            time.sleep(0.005)
        process.kill()
        server.admin.close()
        agent.write_line(_line_about(written))
        agent.kill()
        agent.write_line(_line_about(written + 1))
        written += 2
        server = process.start()
        agent.start()
        wait_for(lambda: _count_79(server) >= written, 30)
        time.sleep(0.5)
        events = [event for event in stored(server) if event.get("xid") == 79]
        server.admin.close()
    assert len(events) == written
    assert len({event["id"] for event in events}) == written
    assert len({event["pci_bus_id"] for event in events}) == written


def _count_79(server: Running) -> int:
    return sum(event.get("xid") == 79 for event in stored(server))


def _line_about(number: int) -> str:
    return XID_79.replace("3b:00", f"{number % 256:02x}:1e")


@pytest.mark.serial
def test_the_job_of_a_gpus_process_is_shown_at_the_server_and_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    environ = {"TORCHELASTIC_RUN_ID": "llm-7b", "API_TOKEN": "hush-hush"}
    with (
        running_server(make_settings(tmp_path)) as server,
        subprocess.Popen(["/bin/sleep", "600"], env=environ) as job,
    ):
        agent = AgentProcess(tmp_path, server.url, server.mint("agent", "node-1"))
        gpu = agent.scenario.node.gpu(2)
        agent.scenario.change(lambda _: gpu.pids.append(job.pid))
        try:
            with agent:
                wait_for(
                    lambda: (
                        _jobs(server, gpu.uuid) == [{"kind": "torchrun", "id": "llm-7b"}] or None
                    ),
                    what="the job at its GPU",
                )
                assert _jobs(server, agent.scenario.node.gpu(3).uuid) == []
                assert "hush-hush" not in str(stored(server))
        finally:
            job.kill()


def _jobs(server: Running, gpu_uuid: str) -> list[dict[str, str]]:
    found = [gpu for gpu in get(server, "/v1/gpus")["items"] if gpu["gpu_uuid"] == gpu_uuid]
    jobs: list[dict[str, str]] = found[0]["jobs"] if found else []
    return jobs

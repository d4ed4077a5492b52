"""Every expression of the dashboard answers on a real Prometheus; the compose file is valid."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.builders.feed import quick_settings, reading_feed, xid_event
from tests.builders.nvml import h100_node
from tests.builders.processes import agent_environment, started
from tests.builders.server import Feeder, make_gpu, running_server, wait_until

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "dashboards/grafana/fleet.json").read_text(encoding="utf-8"))
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: gpuwarden
    static_configs: [{{targets: ["{server}"]}}]
  - job_name: agents
    static_configs: [{{targets: ["127.0.0.1:{agent}"]}}]
"""


def _expressions() -> list[str]:
    panels = DASHBOARD["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Prometheus over a server with an incident, and over an agent with a GPU."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not on PATH (Debian package prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    agent_port, own_port = _free_port(), _free_port()
    agent = [Path(sys.executable).with_name("gpuwarden-agent"), "run"]
    with running_server(quick_settings(folder)) as server:
        target = server.url.removeprefix("http://")
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(server=target, agent=agent_port))
        key = server.mint("agent", "node-9")
        environment = agent_environment(
            folder / "agent", server.url, key, "node-9", h100_node(2), metrics_port=agent_port
        )
        command = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{own_port}",
        ]
        with (
            started(agent, folder / "agent.log", environment),
            started(command, folder / "prometheus.log"),
            httpx.Client(base_url=f"http://127.0.0.1:{own_port}", timeout=10.0) as client,
        ):
            feeder = Feeder(server, server.mint("agent", "node-1"), "node-1")
            gpu = make_gpu(0)
            with reading_feed(server) as feed:
                feeder.introduce([gpu])
                feeder.events(xid_event(79, gpu.pci_bus_id))
                feed.wait_added(gpu.gpu_uuid)
            feeder.close()
            yield client


@pytest.mark.serial
@pytest.mark.parametrize("expression", _expressions())
def test_an_expression_of_the_dashboard_answers(prometheus: httpx.Client, expression: str) -> None:
    wait_until(lambda: _result(prometheus, expression), f"an answer to {expression}", 30)


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_compose_file_is_valid() -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not on PATH (Debian package docker-compose)")
    checked = subprocess.run(
        [program, "--file", "docker-compose.yml", "config", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def _result(prometheus: httpx.Client, expression: str) -> Any:
    try:
        answer = prometheus.get("/api/v1/query", params={"query": expression})
    except httpx.TransportError:
        return None
    return answer.json()["data"]["result"] if answer.is_success else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

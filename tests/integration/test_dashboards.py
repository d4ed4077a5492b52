"""The dashboards: fresh, of Grafana's types, and every expression answers on a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboards.boards import boards
from dashboards.generate import text_of
from tests.builders.agent import XID_79
from tests.builders.feed import quick_settings, reading_feed, xid_event
from tests.builders.nvml import h100_node
from tests.builders.processes import agent_environment, started
from tests.builders.server import Feeder, make_gpu, running_server, wait_until
from tests.fakes.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = ROOT / "dashboards" / "grafana"
BOARDS = boards()
NODE_TREE = ROOT / "tests" / "fixtures" / "agent" / "node"
GPUWARDEN = str(Path(sys.executable).with_name("gpuwarden"))
# Where deploy/test_services.sh puts @grafana/schema and the TypeScript compiler.
NODE_MODULES = Path(sys.prefix) / "grafana-schema" / "node_modules"
# An enumeration of the schema counts as the words or numbers it stands for, as JSON writes it.
CHECK = """
import type { Dashboard } from '@grafana/schema';
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
const prometheusQuery = %s;
export const board: Plain<Dashboard> = %s;
"""
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: gpuwarden
    static_configs: [{{targets: ["{server}"]}}]
  - job_name: agents
    static_configs: [{{targets: ["127.0.0.1:{agent}"]}}]
"""


def _expressions() -> list[str]:
    """Of all panels, with what Grafana would put for variables and macros."""
    found = [
        target["expr"]
        for board in BOARDS.values()
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]
    return list(dict.fromkeys(_filled(expression) for expression in found))


def _filled(expression: str) -> str:
    return re.sub(r"\$(job|node|gpu_uuid)\b", ".+", expression).replace("$__rate_interval", "10s")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Prometheus over a server with an incident, and over an agent with a GPU."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not on PATH (Debian package prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    agent_port, own_port = free_port(), free_port()
    agent = [Path(sys.executable).with_name("gpuwarden-agent"), "run"]
    with running_server(quick_settings(folder)) as server:
        target = server.url.removeprefix("http://")
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(server=target, agent=agent_port))
        key = server.mint("agent", "node-9")
        scenario = h100_node(2)
        scenario.gpu(0).set("field_230", 1)  # recovery action: reset
        environment = agent_environment(
            folder / "agent", server.url, key, "node-9", scenario, metrics_port=agent_port
        )
        shutil.copytree(
            NODE_TREE / "sys" / "class",
            folder / "agent" / "sys" / "class",
            symlinks=True,
            dirs_exist_ok=True,
        )
        (folder / "agent" / "kern.log").write_text(XID_79 + "\n")
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
            feeder.post_body(b"not a batch")
            feeder.close()
            yield client


@pytest.mark.serial
@pytest.mark.parametrize("expression", _expressions())
def test_an_expression_of_the_dashboard_answers(prometheus: httpx.Client, expression: str) -> None:
    wait_until(lambda: _result(prometheus, expression), f"an answer to {expression}", 30)


@pytest.mark.parametrize("name", BOARDS)
def test_the_committed_dashboard_is_what_the_code_makes(name: str) -> None:
    committed = (GRAFANA / name).read_text(encoding="utf-8")
    assert committed == text_of(BOARDS[name]), "run: python -m dashboards.generate"


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_and_each_says_what_it_shows(name: str) -> None:
    panels = BOARDS[name]["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]


def test_dashboards_are_of_grafanas_own_types(tmp_path: Path) -> None:
    compiler = NODE_MODULES / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("@grafana/schema is not installed (make services, with npm on PATH)")
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    for name, board in BOARDS.items():
        query = board["annotations"]["list"][0]["target"]
        # Fields of one kind of data source are no business of the schema's: not looked at there.
        plain = json.dumps({**board, "annotations": {"list": []}})
        note = json.dumps({**board["annotations"]["list"][0], "target": "?"})
        note = note.replace('"?"', "prometheusQuery")
        plain = plain.replace('"annotations": {"list": []}', f'"annotations": {{"list": [{note}]}}')
        checked = tmp_path / name.replace(".json", ".ts")
        checked.write_text(CHECK % (json.dumps(query), plain), encoding="utf-8")
    flags = ["--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "node"]
    command = [str(compiler), *flags, "--target", "es2022", *map(str, tmp_path.glob("*.ts"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_rules_are_valid_and_do_what_their_tests_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on PATH (Debian package prometheus)")
    folder = ROOT / "dashboards" / "prometheus"
    for command in (
        ["check", "rules", "rules/gpuwarden.yml"],
        ["test", "rules", "tests/gpuwarden.yml"],
    ):
        done = subprocess.run(
            [promtool, *command], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


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


def test_the_files_that_compose_mounts_are_valid() -> None:
    for program, command in (
        ("promtool", ["check", "config", "dashboards/prometheus/prometheus.yml"]),
        ("amtool", ["check-config", "deploy/compose/alertmanager.yml"]),
        (GPUWARDEN, ["notify", "check", "deploy/compose/notify.toml"]),
    ):
        if shutil.which(program) is None:
            pytest.skip(
                f"{program} is not on PATH (Debian packages prometheus, prometheus-alertmanager)"
            )
        done = subprocess.run(
            [program, *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

"""A real Prometheus, a real node_exporter and a DCGM text: the fleet appears, and is judged."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders.dcgm import OTHER_UUID, UUID, DcgmGpu, dcgm_text
from tests.builders.feed import exclusions_of, get, quick_settings, reading_feed
from tests.builders.processes import started
from tests.builders.server import Running, running_server, wait_until
from tests.fakes.exporter_server import FakeExporter, serving
from tests.fakes.waiting import wait_for

PROMETHEUS = shutil.which("prometheus")
NODE_EXPORTER = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(
        not (PROMETHEUS and NODE_EXPORTER),
        reason="prometheus and prometheus-node-exporter are not on PATH",
    ),
]

# As docs/doors.md shows it, with the addresses of this test.
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ["{node}"], labels: {{node: gpu-17}}}}]
  - job_name: dcgm
    static_configs: [{{targets: ["{dcgm}"], labels: {{node: gpu-17}}}}]
remote_write:
  - url: {server}/api/v1/write
    authorization: {{credentials_file: {key_file}}}
    write_relabel_configs:
      - source_labels: [__name__]
        regex: "(DCGM_|dcgm_|nvidia_smi_|all_smi_|node_).*"
        action: keep
"""
NUMBERS: dict[str, float | str] = {
    "DCGM_FI_DEV_GPU_TEMP": 41,
    "DCGM_FI_DEV_POWER_USAGE": 300,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_DEV_COUNT": 2,
}


@dataclass
class Fleet:
    """One node with two GPUs, seen through Prometheus."""

    server: Running
    exporter: FakeExporter
    gpus: dict[str, DcgmGpu]
    prometheus: subprocess.Popen[bytes]

    def show(self, uuid: str = UUID, **numbers: float) -> None:
        """The exporter shows these numbers from now on."""
        self.gpus[uuid].numbers |= numbers
        self.exporter.text = dcgm_text(self.gpus.values(), host="gpu-17")

    def node(self) -> dict[str, Any]:
        items = get(self.server, "/v1/nodes")["items"]
        return next((one for one in items if one["node_id"] == "gpu-17"), {})


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("prometheus")
    log = folder / "node_exporter.log"
    quiet = quick_settings(folder, silent_after_s=4.0)
    command = [str(NODE_EXPORTER), "--web.listen-address=127.0.0.1:0"]
    with (
        running_server(quiet) as server,
        serving(FakeExporter()) as exporter,
        started(command, log),
    ):
        listening = re.compile(r'Listening on" address=(127\.0\.0\.1:\d+)')
        node = wait_for(lambda: listening.search(log.read_text()), what=str(log))[1]
        (folder / "key").write_text(server.mint("feeder", name="prometheus"))
        config = folder / "prometheus.yml"
        config.write_text(
            CONFIG.format(
                node=node,
                dcgm=exporter.url.removeprefix("http://").removesuffix("/metrics"),
                server=server.url,
                key_file=folder / "key",
            )
        )
        gpus = {
            UUID: DcgmGpu(numbers=dict(NUMBERS)),
            OTHER_UUID: DcgmGpu(OTHER_UUID, 1, "00000000:2B:00.0", numbers=dict(NUMBERS)),
        }
        exporter.text = dcgm_text(gpus.values(), host="gpu-17")
        with started(_prometheus(folder, config), folder / "prometheus.log") as prometheus:
            yield Fleet(server, exporter, gpus, prometheus)


def _prometheus(folder: Path, config: Path) -> list[object]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return [
        PROMETHEUS,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def test_the_fleet_appears_and_is_judged(fleet: Fleet) -> None:
    server = fleet.server
    wait_until(
        lambda: (
            len(fleet.node().get("gpus", ())) == 2
            and get(server, f"/v1/gpus/{UUID}")["readings"].get("gpu_temperature_celsius") == 41.0
        ),
        "the node appears with its GPUs and their readings",
        60.0,
    )
    why = get(server, "/v1/nodes/gpu-17/why")
    assert why["verdict"]["usable"] == "yes"
    boot = next(
        one
        for one in get(server, "/v1/events", node="gpu-17", limit=100)["items"]
        if one["kind"] == "node_boot"
    )
    with Path("/proc/stat").open() as stat:
        booted = next(float(line.split()[1]) for line in stat if line.startswith("btime"))
    assert abs(booted - float(boot["id"].rsplit(":", 1)[1])) < 30
    with reading_feed(server) as feed:
        fleet.show(DCGM_FI_DEV_XID_ERRORS=79)
        feed.wait_added(UUID, 60.0)
        fleet.show(OTHER_UUID, DCGM_FI_DEV_ROW_REMAP_FAILURE=1)
        feed.wait_added(OTHER_UUID, 60.0)
    assert exclusions_of(server)["count"] == 2
    verdicts = server.admin.post("/v1/verdicts", json={"nodes": ["gpu-17"]}).json()["verdicts"]
    assert verdicts[0]["node"]["usable"] == "no"
    xids = [
        one
        for one in get(server, "/v1/events", node="gpu-17", limit=100)["items"]
        if one["kind"] == "nvml_xid"
    ]
    assert len(xids) == 1  # it stands in the gauge ever since


def test_a_page_that_is_gone_is_missing_and_the_node_goes_on(fleet: Fleet) -> None:
    server = fleet.server
    wait_until(lambda: len(fleet.node().get("gpus", ())) == 2, "the node is there", 60.0)
    fleet.exporter.code = 500
    wait_until(
        lambda: isinstance(get(server, f"/v1/gpus/{UUID}")["readings"]["gpu_power_watts"], dict),
        "Prometheus says that the series have ended",
        60.0,
    )
    assert not fleet.node()["silent"]
    fleet.exporter.code = 200
    wait_until(
        lambda: get(server, f"/v1/gpus/{UUID}")["readings"]["gpu_power_watts"] == 300.0,
        "they are back",
        60.0,
    )


def test_when_prometheus_is_gone_its_nodes_are_silent(fleet: Fleet) -> None:
    wait_until(lambda: fleet.node(), "the node is there", 60.0)
    fleet.prometheus.terminate()
    wait_until(lambda: fleet.node()["silent"], "its silence is noticed", 60.0)
    verdicts = fleet.server.admin.post("/v1/verdicts", json={"nodes": ["gpu-17"]}).json()
    assert verdicts["verdicts"][0]["node"]["usable"] == "no"  # what was excluded stays so

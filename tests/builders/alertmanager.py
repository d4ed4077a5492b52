"""A real Alertmanager, and what it notifies."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.answering import Posted, Reply, answering
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for

CONFIG = """
route:
  receiver: told
  group_by: {group_by}
  group_wait: {group_wait}
  group_interval: {group_interval}
receivers:
  - name: told
    webhook_configs:
      - url: {url}/
        send_resolved: true
"""


@dataclass
class Notified:
    """What an Alertmanager sent to its receiver."""

    groups: list[dict[str, Any]] = field(default_factory=list)

    def take(self, posted: Posted) -> Reply:
        """Take one notification."""
        self.groups.append(json.loads(posted.body))
        return Reply(200)

    def of(self, alertname: str, phase: str) -> list[dict[str, Any]]:
        """Alerts of a name in a phase (firing, resolved), over all notifications."""
        return [
            alert
            for group in self.groups
            for alert in group["alerts"]
            if alert["labels"]["alertname"] == alertname and alert["status"] == phase
        ]


@dataclass(frozen=True)
class RunningAlertmanager:
    """One replica."""

    url: str
    notified: Notified

    def alerts(self, alertname: str) -> list[dict[str, Any]]:
        """Active alerts of a name."""
        found = httpx.get(f"{self.url}/api/v2/alerts", params={"active": "true"}, timeout=10.0)
        return [one for one in found.json() if one["labels"]["alertname"] == alertname]


@contextmanager
def running_alertmanager(
    folder: Path,
    group_by: str = "['node', 'alertname']",
    group_wait: str = "500ms",
    group_interval: str = "1s",
) -> Iterator[RunningAlertmanager]:
    """A replica on a free port; skips the test where the program is missing."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        pytest.skip("alertmanager is not on PATH (Debian package prometheus-alertmanager)")
    folder.mkdir(parents=True, exist_ok=True)
    notified = Notified()
    with answering(notified.take) as url:
        config = CONFIG.format(
            url=url, group_by=group_by, group_wait=group_wait, group_interval=group_interval
        )
        (folder / "alertmanager.yml").write_text(config)
        port = free_port()
        with (folder / "alertmanager.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'storage'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--cluster.listen-address=",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        address = f"http://127.0.0.1:{port}"
        try:
            wait_for(lambda: _ready(address), what="Alertmanager is ready")
            yield RunningAlertmanager(address, notified)
        finally:
            process.terminate()
            process.wait(20.0)


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/-/ready", timeout=2.0).is_success
    except httpx.TransportError:
        return False

"""Receivers of notifications over a change of a node's name: one case, with its first key."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_event, make_gpu, running_server
from tests.fakes.answering import Posted, Reply, answering
from tests.fakes.pagerduty import PagerDuty
from tests.fakes.waiting import wait_for

BOTH_STORES = True
OLD, NEW = "gpu-01", "rack3-gpu-04"
SLOT = "0000:10:00.0"
ENDPOINTS = """
[[endpoints]]
name = "oncall"
kind = "pagerduty"
url = "{pager}"
routing_key = "{key}"
[[endpoints]]
name = "alerts"
kind = "alertmanager"
url = "{alerts}"
repeat_s = 1
"""


@dataclass
class Alerts:
    """An Alertmanager: what it holds, by labels."""

    held: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, posted: Posted) -> Reply:
        for alert in json.loads(posted.body):
            if alert["labels"]["alertname"] == "GpuwardenIncident":
                self.held[json.dumps(alert["labels"], sort_keys=True)] = alert
        return Reply(200)

    def of(self, node: str) -> list[dict[str, Any]]:
        return [alert for alert in self.held.values() if alert["labels"]["node"] == node]

    def fires(self, node: str) -> bool:
        return any(_lasts_s(alert) > 0.0 for alert in self.of(node))


def _lasts_s(alert: dict[str, Any]) -> float:
    """Seconds from now until it ends."""
    ends = datetime.fromisoformat(alert["endsAt"])
    return ends.timestamp() - datetime.now(ends.tzinfo).timestamp()


def clear_all(server: Running) -> None:
    for incident in get(server, "/v1/incidents", node=NEW)["items"]:
        path = f"/v1/incidents/{incident['id']}/clear"
        server.admin.post(path, json={"reason": "replaced"}).raise_for_status()


def test_a_case_from_before_keeps_its_key_and_resolves_after_it(tmp_path: Path) -> None:
    pager, alerts = PagerDuty(), Alerts()
    with ExitStack() as opened:
        pager_url = opened.enter_context(answering(pager.answer))
        alerts_url = opened.enter_context(answering(alerts.take))
        file = tmp_path / "notify.toml"
        file.write_text(ENDPOINTS.format(pager=pager_url, key="k" * 32, alerts=alerts_url))
        settings = quick_settings(tmp_path / "state", notify_file=file)
        with running_server(settings) as server, ExitStack() as node:
            agent = Feeder(server, server.mint("agent", OLD), OLD)
            node.callback(agent.close)
            agent.introduce([make_gpu(0, OLD)], disks=("sda",))
            agent.events(
                make_event(
                    family="fs_readonly",
                    entity_kind=EntityKind.DISK,
                    entity="sda",
                    text="EXT4-fs (sda): Remounting filesystem read-only",
                    severity="critical",
                )
            )
            wait_for(lambda: pager.open, what="a page for the disk")
            (key,) = pager.open
            assert OLD in key, "a disk's key has the name of its node"
            wait_for(lambda: alerts.fires(OLD), what="an alert by the old name")
            body = {"to": NEW, "reason": "new scheme"}
            server.admin.post(f"/v1/nodes/{OLD}/rename", json=body).raise_for_status()
            wait_for(lambda: alerts.fires(NEW), what="an alert by the new name")
            wait_for(lambda: not alerts.fires(OLD), what="the end of the old one")
            agent.events(xid_event(79, SLOT))  # joins the case of its node
            wait_for(lambda: len(alerts.of(NEW)) > 1, what="the second incident")
            wait_for(
                lambda: f"on {NEW}" in pager.events[-1]["payload"]["summary"], what="two faults"
            )
        with running_server(settings) as server:
            clear_all(server)
            wait_for(lambda: not pager.open, what="the end of the page")
            wait_for(lambda: not alerts.fires(NEW), what="the end of the alert")
    assert {event["dedup_key"] for event in pager.events} == {key}
    assert pager.pages == {key: 1}
    assert pager.actions()[-1] == "resolve"

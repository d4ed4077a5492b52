"""A real Alertmanager receives, groups, resolves, and notices when we fall silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_server.config import Settings
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.alertmanager import RunningAlertmanager, running_alertmanager
from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import Feeder, make_event, make_gpu, running_server
from tests.fakes.waiting import wait_for

NOBODY = "http://127.0.0.1:9"
INCIDENT, WATCHDOG = "GpuwardenIncident", "GpuwardenWatchdog"


def settings(folder: Path, *urls: str) -> Settings:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "notify.toml"
    listed = ", ".join(f'"{url}"' for url in urls)
    file.write_text(
        f"""
        [[endpoints]]
        name = "am"
        kind = "alertmanager"
        urls = [{listed}]
        repeat_s = 1
        """
    )
    return quick_settings(folder, notify_file=file)


@pytest.mark.serial
def test_two_faults_of_a_node_are_grouped_told_and_resolved(tmp_path: Path) -> None:
    with (
        running_alertmanager(tmp_path / "am-1") as first,
        running_alertmanager(tmp_path / "am-2") as second,
    ):
        with running_server(settings(tmp_path / "gw", NOBODY, first.url, second.url)) as server:
            node = Feeder(server, server.mint("agent", "told"), "told")
            gpus = [make_gpu(n, "told") for n in range(2)]
            node.introduce(gpus, labels={"rack": "r12", "leaf": "7"})
            node.events(*(xid_event(79, gpu.pci_bus_id) for gpu in gpus))
            _wait_firing(first)
            _wait_firing(second)
            _expect_labels(first)
            for gpu in gpus:
                node.events(
                    make_event(
                        kind=EventKind.CHECK_PASSED,
                        entity_kind=EntityKind.GPU,
                        entity=gpu.gpu_uuid,
                        text="dcgm r3",
                    )
                )
            _wait_resolved(first)
            _wait_resolved(second)
            node.close()
            lanes = server.admin.get("/v1/notifications/endpoints").json()["items"][0]["lanes"]
            assert [lane["failing_since"] is not None for lane in lanes] == [True, False, False]
        # The server has ended: the watchdog is posted no more, and expires over there.
        wait_for(lambda: not first.alerts(WATCHDOG), what="the watchdog has ended")


def _wait_firing(replica: RunningAlertmanager) -> None:
    wait_for(lambda: _fires(replica, 2), what="both GPUs in one group")
    wait_for(lambda: replica.alerts(WATCHDOG), what="the watchdog")


def _wait_resolved(replica: RunningAlertmanager) -> None:
    wait_for(lambda: _resolved(replica) == 2, what="both resolved")
    wait_for(lambda: not replica.alerts(INCIDENT), what="nothing fires")


def _fires(replica: RunningAlertmanager, count: int) -> bool:
    return any(
        group["groupLabels"]["alertname"] == INCIDENT and len(group["alerts"]) == count
        for group in replica.notified.groups
    )


def _resolved(replica: RunningAlertmanager) -> int:
    found = replica.notified.of(INCIDENT, "resolved")
    return len({alert["labels"]["gpu_uuid"] for alert in found})


def _expect_labels(replica: RunningAlertmanager) -> None:
    alert = replica.notified.of(INCIDENT, "firing")[0]
    labels = alert["labels"]
    assert labels["node"] == "told"
    assert labels["gpu_uuid"].startswith("GPU-told-")
    assert (labels["rack"], labels["leaf"], labels["pool"]) == ("r12", "7", "default")
    assert labels["severity"] == "critical"
    assert "79" in alert["annotations"]["description"]
    assert alert["annotations"]["incident_id"].startswith("inc-")

"""Alerts and events from outside, over real HTTP: they advise, are ended, and are stored once."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps
from tests.builders.processes import started
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import StoreKind

BOTH_STORES = True

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
BEGAN = datetime.now(UTC).isoformat()
UUID = "GPU-0d463822-1413-4315-e1a4-5503c4d55d03"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("outside"))) as running:
        for name in ("node-1", "node-2"):
            feeder = Feeder(running, running.mint("agent", name), name)
            uuid = UUID if name == "node-1" else f"GPU-{name}-0"
            feeder.introduce([make_gpu(0, name, gpu_uuid=uuid)])
            feeder.close()
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client(server.mint("feeder")) as made:
        yield made


def alert(name: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    return {
        "status": status,
        "labels": {"alertname": name, "severity": "critical", **labels},
        "annotations": {"summary": f"{name} says so"},
        "startsAt": BEGAN,
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": f"{abs(hash((name, *labels.values()))):016x}"[:16],
    }


def post_alerts(client: httpx.Client, *alerts: dict[str, Any]) -> dict[str, Any]:
    body = {"version": "4", "status": "firing", "receiver": "gpuwarden", "alerts": list(alerts)}
    answer = client.post("/v1/alerts/alertmanager", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def post_events(client: httpx.Client, *events: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/events", json={"events": list(events)})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def outcomes(told: dict[str, Any]) -> list[str]:
    return [item["code"] or item["outcome"] for item in told["items"]]


def state_of(server: Running, uuid: str) -> str:
    return str(get(server, f"/v1/gpus/{uuid}")["state"])


def test_an_alert_makes_suspect_never_excludes_and_ends_when_resolved(
    server: Running, client: httpx.Client
) -> None:
    labels = {"Hostname": "node-1", "UUID": UUID.removeprefix("GPU-").upper()}
    hot, cold = alert("GpuHot", **labels), alert("GpuSlow", **labels)
    assert outcomes(post_alerts(client, hot, cold)) == ["stored", "stored"]
    wait_until(lambda: state_of(server, UUID) == "suspect", "the GPU is suspect")
    wait_sweeps(server)
    assert exclusions_of(server)["count"] == 0
    why = get(server, f"/v1/gpus/{UUID}/why")
    assert "alert GpuHot" in str(why) and "GpuHot says so" in str(why)
    assert outcomes(post_alerts(client, hot)) == ["duplicate"]  # Alertmanager repeats itself
    assert outcomes(post_alerts(client, hot | {"status": "resolved"})) == ["stored"]
    wait_sweeps(server)
    assert state_of(server, UUID) == "suspect"  # the other alert still stands
    post_alerts(client, cold | {"status": "resolved"})
    wait_until(lambda: state_of(server, UUID) == "healthy", "nothing stands any more")


def test_an_alert_about_nothing_known_is_named_and_the_others_are_stored(
    client: httpx.Client,
) -> None:
    told = post_alerts(
        client,
        alert("A", node="router-9"),
        alert("B", node="node-2", gpu="0"),
        alert("C"),
        alert("D", node="node-2", gpu="7"),
    )
    assert outcomes(told) == ["unknown_node", "stored", "no_node", "unknown_gpu"]
    assert (told["stored"], told["refused"]) == (1, 3)
    assert all(item["mend"] for item in told["items"] if item["outcome"] == "refused")


def test_an_event_advises_and_its_ok_clears_it(server: Running, client: httpx.Client) -> None:
    at = time.time()
    event = {"name": "dcgm_diag", "state": "critical", "node": "node-2", "text": "memtest failed"}
    assert outcomes(post_events(client, event | {"observed_at": at})) == ["stored"]
    assert outcomes(post_events(client, event | {"observed_at": at})) == ["duplicate"]
    assert outcomes(post_events(client, event | {"id": "diag-1"})) == ["stored"]
    assert outcomes(post_events(client, event | {"id": "diag-1", "text": "x"})) == ["duplicate"]
    wait_until(lambda: get(server, "/v1/nodes/node-2")["state"] == "suspect", "the node is suspect")
    assert exclusions_of(server)["count"] == 0
    post_events(client, event | {"state": "ok", "id": "diag-2"})
    wait_until(
        lambda: get(server, "/v1/nodes/node-2")["state"] == "healthy", "the event's ok clears it"
    )


def test_events_are_refused_one_by_one(server: Running, client: httpx.Client) -> None:
    good = {"name": "x", "state": "info", "node": "node-1"}
    told = post_events(
        client,
        good | {"id": "1"},
        good,
        good | {"id": "2", "node": "nobody"},
        good | {"observed_at": time.time() + 1e6},
        good | {"id": "3", "state": "ok", "proves_repair": True},
        good | {"id": "4", "gpu_uuid": "GPU-node-2-0"},
    )
    assert outcomes(told) == [
        *("stored", "no_identity", "unknown_node", "in_future", "role_not_allowed", "unknown_gpu"),
    ]
    wrong = client.post("/v1/events", json={"events": [good | {"id": "5"}, {"name": "y"}]})
    assert wrong.status_code == 422 and "events.1.state" in wrong.json()["detail"]
    assert client.post("/v1/events", json={"events": []}).status_code == 422


def test_a_narrowed_key_tells_of_its_nodes_only(server: Running) -> None:
    made = server.admin.post(
        "/v1/keys", json={"role": "feeder", "name": "n2", "scope": {"nodes": ["node-2"]}}
    ).json()
    event = {"name": "x", "state": "info", "id": "narrow"}
    with server.client(made["key"]) as narrow:
        told = post_events(narrow, event | {"node": "node-1"}, event | {"node": "node-2"})
    assert outcomes(told) == ["outside_scope", "stored"]


@pytest.mark.serial
@pytest.mark.skipif(ALERTMANAGER is None, reason="prometheus-alertmanager is not on PATH")
def test_a_real_alertmanager_sends_and_resolves(server: Running, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(server.mint("feeder"))
    (tmp_path / "am.yml").write_text(
        f"""
route: {{receiver: gpuwarden, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers:
  - name: gpuwarden
    webhook_configs:
      - url: {server.url}/v1/alerts/alertmanager
        send_resolved: true
        http_config: {{authorization: {{credentials_file: {tmp_path / "key"}}}}}
"""
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [
        *(ALERTMANAGER, f"--config.file={tmp_path / 'am.yml'}", f"--storage.path={tmp_path}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="),
    ]
    labels = {"alertname": "FanSlow", "severity": "warning", "instance": "node-1:9400"}
    with started(command, tmp_path / "am.log"), httpx.Client(timeout=5) as manager:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(manager, f"{url}/-/ready"), "Alertmanager answers", 60)
        began = datetime.now(UTC).isoformat()
        sent = [{"labels": labels, "startsAt": began}]
        assert manager.post(f"{url}/api/v2/alerts", json=sent).status_code == 200

        def told() -> list[str]:
            items = get(server, "/v1/events", node="node-1", limit=100)["items"]
            return [one["kind"] for one in items if "FanSlow" in str(one)]

        wait_until(lambda: told() == ["check_failed"], "the alert is an event", 60)
        sent[0] |= {"endsAt": datetime.now(UTC).isoformat()}
        assert manager.post(f"{url}/api/v2/alerts", json=sent).status_code == 200
        wait_until(lambda: sorted(told()) == ["check_failed", "check_passed"], "its end", 60)


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).is_success
    except httpx.TransportError:
        return False

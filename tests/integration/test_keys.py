"""Keys that end, change, or reach only so far, over real HTTP."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.fakes.clock import MovedClock

DAY_S = 86_400.0
POOLS = """
[[pools]]
name = "training"
nodes = ["train-*"]
"""


@pytest.fixture(scope="module")
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: MovedClock) -> Iterator[Running]:
    settings = quick_settings(tmp_path_factory.mktemp("keys"))
    assert settings.policy_file is not None
    with settings.policy_file.open("a") as policy:
        policy.write(POOLS)
    with running_server(settings, clock) as running:
        yield running


def make(server: Running, role: str = "reader", **wish: Any) -> dict[str, Any]:
    answer = server.admin.post("/v1/keys", json={"role": role} | wish)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def ask(server: Running, key: str, path: str = "/v1/nodes", **content: Any) -> tuple[int, str]:
    with server.client(key) as client:
        answer = client.request(content.pop("method", "GET"), path, **content)
    return answer.status_code, answer.json().get("code", "")


def test_an_expired_key_is_refused_and_said_to_be(server: Running, clock: MovedClock) -> None:
    made = make(server, expires_in_s=3600)
    assert ask(server, made["key"]) == (200, "")
    assert server.figure("gpuwarden_keys_expiring", role="reader") == 1
    ends = server.figure("gpuwarden_keys_next_expiry_timestamp_seconds", role="reader")
    assert ends == pytest.approx(made["expires_at"])
    clock.ahead += 3601
    assert ask(server, made["key"]) == (401, "key_expired")
    assert server.figure("gpuwarden_keys_expired", role="reader") == 1
    assert server.figure("gpuwarden_keys_expiring", role="reader") == 0


def test_a_rotated_key_has_two_secrets_for_a_while(server: Running, clock: MovedClock) -> None:
    made = make(server, name="rotated")
    path = f"/v1/keys/{made['id']}/rotate"
    answer = server.admin.post(path, json={"grace_s": 600, "expires_in_s": 90 * DAY_S})
    after = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert (after["id"], after["name"]) == (made["id"], "rotated")
    assert after["expires_at"] == pytest.approx(clock.now() + 90 * DAY_S, abs=30)
    assert [ask(server, key)[0] for key in (made["key"], after["key"])] == [200, 200]
    clock.ahead += 601
    assert ask(server, made["key"]) == (401, "key_expired")
    third = server.admin.post(path, json={"grace_s": 0}).json()["key"]
    assert ask(server, after["key"]) == (401, "key_expired")
    assert ask(server, made["key"]) == (401, "no_valid_key")
    assert ask(server, third) == (200, "")
    server.admin.delete(f"/v1/keys/{made['id']}")
    assert ask(server, third) == (401, "no_valid_key")
    (first, *_) = [
        item
        for item in server.admin.get("/v1/audit", params={"limit": 1000}).json()["items"]
        if item["action"] == "rotate_key"
    ]
    assert first["before"]["former_until"] is None
    assert first["after"]["former_until"] > 0


def test_secrets_of_a_rotated_key_outlast_a_restart(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as first:
        made = make(first)
        after = first.admin.post(f"/v1/keys/{made['id']}/rotate", json={}).json()
    with running_server(settings) as second:
        assert [ask(second, key)[0] for key in (made["key"], after["key"])] == [200, 200]


def test_a_key_is_taken_as_the_password_of_basic(server: Running) -> None:
    key = make(server)["key"]
    with httpx.Client(base_url=server.url, auth=("power-bi", key)) as client:
        assert client.get("/v1/nodes").status_code == 200
    with httpx.Client(base_url=server.url, auth=(key, "")) as client:
        refused = client.get("/v1/nodes")
    assert refused.status_code == 401


def test_a_key_reads_what_it_is_narrowed_to(server: Running) -> None:
    key = make(server, "operator", scope={"resources": ["incidents:write", "nodes:read"]})["key"]
    assert ask(server, key, "/v1/nodes") == (200, "")
    assert ask(server, key, "/v1/incidents") == (200, "")
    acknowledge = "/v1/incidents/inc-none/acknowledge"
    assert ask(server, key, acknowledge, method="POST", json={"reason": "seen"})[0] == 404
    retire = "/v1/nodes/none/retire"
    assert ask(server, key, retire, method="POST", json={"reason": "x"}) == (403, "outside_scope")
    assert ask(server, key, "/v1/decisions") == (403, "outside_scope")


@pytest.mark.parametrize("scope", [{"nodes": ["train-*"]}, {"pools": ["training"]}])
def test_a_key_narrowed_to_nodes_sees_and_moves_no_other(
    server: Running, scope: dict[str, list[str]]
) -> None:
    tag = "n" if "nodes" in scope else "p"
    mine, other = f"train-{tag}", f"serve-{tag}"
    for node_id in (mine, other):
        feeder = Feeder(server, server.mint("agent", node_id), node_id)
        feeder.introduce([make_gpu(0, node_id)])
        feeder.events(xid_event(79, "0000:10:00.0"))
        feeder.close()
    key = make(server, "operator", scope=scope)["key"]
    both = (mine, other)
    wait_until(lambda: all(_incident_of(server, one) for one in both), "both incidents", 60.0)
    outside = (403, "outside_scope")
    assert ask(server, key, f"/v1/nodes/{mine}")[0] == 200
    assert ask(server, key, f"/v1/nodes/{other}") == outside
    assert ask(server, key, f"/v1/gpus/GPU-{other}-0") == outside
    assert ask(server, key, f"/v1/incidents/{_incident_of(server, mine)}")[0] == 200
    assert ask(server, key, f"/v1/incidents/{_incident_of(server, other)}") == outside
    revoke = f"/v1/decisions/{_decision_of(server, other)}/revoke"
    assert ask(server, key, revoke, method="POST", json={"reason": "no"}) == outside
    assert ask(server, key, "/v1/incidents", params={"node": mine})[0] == 200
    assert ask(server, key, "/v1/incidents", params={"node": other}) == outside
    assert ask(server, key, "/v1/incidents") == outside, "it would be about all nodes"
    assert ask(server, key, "/v1/fleet", params={"node": mine}) == outside, "knows no ?node="
    with server.client(key) as client:
        verdicts = client.get("/v1/verdicts").json()["verdicts"]
    assert {one["node_id"] for one in verdicts} <= {"train-n", "train-p"}
    assert ask(server, key, "/v1/verdicts", params={"node": other}) == outside


def _incident_of(server: Running, node_id: str) -> str:
    items = server.admin.get("/v1/incidents", params={"node": node_id}).json()["items"]
    return str(items[0]["id"]) if items else ""


def _decision_of(server: Running, node_id: str) -> str:
    items = server.admin.get("/v1/decisions", params={"node": node_id}).json()["items"]
    return str(items[0]["id"])


def test_a_narrowed_admin_makes_no_keys_that_reach_further(server: Running) -> None:
    key = make(server, "admin", scope={"resources": ["keys:write"]})["key"]
    wish = {"method": "POST", "json": {"role": "admin"}}
    assert ask(server, key, "/v1/keys")[0] == 200
    assert ask(server, key, "/v1/keys", **wish) == (403, "outside_scope")


@pytest.mark.parametrize(
    "scope",
    [
        {"resources": ["incidents"]},
        {"resources": ["moon:read"]},
        {"nodes": ["a b"]},
        {"racks": ["r1"]},
    ],
)
def test_a_senseless_scope_is_refused(server: Running, scope: dict[str, Any]) -> None:
    answer = server.admin.post("/v1/keys", json={"role": "reader", "scope": scope})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")


def test_the_command_makes_rotates_and_warns(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWARDEN_URL", server.url)
    monkeypatch.setenv("GPUWARDEN_KEY", server.admin.headers["authorization"].split()[1])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gpuwarden_cli.main", "keys", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done

    monkeypatch.setenv("COLUMNS", "250")
    ahead_days = str((server_now(server) - time.time()) / DAY_S + 3)
    made = run("create", "--role", "reader", "--only-nodes", "gpu-0*", "--name", "soon",
               "--expires-in-days", ahead_days)  # fmt: skip
    key_id = made.stderr.split()[1]
    (line,) = [line for line in run("list").stdout.splitlines() if key_id in line]
    assert "nodes=gpu-0*" in line
    assert "d!" in line
    rotated = run("rotate", key_id, "--grace-hours", "1")
    assert rotated.stdout.startswith("gw_")
    assert rotated.stdout != made.stdout


def server_now(server: Running) -> float:
    assert server.app is not None
    now: float = server.app.state.base.clock.now()
    return now

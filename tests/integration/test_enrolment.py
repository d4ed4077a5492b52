"""Nodes that fetch their own keys: over HTTP, and by the agent's command."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.batches import Stream
from tests.builders.feed import get
from tests.builders.server import Feeder, Running, make_settings, running_server
from tests.fakes.clock import MovedClock

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: MovedClock) -> Iterator[Running]:
    with running_server(make_settings(tmp_path_factory.mktemp("enrolment")), clock) as running:
        yield running


def token(server: Running, **wish: Any) -> dict[str, Any]:
    answer = server.admin.post("/v1/enrolment-tokens", json=wish)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    body: dict[str, Any] = answer.json()
    return body


def enrol(server: Running, word: str, node: str) -> tuple[int, str]:
    """Status, and the key or the problem's code."""
    with server.client(None) as client:
        answer = client.post("/v1/enrol", json={"token": word, "node": node})
    body = answer.json()
    return answer.status_code, body["key"] if answer.status_code == 201 else body["code"]


def test_a_node_fetches_a_key_that_speaks_for_it_alone(server: Running) -> None:
    made = token(server, nodes="gpu-*", uses=2)
    code, key = enrol(server, made["token"], "gpu-1")
    assert code == 201
    own = Feeder(server, key, "gpu-1")
    own.introduce()
    own.close()
    other = Feeder(server, key, "gpu-2")
    assert other.post(other.batch(Stream.EVENTS)).status_code == 403
    other.close()
    (listed,) = [t for t in get(server, "/v1/enrolment-tokens")["items"] if t["id"] == made["id"]]
    assert (listed["used"], listed["uses"]) == (1, 2)
    assert "token" not in listed


def test_a_token_is_good_for_its_nodes_its_uses_and_its_time(
    server: Running, clock: MovedClock
) -> None:
    made = token(server, nodes="a-*", uses=1, expires_in_s=HOUR_S)
    assert enrol(server, made["token"], "b-1") == (403, "wrong_node")
    assert enrol(server, made["token"], "a-1")[0] == 201
    assert enrol(server, made["token"], "a-2") == (401, "token_ended")
    late = token(server, uses=5, expires_in_s=HOUR_S)
    clock.ahead += HOUR_S
    assert enrol(server, late["token"], "a-3") == (401, "token_ended")
    gone = token(server)
    assert server.admin.delete(f"/v1/enrolment-tokens/{gone['id']}").json()["revoked_at"] > 0
    assert server.admin.delete(f"/v1/enrolment-tokens/{gone['id']}").status_code == 404
    assert enrol(server, gone["token"], "a-4") == (401, "no_valid_token")
    assert enrol(server, "gwe_" + "x" * 43, "a-4") == (401, "no_valid_token")


def test_only_a_token_that_may_replaces_the_key_of_a_node(server: Running) -> None:
    first = enrol(server, token(server)["token"], "re-1")[1]
    assert enrol(server, token(server)["token"], "re-1") == (409, "node_enrolled")
    again = token(server, re_enrol=True, name="after the repair")
    code, second = enrol(server, again["token"], "re-1")
    assert code == 201
    verdicts = {"node": "re-1"}
    for key, expected in ((first, 401), (second, 200)):
        with server.client(key) as client:
            assert client.get("/v1/verdicts", params=verdicts).status_code == expected
    told = get(server, "/v1/audit", author="enrolment token after the repair")["items"]
    assert [(one["action"], one["key_id"]) for one in told] == [
        ("revoke_key", None),
        ("enrol_node", None),
    ]
    assert told[0]["before"]["revoked_at"] is None
    assert told[0]["after"]["revoked_at"] > 0
    assert told[1]["target"] == told[1]["after"]["node_id"] == "re-1"
    assert told[1]["after"]["token"] == again["id"]
    assert get(server, "/v1/audit", target=again["id"])["items"][0]["action"] == (
        "create_enrolment_token"
    )


def test_many_at_once_use_a_token_no_more_often_than_it_says(server: Running) -> None:
    made = token(server, uses=3)
    codes: list[int] = []

    def ask(number: int) -> None:
        codes.append(enrol(server, made["token"], f"race-{number}")[0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [201] * 3 + [401] * 5


@pytest.mark.parametrize(
    "wish", [{"uses": 0}, {"nodes": "a b"}, {"expires_in_s": 0}, {"role": "admin"}]
)
def test_a_senseless_token_is_not_made(server: Running, wish: dict[str, Any]) -> None:
    answer = server.admin.post("/v1/enrolment-tokens", json=wish)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")


def test_the_audit_is_narrowed(server: Running) -> None:
    token(server, name="narrowed")
    items = get(server, "/v1/audit", action="create_enrolment_token", limit=1000)["items"]
    assert items
    assert {one["action"] for one in items} == {"create_enrolment_token"}
    newest = items[-1]
    since = get(server, "/v1/audit", since=newest["at"], limit=1000)["items"]
    assert newest["id"] in [one["id"] for one in since]
    assert min(one["at"] for one in since) >= newest["at"]
    before = get(server, "/v1/audit", until=newest["at"], limit=1000)["items"]
    assert max(one["at"] for one in before) < newest["at"]
    assert get(server, "/v1/audit", key_id="key-none")["items"] == []


def agent(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuwarden_agent.cli", "enrol", *words]
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=60
    )


def test_the_agent_enrols_and_enrols_anew(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "agent.key"
    where = ["--server-url", server.url, "--key-file", str(file), "--node-id", "cmd-1"]
    done = agent(*where, "--token-file", "-", given=token(server)["token"] + "\n")
    assert done.returncode == 0, done.stderr
    assert "node cmd-1 has key key-" in done.stdout
    key = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key not in done.stdout + done.stderr
    with server.client(key) as client:
        assert client.get("/v1/verdicts").json()["verdicts"][0]["node_id"] == "cmd-1"
    again = token(server, re_enrol=True)["token"]
    kept = agent(*where, "--token", again)
    assert (kept.returncode, "--replace" in kept.stderr) == (2, True)
    assert agent(*where, "--token", again, "--replace").returncode == 0
    assert file.read_text().strip() not in ("", key)
    assert [path.name for path in tmp_path.iterdir()] == ["agent.key"]


def test_the_agent_says_why_it_cannot_enrol(server: Running, tmp_path: Path) -> None:
    file = ["--key-file", str(tmp_path / "agent.key"), "--node-id", "cmd-2"]
    refused = agent("--server-url", server.url, *file, "--token", "gwe_" + "y" * 43)
    assert (refused.returncode, "enrolment create" in refused.stderr) == (1, True)
    away = agent("--server-url", "http://127.0.0.1:1", *file, "--token", "gwe_" + "y" * 43)
    assert away.returncode == 3
    assert agent("--server-url", server.url, "--token", "gwe_x").returncode == 2
    nobody = agent("--server-url", server.url, *file, "--token", "gwe_x", "--owner", "no-such-user")
    assert (nobody.returncode, "no-such-user" in nobody.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_lists_and_ends_tokens(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWARDEN_URL", server.url)
    monkeypatch.setenv("GPUWARDEN_KEY", server.admin.headers["authorization"].split()[1])
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "gpuwarden_cli.main", "enrolment", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = run("create", "--nodes", "rack7-*", "--uses", "40", "--name", "rack 7").strip()
    assert made.startswith("gwe_")
    (line,) = [line for line in run("list").splitlines() if "rack 7" in line]
    assert "0/40" in line
    assert made not in line
    run("delete", line.split()[0])
    assert enrol(server, made, "rack7-1") == (401, "no_valid_token")

"""The process: start, health, problems, limits, end."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpuwarden_server.access.authorisation import ROUTE_GRANTS
from gpuwarden_server.app import run_server
from gpuwarden_server.config import Settings, load_settings
from gpuwarden_server.core.errors import StartError
from tests.builders.server import (
    Feeder,
    Running,
    ServerProcess,
    make_client,
    make_event,
    make_settings,
    running_server,
    wait_until,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(make_settings(tmp_path_factory.mktemp("app"))) as running:
        yield running


def test_health_is_open_and_true(server: Running) -> None:
    with make_client(server.url, None) as client:
        assert client.get("/healthz").json() == {"state": "alive"}
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert (ready.json()["state"], ready.json()["reasons"]) == ("ready", {})


def test_metrics_are_the_servers_own(server: Running) -> None:
    with make_client(server.url, None) as client:
        text = client.get("/metrics").text
    names = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert {name for name in names if not name.startswith("gpuwarden_")} <= {
        name for name in names if name.startswith("process_")
    }
    assert 'gpuwarden_build{version="' in text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("PUT", "/v1/keys", 405, "method_not_allowed"),
        ("GET", "/v1/ingest", 405, "method_not_allowed"),
        ("GET", "/v1/audit?limit=0", 422, "invalid_value"),
        ("GET", f"/v1/audit?after={2**63}", 422, "invalid_value"),
        ("GET", f"/v1/events?after={2**63}", 422, "invalid_value"),
        ("GET", f"/v1/nodes?limit={2**200}", 422, "invalid_value"),
        ("DELETE", "/v1/keys/key-none", 404, "not_found"),
    ],
)
def test_every_error_is_a_problem(
    server: Running, method: str, path: str, status: int, code: str
) -> None:
    answer = server.admin.request(method, path)
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem["type"] == f"urn:gpuwarden:problem:{code}"
    assert problem["detail"]


def test_a_401_says_how_to_authenticate(server: Running) -> None:
    with make_client(server.url, None) as client:
        told = client.get("/v1/keys").headers["www-authenticate"]
    assert told == 'Bearer, Basic realm="gpuwarden"'


def test_the_largest_row_is_a_position_like_any_other(server: Running) -> None:
    for path in ("/v1/events", "/v1/audit"):
        assert server.admin.get(path, params={"after": 2**63 - 1}).json()["items"] == []


@pytest.mark.parametrize(
    "path", [path for method, path in ROUTE_GRANTS if method == "GET" and "{" not in path]
)
def test_head_answers_as_get_does_without_the_body(server: Running, path: str) -> None:
    with server.admin.stream("GET", path) as whole, server.admin.stream("HEAD", path) as head:
        assert head.read() == b""
        # a chart must say what it wants to see
        expected = 422 if path == "/v1/history" else 200
        assert head.status_code == whole.status_code == expected
        for name in ("content-type", "content-length"):
            assert (name in head.headers) is (name in whole.headers)
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_head_asks_for_the_key_that_get_asks_for(server: Running) -> None:
    with make_client(server.url, None) as client:
        for path in ("/v1/nodes", "/v1/exclusions/stream"):
            assert client.head(path).status_code == 401
    assert server.admin.head("/v1/ingest").status_code == 405
    assert server.admin.head("/v1/nodes/nobody").status_code == 404


def test_readyz_names_a_part_that_does_not_work(tmp_path: Path) -> None:
    with running_server(make_settings(tmp_path)) as running:
        assert running.app is not None
        running.app.state.base.board.add_probe("disk", lambda: "no space left")
        wait_until(lambda: running.admin.get("/readyz").status_code == 503, "it says so")
        assert running.admin.get("/readyz").json()["reasons"] == {"disk": "no space left"}


def test_a_locked_database_makes_the_server_not_ready(tmp_path: Path) -> None:
    with running_server(make_settings(tmp_path)) as running:
        blocker = sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        answer = running.admin.get("/readyz")
        blocker.execute("ROLLBACK")
        blocker.close()
        assert answer.status_code == 503
        assert "no write within" in answer.json()["reasons"]["database"]
        wait_until(lambda: running.admin.get("/readyz").status_code == 200, "it is ready again")


def test_idle_connections_outlive_three_intervals_of_an_agent() -> None:
    assert Settings().keep_alive_s >= 75
    with pytest.raises(ValueError, match="keep_alive_s"):
        Settings(keep_alive_s=5)


def test_every_setting_is_documented_and_frozen() -> None:
    bare = [name for name, field in Settings.model_fields.items() if not field.description]
    assert bare == []
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1


def test_a_wrong_variable_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWARDEN_PORT", "many")
    monkeypatch.setenv("GPUWARDEN_MODE", "panic")
    with pytest.raises(StartError, match=r"GPUWARDEN_PORT.*GPUWARDEN_MODE"):
        load_settings()


def test_secrets_are_not_in_the_text_of_settings(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, webhook_secret="whsec_c2VjcmV0")
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() not in repr(settings)
    assert "c2VjcmV0" not in repr(settings)


def test_a_taken_port_ends_the_start_with_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_server(make_settings(tmp_path, port=port)) == 2
    assert f"127.0.0.1:{port}" in capfd.readouterr().err


@pytest.mark.serial
def test_sigterm_ends_the_server_in_time_with_an_open_stream_and_no_key_is_logged(
    tmp_path: Path,
) -> None:
    process = ServerProcess(make_settings(tmp_path, log_level="debug"))
    running = process.start()
    key = running.admin.headers["authorization"]
    feeder = Feeder(running, running.mint("agent", "n1"), "n1")
    feeder.events(make_event())
    feeder.post_body(b"nonsense")
    httpx.get(f"{running.url}/v1/keys", headers={"Authorization": "Bearer gw_wrong"})
    with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2]))) as opened:
        opened.sendall(
            b"GET /v1/exclusions/stream HTTP/1.1\r\nHost: x\r\n"
            b"Authorization: " + key.encode() + b"\r\n\r\n"
        )
        assert opened.recv(4096).startswith(b"HTTP/1.1 200")
        started = time.monotonic()
        try:
            assert process.terminate() == 0
        finally:
            process.close()
            feeder.close()
            running.admin.close()
    assert time.monotonic() - started < 10
    assert "Traceback" not in process.output
    assert "gw_" not in process.output

"""Limits before authentication, TLS with client certificates, and that no secret gets out."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from structlog.testing import capture_logs

from gpuwarden_server.app import create_app
from gpuwarden_server.config import Settings
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.serving import bind_socket, make_server, url_of
from gpuwarden_wire.batches import Stream
from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    ServerProcess,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)
from tests.fakes.clock import StillClock

TLS = Path(__file__).parents[1] / "fixtures" / "agent" / "tls"
WRONG = "gw_" + "w" * 43


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@contextmanager
def limited(folder: Path, clock: StillClock, **rates: float) -> Iterator[Running]:
    with running_server(make_settings(folder, **rates), clock) as running:
        yield running


def ask(server: Running, key: str | None, times: int, path: str = "/v1/nodes") -> list[int]:
    with server.client(key) as client:
        return [client.get(path).status_code for _ in range(times)]


def test_a_key_is_limited_and_others_are_not(tmp_path: Path, clock: StillClock) -> None:
    with limited(tmp_path, clock, key_rate_per_s=0.5) as server:  # 10 at once
        eager, calm = server.mint("reader"), server.mint("reader")
        assert ask(server, eager, 12) == [200] * 10 + [429] * 2
        assert ask(server, calm, 1) == [200]
        with server.client(eager) as client:
            refused = client.get("/v1/nodes")
        assert refused.status_code == 429
        assert refused.json()["code"] == "too_many_requests"
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        clock.ahead += 60.0
        assert ask(server, eager, 1) == [200]
        assert server.figure("gpuwarden_requests_limited_total", by="key") >= 1


def test_raw_routes_are_limited_alike_and_the_agent_may_come_again(
    tmp_path: Path, clock: StillClock
) -> None:
    with limited(tmp_path, clock, key_rate_per_s=0.5) as server:
        node = Feeder(server, server.mint("agent", "n1"), "n1")
        batches = [node.batch(Stream.EVENTS) for _ in range(12)]
        codes = [node.post(batch).status_code for batch in batches]
        assert codes == [200] * 10 + [429] * 2
        clock.ahead += 60.0
        assert node.post(batches[10]).status_code == 200, "nothing is lost"
        node.close()


def test_refused_credentials_are_limited_and_a_valid_key_beside_them_is_not(
    tmp_path: Path, clock: StillClock
) -> None:
    with limited(tmp_path, clock, refused_rate_per_s=0.1) as server:  # 6 at once
        assert ask(server, WRONG, 8) == [401] * 6 + [429] * 2
        assert ask(server, None, 3, "/metrics") == [200] * 3, "who shows nothing is no guesser"
        assert ask(server, server.mint("reader"), 1) == [200]
        with server.client(None) as client:
            enrol = client.post("/v1/enrol", json={"token": "gwe_x", "node": "n1"})
        assert enrol.status_code == 429, "tokens are not guessed either"
        clock.ahead += 30.0
        assert ask(server, WRONG, 1) == [401]


def test_an_address_without_a_key_is_limited(tmp_path: Path, clock: StillClock) -> None:
    with limited(tmp_path, clock, address_rate_per_s=0.5) as server:  # 5 at once
        assert ask(server, None, 7, "/healthz") == [200] * 5 + [429] * 2
        assert ask(server, server.mint("reader"), 20) == [200] * 20


@pytest.mark.parametrize("chunked", [False, True])
def test_a_stranger_sends_no_large_body(tmp_path: Path, chunked: bool) -> None:
    body = json.dumps({"nodes": ["n" * 250] * 400}).encode()
    content: Any = iter([body[:50_000], body[50_000:]]) if chunked else body
    with running_server(make_settings(tmp_path)) as server:
        headers = {"Content-Type": "application/json"}
        with server.client(None) as client:
            refused = client.post("/v1/enrol", content=content, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
        taken = server.admin.post("/v1/verdicts", content=body, headers=headers)
        assert taken.status_code == 200
        huge = server.admin.post("/v1/verdicts", content=b" " * 9_000_000, headers=headers)
        assert huge.status_code == 413
        assert server.figure("gpuwarden_requests_limited_total", by="size") == 2


def test_basic_is_offered_to_tools_and_not_to_pages(tmp_path: Path) -> None:
    with running_server(make_settings(tmp_path)) as server, server.client(None) as client:
        tool = client.get("/v1/nodes").headers.get_list("www-authenticate")
        page = client.get("/v1/nodes", headers={"Sec-Fetch-Mode": "cors"})
    assert tool == ["Bearer", 'Basic realm="gpuwarden"']
    assert page.headers.get_list("www-authenticate") == ["Bearer"]


@contextmanager
def serving_tls(settings: Settings) -> Iterator[str]:
    listener = bind_socket(settings)
    app = create_app(settings)
    server = make_server(app, settings, app.state.base.stopping.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the server started", 30.0)
        yield url_of(listener, settings).replace("127.0.0.1", "localhost")
    finally:
        server.should_exit = True
        thread.join(30.0)
        listener.close()
    assert not thread.is_alive()


def enrol_by_agent(url: str, folder: Path, token: str, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "gpuwarden_agent.cli", "enrol", "--token", token]
    command += ["--server-url", url, "--key-file", str(folder / "key"), "--node-id", "n1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stderr


def test_mutual_tls_wants_a_certificate_and_a_key(tmp_path: Path) -> None:
    files = {"tls_cert": TLS / "server.pem", "tls_key": TLS / "server.key"}
    settings = make_settings(tmp_path, **files, tls_client_ca=TLS / "ca.pem")
    assert settings.admin_key is not None
    trust = ssl.create_default_context(cafile=TLS / "ca.pem")
    own = ssl.create_default_context(cafile=TLS / "ca.pem")
    own.load_cert_chain(TLS / "client.pem", TLS / "client.key")
    admin = {"Authorization": f"Bearer {settings.admin_key.get_secret_value()}"}
    with serving_tls(settings) as url:
        assert url.startswith("https://")
        with httpx.Client(base_url=url, verify=own) as client:
            assert client.get("/v1/nodes").status_code == 401, "a certificate is no key"
            made = client.post("/v1/enrolment-tokens", json={}, headers=admin).json()
        with httpx.Client(base_url=url, verify=trust) as client, pytest.raises(httpx.HTTPError):
            client.get("/healthz")
        authority = ("--ca-file", str(TLS / "ca.pem"))
        code, _ = enrol_by_agent(url, tmp_path, made["token"], *authority)
        assert code == 3, "without a client certificate there is no answer"
        pair = ["--client-cert-file", str(TLS / "client.pem")]
        pair += ["--client-key-file", str(TLS / "client.key")]
        code, said = enrol_by_agent(url, tmp_path, made["token"], *authority, *pair)
        assert code == 0, said
        key = (tmp_path / "key").read_text().strip()
        with httpx.Client(base_url=url, verify=own) as client:
            headers = {"Authorization": f"Bearer {key}"}
            assert client.get("/v1/verdicts", headers=headers).status_code == 200


def test_renewed_certificates_hold_without_a_restart(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes((TLS / "server.pem").read_bytes())
    key.write_bytes((TLS / "server.key").read_bytes())
    trust = ssl.create_default_context(cafile=TLS / "ca.pem")
    with serving_tls(make_settings(tmp_path, tls_cert=cert, tls_key=key)) as url:
        place = (urlsplit(url).hostname or "", urlsplit(url).port or 0)

        def shown() -> str:
            return ssl.get_server_certificate(place).strip()

        with httpx.Client(base_url=url, verify=trust) as client:
            assert client.get("/healthz").status_code == 200
            assert shown() in cert.read_text()
            before = shown()
            renewed = (TLS / "client.pem").read_text()
            with capture_logs() as told:
                cert.write_text(renewed)  # its key comes a moment later
                wait_until(
                    lambda: "tls_files_refused" in {one["event"] for one in told}, "a word", 30.0
                )
            assert shown() == before
            key.write_bytes((TLS / "client.key").read_bytes())
            wait_until(lambda: shown() in renewed, "the renewed certificate", 30.0)
            assert client.get("/healthz").status_code == 200  # over the connection of before


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"tls_cert": TLS / "server.pem"}, "TLS_KEY"),
        ({"tls_client_ca": TLS / "ca.pem"}, "TLS_CERT"),
        ({"tls_cert": TLS / "server.pem", "tls_key": TLS / "client.key"}, "server.pem"),
        (
            {
                "tls_cert": TLS / "server.pem",
                "tls_key": TLS / "server.key",
                "tls_client_ca": TLS / "none.pem",
            },
            "none.pem",
        ),
    ],
)
def test_tls_files_that_cannot_be_used_are_named(
    tmp_path: Path, files: dict[str, Path], named: str
) -> None:
    with pytest.raises(StartError, match=named):
        bind_socket(make_settings(tmp_path, **files))


@pytest.mark.serial
def test_no_secret_is_in_any_log_or_answer(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path, log_level="debug")
    process = ServerProcess(settings)
    answers: list[str] = []
    try:
        server = process.start()
        admin = server.admin
        made = admin.post("/v1/keys", json={"role": "operator", "name": "ana"}).json()
        rotated = admin.post(f"/v1/keys/{made['id']}/rotate", json={}).json()
        token = admin.post("/v1/enrolment-tokens", json={"uses": 2}).json()["token"]
        with server.client(None) as stranger:
            first = {"token": token, "node": "n1"}
            enrolled = stranger.post("/v1/enrol", json=first).json()["key"]
            answers += [stranger.post("/v1/enrol", json=first).text]  # n1 has a key
            answers += [stranger.post("/v1/enrol", json=first | {"node": "a b"}).text]
            answers += [stranger.post("/v1/enrol", json={"tokens": token}).text]
            stranger.headers["Authorization"] = f"Bearer {WRONG}"
            answers += [stranger.get(f"/v1/{path}").text for path in ("nodes", "none")]
        node = Feeder(server, enrolled, "n1")
        node.introduce([make_gpu(0, "n1")])
        node.events(xid_event(79, "0000:10:00.0"))
        answers += [node.post_body(b"no batch").text]
        node.close()
        wait_until(lambda: admin.get("/v1/exclusions").json()["count"] == 1, "an exclusion", 60.0)
        wanted = ("keys", "enrolment-tokens", "audit", "events", "nodes", "fleet", "incidents")
        answers += [admin.get(f"/v1/{path}?limit=1000").text for path in wanted]
        answers += [admin.get(path).text for path in ("/metrics", "/openapi.json", "/readyz")]
        answers += [admin.post("/v1/keys", json={"role": "x", "name": made["key"]}).text]
        admin.close()
        assert process.terminate() == 0
    finally:
        process.close()
    assert settings.admin_key is not None
    secrets = [
        settings.admin_key.get_secret_value(),
        made["key"],
        rotated["key"],
        token,
        enrolled,
        WRONG,
    ]
    for secret in secrets:
        assert secret not in process.output
        assert [text for text in answers if secret in text] == []


@pytest.fixture(scope="module")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(make_settings(tmp_path_factory.mktemp("door"))) as running:
        yield running


@pytest.mark.parametrize(
    ("role", "said"), [(None, b"HTTP/1.1 401"), ("reader", b"HTTP/1.1 403")], ids=str
)
@pytest.mark.parametrize("length", [20, 7_000_000])
def test_who_may_not_call_is_told_so_before_a_body_is_read(
    open_door: Running, role: str | None, said: bytes, length: int
) -> None:
    head = ["POST /v1/keys HTTP/1.1", "Host: x", "Content-Type: application/json"]
    head += [f"Content-Length: {length}"]
    if role is not None:
        head += [f"Authorization: Bearer {open_door.mint(role)}"]
    place = urlsplit(open_door.url)
    with socket.create_connection((place.hostname, place.port), timeout=20.0) as caller:
        caller.sendall("\r\n".join([*head, "", ""]).encode())  # and nothing of the body
        assert caller.recv(4096).startswith(said)


@pytest.mark.parametrize("key", ["", "gw_" + "x" * 43], ids=["none", "wrong"])
def test_a_stranger_learns_nothing_of_the_form_of_a_body(open_door: Running, key: str) -> None:
    headers = {"Content-Type": "application/json"}
    with open_door.client(key or None) as client:
        answer = client.post("/v1/keys", content=b"{", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "no_valid_key")
        assert client.post("/v1/nothing", content=b"{", headers=headers).status_code == 404
    assert open_door.admin.post("/v1/keys", content=b"{", headers=headers).status_code == 422

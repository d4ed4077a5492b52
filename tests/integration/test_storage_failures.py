"""What people write while state.db takes nothing: said, with the mend, and nothing half done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection

from gpuwarden_server.store.problems import storage_problem
from gpuwarden_server.store.writer import WriteFailed
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until

SLOT = "0000:10:00.0"
REASON = {"reason": "checked by hand"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("storage"))) as running:
        yield running


def pragma(server: Running, text: str) -> int:
    assert server.app is not None
    writer = server.app.state.base.store.state.writer

    def run(connection: Connection) -> int:
        answer = connection.exec_driver_sql(f"PRAGMA {text}")
        return int(answer.scalar_one()) if answer.returns_rows else 0

    number: int = writer.call(run)
    return number


@contextmanager
def locked(server: Running) -> Iterator[None]:
    """Another process holds the file: a write waits, here for 50 ms and not 5 s, and fails."""
    pragma(server, "busy_timeout=50")
    assert server.app is not None
    blocker = sqlite3.connect(server.app.state.base.store.state.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()


def failed(answer: httpx.Response) -> dict[str, str]:
    problem: dict[str, str] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["code"]) == (503, "storage_failed")
    assert int(answer.headers["retry-after"]) > 0
    assert "INSERT" not in problem["detail"]
    return problem


def test_every_write_of_people_says_so_and_can_be_repeated(server: Running) -> None:
    feeder = Feeder(server, server.mint("agent", "n1"), "n1")
    feeder.introduce([make_gpu(0, "n1")])
    feeder.events(xid_event(79, SLOT))
    wait_until(lambda: get(server, "/v1/exclusions")["count"] == 1, "the GPU is excluded")
    (decision,) = get(server, "/v1/decisions", phase="live")["items"]
    (incident,) = get(server, "/v1/incidents", phase="live")["items"]
    writes = [
        ("/v1/keys", {"role": "reader"}),
        (f"/v1/incidents/{incident['id']}/acknowledge", REASON),
        ("/v1/gpus/GPU-n1-0/repair", REASON),
        (f"/v1/decisions/{decision['id']}/revoke", REASON),
    ]
    counted = server.figure("gpuwarden_api_storage_failures_total", code="storage_failed")
    with locked(server):
        for path, body in writes:
            problem = failed(server.admin.post(path, json=body))
            assert "locked" in problem["detail"]
            assert problem["mend"].startswith("End what holds")
        wait_until(lambda: server.admin.get("/readyz").status_code == 503, "readyz says so")
        assert "locked" in server.admin.get("/readyz").json()["reasons"]["database"]
        assert get(server, "/v1/exclusions")["count"] == 1
    after = server.figure("gpuwarden_api_storage_failures_total", code="storage_failed")
    assert after - counted == len(writes)
    for path, body in writes:
        server.admin.post(path, json=body).raise_for_status()
    assert get(server, "/v1/exclusions")["count"] == 0
    feeder.close()


def test_a_revocation_that_is_not_durable_holds_and_can_be_repeated(server: Running) -> None:
    made = server.admin.post("/v1/keys", json={"role": "reader", "node": None}).json()
    with server.client(made["key"]) as reader:
        reader.get("/v1/fleet").raise_for_status()
        with locked(server):
            problem = failed(server.admin.delete(f"/v1/keys/{made['id']}"))
            assert "refused from now on" in problem["detail"]
            assert reader.get("/v1/fleet").status_code == 401
        assert server.admin.delete(f"/v1/keys/{made['id']}").json()["revoked_at"] is not None
        assert reader.get("/v1/fleet").status_code == 401
    again = server.admin.delete(f"/v1/keys/{made['id']}")
    assert again.status_code == 404
    stored = {one["id"]: one for one in get(server, "/v1/keys")["items"]}
    assert stored[made["id"]]["revoked_at"] is not None


def test_a_full_disk_names_the_disk(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        # SQLite's own limit answers as a full disk does: "database or disk is full".
        pragma(server, f"max_page_count={pragma(server, 'page_count')}")
        body = {"role": "reader", "name": "x" * 255}
        answers = (server.admin.post("/v1/keys", json=body) for _ in range(200))
        refused = next(answer for answer in answers if answer.is_error)
        problem = failed(refused)
        assert "disk is full" in problem["detail"]
        assert problem["mend"].startswith("Free space")
        keys = len(get(server, "/v1/keys")["items"])
        pragma(server, "max_page_count=1000000")
        server.admin.post("/v1/keys", json=body).raise_for_status()
        assert len(get(server, "/v1/keys")["items"]) == keys + 1


@pytest.mark.parametrize(
    ("error", "code", "mend"),
    [
        (WriteFailed("state: database or disk is full"), "storage_failed", "Free space"),
        (WriteFailed("state: disk I/O error"), "storage_failed", "Look at the disk"),
        (WriteFailed("state: attempt to write a readonly database"), "storage_failed", "Make"),
        (
            WriteFailed('state: could not extend file "base/1/2": No space left'),
            "storage_failed",
            "Free",
        ),
        (
            WriteFailed("state: connection to server failed: refused"),
            "storage_failed",
            "Look at the P",
        ),
        (
            WriteFailed("state: the database system is starting up"),
            "storage_failed",
            "Look at the P",
        ),
        (
            WriteFailed("state: password authentication failed"),
            "storage_failed",
            "Correct GPUWARDEN",
        ),
        (WriteFailed("state: sorry, too many clients already"), "storage_failed", "Raise max_conn"),
        (WriteFailed("the writer of state is closed"), "storage_failed", "Look at the server"),
        (TimeoutError(), "storage_slow", "Read the state again"),
    ],
)
def test_the_mend_fits_the_failure(error: Exception, code: str, mend: str) -> None:
    problem = storage_problem(error)
    assert (problem.status, problem.code) == (503, code)
    assert problem.mend.startswith(mend)

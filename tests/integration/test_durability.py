"""What goes wrong under a server while events flow: every acknowledged one is there once."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.store.places import parse_url
from gpuwarden_server.store.versions import prepare_store
from tests.builders.feed import exclusions_of, quick_settings, xid_event
from tests.builders.postgres import USER, PostgresServer, shared_postgres
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.shooting import acknowledged_of, shooting, wait_flow, wait_refused
from tests.builders.small_disk import SmallDisk, small_disk
from tests.builders.stores import Chosen, StoreKind, query

BOTH_STORES = True
ROUNDS = [pytest.param(2, id="2"), pytest.param(10, id="10", marks=pytest.mark.long)]


@pytest.fixture(autouse=True)
def _store(store_kind: StoreKind) -> None:
    """Each test names its database by itself."""


def count_events(folder: Path) -> Counter[str]:
    return Counter(row[0] for row in query(folder, "SELECT id FROM events"))


def require_each_once(folder: Path, acknowledged: list[str]) -> None:
    stored = count_events(folder)
    assert [event for event in acknowledged if stored[event] != 1] == []
    assert set(stored.values()) == {1}


def judges(server: Running, name: str) -> None:
    """What comes after the trouble is judged: the judge went on."""
    with_fault = Feeder(server, server.mint("agent", name), name)
    with_fault.introduce([make_gpu(0, name)])
    before = exclusions_of(server)["count"]
    with_fault.events(xid_event(79, "0000:10:00.0"))
    wait_until(lambda: exclusions_of(server)["count"] == before + 1, "it is judged", 60.0)
    with_fault.close()


def _reasons(server: Running) -> dict[str, str]:
    reasons: dict[str, str] = server.admin.get("/readyz").json()["reasons"]
    return reasons


@pytest.fixture
def own_postgres(store_kind: StoreKind) -> Iterator[PostgresServer]:
    if store_kind is StoreKind.SQLITE:
        pytest.skip("restarts PostgreSQL")
    server = PostgresServer()
    yield server
    server.close()


@pytest.mark.postgres
@pytest.mark.serial
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_postgresql_that_restarts_under_load_loses_nothing(
    tmp_path: Path, own_postgres: PostgresServer, rounds: int, record_property: Any
) -> None:
    Chosen.urls[tmp_path / "state"] = own_postgres.make_database()
    settings = quick_settings(tmp_path, lease_s=30.0, max_nodes=100)
    with running_server(settings) as server:
        with shooting(server, [server.url]) as shooters:
            for number in range(rounds):
                wait_flow(shooters)
                # SIGQUIT is a crash: sessions break off wherever they are, commits included.
                own_postgres.stop(signal.SIGQUIT if number % 2 == 0 else signal.SIGINT)
                wait_until(lambda: "database" in _reasons(server), "/readyz says so", 60.0)
                refused = server.admin.post("/v1/keys", json={"role": "reader"})
                assert (refused.status_code, refused.json()["code"]) == (503, "storage_failed")
                assert refused.json()["mend"].startswith("Look at the PostgreSQL server")
                own_postgres.start()
                wait_flow(shooters)
                wait_until(lambda: not _reasons(server), "it is ready", 60.0)
            judges(server, "after")
            lost = server.figure("gpuwarden_store_writes_total", half="state", outcome="lost")
            assert lost > 0
        wait_until(
            lambda: server.figure("gpuwarden_store_lag_seconds", half="state") == 0, "no lag", 60.0
        )
    acknowledged = acknowledged_of(shooters)
    require_each_once(tmp_path / "state", acknowledged)
    record_property(
        "figure",
        f"PostgreSQL restarted {rounds} times under load: {len(acknowledged)} acknowledged events, "
        f"each there once; {lost:.0f} writes refused meanwhile",
    )


@contextmanager
def disk_of(kind: StoreKind, folder: Path) -> Iterator[SmallDisk]:
    """A small disk that holds the database of the server in `folder`."""
    if kind is StoreKind.SQLITE:
        with small_disk(folder / "state", 8) as disk:
            yield disk
        return
    postgres = shared_postgres()
    with small_disk(postgres.folder / f"disk-{folder.name}"[:60], 24) as disk:
        place = disk.folder / "data"
        place.mkdir()
        shutil.chown(place, USER, USER)
        postgres.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        postgres.execute("CREATE DATABASE small TABLESPACE small")
        Chosen.urls[folder / "state"] = postgres.url("small")
        prepare_store(parse_url(postgres.url("small")))
        try:
            yield disk
        finally:
            postgres.execute("DROP DATABASE small WITH (FORCE)")
            postgres.execute("DROP TABLESPACE small")


@pytest.mark.postgres
@pytest.mark.serial
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_disk_that_is_full_under_load_loses_nothing(
    tmp_path: Path, store_kind: StoreKind, rounds: int, record_property: Any
) -> None:
    with disk_of(store_kind, tmp_path) as disk:
        with running_server(quick_settings(tmp_path, max_nodes=100)) as server:
            with shooting(server, [server.url]) as shooters:
                for _ in range(rounds):
                    wait_flow(shooters)
                    disk.fill()
                    wait_refused(shooters)
                    disk.free()
                    wait_flow(shooters)
                judges(server, "after")
            lost = server.figure("gpuwarden_store_writes_total", half="state", outcome="lost")
            assert lost > 0
        acknowledged = acknowledged_of(shooters)
        require_each_once(tmp_path / "state", acknowledged)
    record_property(
        "figure",
        f"{store_kind} on a disk that was full {rounds} times under load: {len(acknowledged)} "
        f"acknowledged events, each there once; {lost:.0f} writes refused meanwhile",
    )

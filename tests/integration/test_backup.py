"""A backup taken while the server runs, and brought back to either database."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.postgres import shared_postgres
from tests.builders.server import (
    Feeder,
    Running,
    environment_of,
    gpu_table,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)
from tests.builders.shooting import acknowledged_of, shooting, wait_flow
from tests.builders.stores import Chosen, StoreKind, database_url_of, query

SLOT = "0000:10:00.0"
WAYS = [
    pytest.param(
        source,
        target,
        id=f"{source}-to-{target}",
        marks=[pytest.mark.long] if source is target else [],
    )
    for source, target in itertools.product(StoreKind, StoreKind)
]


def settings_in(folder: Path, kind: StoreKind) -> Any:
    Chosen.kind = kind
    return quick_settings(folder)


def environment(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    for name in ("GPUWARDEN_DATABASE_URL", "GPUWARDEN_STATE_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)


def stand(server: Running) -> dict[str, Any]:
    """What people and programs see."""
    resources = ("incidents", "decisions", "events", "keys")
    return {name: get(server, f"/v1/{name}", limit=1000)["items"] for name in resources}


def make_history(server: Running) -> Feeder:
    feeder = Feeder(server, server.mint("agent", "n1"), "n1")
    feeder.introduce([make_gpu(n, "n1") for n in range(2)])
    feeder.events(xid_event(79, SLOT), make_event("NUL \0 and \U0001f600"))
    table, schema = gpu_table({"GPU-n1-0": [50.0, 200.0, 1000.0]})
    feeder.telemetry([table], [schema])
    wait_until(lambda: exclusions_of(server)["count"] == 1, "the GPU is excluded")
    feeder.close()
    return feeder


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_what_is_backed_up_while_events_flow_is_there_after_the_restore(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: StoreKind,
    target: StoreKind,
) -> None:
    shared_postgres()
    first = settings_in(tmp_path / "one", source)
    copy = str(tmp_path / "copy")
    if target is StoreKind.POSTGRESQL:
        copy = shared_postgres().make_database()
    with running_server(first) as server:
        feeder = make_history(server)
        before, feed = stand(server), exclusions_of(server)
        with shooting(server, [server.url], nodes=1) as shooters:
            wait_flow(shooters)
            sent = acknowledged_of(shooters)
            environment(monkeypatch, first)
            assert run(["backup", "--to", copy]) == 0, capsys.readouterr().err
            wait_flow(shooters)
        assert "Copied" in capsys.readouterr().out
    second = settings_in(tmp_path / "two", target).model_copy(update={"admin_key": first.admin_key})
    environment(monkeypatch, second)
    assert run(["restore", copy]) == 0, capsys.readouterr().err
    with running_server(second) as server:
        after = stand(server)
        for name in ("incidents", "decisions", "keys"):
            assert [one for one in after[name] if one in before[name]] == before[name]
        ids = [event["id"] for event in after["events"]]
        assert set(sent) <= set(ids)
        assert len(ids) == len(set(ids))
        restored = exclusions_of(server)
        assert restored["exclusions"] == feed["exclusions"]
        assert restored["feed_id"] != feed["feed_id"]  # every client reads the whole set anew
        audit = get(server, "/v1/audit", limit=1000)["items"]
        assert [one["before"] for one in audit if one["action"] == "restore"] == [
            {"feed_id": feed["feed_id"]}
        ]
        again = Feeder(server, feeder.key, "n1", spool_id=feeder.spool_id, seqs=feeder.seqs)
        again.events(xid_event(79, "0000:11:00.0"))
        wait_until(lambda: exclusions_of(server)["count"] == 2, "it goes on where it was")
        again.close()
        assert run(["restore", copy, "--force"]) == ExitCode.USAGE
        assert "works on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kind", [StoreKind.SQLITE, pytest.param(StoreKind.POSTGRESQL, marks=pytest.mark.long)]
)
def test_nothing_that_is_there_is_overwritten_unless_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: StoreKind,
) -> None:
    settings = settings_in(tmp_path / "one", kind)
    place = database_url_of(tmp_path / "one" / "state") or str(tmp_path / "one" / "state")
    environment(monkeypatch, settings)
    copy = str(tmp_path / "copy")
    with running_server(settings) as server:
        server.mint("reader", name="before the backup")
        assert run(["backup", "--to", copy]) == 0
        server.mint("reader", name="after the backup")
    for command in (["backup", "--to", copy], ["backup", "--to", place], ["restore", copy]):
        capsys.readouterr()
        assert run(command) == ExitCode.USAGE
        assert "there is a store at" in " ".join(capsys.readouterr().err.split())
    assert run(["restore", copy, "--force"]) == 0
    names = [row[0] for row in query(tmp_path / "one" / "state", "SELECT name FROM keys")]
    assert "before the backup" in names
    assert "after the backup" not in names
    with running_server(settings) as server:
        server.mint("reader")


def _nothing(folder: Path) -> str:
    return str(folder / "nothing")


def _other_version(folder: Path) -> str:
    Chosen.kind = StoreKind.SQLITE
    with running_server(quick_settings(folder)):
        pass
    query(folder / "state", "UPDATE alembic_version SET version_num = '9999'")
    return str(folder / "state")


@pytest.mark.parametrize(
    ("make", "says"), [(_nothing, "there is no store"), (_other_version, "newer")]
)
def test_what_is_no_backup_of_this_version_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], str],
    says: str,
) -> None:
    source = make(tmp_path)
    monkeypatch.setenv("GPUWARDEN_STATE_FOLDER", str(tmp_path / "target"))
    assert run(["restore", source]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
    assert not (tmp_path / "target" / "state.db").exists()

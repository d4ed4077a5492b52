"""Silences of a real Alertmanager, and Slurm's reservations, hold here as they do there."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_server.config import Settings
from tests.builders.alertmanager import RunningAlertmanager, running_alertmanager
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server
from tests.fakes.answering import Posted, Reply, answering
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for

AUTHOR = "alertmanager am"
FELL_OFF = 79


def settings_of(folder: Path, *urls: str, use: str = "maintenance") -> Settings:
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
        silences = "{use}"
        """
    )
    return quick_settings(folder, notify_file=file)


def silence(replica: RunningAlertmanager, **matchers: str) -> str:
    """Make a silence over there, as its own page does."""
    named = {"alertname": "GpuwardenIncident", **matchers}
    begin = time.time()
    body = {
        "matchers": [
            {"name": name, "value": value, "isRegex": False, "isEqual": True}
            for name, value in named.items()
        ],
        "startsAt": datetime.fromtimestamp(begin, UTC).isoformat(),
        "endsAt": datetime.fromtimestamp(begin + 3600, UTC).isoformat(),
        "createdBy": "ana",
        "comment": "new switches",
    }
    made = httpx.post(f"{replica.url}/api/v2/silences", json=body, timeout=20.0)
    return str(made.raise_for_status().json()["silenceID"])


def silences(server: Running, *, active: bool = True) -> list[dict[str, Any]]:
    found = get(server, "/v1/silences", active=str(active).lower())["items"]
    return [one for one in found if one["author"] == AUTHOR]


@contextmanager
def node_in(server: Running, name: str) -> Iterator[Feeder]:
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(0, name)])
    try:
        yield node
    finally:
        node.close()


def excluded(server: Running) -> set[str]:
    return {one["node_id"] for one in exclusions_of(server)["exclusions"]}


@pytest.mark.serial
def test_a_node_that_is_silenced_in_alertmanager_is_under_maintenance(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with (
        running_alertmanager(tmp_path / "am") as replica,
        running_server(settings_of(tmp_path / "gw", nowhere, replica.url)) as server,
        node_in(server, "quiet") as quiet,
        node_in(server, "other") as other,
    ):
        foreign = silence(replica, node="quiet")
        wait_for(lambda: silences(server), what="the silence is read")
        (mine,) = silences(server)
        assert (mine["kind"], mine["matchers"]) == ("maintenance", ["node=quiet"])
        assert mine["reason"] == "ana: new switches"
        quiet.events(xid_event(FELL_OFF, "0000:10:00.0"))
        other.events(xid_event(FELL_OFF, "0000:10:00.0"))
        wait_for(lambda: excluded(server) == {"other"}, what="the other one is excluded")
        (held,) = get(server, "/v1/incidents", node="quiet")["items"]
        assert mine["id"] in held["held"]
        gone = httpx.delete(f"{replica.url}/api/v2/silence/{foreign}", timeout=20.0)
        gone.raise_for_status()
        wait_for(lambda: not silences(server), what="it has ended here too")
        (ended,) = silences(server, active=False)
        assert ended["expired_by"] == AUTHOR
        audit = get(server, "/v1/audit", author=AUTHOR)["items"]
        assert [one["action"] for one in audit] == ["create_silence", "expire_silence"]


def test_one_that_a_person_ended_here_stays_ended_and_an_away_alertmanager_changes_nothing(
    tmp_path: Path,
) -> None:
    says, asked = [Reply(200, _listed("a", "n1"))], []

    def answer(posted: Posted) -> Reply:
        if posted.path != "/api/v2/silences":
            return Reply(200)
        asked.append(posted.path)
        return says[-1]

    def asked_again() -> None:
        before = len(asked)
        wait_for(lambda: len(asked) > before + 1, what="asked, and what it said taken over")

    with (
        answering(answer) as url,
        running_server(settings_of(tmp_path, url, use="silence")) as server,
    ):
        wait_for(lambda: silences(server), what="the first silence")
        (first,) = silences(server)
        assert (first["kind"], first["matchers"]) == ("silence", ["node=n1"])
        both = (_entry("a", "n1", "expired"), _entry("b", "n2"))
        says.append(Reply(200, _list(*both)))
        wait_for(
            lambda: [one["matchers"] for one in silences(server)] == [["node=n2"]],
            what="the second in the place of the first",
        )
        standing = silences(server)
        says.append(Reply(503))
        asked_again()
        says.append(Reply(200, b"<html>"))
        asked_again()
        assert silences(server) == standing
        path = f"/v1/silences/{standing[0]['id']}/expire"
        server.admin.post(path, json={"reason": "enough"}).raise_for_status()
        says.append(Reply(200, _listed("b", "n2")))
        asked_again()
        assert silences(server) == []


def _listed(name: str, node: str) -> bytes:
    return _list(_entry(name, node))


def _list(*entries: str) -> bytes:
    return f"[{','.join(entries)}]".encode()


def _entry(name: str, node: str, state: str = "active", lasts_s: float = 3600.0) -> str:
    begin, end = time.time() - 60, time.time() + lasts_s
    moments = [datetime.fromtimestamp(at, UTC).isoformat() for at in (begin, end)]
    return (
        f'{{"id": "{name}", "status": {{"state": "{state}"}}, "comment": "c", "createdBy": "ana",'
        f'"startsAt": "{moments[0]}", "endsAt": "{moments[1]}", "updatedAt": "{moments[0]}",'
        f'"matchers": [{{"name": "node", "value": "{node}", "isRegex": false}}]}}'
    )


def reservations(*told: tuple[str, str, float, float]) -> str:
    """What scontrol writes of (name, nodes, begin, end)."""
    return "".join(
        f"ReservationName={name} StartTime={_slurm_time(begin)} EndTime={_slurm_time(end)} "
        f"Duration=04:00:00 Nodes={nodes} NodeCnt=2 Features=(null) PartitionName=(null) "
        "Flags=MAINT,SPEC_NODES TRES=cpu=8 Users=root State=ACTIVE MaxStartDelay=(null) \n"
        for name, nodes, begin, end in told
    )


def _slurm_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scontrol on PATH that prints what `told.txt` beside its folder holds, asked in UTC."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$TZ" = UTC ] && cat {tmp_path / "told.txt"}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin:{Path(sys.executable).parent}")
    return program


def test_maintenance_reservations_of_slurm_become_windows_and_follow_them(
    tmp_path: Path,
    scontrol: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told, now = tmp_path / "told.txt", time.time()

    def windows(server: Running) -> dict[str, tuple[list[str], float]]:
        found = get(server, "/v1/silences", active="true")["items"]
        return {one["reason"]: (one["matchers"], round(one["ends_at"] - now, -2)) for one in found}

    with running_server(quick_settings(tmp_path / "state")) as server:
        assert server.admin.headers["authorization"].startswith("Bearer ")
        monkeypatch.setenv("GPUWARDEN_URL", server.url)
        key = server.admin.headers["authorization"].removeprefix("Bearer ")
        monkeypatch.setenv("GPUWARDEN_KEY", key)
        server.admin.post(
            "/v1/silences",
            json={"matchers": ["node=x"], "duration_s": 600, "reason": "a person's"},
        ).raise_for_status()
        told.write_text(
            reservations(
                ("r7", "gpu-[01-02]", now - 600, now + 3600),
                ("later", "n9", now + 7200, now + 365 * 86_400),
                ("past", "n8", now - 7200, now - 3600),
            )
        )
        assert run(["silence", "import", "--slurm", "--dry-run"]) == ExitCode.DONE
        assert "gpu" not in str(windows(server))
        for _ in range(2):  # the second time nothing changes
            assert run(["silence", "import", "--slurm"]) == ExitCode.DONE
            assert windows(server) == {
                "a person's": (["node=x"], 600.0),
                "Slurm reservation r7": ([r"node=~gpu\-01|gpu\-02"], 3600.0),
                "Slurm reservation later": (["node=~n9"], 7200.0 + 90 * 86_400.0),
            }
        assert "2 stay as they are" in capsys.readouterr().out
        told.write_text(reservations(("r7", "gpu-[01-03]", now - 600, now + 5400)))
        assert run(["silence", "import", "--slurm"]) == ExitCode.DONE
        assert windows(server) == {
            "a person's": (["node=x"], 600.0),
            "Slurm reservation r7": ([r"node=~gpu\-01|gpu\-02|gpu\-03"], 5400.0),
        }
        actions = [one["action"] for one in get(server, "/v1/audit", limit=1000)["items"]]
        assert actions.count("create_silence") == 4
        assert actions.count("expire_silence") == 2
        with node_in(server, "gpu-03") as node:
            node.events(xid_event(FELL_OFF, "0000:10:00.0"))
            wait_for(
                lambda: get(server, "/v1/incidents", node="gpu-03")["items"], what="an incident"
            )
            (held,) = get(server, "/v1/incidents", node="gpu-03")["items"]
            assert "Slurm reservation r7" in held["held"]
            assert excluded(server) == set()
        scontrol.write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
        assert run(["silence", "import", "--slurm"]) == ExitCode.LOCAL
        assert "no controller" in capsys.readouterr().err
        assert len(windows(server)) == 2, "what cannot be asked changes nothing"
        assert run(["silence", "import"]) == ExitCode.USAGE

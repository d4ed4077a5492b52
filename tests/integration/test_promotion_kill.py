"""kill -9 at each step of a promotion: the leaver is out with its joiner, or neither happened."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from gpuwarden_server.config import Settings
from tests.builders.dying import Step
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, ServerProcess, environment_of, make_gpu
from tests.fakes.waiting import wait_for

LEAVER, JOINER = "leaver", "joiner"
SLOT = "0000:10:00.0"
KILLED = -9


def settings_of(folder: Path) -> Settings:
    settings = quick_settings(folder, database_url=None)
    assert settings.policy_file is not None
    with settings.policy_file.open("a") as file:
        file.write("standby = { promote = true }\n")
    return settings


def written(settings: Settings) -> tuple[int, int]:
    """Exclusions in force and open leases that a reader of the file finds."""
    with closing(sqlite3.connect(settings.state_folder / "state.db")) as database:
        out = "SELECT count(*) FROM decisions WHERE phase = 'in_force' AND rung >= 2"
        leased = "SELECT count(*) FROM standby_leases WHERE ended_at IS NULL"
        return database.execute(out).fetchone()[0], database.execute(leased).fetchone()[0]


def begin(settings: Settings, step: Step) -> subprocess.Popen[bytes]:
    """The server over files in which the fault waits to be judged."""
    with (settings.state_folder.parent / "server.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.builders.dying", step],
            env=os.environ | environment_of(settings),
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def introduce(server: Running) -> Feeder:
    """Two nodes, of which one stands by; the other's agent."""
    joiner, leaver = (Feeder(server, server.mint("agent", one), one) for one in (JOINER, LEAVER))
    for node in (joiner, leaver):
        node.introduce([make_gpu(0, node.node_id)])
    joiner.close()
    said = {"node_id": JOINER, "state": "warm", "proven": True, "reason": "spare"}
    server.admin.post("/v1/standby", json=said).raise_for_status()
    return leaver


@pytest.mark.long
def test_a_promotion_is_whole_or_not_at_all_wherever_it_is_killed(tmp_path: Path) -> None:
    steps = tuple(Step)
    settings = settings_of(tmp_path)
    first = ServerProcess(settings, ("-m", "tests.builders.dying", steps[0]))
    running = first.start()
    leaver = introduce(running)
    with suppress(httpx.TransportError):  # it may be gone before it answers
        leaver.events(xid_event(79, SLOT))
    leaver.close()
    running.admin.close()
    assert first.wait() == KILLED, first.output
    for before, step in pairwise(steps):
        assert written(settings) == (0, 0), f"killed at {before}: not the one without the other"
        assert begin(settings, step).wait(60) == KILLED, first.output
    assert written(settings) == (1, 1), "committed as one"
    last = ServerProcess(settings)
    server = last.start()
    try:
        (lease,) = get(server, "/v1/standby")["leases"]
        assert (lease["joiner"], lease["leaver"]) == (JOINER, LEAVER)
        (out,) = wait_for(lambda: exclusions_of(server)["exclusions"])
        assert (out["node_id"], out["joiner"]) == (LEAVER, JOINER)
        assert len(get(server, "/v1/standby/leases")["items"]) == 1, "and once"
        entries = get(server, "/v1/audit", action="promote_standby")["items"]
        assert [one["target"] for one in entries] == [f"node:{JOINER}"]
    finally:
        server.admin.close()
        last.close()

"""What is old is deleted; what is live, or still asked for, is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_wire.events import Backlog, GpuJob, JobKind
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import query

BOTH_STORES = True
SLOTS = [f"0000:{0x10 + number:02x}:00.0" for number in range(4)]
TIMES = {
    "events": ("received_at",),
    "incidents": ("opened_at", "resolved_at"),
    "decisions": ("decided_at",),
    "incident_moves": ("at",),
    "decision_moves": ("at",),
    "entity_state_moves": ("at",),
    "audit": ("at",),
    "job_runs": ("since", "until"),
    "job_ends": ("ended_at",),
}
LONG_AGO_S = 12_000 * 86_400


def make_past(server: Running) -> None:
    """An exclusion in force, one that was revoked, and a fault that is history."""
    node = Feeder(server, server.mint("agent", "n1"), "n1")
    gpus = [make_gpu(n, "n1") for n in range(4)]
    old, new = (
        GpuJob(gpu_uuid=gpus[0].gpu_uuid, kind=JobKind.SLURM, job_id=name) for name in ("1", "2")
    )
    node.introduce(gpus, jobs=(old,))
    ended = {"job": "slurm:1", "state": "COMPLETED"}
    server.admin.post("/v1/events", json={"job_ends": [ended]}).raise_for_status()
    node.events(node.inventory(gpus, jobs=(new,)))
    node.events(xid_event(79, SLOTS[0]), xid_event(79, SLOTS[1]))
    wait_until(lambda: exclusions_of(server)["count"] == 2, "two are excluded")
    found = get(server, "/v1/decisions", phase="in_force")["items"]
    revoked = next(one for one in found if one["entity"] == "GPU-n1-1")
    why = {"reason": "sound"}
    server.admin.post(f"/v1/decisions/{revoked['id']}/revoke", json=why).raise_for_status()
    node.events(xid_event(79, SLOTS[2], backlog=Backlog.OLDER_BOOT))
    wait_until(
        lambda: (
            "GPU-n1-2"
            in {one["entity"] for one in get(server, "/v1/incidents", phase="resolved")["items"]}
        ),
        "the old fault is on record",
    )
    node.close()


def wait_pass(server: Running) -> None:
    name = "gpuwarden_retention_last_pass_timestamp_seconds"
    wait_until(lambda: server.figure(name) > 0, "a pass came to its end", 30.0)


def test_old_rows_go_and_live_ones_stay(tmp_path: Path) -> None:
    settings, state = quick_settings(tmp_path), tmp_path / "state"
    with running_server(settings) as server:
        make_past(server)
        wait_pass(server)
        assert server.figure("gpuwarden_retention_deleted_total", table="events") == 0
    for table, columns in TIMES.items():
        for column in columns:
            query(state, f"UPDATE {table} SET {column} = {column} - {LONG_AGO_S}")
    with running_server(settings) as server:
        wait_pass(server)
        assert server.figure("gpuwarden_retention_deleted_total", table="events") > 0
        assert exclusions_of(server)["count"] == 1
        live = get(server, "/v1/incidents", phase="live")["items"]
        assert "GPU-n1-0" in {one["entity"] for one in live}
        again = Feeder(server, server.mint("agent", "n2"), "n2")
        again.introduce([make_gpu(0, "n2")])
        again.events(xid_event(79, SLOTS[0]))
        wait_until(lambda: exclusions_of(server)["count"] == 2, "the judge goes on")
        again.close()
    decided = query(state, "SELECT entity, phase FROM decisions WHERE node_id = 'n1'")
    assert decided == [("GPU-n1-0", "in_force")]
    assert query(state, "SELECT count(*) FROM decision_moves WHERE at < 1000000000") != [(0,)]
    assert query(state, "SELECT count(*) FROM incidents WHERE phase = 'resolved'") == [(0,)]
    orphans = "SELECT count(*) FROM {0}_moves WHERE {0}_id NOT IN (SELECT id FROM {0}s)"
    for name in ("incident", "decision"):
        assert query(state, orphans.format(name)) == [(0,)]
    assert query(state, "SELECT job FROM job_runs WHERE node_id = 'n1'") == [("slurm:2",)]
    assert query(state, "SELECT count(*) FROM job_ends") == [(0,)]
    assert query(state, "SELECT kind FROM events WHERE node_id = 'n1'") == [("node_boot",)]
    assert query(state, "SELECT count(*) FROM audit WHERE at < 1000000000") == [(0,)]
    assert query(state, "SELECT count(*) FROM audit") != [(0,)]


@pytest.mark.long
def test_days_of_0_keep_for_ever(tmp_path: Path) -> None:
    settings = quick_settings(
        tmp_path, retention_events_days=0, retention_incidents_days=0, retention_audit_days=0
    )
    state = tmp_path / "state"
    with running_server(settings) as server:
        make_past(server)
    before = [query(state, f"SELECT count(*) FROM {table}") for table in TIMES]
    for table, columns in TIMES.items():
        query(state, f"UPDATE {table} SET {columns[0]} = {columns[0]} - {LONG_AGO_S}")
    with running_server(settings) as server:
        wait_pass(server)
    assert [query(state, f"SELECT count(*) FROM {table}") for table in TIMES] == before

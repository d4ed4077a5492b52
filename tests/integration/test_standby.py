"""Two servers of one PostgreSQL database: one leads, the other takes over, nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_wire.batches import Batch, Stream
from tests.builders.agent import XID_79
from tests.builders.feed import exclusions_of, get, xid_event
from tests.builders.pair import Pair, leading, readyz, server_pair
from tests.builders.server import (
    Feeder,
    Running,
    make_client,
    make_event,
    make_gpu,
    wait_until,
)
from tests.builders.shooting import shooting, wait_flow
from tests.integration.test_agent_server import AgentProcess

SLOT = "0000:10:00.0"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with server_pair(tmp_path) as made:
        yield made


def _stored(pair: Pair) -> Counter[str]:
    return Counter(row[0] for row in pair.rows("SELECT id FROM events"))


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_a_leader_that_is_killed_under_load_is_followed_and_nothing_is_lost(
    pair: Pair, record_property: Any
) -> None:
    leader = leading(pair.start(0))
    other = pair.start(1)
    with shooting(leader, pair.urls) as shooters:
        wait_flow(shooters)
        pair.processes[0].kill()
        wait_until(lambda: readyz(other)["state"] == "ready", "the other leads", 60.0)
        wait_flow(shooters)
    acknowledged = [event for shooter in shooters for event in shooter.acknowledged]
    stored = _stored(pair)
    assert [event for event in acknowledged if stored[event] != 1] == []
    assert set(stored.values()) == {1}
    assert get(other, "/v1/incidents")["items"] == []
    assert pair.rows("SELECT token FROM leases") == [(2,)]
    assert other.figure("gpuwarden_lease_token") == 2
    assert other.figure("gpuwarden_store_lag_seconds", half="state") < 5
    record_property(
        "figure", f"take-over: {len(acknowledged)} acknowledged events, each there once"
    )


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_a_late_write_of_a_leader_that_stood_still_is_refused(pair: Pair) -> None:
    leader = leading(pair.start(0))
    other = pair.start(1)
    key = leader.mint("agent", "n1")
    feeder = Feeder(leader, key, "n1")
    feeder.introduce([make_gpu(0, "n1")])
    feeder.events(xid_event(79, SLOT))
    wait_until(lambda: exclusions_of(leader)["count"] == 1, "the GPU is excluded", 60.0)
    _check_stand_by(pair, leader, other)
    before = feeder.events(make_event())
    late = feeder.batch(Stream.EVENTS, events=(make_event(),))
    answers: list[httpx.Response | httpx.TransportError] = []
    pair.processes[0].pause()
    # On the wire before the lease ends: the former leader finds it when it goes on.
    sender = threading.Thread(target=_post, args=(feeder, late, answers), daemon=True)
    sender.start()
    wait_until(lambda: readyz(other)["state"] == "ready", "the other leads", 60.0)
    again = Feeder(other, key, "n1", spool_id=feeder.spool_id, seqs=dict(feeder.seqs))
    newer = again.batch(Stream.EVENTS, seq=late.seq, events=(make_event(),))
    assert again.send(newer).applied_seq == before.applied_seq + 1
    pair.processes[0].go_on()
    sender.join(60)
    assert not sender.is_alive()
    (answer,) = answers
    # A 503, or a connection that was closed as it stepped down; never an acknowledgement.
    if isinstance(answer, httpx.Response):
        assert answer.status_code == 503, answer.text
    ids = _stored(pair)
    assert ids[late.events[0].id] == 0
    assert ids[newer.events[0].id] == 1
    wait_until(lambda: "starts_afresh" in pair.processes[0].output, "it steps down", 60.0)
    with make_client(pair.urls[0], leader.admin.headers["authorization"][7:]) as former:
        wait_until(lambda: _follows(former, pair.urls[1]), "the former leader stands by", 60.0)
    assert pair.rows("SELECT token FROM leases") == [(2,)]
    assert exclusions_of(other)["count"] == 1
    again.close()
    feeder.close()
    # An orderly end gives the lead up at once: nobody waits for the lease to end.
    assert pair.processes[1].terminate() == 0
    wait_until(lambda: readyz(leader)["state"] == "ready", "the former leader leads again", 60.0)
    assert exclusions_of(leader)["count"] == 1


def _check_stand_by(pair: Pair, leader: Running, other: Running) -> None:
    """It says so, answers what rows say, and names the leader for all else."""
    answer = other.admin.get("/readyz")
    assert (answer.status_code, answer.json()["state"]) == (503, "stand_by")
    assert pair.urls[0] in answer.json()["reasons"]["lease"]
    wait_until(  # keys are read anew each second
        lambda: other.admin.get("/v1/incidents").status_code == 200, "it knows the keys", 60.0
    )
    for path in ("/v1/incidents", "/v1/decisions", "/v1/events", "/v1/keys", "/v1/audit"):
        assert other.admin.get(path).json()["items"] == get(leader, path)["items"]
    refused = [
        other.admin.get("/v1/exclusions"),
        other.admin.get("/v1/exclusions/stream"),
        other.admin.get("/v1/incidents/stream"),
        other.admin.get("/v1/states/stream"),
        other.admin.get("/v1/verdicts", params={"node": "n1"}),
        other.admin.post("/v1/keys", json={"role": "reader"}),
        other.admin.post("/v1/ingest", content=b""),
    ]
    told = [(one.status_code, one.json()["code"], one.json()["leader"]) for one in refused]
    assert told == [(503, "not_leader", pair.urls[0])] * len(refused)
    assert (leader.figure("gpuwarden_leading"), other.figure("gpuwarden_leading")) == (1, 0)


def _follows(client: httpx.Client, leader: str) -> bool:
    try:
        answer = client.get("/readyz")
    except httpx.TransportError:
        return False
    return answer.status_code == 503 and leader in answer.text


def _post(
    feeder: Feeder, batch: Batch, answers: list[httpx.Response | httpx.TransportError]
) -> None:
    try:
        answers.append(feeder.post(batch))
    except httpx.TransportError as error:
        answers.append(error)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_real_agent_finds_the_leader_from_the_stand_by_and_back(
    pair: Pair, tmp_path: Path
) -> None:
    leader = leading(pair.start(0))
    other = pair.start(1)
    with AgentProcess(tmp_path, pair.urls[1], leader.mint("agent", "node-1")) as agent:
        wait_until(lambda: get(leader, "/v1/events")["items"], "it reports to the leader", 60.0)
        agent.write_line(XID_79)
        wait_until(lambda: _has_xid(leader, 79), "its events reach the leader", 60.0)
        pair.processes[0].kill()
        agent.write_line(XID_79.replace(" 79,", " 63,"))
        wait_until(lambda: readyz(other)["state"] == "ready", "the other leads", 60.0)
        wait_until(lambda: _has_xid(other, 63), "what it kept reaches the new leader", 60.0)
    assert set(_stored(pair).values()) == {1}


def _has_xid(server: Running, xid: int) -> bool:
    items = get(server, "/v1/events", limit=1000)["items"]
    return any(one.get("xid") == xid for one in items)

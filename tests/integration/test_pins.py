"""Pins and planned leaves: people's standing words, through the judge, the feed and the audit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_server.config import Settings
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import EventKind
from tests.builders.feed import (
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    wait_sweeps,
    xid_event,
)
from tests.builders.server import (
    Feeder,
    Running,
    ServerProcess,
    make_event,
    make_gpu,
    running_server,
)
from tests.fakes.clock import MovedClock
from tests.fakes.waiting import wait_for

SLOT = "0000:10:00.0"
GPU = "GPU-n1-0"
HOUR = 3600.0


def introduced(server: Running, name: str = "n1") -> Feeder:
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(0, name)])
    return node


def say(server: Running, path: str, **body: Any) -> Any:
    answer = server.admin.post(path, json={"reason": "as ann says"} | body)
    assert answer.is_success, answer.text
    return answer.json()


def out(server: Running) -> list[str]:
    return [one["entity"] for one in exclusions_of(server)["exclusions"]]


def audited(server: Running) -> list[str]:
    items = get(server, "/v1/audit", limit=1000)["items"]
    words = ("pin", "leave")
    return [one["action"] for one in items if one["action"].endswith(words)]


def state_of(server: Running, node: str = "n1") -> str:
    return str(get(server, f"/v1/nodes/{node}/why")["verdict"]["state"])


def test_a_pin_keeps_out_or_in_until_it_ends(tmp_path: Path) -> None:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path), clock) as server:
        node = introduced(server)
        what = {"entity_kind": "gpu", "entity": GPU}
        first = say(server, "/v1/pins", **what, kind="exclude", duration_s=HOUR)
        assert out(server) == [GPU], "at once"
        (pin,) = get(server, f"/v1/gpus/{GPU}/why")["pins"]
        assert (pin["id"], pin["kind"], pin["reason"]) == (first["id"], "exclude", "as ann says")
        clock.ahead += HOUR + 1
        wait_for(lambda: out(server) == [], what="its time is over")
        wait_for(lambda: get(server, "/v1/pins")["items"] == [], what="and forgotten")
        second = say(server, "/v1/pins", **what, kind="allow")
        node.events(xid_event(79, SLOT))
        wait_sweeps(server, 3)
        assert out(server) == [], "a pin keeps it in whatever is seen"
        advice = get(server, "/v1/decisions", entity=GPU, phase="live")["items"]
        assert [one["rung"] for one in advice] == ["suspect"]
        third = say(server, "/v1/pins", **what, kind="exclude")
        assert [one["id"] for one in get(server, "/v1/pins")["items"]] == [third["id"]]
        assert out(server) == [GPU]
        gone = server.admin.post(f"/v1/pins/{second['id']}/end", json={"reason": "x"})
        assert (gone.status_code, gone.json()["code"]) == (409, "not_live")
        pinned = get(server, "/v1/decisions", entity=GPU, phase="in_force")["items"]
        mine = next(one for one in pinned if one["decided_by"] == "pin")
        say(server, f"/v1/decisions/{mine['id']}/revoke")
        wait_sweeps(server, 3)
        assert get(server, "/v1/pins")["items"] == [], "a revoke ends the pin too"
        assert audited(server) == ["set_pin"] * 3
        for wrong in ({"entity": "GPU-none"}, {"entity_kind": "node", "entity": "none"}):
            body = {**what, "kind": "allow", "reason": "r"} | wrong
            assert server.admin.post("/v1/pins", json=body).status_code == 404
        node.close()


def test_a_planned_leave_is_told_ahead_and_ends_with_its_time(tmp_path: Path) -> None:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path, Mode.OBSERVE), clock) as server:
        node, other = introduced(server), introduced(server, "n2")
        with reading_feed(server) as feed:
            at = clock.now() + HOUR
            made = say(server, "/v1/leaves", nodes=["n1", "n2"], at=at, duration_s=HOUR)["items"]
            wait_for(lambda: feed.changes(), what="told ahead")
            told = feed.changes()[-1].body
            assert [(one["node_id"], one["at"]) for one in told["planned"]] == [
                ("n1", pytest.approx(at)),
                ("n2", pytest.approx(at)),
            ]
            assert (told["added"], told["count"]) == ([], 0)
            assert exclusions_of(server)["planned"] == told["planned"]
            say(server, f"/v1/pins/{made[1]['id']}/end")
            wait_for(lambda: len(feed.changes()[-1].body["planned"]) == 1, what="taken back")
            clock.ahead += HOUR + 1
            feed.wait_added("n1")
            assert feed.changes()[-1].body["planned"] == [], "it is planned no more"
        assert "n2" not in out(server)
        node.events(xid_event(79, SLOT))
        wait_sweeps(server, 3)
        silences = get(server, "/v1/silences", active="true")["items"]
        assert [one["matchers"] for one in silences] == [["node=n1"]]
        assert get(server, "/v1/decisions", entity=GPU)["items"] == [], "faults in it are silent"
        clock.ahead += HOUR
        wait_for(lambda: "n1" not in out(server), what="it is over")
        assert audited(server) == ["plan_leave", "plan_leave", "end_leave"]
        node.close()
        other.close()


def test_a_node_that_is_kept_in_keeps_its_gpus_in(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node = introduced(server)
        node.events(xid_event(79, SLOT))
        wait_for(lambda: out(server) == [GPU], what="out")
        pin = say(server, "/v1/pins", entity_kind="node", entity="n1", kind="allow")
        wait_for(lambda: out(server) == [], what="in, as its node")
        wait_sweeps(server, 3)
        assert out(server) == []
        advice = get(server, "/v1/decisions", entity=GPU, phase="live")["items"]
        assert [one["rung"] for one in advice] == ["suspect"]
        say(server, f"/v1/pins/{pin['id']}/end")
        wait_for(lambda: out(server) == [GPU], what="what stands against it counts again")
        own = say(server, "/v1/pins", entity_kind="node", entity="n1", kind="allow")
        wait_for(lambda: out(server) == [], what="in")
        say(server, "/v1/pins", entity_kind="gpu", entity=GPU, kind="exclude")
        assert out(server) == [GPU], "a person's own word about the GPU"
        assert own["kind"] == "allow"
        node.close()


def test_times_that_no_clock_reaches_are_refused(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node = introduced(server)
        leave = '{"nodes": ["n1"], "reason": "r", "at": %s}'
        pin = '{"entity_kind": "node", "entity": "n1", "kind": "allow", "reason": "r", %s}'
        wrong = [("/v1/leaves", leave % at) for at in ("1e400", "Infinity", "NaN")]
        wrong += [("/v1/pins", pin % f'"duration_s": {lasts}') for lasts in ("1e400", "1e300")]
        for path, body in wrong:
            sent = {"content-type": "application/json"}
            answer = server.admin.post(path, content=body, headers=sent)
            assert answer.status_code == 422, (body, answer.text)
        in_ms = {"nodes": ["n1"], "reason": "r", "at": 1764500000000}
        far = server.admin.post("/v1/leaves", json=in_ms)
        assert (far.status_code, far.json()["code"]) == (409, "too_far")
        assert "milliseconds" in far.json()["mend"]
        assert get(server, "/v1/pins")["items"] == []
        node.close()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_leave_that_asks_for_a_check_ends_over_one_also_after_a_kill(tmp_path: Path) -> None:
    process = ServerProcess(_settings(tmp_path))
    try:
        server = process.start()
        node = introduced(server)
        (leave,) = say(server, "/v1/leaves", nodes=["n1"], at=0, check=True)["items"]
        wait_for(lambda: out(server) == ["n1"], what="at once")
        process.kill()
        server.admin.close()
        node.close()
        server = process.start()
        node.server, node.client = server, server.admin
        assert out(server) == ["n1"]
        say(server, f"/v1/pins/{leave['id']}/end")
        assert (out(server), state_of(server)) == (["n1"], "in_repair")
        wait_sweeps(server, 3)
        assert out(server) == ["n1"], "nothing but a check ends it"
        node.events(make_event(kind=EventKind.CHECK_PASSED, text="dcgm r3"))
        wait_for(lambda: out(server) == [], what="back")
        wait_for(lambda: state_of(server) in ("probation", "healthy"))
        assert get(server, "/v1/pins")["items"] == []
        server.admin.close()
    finally:
        process.close()


def _settings(folder: Path) -> Settings:
    return quick_settings(folder / "s")


POOLS = """
[defaults]
approvers = ["ana"]
[[pools]]
name = "checked"
nodes = ["n1"]
leave_check = true
[[pools.rules]]
classes = ["operator"]
approvers = ["oncall-*", "ana"]
"""


def test_the_policy_says_who_may_pin_and_whether_a_leave_returns_over_a_check(
    tmp_path: Path,
) -> None:
    settings = quick_settings(tmp_path)
    assert settings.policy_file is not None
    settings.policy_file.write_text(POOLS)
    with running_server(settings) as server:
        nodes = [introduced(server, name) for name in ("n1", "n2")]
        with (
            server.client(server.mint("operator", name="bob")) as bob,
            server.client(server.mint("operator", name="oncall-7")) as oncall,
        ):
            pin_and_leave(server, bob, oncall)
        for node in nodes:
            node.close()


def pin_and_leave(server: Running, bob: httpx.Client, oncall: httpx.Client) -> None:
    """What an operator may do who is an approver of no pool, and one who is of the first."""
    leave = {"nodes": ["n1", "n2"], "at": time.time() + HOUR, "reason": "new risers"}
    planned = server.admin.post("/v1/leaves", json=leave).json()["items"]
    assert [(one["entity"], one["check"]) for one in planned] == [("n1", True), ("n2", False)]
    for said in (False, True):
        planned = server.admin.post("/v1/leaves", json=leave | {"check": said}).json()["items"]
        assert [one["check"] for one in planned] == [said, said], "the leave's word goes first"
    pin = {"entity_kind": "node", "entity": "n1", "kind": "exclude", "reason": "smells"}
    for path, body in (("/v1/pins", pin), ("/v1/leaves", leave)):
        refused = bob.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_approver")
        assert "bob may not pin n1" in refused.json()["detail"]
        assert "role admin" in refused.json()["mend"]
    assert out(server) == []
    assert oncall.post("/v1/pins", json=pin).status_code == 201
    assert out(server) == ["n1"]
    other = pin | {"entity": "n2", "kind": "allow"}
    assert oncall.post("/v1/pins", json=other).status_code == 403, "of its pool ana alone"
    (held,) = [one for one in get(server, "/v1/pins")["items"] if not one["leave"]]
    ended = bob.post(f"/v1/pins/{held['id']}/end", json={"reason": "it was toast"})
    assert ended.status_code == 200, "taking back asks for nobody"
    assert server.admin.post("/v1/pins", json=other).status_code == 201, "never locked out"
    items = get(server, "/v1/audit", limit=1000)["items"]
    after = [one["after"] for one in items if one["action"] == "set_pin"]
    without = [one["without_approvers"] for one in after if "without_approvers" in one]
    assert without == [["ana"]], "whose word an admin did without"

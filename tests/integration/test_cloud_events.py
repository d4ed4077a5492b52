"""What clouds announce: asked of stand-ins of their metadata services, followed by the server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.collectors import cloud_events
from gpuwarden_agent.collectors.cloud_events import (
    RETELL_S,
    AwsCloud,
    AzureCloud,
    CloudEventCollector,
)
from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.config import ConfigError, load_settings
from gpuwarden_agent.setting_values import Cloud
from gpuwarden_agent.sources.cloud_service import CloudService
from gpuwarden_server.decisions.pins.schemas import FARTHEST_LEAVE_S
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import Event, EventKind
from tests.builders.agent import agent_settings, running
from tests.builders.feed import (
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    wait_sweeps,
)
from tests.builders.server import Feeder, Running, ServerProcess, make_gpu, running_server
from tests.fakes.clock import MovedClock
from tests.fakes.cloud_server import (
    AZURE,
    AZURE_NAME,
    REBALANCE,
    SCHEDULED,
    SPOT,
    FakeCloud,
    azure_event,
    scheduled,
    serving,
)
from tests.fakes.waiting import wait_for

AT = "21 Jan 2030 09:00:43 GMT"
AT_S = 1895216443.0
NOW = 1_000.0


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with serving(FakeCloud()) as one:
        yield one


def aws(cloud: FakeCloud, deadline_s: float = 30.0) -> CloudEventCollector:
    return CloudEventCollector(
        Cloud.AWS, AwsCloud(CloudService(cloud.url, deadline_s)), 15.0, "boot-1"
    )


def told(collector: CloudEventCollector) -> dict[str, Any] | None:
    events = collector.collect(NOW).events
    assert len(events) <= 1
    return dict(events[0].attributes) if events else None


def test_aws_is_asked_with_a_token_and_told_once_a_change(cloud: FakeCloud) -> None:
    collector = aws(cloud)
    first = told(collector)
    assert first is not None
    assert (first["ids"], first["complete"]) == ([], True), "at start all that there is is told"
    cloud.say(SCHEDULED, [scheduled("instance-event-1", AT)])
    cloud.say(SPOT, {"action": "terminate", "time": "2030-01-21T08:22:00Z"})
    cloud.say(REBALANCE, {"noticeTime": "2030-01-21T08:20:00Z"})
    (event,) = collector.collect(NOW).events
    assert (event.kind, event.severity) == (EventKind.CLOUD_EVENTS, "warning")
    assert "system-reboot (instance-event-1) from 2030-01-21T09:00:43Z" in event.text
    assert event.attributes["codes"] == [
        "system-reboot",
        "rebalance-recommendation",
        "spot-terminate",
    ]
    assert event.attributes["not_before"] == [AT_S, AT_S - 2443, AT_S - 2323]
    assert told(collector) is None, "as before"
    assert cloud.asked.count("PUT /latest/api/token") == 1
    cloud.token = "another="
    assert told(collector) is None, "a token that is good no more is renewed"
    cloud.say(SCHEDULED, [scheduled("instance-event-1", AT, State="completed")])
    del cloud.answers[SPOT], cloud.answers[REBALANCE]
    assert told(collector) is None, "one answer without them may be a slip"
    after = told(collector)
    assert after is not None
    assert after["ids"] == []


def test_what_is_announced_is_told_again_each_hour(cloud: FakeCloud) -> None:
    clock = [0.0]
    source = AwsCloud(CloudService(cloud.url, 30.0))
    collector = CloudEventCollector(Cloud.AWS, source, 15.0, "boot-1", lambda: clock[0])
    assert told(collector) is not None
    clock[0] += RETELL_S
    assert told(collector) is None, "nothing is announced"
    cloud.say(SCHEDULED, [scheduled("instance-event-1", AT)])
    assert told(collector) is not None
    assert told(collector) is None
    clock[0] += RETELL_S
    assert told(collector) is not None


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"EventId": "x"}',
        b"[1]",
        b'[{"EventId": "x", "Code": "system-reboot", "NotBefore": "tomorrow"}]',
        b'[{"EventId": "", "Code": "system-reboot", "NotBefore": "21 Jan 2030 09:00:43 GMT"}]',
        b'[{"EventId": "x", "Code": "system-reboot", "NotBefore": "41 Jan 2030 09:00:43 GMT"}]',
        b"\xff\xfe",
    ],
)
def test_a_wrong_answer_says_why_and_takes_nothing_back(cloud: FakeCloud, body: bytes) -> None:
    collector = aws(cloud)
    cloud.say(SCHEDULED, [scheduled("instance-event-1", AT)])
    assert told(collector) is not None
    cloud.answers[SCHEDULED] = body
    cloud.say(SPOT, {"action": "stop", "time": "2030-01-21T08:22:00Z"})
    harvest = collector.collect(NOW)
    (notice,) = harvest.notices.values()
    assert notice.reason == "cloud_answer_not_understood"
    assert notice.mend
    said = harvest.events[0].attributes
    assert said["complete"] is False
    assert said["codes"] == ["system-reboot", "spot-stop"], "what was told stays, news are told"
    cloud.say(SCHEDULED, [])
    assert not collector.collect(NOW).notices
    after = told(collector)
    assert after is not None
    assert after["codes"] == ["spot-stop"], "two whole answers lack it"


def refusal(collector: CloudEventCollector) -> str:
    with pytest.raises(CollectorError) as caught:
        collector.collect(NOW)
    assert caught.value.mend
    return caught.value.reason


def test_a_service_that_does_not_answer_is_own_trouble(cloud: FakeCloud) -> None:
    cloud.gives_token = False
    assert refusal(aws(cloud)) == "cloud_gives_no_token"
    cloud.gives_token, cloud.silent = True, True
    assert refusal(aws(cloud, deadline_s=0.3)) == "cloud_too_slow"
    gone = FakeCloud(url="http://127.0.0.1:9")
    assert refusal(aws(gone)) == "cloud_unreachable"
    azure = AzureCloud(CloudService(cloud.url, 30.0))
    cloud.silent = False
    collector = CloudEventCollector(Cloud.AZURE, azure, 15.0, "boot-1")
    assert refusal(collector) == "cloud_refuses"


def test_azure_tells_of_this_machine_only(cloud: FakeCloud) -> None:
    cloud.answers[AZURE_NAME] = b"gpu-vm_3"
    mine = azure_event("602d9444-1", "Redeploy", "gpu-vm_3", "gpu-vm_4")
    others = azure_event("602d9444-2", "Reboot", "gpu-vm_4")
    begun = azure_event("602d9444-3", "Preempt", "gpu-vm_3", EventStatus="Started", NotBefore="")
    cloud.say(AZURE, {"DocumentIncarnation": 2, "Events": [mine, others, begun]})
    source = AzureCloud(CloudService(cloud.url, 30.0))
    collector = CloudEventCollector(Cloud.AZURE, source, 15.0, "boot-1")
    said = told(collector)
    assert said is not None
    assert (said["provider"], said["complete"]) == ("azure", True)
    assert said["ids"] == ["602d9444-1", "602d9444-3"]
    assert said["not_before"] == [AT_S, None]
    assert cloud.asked.count(f"GET {AZURE_NAME}") == 1
    cloud.say(AZURE, {"DocumentIncarnation": 3, "Events": "none"})
    harvest = collector.collect(NOW)
    assert list(harvest.notices) == ["cloud_events:scheduledevents"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLOUD_EVENTS", "gcp"),
        ("CLOUD_EVENTS_URL", "https://169.254.169.254"),
        ("CLOUD_EVENTS_URL", "http://169.254.169.254/latest"),
    ],
)
def test_settings_say_what_they_take(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="give"):
        load_settings({f"GPUWARDEN_AGENT_{name}": value}, {})


def test_it_is_off_until_a_cloud_is_named(tmp_path: Path) -> None:
    assert agent_settings(tmp_path).cloud_events is None


# The server's side


def announce(*events: tuple[str, str, float | None], complete: bool = True) -> Event:
    rows: Sequence[tuple[str, str, float | None]] = events
    number = time.monotonic_ns()
    return Event(
        id=f"cloud_events:boot:aws:{number}",
        kind=EventKind.CLOUD_EVENTS,
        observed_at=time.time(),
        attributes={
            "provider": "aws",
            "complete": complete,
            "ids": [one[0] for one in rows],
            "codes": [one[1] for one in rows],
            "not_before": [one[2] for one in rows],
            "texts": ["says the cloud" for _ in rows],
        },
    )


def introduced(server: Running, name: str = "n1") -> Feeder:
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(0, name)])
    return node


def pins(server: Running) -> list[dict[str, Any]]:
    return list(get(server, "/v1/pins")["items"])


def out(server: Running) -> list[str]:
    return [one["entity"] for one in exclusions_of(server)["exclusions"]]


def audited(server: Running) -> list[tuple[str, str]]:
    items = get(server, "/v1/audit", limit=1000)["items"]
    own = [one for one in items if one["action"].endswith("leave")]
    return [(one["author"], one["action"]) for one in own]


def followed(server: Running, outcome: str) -> float:
    return server.figure("gpuwarden_cloud_leaves_total", outcome=outcome)


def wait_until_followed(server: Running, outcome: str, count: int) -> None:
    wait_for(lambda: followed(server, outcome) >= count, what=f"{outcome} {count} times")


def test_an_announced_reboot_is_a_planned_leave_until_it_is_over(tmp_path: Path) -> None:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path), clock) as server:
        node = introduced(server)
        at = clock.now() + 3600
        with reading_feed(server) as feed:
            node.events(announce(("e1", "system-reboot", at)))
            wait_for(lambda: feed.changes(), what="told ahead")
            (planned,) = feed.changes()[-1].body["planned"]
        assert planned["at"] == pytest.approx(at - 300), "so long before the cloud may begin"
        (pin,) = pins(server)
        assert (pin["by"], pin["leave"]) == ("cloud_events (aws)", True)
        assert "system-reboot (aws:e1): says the cloud" in pin["reason"]
        node.events(announce(("e1", "system-reboot", at)))  # told again
        node.events(announce(("e1", "system-reboot", at), ("e2", "rebalance-recommendation", at)))
        node.events(announce(complete=False))
        wait_sweeps(server, 2)
        assert pins(server) == [pin], "the same event once, and nothing is taken back unsure"
        node.events(announce(("e1", "system-reboot", at + 60)))
        moved = pytest.approx(at - 240)
        wait_for(lambda: [one["starts_at"] for one in pins(server)] == [moved], what="moved")
        clock.ahead += 3600
        wait_for(lambda: out(server) == ["n1"], what="out at its time")
        assert len(get(server, "/v1/silences", active="true")["items"]) == 1
        node.events(announce(("e1", "system-reboot", None)))
        wait_sweeps(server, 2)
        assert out(server) == ["n1"], "it has begun"
        node.events(announce())
        wait_for(lambda: out(server) == [], what="the cloud announces it no more")
        assert get(server, "/v1/silences", active="true")["items"] == []
        assert get(server, "/v1/nodes/n1/why")["verdict"]["state"] in ("probation", "healthy")
        cloud = "cloud_events (aws)"
        assert audited(server) == [
            (cloud, "plan_leave"),
            (cloud, "end_leave"),
            (cloud, "plan_leave"),
            (cloud, "end_leave"),
        ]
        node.events(announce(("e1", "system-reboot", None)))
        wait_for(lambda: out(server) == ["n1"], what="should it come back, so does the leave")
        node.close()


def test_what_people_set_and_ended_stays_so(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node, other = introduced(server), introduced(server, "n2")
        far = time.time() + 7200
        leave = {"nodes": ["n1"], "at": far, "reason": "as ann says"}
        mine = server.admin.post("/v1/leaves", json=leave).json()["items"][0]["id"]
        node.events(announce(("e1", "instance-stop", far)))
        wait_for(lambda: len(pins(server)) == 2, what="both stand")
        server.admin.post("/v1/leaves", json=leave | {"at": far + 60})
        assert len(pins(server)) == 2, "a person's new plan takes the place of the person's"
        node.events(announce())
        wait_for(lambda: len(pins(server)) == 1, what="its own ends")
        (left,) = pins(server)
        assert left["id"] != mine
        assert left["by"] != "cloud_events (aws)"
        node.events(announce(("e2", "spot-terminate", time.time() + 120)))
        wait_for(lambda: out(server) == ["n1"], what="at once")
        (cloud,) = [one for one in pins(server) if one["by"] == "cloud_events (aws)"]
        server.admin.post(f"/v1/pins/{cloud['id']}/end", json={"reason": "it stays"})
        wait_for(lambda: out(server) == [], what="a person ended it")
        node.events(announce(("e2", "spot-terminate", time.time() + 120)))
        wait_sweeps(server, 2)
        assert [one["id"] for one in pins(server)] == [left["id"]]
        keep = {"entity_kind": "node", "entity": "n2", "kind": "allow", "reason": "it stays"}
        server.admin.post("/v1/pins", json=keep)
        other.events(announce(("e3", "instance-stop", None)))
        wait_for(lambda: followed(server, "withheld") == 1, what="kept in by a person")
        assert out(server) == []
        node.close()
        other.close()


def test_what_is_put_off_beyond_what_can_be_planned_leaves_at_no_old_time(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node = introduced(server)
        soon = time.time() + 3600
        node.events(announce(("e1", "system-reboot", soon)))
        wait_for(lambda: len(pins(server)) == 1, what="planned")
        node.events(announce(("e1", "system-reboot", soon + 2 * FARTHEST_LEAVE_S)))
        wait_for(lambda: pins(server) == [], what="the old time is void")
        node.events(announce(("e1", "system-reboot", soon + 60)))
        wait_for(lambda: len(pins(server)) == 1, what="planned anew")
        node.close()


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ADVISE])
def test_only_a_pool_that_acts_follows(tmp_path: Path, mode: Mode) -> None:
    with running_server(quick_settings(tmp_path, mode)) as server:
        node = introduced(server)
        node.events(announce(("e1", "instance-stop", None)))
        wait_for(lambda: followed(server, "withheld") == 1, what="said to be withheld")
        assert (pins(server), out(server)) == ([], [])
        shown = get(server, "/v1/events", node="n1", kind="cloud_events")["items"]
        assert len(shown) == 1
        node.close()


def test_an_odd_announcement_is_followed_by_nothing(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node = introduced(server)
        good = announce(("e1", "instance-stop", None))
        wrong: list[dict[str, Any]] = [
            {"provider": 7},
            {"provider": "aws:x"},
            {"ids": []},
            {"codes": [7]},
            {"not_before": ["soon"]},
            {"not_before": [True]},
            {"texts": None},
        ]
        for number, one in enumerate(wrong):
            said = {**good.attributes, **one}
            event = Event(
                id=f"odd:{number}", kind=good.kind, observed_at=good.observed_at, attributes=said
            )
            node.events(event)
            wait_until_followed(server, "not_understood", number + 1)
        assert (pins(server), out(server)) == ([], [])
        node.close()


def test_a_killed_server_follows_what_it_had_taken(tmp_path: Path) -> None:
    process = ServerProcess(quick_settings(tmp_path))
    try:
        server = process.start()
        node = introduced(server)
        at = time.time() + 3600
        node.events(announce(("e1", "system-reboot", at)))
        node.close()
        server.admin.close()
        process.kill()
        server = process.start()
        wait_for(lambda: len(pins(server)) == 1, what="planned once")
        wait_sweeps(server, 2)
        assert len(pins(server)) == 1
        assert [action for _, action in audited(server)] == ["plan_leave"]
        server.admin.close()
    finally:
        process.close()


def test_from_the_cloud_to_the_feed_and_back(tmp_path: Path, cloud: FakeCloud) -> None:
    with running_server(quick_settings(tmp_path / "server")) as server:
        settings = agent_settings(
            tmp_path / "agent",
            server_url=server.url,
            key=server.mint("agent", "node-1"),
            collectors="cloud_events",
            cloud_events="aws",
            cloud_events_url=cloud.url,
            cloud_events_interval_s=0.1,
        )
        with running(settings):
            cloud.say(SPOT, {"action": "terminate", "time": "2026-01-21T08:22:00Z"})
            wait_for(lambda: out(server) == ["node-1"], what="out")
            del cloud.answers[SPOT]
            wait_for(lambda: out(server) == [], what="in again")
    assert CloudEventCollector.deadline_s > cloud_events.LOOK_DEADLINE_S

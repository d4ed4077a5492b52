"""PagerDuty and Slack: one notification a cause, kept up to date, ended; by their own contracts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.core.errors import StartError
from gpuwarden_server.notifications.document import Endpoint, EndpointKind
from gpuwarden_server.notifications.domain import MessagePhase
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity
from gpuwarden_verdict.incidents.domain import IncidentPhase
from gpuwarden_wire.metrics import EntityKind
from tests.builders.notifying import Story
from tests.fakes.answering import Posted, Reply, answering
from tests.fakes.pagerduty import PagerDuty
from tests.fakes.slack import Slack

BOTH_STORES = True

Made = Callable[..., Story]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    with ExitStack() as opened:

        def make(*endpoints: Endpoint, **more: Any) -> Story:
            story = Story(tmp_path / f"state-{time.monotonic_ns()}", *endpoints, **more)
            opened.callback(story.close)
            return story

        yield make


@pytest.fixture
def pager() -> Iterator[tuple[PagerDuty, Endpoint]]:
    fake = PagerDuty()
    with answering(fake.answer) as url:
        yield fake, Endpoint("oncall", EndpointKind.PAGERDUTY, (url,), (fake.routing_key,))


@pytest.fixture
def slack() -> Iterator[tuple[Slack, Endpoint]]:
    fake = Slack()
    with answering(fake.answer) as url:
        yield (
            fake,
            Endpoint(
                "ops", EndpointKind.SLACK, (f"{url}/api",), (fake.token,), channel=fake.channel
            ),
        )


Pager = tuple[PagerDuty, Endpoint]
Chat = tuple[Slack, Endpoint]


def test_a_fault_pages_once_is_acknowledged_and_resolves(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    story = made(endpoint)
    incident = story.incident()
    story.opens(incident)
    story.run()
    key = "gpuwarden:gpu:GPU-1:memory"
    assert fake.open == {key: "triggered"}
    told = fake.events[0]["payload"]
    assert told["severity"] == "critical"
    assert told["summary"].startswith("GPU GPU-1 on node-1: memory: XID 64")
    assert told["source"] == "node-1"
    incident = story.changes(incident, phase=IncidentPhase.ACKNOWLEDGED)
    story.run()
    assert fake.open == {key: "acknowledged"}
    story.resolves(incident)
    story.run()
    assert fake.open == {}
    assert fake.actions() == ["trigger", "acknowledge", "resolve"]
    again = story.incident(id="inc-000000000009")
    story.opens(again)
    story.run()
    assert list(fake.open) == [key], "the same fault has the same key each time"


def test_wiggling_pages_nobody_again(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    story = made(endpoint)
    incident = story.incident()
    story.opens(incident)
    for _ in range(10):
        story.passes(60)
        incident = story.changes(incident, phase=IncidentPhase.MITIGATED)
        story.passes(60)
        incident = story.changes(incident, phase=IncidentPhase.OPEN)
    story.changes(incident, severity=Severity.ERROR)
    story.passes(60, step_s=10)
    assert fake.actions() == ["trigger", "trigger"]
    assert fake.events[1]["payload"]["severity"] == "error"
    assert list(fake.pages.values()) == [1]


@pytest.mark.postgres
def test_a_storm_behind_a_leaf_is_one_page(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    labels = {f"node-{n}": {"leaf": "12", "rack": f"r{n}"} for n in range(37)}
    story = made(endpoint, labels=labels)
    incidents = [story.incident(n, fault_class=FaultClass.NVLINK) for n in range(37)]
    for incident in incidents:
        story.opens(incident)
        story.passes(0.5)
    story.passes(20, step_s=5)
    assert list(fake.pages.values()) == [1]
    assert len(fake.events) <= 8, "what joins is told together"
    assert fake.events[-1]["payload"]["summary"].startswith("37 GPUs behind leaf 12: nvlink")
    for incident in incidents[:-1]:
        story.resolves(incident)
    story.passes(20, step_s=5)
    assert fake.open
    story.resolves(incidents[-1])
    story.run()
    assert fake.open == {}
    assert fake.actions()[-1] == "resolve"


def test_what_is_behind_a_place_is_told_with_it(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    story = made(endpoint, labels={f"node-{n}": {"rack": f"r{n}"} for n in range(4)})
    members = [story.incident(n, fault_class=FaultClass.NIC) for n in range(4)]
    story.opens(*members)
    story.passes(10, step_s=5)
    assert len(fake.open) == 4, "nobody knows the cause yet"
    leaf = EntityRef(EntityKind.PLACE, "leaf:l0", "")
    other = replace(leaf, key="rack:r9")
    parent = story.incident(8, entity=leaf, fault_class=FaultClass.FABRIC, why="4 of 4 nodes")
    foreign = story.incident(9, entity=other, fault_class=FaultClass.THERMAL)
    story.opens(parent, foreign)
    members = [story.changes(one, parent_id=parent.id) for one in members]
    story.passes(10, step_s=5)
    assert sorted(fake.open) == [
        "gpuwarden:place:leaf:l0:fabric",
        "gpuwarden:place:rack:r9:thermal",
    ]
    told = [one["payload"] for one in fake.events if one.get("dedup_key", "").endswith("l0:fabric")]
    assert told[-1]["summary"].startswith("leaf switch l0 with 4 GPUs behind it: nic, fabric")
    assert told[-1]["source"] == "leaf:l0"
    for one in (*members, parent, foreign):
        story.resolves(one)
    story.passes(10, step_s=5)
    assert fake.open == {}


def test_what_fails_on_a_node_at_once_is_one_and_urgent_things_are_their_own(
    made: Made, pager: Pager
) -> None:
    fake, endpoint = pager
    story = made(endpoint)
    story.opens(
        story.incident(1, "node-a", severity=Severity.WARNING, fault_class=FaultClass.THERMAL),
        story.incident(2, "node-a", severity=Severity.WARNING),
        story.incident(3, "node-a", severity=Severity.CRITICAL),
        story.incident(4, "node-a", severity=Severity.CRITICAL),
        story.incident(5, "node-b", severity=Severity.CRITICAL),
    )
    story.passes(10, step_s=5)
    assert sorted(fake.open) == [
        "gpuwarden:gpu:GPU-1:thermal",
        "gpuwarden:gpu:GPU-3:memory",
        "gpuwarden:gpu:GPU-5:memory",
    ]


def test_beyond_the_cap_all_else_is_one_more_page_at_once(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    story = made(endpoint)
    incidents = [story.incident(n) for n in range(30)]
    story.opens(*incidents)
    story.passes(20, step_s=5)
    assert len(fake.pages) == 11
    (overflow,) = [key for key in fake.pages if "overflow" in key]
    told = [event for event in fake.events if event["dedup_key"] == overflow][-1]
    assert told["payload"]["summary"].startswith("20 GPUs on 20 nodes: told as one")
    assert len(told["payload"]["custom_details"]["incidents"]) == 20
    for incident in incidents:
        story.resolves(incident)
    story.passes(20, step_s=5)
    assert fake.open == {}


def test_a_long_name_still_has_a_key_and_fits(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    story = made(endpoint)
    disk = EntityRef(EntityKind.MOUNT, "node-1/" + "x" * 248, "node-1")
    story.opens(story.incident(entity=disk, why="long " * 1000))
    story.run()
    (key,) = fake.open
    assert len(key) <= 255


def test_a_page_that_is_refused_for_good_is_given_up_and_the_next_goes_on(
    made: Made, pager: Pager
) -> None:
    fake, endpoint = pager
    fake.answers = [Reply(400, b'{"errors": ["no"]}'), Reply(429, headers={"Retry-After": "30"})]
    story = made(endpoint)
    story.opens(story.incident(1), story.incident(2))
    story.passes(60, step_s=10)
    assert list(fake.open) == ["gpuwarden:gpu:GPU-2:memory"]
    with story.state.read() as connection:
        (lost,) = queue.read_messages(connection, ["oncall"], MessagePhase.GIVEN_UP, 0, 10)
    assert "no" in lost["error"]
    assert fake.routing_key not in json.dumps(lost)


def test_a_test_page_ends_itself(made: Made, pager: Pager) -> None:
    fake, endpoint = pager
    attempt = made(endpoint).told.lanes["oncall"][0].test()
    assert attempt.delivery.delivered
    assert fake.actions() == ["trigger", "resolve"]


def test_one_message_follows_its_case_with_its_moves_in_the_thread(made: Made, slack: Chat) -> None:
    fake, endpoint = slack
    story = made(endpoint)
    first, second = story.incident(1, "node-a"), story.incident(2, "node-a", why="<b> & 'x'")
    story.opens(first)
    story.run()
    (message,) = fake.messages.values()
    assert message.text == ":red_circle: GPU GPU-1 on node-a: memory"
    story.opens(second)
    first = story.changes(first, phase=IncidentPhase.ACKNOWLEDGED)
    story.passes(10, step_s=5)
    assert message.text == ":red_circle: 2 GPUs on node-a: memory"
    assert "&lt;b&gt; &amp; 'x'" in message.replies[0]
    story.resolves(first)
    story.resolves(second)
    story.passes(10, step_s=5)
    assert len(fake.messages) == 1
    assert message.text.startswith(":white_check_mark: Resolved: 2 GPUs")
    assert "resolved" in message.replies[-1]


def test_slack_that_says_no_or_wait_is_asked_again(made: Made, slack: Chat) -> None:
    fake, endpoint = slack
    fake.answers = [
        Reply(200, b'{"ok": false, "error": "ratelimited"}'),
        Reply(429, headers={"Retry-After": "20"}),
        Reply(200, b'{"ok": false, "error": "not_in_channel"}'),
        Reply(200, b"<html>"),
    ]
    story = made(endpoint)
    story.opens(story.incident())
    story.passes(600, step_s=5)
    assert len(fake.messages) == 1


def test_slack_that_refuses_the_message_itself_is_not_asked_again(made: Made, slack: Chat) -> None:
    fake, endpoint = slack
    fake.answers = [Reply(200, b'{"ok": false, "error": "invalid_blocks"}')]
    story = made(endpoint)
    story.opens(story.incident(1), story.incident(2))
    story.run()
    assert len(fake.messages) == 1
    with story.state.read() as connection:
        assert queue.backlog(connection, "ops").given_up == 1


def test_limits_of_slack_hold_for_a_large_case(made: Made, slack: Chat) -> None:
    fake, endpoint = slack
    story = made(endpoint)
    incidents = [story.incident(n, "node-a", why="long " * 300) for n in range(60)]
    story.opens(incidents[0])
    story.run()
    story.opens(*incidents[1:])
    story.passes(10, step_s=5)
    (message,) = fake.messages.values()
    assert message.text.startswith(":red_circle: 60 GPUs on node-a")
    assert len(message.replies) == 1


def test_a_digest_is_one_message(made: Made, slack: Chat) -> None:
    fake, endpoint = slack
    story = made(replace(endpoint, digest_s=3600.0))
    story.opens(*(story.incident(n, severity=Severity.WARNING) for n in range(3)))
    story.passes(3700, step_s=600)
    (message,) = fake.messages.values()
    assert message.text.startswith("*3 incidents, 3 still stand*")


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise's own
def test_apprise_is_told_when_a_case_begins_grows_and_ends(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[dict[str, Any]] = []

    def take(posted: Posted) -> Reply:
        told.append(json.loads(posted.body))
        return Reply(200)

    with answering(take) as url:
        target = url.replace("http://", "json://")
        story = made(Endpoint("mail", EndpointKind.APPRISE, (), (target,)))
        first, second = story.incident(1, "node-a"), story.incident(2, "node-a")
        story.opens(first)
        story.run()
        story.opens(second)
        first = story.changes(first, phase=IncidentPhase.ACKNOWLEDGED)
        story.passes(120, step_s=10)
        story.changes(second, phase=IncidentPhase.ACKNOWLEDGED)
        story.passes(120, step_s=10)
        story.resolves(first)
        story.resolves(second)
        story.run()
    assert [one["title"] for one in told] == [
        "critical: GPU GPU-1 on node-a: memory",
        "critical: 2 GPUs on node-a: memory",
        "resolved: 2 GPUs on node-a: memory",
    ]
    with pytest.raises(StartError, match="target 1 is no URL that apprise knows") as caught:
        made(Endpoint("mail", EndpointKind.APPRISE, (), ("nonsense://secret",)))
    assert "nonsense" not in str(caught.value) + caplog.text

"""A receiver that fails, hangs, redirects or is away is told everything, once by its id."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.notifications.document import Endpoint, EndpointKind, Route
from gpuwarden_server.notifications.domain import MessagePhase
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_verdict.entities import Severity
from tests.builders.notifying import Story
from tests.fakes.answering import Posted, Reply, answering
from tests.fakes.ports import free_port

BOTH_STORES = True

SECRETS = tuple("whsec_" + base64.b64encode(bytes([n] * 32)).decode() for n in (1, 2))
HOUR = 3600.0

Made = Callable[..., Story]


class Taken:
    """What a receiver took, by id."""

    def __init__(self, *answers: Reply) -> None:
        self.answers = list(answers)
        self.tried = 0
        self.ids: list[str] = []
        self.bodies: dict[str, dict[str, Any]] = {}
        self.last: Posted | None = None

    def __call__(self, posted: Posted) -> Reply:
        self.tried += 1
        self.last = posted
        if self.answers:
            return self.answers.pop(0)
        self.ids.append(posted.headers["webhook-id"])
        self.bodies[self.ids[-1]] = json.loads(posted.body)
        return Reply(204)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    with ExitStack() as opened:

        def make(*endpoints: Endpoint, **more: Any) -> Story:
            story = Story(tmp_path / f"state-{time.monotonic_ns()}", *endpoints, **more)
            opened.callback(story.close)
            return story

        yield make


def hook(url: str, name: str = "hook", **fields: Any) -> Endpoint:
    values: dict[str, Any] = {"urls": (url,), "secrets": SECRETS[:1], "timeout_s": 5.0}
    return Endpoint(name, EndpointKind.WEBHOOK, **(values | fields))


def test_a_receiver_that_returns_after_an_hour_gets_every_fact_once_in_order(made: Made) -> None:
    port, taken = free_port(), Taken()
    story = made(hook(f"http://127.0.0.1:{port}"))
    for number in range(5):
        first = story.incident(number)
        story.opens(first)
        story.passes(HOUR / 10, step_s=60)
        story.resolves(first)
        story.passes(HOUR / 10, step_s=60)
    assert not taken.ids
    with answering(taken, port):
        story.passes(400, step_s=20)  # asked at least every five minutes, give or take
    assert len(taken.ids) == len(set(taken.ids)) == 10
    assert [body["sequence"] for body in taken.bodies.values()] == list(range(1, 11))
    assert [body["type"] for body in taken.bodies.values()] == [
        "incident.opened",
        "incident.resolved",
    ] * 5


@pytest.mark.parametrize(
    "answer", [Reply(500), Reply(302, headers={"Location": "http://169.254.169.254/"}), Reply(404)]
)
def test_a_receiver_that_refuses_or_redirects_is_told_once_it_takes(
    made: Made, answer: Reply
) -> None:
    taken = Taken(answer, answer)
    with answering(taken) as url:
        story = made(hook(url))
        story.opens(story.incident())
        story.passes(600, step_s=5)
    assert taken.tried == 3
    assert taken.ids == ["msg_incident_opened_inc-000000000001"]


def test_a_receiver_that_hangs_delays_nobody_else(made: Made) -> None:
    def hang(posted: Posted) -> Reply:
        time.sleep(1.0)
        return Reply(204)

    taken = Taken()
    with answering(hang) as slow, answering(taken) as quick:
        story = made(hook(slow, "slow", timeout_s=0.2), hook(quick, "quick"))
        story.opens(story.incident(1), story.incident(2))
        story.run()
    assert len(taken.ids) == 2
    lane = story.told.lanes["slow"][0]
    with story.state.read() as connection:
        (first, second) = queue.read_messages(connection, [lane.name], None, 0, 10)
    assert "Timeout" in first["error"]
    assert second["attempts"] == 0, "those behind it wait with it"


def test_what_cannot_be_written_holds_up_nothing(made: Made) -> None:
    taken: list[bytes] = []

    def take(posted: Posted) -> Reply:
        taken.append(posted.body)
        return Reply(200)

    with answering(take) as url:
        story = made(Endpoint("am", EndpointKind.ALERTMANAGER, (url,)))
        no_date = story.incident(1, opened_at=1e300)
        story.opens(no_date, story.incident(2))
        story.run()
    assert any(b"GPU-2" in body for body in taken)
    with story.state.read() as connection:
        first, second = queue.read_messages(connection, ["am"], None, 0, 10)
    assert (first["phase"], second["phase"]) == ("waiting", "delivered")
    assert "could not be written" in first["error"]


def test_retry_after_is_honoured(made: Made) -> None:
    taken = Taken(Reply(429, headers={"Retry-After": "900"}))
    with answering(taken) as url:
        story = made(hook(url))
        story.opens(story.incident())
        story.passes(880, step_s=20)
        assert not taken.ids
        story.passes(60, step_s=20)
        assert len(taken.ids) == 1


def test_both_secrets_sign_so_that_one_can_replace_the_other(made: Made) -> None:
    taken = Taken()
    with answering(taken) as url:
        story = made(hook(url, secrets=SECRETS))
        assert story.told.lanes["hook"][0].test().delivery.delivered
    assert taken.last is not None
    signatures = taken.last.headers["webhook-signature"].split()
    signed = f"{taken.ids[0]}.{int(story.clock.now())}.".encode() + taken.last.body
    assert signatures == [_signature(secret, signed) for secret in SECRETS]


def _signature(secret: str, signed: bytes) -> str:
    """As the specification has it, worked out without the library that signs."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def test_what_was_given_up_is_told_anew_when_a_person_says_so(made: Made) -> None:
    taken = Taken()
    port = free_port()
    story = made(hook(f"http://127.0.0.1:{port}"))
    story.opens(story.incident())
    story.passes(25 * HOUR, step_s=HOUR / 2)
    lane = story.told.lanes["hook"][0]
    with story.state.read() as connection:
        (message,) = queue.read_messages(connection, ["hook"], MessagePhase.GIVEN_UP, 0, 10)
    with answering(taken, port):
        story.passes(600, step_s=60)
        assert not taken.ids
        count = story.state.writer.call(
            lambda writes: queue.replay(writes, "hook", message["message_id"], story.clock.now())
        )
        lane.resume()
        story.run()
    assert count == 1
    assert taken.ids == [message["message_id"]]


def test_410_disables_and_a_person_enables(made: Made) -> None:
    taken = Taken(Reply(410))
    with answering(taken) as url:
        story = made(hook(url))
        story.opens(story.incident(1))
        story.passes(60)
        story.opens(story.incident(2))
        story.passes(600, step_s=60)
        assert taken.tried == 1
        assert "410" in str(story.told.trouble())
        lane = story.told.lanes["hook"][0]
        story.state.writer.call(lane.enable)
        lane.resume()
        story.run()
    assert len(taken.ids) == 2
    assert story.told.trouble() is None


def test_days_without_success_disable(made: Made) -> None:
    story = made(hook("http://127.0.0.1:9/"))
    for number in range(8):
        story.opens(story.incident(number))
        story.passes(12 * HOUR, step_s=HOUR)
    trouble = str(story.told.trouble())
    assert "took nothing for 3 days" in trouble
    assert "gpuwarden notify enable hook" in trouble


def test_an_endpoint_is_told_what_its_route_takes_and_what_rises_to_it(made: Made) -> None:
    taken = Taken()
    with answering(taken) as url:
        route = Route(Severity.ERROR, ("h100",), {"rack": "r1*"})
        labels = {"node-1": {"pool": "h100", "rack": "r12"}, "node-2": {"pool": "a100"}}
        story = made(hook(url, route=route), labels=labels)
        low = story.incident(1, severity=Severity.WARNING)
        story.opens(low, story.incident(2))
        story.run()
        assert not taken.ids
        story.changes(low, severity=Severity.CRITICAL)
        story.run()
    (body,) = taken.bodies.values()
    assert body["type"] == "incident.updated"
    assert body["data"]["labels"] == {"rack": "r12"}
    assert body["data"]["pool"] == "h100"


@pytest.mark.postgres
def test_a_silence_hides_what_begins_under_it_and_tells_what_outlasts_it(made: Made) -> None:
    taken = Taken()
    with answering(taken) as url:
        story = made(hook(url))
        before = story.incident(1)
        story.opens(before)
        story.run()
        story.silence("node=node-*", duration_s=HOUR)
        brief, lasting = story.incident(2), story.incident(3)
        story.opens(brief, lasting)
        story.passes(60)
        story.resolves(before)
        story.resolves(brief)
        story.passes(60)
        assert taken.ids == [
            "msg_incident_opened_inc-000000000001",
            "msg_incident_resolved_inc-000000000001",
        ], "a resolve is sent in a silence too"
        story.passes(HOUR, step_s=600)
        assert taken.ids[2:] == ["msg_incident_opened_inc-000000000003"]
        story.resolves(lasting)
        story.run()
    assert taken.ids[3:] == ["msg_incident_resolved_inc-000000000003"]


def test_a_digest_gathers_warnings_and_lets_urgent_things_through(made: Made) -> None:
    taken = Taken()
    with answering(taken) as url:
        story = made(hook(url, digest_s=HOUR))
        warnings = [story.incident(n, severity=Severity.WARNING) for n in range(3)]
        story.opens(*warnings, story.incident(7))
        story.passes(60)
        assert len(taken.ids) == 1
        story.resolves(warnings[0])
        story.changes(warnings[1], severity=Severity.ERROR)
        story.passes(HOUR, step_s=600)
        types = [body["type"] for body in taken.bodies.values()]
        assert types == ["incident.opened", "incident.updated", "digest"]
        digest = list(taken.bodies.values())[-1]["data"]
        assert digest["title"] == "2 incidents, 1 still stand"
        story.resolves(warnings[2])
        story.passes(2 * HOUR, step_s=600)
    assert list(taken.bodies.values())[-1]["data"]["title"] == "1 incidents, 0 still stand"


def test_only_news_is_a_fact(made: Made) -> None:
    taken = Taken()
    with answering(taken) as url:
        story = made(hook(url))
        incident = story.incident()
        story.opens(incident)
        for _ in range(3):
            incident = story.changes(incident, confidence=0.5)
        story.changes(incident, severity=Severity.ERROR)
        story.run()
    assert taken.ids[1:] == ["msg_incident_updated_inc-000000000001_1"]


def test_what_says_that_the_fleet_is_scored_stops_when_it_is_not(made: Made) -> None:
    beats: list[str] = []

    def take(posted: Posted) -> Reply:
        beats.extend([posted.path] if b"Watchdog" in posted.body or posted.path == "/hb" else [])
        return Reply(200)

    with answering(take) as url:
        story = made(
            Endpoint("hb", EndpointKind.HEARTBEAT, (f"{url}/hb",), repeat_s=60),
            Endpoint("am", EndpointKind.ALERTMANAGER, (url,), repeat_s=60),
        )
        story.passes(300, step_s=10)
        assert beats.count("/hb") == beats.count("/api/v2/alerts") == 6
        story.scoring = False
        story.opens(story.incident())
        story.passes(300, step_s=10)
        assert len(beats) == 12
        story.scoring = True
        story.passes(60, step_s=10)
    assert len(beats) > 12


def test_a_planner_that_starts_anew_tells_nothing_twice(made: Made, tmp_path: Path) -> None:
    taken = Taken()
    with answering(taken) as url:
        folder = tmp_path / "again"
        story = Story(folder, hook(url))
        story.opens(story.incident())
        story.told.planner.run_once()  # planned and not sent: the process ends here
        story.close()
        for _ in range(2):
            story = Story(folder, hook(url))
            story.run()
            story.close()
    assert len(taken.ids) == 1

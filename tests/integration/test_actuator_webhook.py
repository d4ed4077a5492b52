"""Exclusions carried to a receiver over HTTP, signed, read back, and to no address but allowed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_server.actuators.document import Common, WebhookTarget
from gpuwarden_server.actuators.ports import ActuatorError
from gpuwarden_server.actuators.webhook import WebhookActuator
from gpuwarden_server.notifications.addresses import INSIDE, parse_networks
from gpuwarden_server.notifications.http import poster_maker
from gpuwarden_verdict.actuation import Hold, Wanted
from gpuwarden_verdict.entities import Rung
from tests.builders.feed import get, xid_event
from tests.builders.server import running_server
from tests.fakes.answering import Reply, answering
from tests.fakes.hook_receiver import HookReceiver
from tests.fakes.waiting import wait_for
from tests.integration.test_actuators import done, introduced, repair, settings_of

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
WANTED = Wanted("n1", Rung.EXCLUDE, ("dec-1",), (), "row remap failed")


@pytest.fixture
def receiver() -> HookReceiver:
    return HookReceiver(SECRET)


@pytest.fixture
def url(receiver: HookReceiver) -> Iterator[str]:
    with answering(receiver.answer) as url:
        yield url


def actuator(url: str, secret: str = SECRET, read_url: str = "") -> WebhookActuator:
    target = WebhookTarget(Common("hook", timeout_s=2.0), url, secret, read_url)
    return WebhookActuator(target, poster_maker(parse_networks(",".join(INSIDE)))(2.0))


def test_a_receiver_is_asked_signed_and_read_back(
    tmp_path: Path, receiver: HookReceiver, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    receiver.answers = [Reply(500, b"the queue is full"), Reply(302)]
    text = (
        f'[[actuators]]\nname = "hook"\nkind = "webhook"\nurl = "{url}/hook?token=t0ken"\n'
        'secret_env = "HOOK_SECRET"\ndry_run = false\nevery_s = 0.3\n'
    )
    with running_server(settings_of(tmp_path / "s", text)) as server:
        node = introduced(server, "n1")
        node.events(xid_event(64, "0000:10:00.0"))
        wait_for(lambda: done(server, "n1") == [("exclude", "done")], 60, "excluded")
        assert receiver.held["n1"].startswith("gpuwarden: dec-")
        (shown,) = get(server, "/v1/actuators")["items"]
        assert (shown["kind"], "t0ken" in str(shown)) == ("webhook", False)
        repair(server, node)
        wait_for(lambda: done(server, "n1")[1:] == [("release", "done")], 60, "released")
        assert receiver.held == {}
        node.close()


def test_how_nodes_stand_may_be_asked_by_get(receiver: HookReceiver, url: str) -> None:
    hook = actuator(url, read_url=f"{url}/nodes?site=a")
    hook.exclude(WANTED)
    found = hook.read(["n1", "n2"])
    assert {node: one.hold for node, one in found.items()} == {"n1": Hold.OURS, "n2": Hold.FREE}
    assert receiver.asked == ["exclude", "get"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([Reply(200, b"[]")], "no such JSON"),
        ([Reply(200, b'{"n1": {"hold": "maybe"}}')], "no such JSON"),
        ([Reply(302, b"elsewhere")], "302"),
        ([Reply(503, b"queue is full")], "503: queue is full"),
    ],
)
def test_what_cannot_be_read_is_trouble(
    receiver: HookReceiver, url: str, answers: list[Reply], said: str
) -> None:
    receiver.answers = answers
    with pytest.raises(ActuatorError, match=said):
        actuator(url).read(["n1"])


def test_what_is_not_ours_to_ask_is_not_asked(url: str) -> None:
    with pytest.raises(ActuatorError, match="401"):
        actuator(url, OTHER).exclude(WANTED)
    for refused in ("http://169.254.169.254/latest", "http://127.0.0.1:9/"):
        with pytest.raises(ActuatorError, match="did not answer"):
            actuator(refused).exclude(WANTED)

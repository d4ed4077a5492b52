"""Advice that a person approves by the link in a notification, and what that link never does."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_server.config import Settings
from gpuwarden_server.notifications.document import Endpoint, EndpointKind
from gpuwarden_verdict.policy.document import DecisionPhase, Mode
from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps, xid_event
from tests.builders.notifying import Story
from tests.builders.server import Feeder, Running, make_client, make_gpu, running_server
from tests.fakes.answering import answering
from tests.fakes.clock import MovedClock
from tests.fakes.slack import Slack
from tests.fakes.teams import Teams
from tests.fakes.waiting import wait_for
from tests.fakes.webhook_receiver import Receiver, receiving_webhooks

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PUBLIC = "https://gpuwarden.example/"


def settings_of(folder: Path, receiver: Receiver, console: str, **overrides: Any) -> Settings:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "notify.toml"
    file.write_text(
        f'{console}\n[[endpoints]]\nname = "hook"\nkind = "webhook"\nurl = "{receiver.url}"\n'
        f'secret = "{SECRET}"\n'
    )
    lasts: dict[str, Any] = {"approval_link_s": 86_400.0}
    return quick_settings(folder, Mode.ADVISE, notify_file=file, **lasts | overrides)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving_webhooks(SECRET) as made:
        yield made


def advised(server: Running, receiver: Receiver, slot: int = 0) -> dict[str, Any]:
    """The message about advice to exclude a GPU."""
    node, message = advising(server, receiver, f"n{slot}")
    node.close()
    return message


def advising(server: Running, receiver: Receiver, name: str) -> tuple[Feeder, dict[str, Any]]:
    """The same, and the node, which goes on."""
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(0, name)])
    node.events(xid_event(79, "0000:10:00.0"))

    def told() -> list[dict[str, Any]]:
        bodies = [one for one in receiver.bodies.values() if one["type"] == "decision.proposed"]
        return [one["data"] for one in bodies if one["data"]["node_id"] == name]

    (message,) = wait_for(told, what="advice is told")
    return node, dict(message)


def path_of(message: dict[str, Any]) -> str:
    assert message["approve_url"].startswith(PUBLIC)
    return "/" + str(message["approve_url"]).removeprefix(PUBLIC)


def phase_of(server: Running, message: dict[str, Any]) -> str:
    return str(get(server, f"/v1/decisions/{message['id']}")["phase"])


def form_of(page: httpx.Response) -> dict[str, str]:
    (word,) = re.findall(r'name="word" value="([^"]+)"', page.text)
    return {"word": word}


def test_only_the_page_of_a_link_approves_and_only_once(tmp_path: Path, receiver: Receiver) -> None:
    clock = MovedClock()
    console = f'console_url = "{PUBLIC}"'
    with running_server(settings_of(tmp_path, receiver, console), clock) as server:
        first, second = advised(server, receiver, 0), advised(server, receiver, 1)
        path = path_of(first)
        with make_client(server.url, None) as anybody:
            page = anybody.get(path)
            for _ in range(2):  # as the programs of chats do
                assert anybody.get(path).status_code == 200
                assert anybody.head(path).status_code in (200, 405)
            assert "Exclude GPU GPU-n0-0 on n0?" in page.text
            assert "form-action 'self'" in page.headers["content-security-policy"]
            assert page.headers["cache-control"] == "no-store"
            assert "<form" not in anybody.get("/approve/nonsense").text
            refused = [
                anybody.post(path),
                anybody.post(path, data={"name": "ann", "word": "x"}),
                anybody.post(path, data={"name": "ann", **form_of(anybody.get(path_of(second)))}),
                anybody.post(path[:-1] + ("a" if path[-1] != "a" else "b"), data=form_of(page)),
                anybody.post(path, data=form_of(page)),
            ]
            assert [one.status_code for one in refused] == [400, 400, 400, 404, 200]
            assert "Please say who you are" in refused[-1].text
            assert phase_of(server, first) == "proposed"
            done = anybody.post(path, data={"name": "ann <b>\n", "reason": "", **form_of(page)})
            assert done.status_code == 200
            assert "Approved by ann &lt;b&gt; (link)" in done.text
            assert phase_of(server, first) == "in_force"
            again = anybody.post(path, data={"name": "bo", **form_of(page)})
            assert "Approved by ann" in again.text, "the first stays who did it"
            assert "<form" not in anybody.get(path).text
            clock.ahead += 86_401.0
            over = anybody.get(path_of(second))
            assert (over.status_code, "expired" in over.text) == (410, True)
            assert anybody.post(path_of(second), data=form_of(page)).status_code == 410
            of_first = anybody.get(path)
            assert of_first.status_code == 410
            assert not re.search("GPU-n0-0|ann", of_first.text), "over is over"
        assert phase_of(server, second) == "proposed"
        assert [one["node_id"] for one in exclusions_of(server)["exclusions"]] == ["n0"]
        (entry,) = get(server, "/v1/audit", action="approve_decision")["items"]
        assert (entry["author"], entry["key_id"]) == ("ann <b> (link)", None)
        assert (entry["before"]["phase"], entry["after"]["phase"]) == ("proposed", "in_force")
        kept = json.dumps(get(server, "/v1/notifications/messages", limit=100))
        assert "approve/" not in kept, "who may read messages may not approve"


def test_without_a_public_address_nothing_is_linked(tmp_path: Path, receiver: Receiver) -> None:
    with running_server(settings_of(tmp_path, receiver, "")) as server:
        assert "approve_url" not in advised(server, receiver)


def test_people_find_the_link_while_it_is_asked_and_not_after(tmp_path: Path) -> None:
    slack, teams = Slack(), Teams()
    with answering(slack.answer) as first, answering(teams.answer) as second:
        at = (f"{first}/api",)
        chat = Endpoint("chat", EndpointKind.SLACK, at, (slack.token,), channel=slack.channel)
        cards = Endpoint("cards", EndpointKind.TEAMS, (second + teams.path(),))
        story = Story(tmp_path / "state", chat, cards)
        incident = story.incident()
        story.opens(incident)
        story.advises(incident)
        story.passes(120, step_s=10)
        (message,) = slack.messages.values()
        url = "https://console.example/approve/dec-00000000000a.signed"
        assert f"<{url}|exclude node-1 GPU-1>" in json.dumps(message.content)
        assert [one["url"] for one in teams.cards[0]["actions"]] == [url, "https://console.example"]
        story.advises(incident, DecisionPhase.IN_FORCE)
        story.passes(120, step_s=10)
        assert "approve/" not in json.dumps(message.content)
        story.close()


def test_what_was_not_shown_is_not_approved(tmp_path: Path, receiver: Receiver) -> None:
    with running_server(settings_of(tmp_path, receiver, f'console_url = "{PUBLIC}"')) as server:
        node, message = advising(server, receiver, "n0")
        approve = f"/v1/decisions/{message['id']}/approve"
        with make_client(server.url, None) as anybody:
            page = anybody.get(path_of(message))
            assert "Exclude GPU" in page.text
            node.events(xid_event(95, "0000:10:00.0"))
            wait_for(
                lambda: get(server, f"/v1/decisions/{message['id']}")["rung"] == "evict",
                what="it has risen",
            )
            form = {"name": "ann", **form_of(page)}
            changed = anybody.post(path_of(message), data=form)
            assert (changed.status_code, "Evict GPU" in changed.text) == (409, True)
            assert "something else than the page that you saw" in changed.text
            refused = server.admin.post(approve, json={"reason": "r", "rung": "exclude"})
            assert (refused.status_code, refused.json()["code"]) == (409, "changed")
            assert phase_of(server, message) == "proposed"
            assert server.admin.post(approve, json={"reason": "r", "rung": "x"}).status_code == 422
            done = anybody.post(path_of(message), data={"name": "ann", **form_of(changed)})
            assert (done.status_code, phase_of(server, message)) == (200, "in_force")
        node.close()


def test_nobody_approves_without_a_key_where_nobody_asked_for_links(
    tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_of(tmp_path, receiver, f'console_url = "{PUBLIC}"')
    lasts = Settings.model_fields["approval_link_s"].default
    with running_server(settings.model_copy(update={"approval_link_s": lasts})) as server:
        assert "approve_url" not in advised(server, receiver)


LADDER = """
[defaults]
mode = "{mode}"
settle_s = 0.4
dwell_s = 0.5
cap = {{ max_nodes = 50, max_percent = 100 }}

[[defaults.rules]]
rungs = ["drain", "evict"]
mode = "advise"
"""


def proposed(receiver: Receiver) -> list[dict[str, Any]]:
    bodies = list(receiver.bodies.values())
    return [one["data"] for one in bodies if one["type"] == "decision.proposed"]


def test_a_higher_rung_beside_an_exclusion_in_force_is_asked_for(
    tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_of(tmp_path, receiver, f'console_url = "{PUBLIC}"')
    assert settings.policy_file is not None
    settings.policy_file.write_text(LADDER.format(mode="act"))
    with running_server(settings) as server, make_client(server.url, None) as anybody:
        node = Feeder(server, server.mint("agent", "n0"), "n0")
        node.introduce([make_gpu(0, "n0")])
        node.events(xid_event(95, "0000:10:00.0"))
        (asked,) = wait_for(lambda: proposed(receiver), what="asked for")
        assert (asked["phase"], asked["rung"], asked["advised"]) == ("in_force", "exclude", "evict")
        page = anybody.get(path_of(asked))
        assert "Evict GPU GPU-n0-0 on n0?" in page.text
        done = anybody.post(path_of(asked), data={"name": "ann", **form_of(page)})
        assert "Approved by ann (link)" in done.text
        assert get(server, f"/v1/decisions/{asked['id']}")["rung"] == "evict"
        assert "<form" not in anybody.get(path_of(asked)).text
        assert len(proposed(receiver)) == 1
        node.close()


def test_advice_that_rises_is_told_once_a_rung_and_asks_by_a_link_of_its_own(
    tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_of(tmp_path, receiver, f'console_url = "{PUBLIC}"')
    with running_server(settings) as server, make_client(server.url, None) as anybody:
        node, first = advising(server, receiver, "n0")
        page = anybody.get(path_of(first))
        anybody.post(path_of(first), data={"name": "ann", **form_of(page)})
        assert phase_of(server, first) == "in_force"
        node.events(xid_event(95, "0000:10:00.0"))
        wait_for(lambda: len(proposed(receiver)) == 2, what="told of the rise")
        second = proposed(receiver)[1]
        assert (second["id"], second["advised"]) == (first["id"], "evict")
        assert "<form" not in anybody.get(path_of(first)).text, "it has approved what it could"
        risen = anybody.get(path_of(second))
        assert "Evict GPU" in risen.text
        node.events(xid_event(95, "0000:10:00.0"))
        wait_sweeps(server, 3)
        assert len(proposed(receiver)) == 2, "once a rung"
        ids = [one for one in receiver.bodies if one.startswith("msg_decision_proposed")]
        assert sorted(ids) == [
            f"msg_decision_proposed_{first['id']}",
            f"msg_decision_proposed_{first['id']}_4",
        ]
        node.close()

"""Teams through a workflow: a card when a cause begins, grows or worsens, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.notifications.document import Endpoint, EndpointKind
from gpuwarden_server.notifications.domain import MessagePhase
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_verdict.entities import Severity
from gpuwarden_verdict.incidents.domain import IncidentPhase
from tests.builders.notifying import Story
from tests.fakes.answering import Reply, answering
from tests.fakes.teams import Teams


@contextmanager
def told(folder: Path, fake: Teams, **fields: Any) -> Iterator[Story]:
    with answering(fake.answer) as url:
        endpoint = Endpoint("ops", EndpointKind.TEAMS, (url + fake.path(),))
        story = Story(folder / "state", replace(endpoint, **fields))
        try:
            yield story
        finally:
            story.close()


def test_a_cause_is_told_when_it_begins_grows_and_ends(tmp_path: Path) -> None:
    fake = Teams()
    with told(tmp_path, fake) as story:
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
    assert fake.titles() == [
        "critical: GPU GPU-1 on node-a: memory",
        "critical: 2 GPUs on node-a: memory",
        "resolved: 2 GPUs on node-a: memory",
    ]
    assert [card["body"][0]["color"] for card in fake.cards] == ["attention", "attention", "good"]
    assert fake.cards[0]["actions"][0]["url"] == "https://console.example"
    assert {"title": "Severity", "value": "critical"} in fake.cards[0]["body"][-1]["facts"]


def test_a_storm_of_long_words_fits_into_a_card(tmp_path: Path) -> None:
    fake = Teams()
    with told(tmp_path, fake) as story:
        incidents = [
            story.incident(n, "node-a", why="*bold* [link](x) " + "grün " * 300) for n in range(60)
        ]
        story.opens(*incidents)
        story.run()
    (card,) = fake.cards
    lines = [block["text"] for block in card["body"] if block["type"] == "TextBlock"]
    assert lines[0] == "critical: 60 GPUs on node-a: memory"
    assert lines[-1].startswith("… and ")
    assert "\\*bold\\*" in lines[1], "what came from a log is no markdown"
    assert len(json.dumps(card, ensure_ascii=False).encode()) > 10_000, "as many lines as fit"


def test_a_digest_is_one_card(tmp_path: Path) -> None:
    fake = Teams()
    with told(tmp_path, fake, digest_s=3600.0) as story:
        story.opens(*(story.incident(n, severity=Severity.WARNING) for n in range(3)))
        story.passes(3700, step_s=600)
    assert fake.titles() == ["3 incidents, 3 still stand"]


def test_a_workflow_that_is_throttled_is_asked_again_and_a_refused_card_is_not(
    tmp_path: Path,
) -> None:
    fake = Teams(answers=[Reply(429, headers={"Retry-After": "20"}), Reply(502), Reply(400)])
    with told(tmp_path, fake) as story:
        first, second = story.incident(1, "node-a"), story.incident(2, "node-b")
        story.opens(first)
        story.passes(120, step_s=2)
        assert fake.titles() == [], "the third answer refuses the card"
        story.opens(second)
        story.run()
        with story.state.read() as connection:
            given_up = queue.read_messages(connection, ["ops"], MessagePhase.GIVEN_UP, 0, 10)
    assert len(given_up) == 1
    assert "400" in given_up[0]["error"]
    assert fake.titles() == ["critical: GPU GPU-2 on node-b: memory"]


def test_a_test_is_a_card_and_a_wrong_address_is_named_without_its_signature(
    tmp_path: Path,
) -> None:
    fake = Teams()
    with told(tmp_path, fake) as story:
        assert story.told.lanes["ops"][0].test().delivery.delivered
        fake.signature = "another"
        refused = story.told.lanes["ops"][0].test().delivery
    assert fake.titles() == ["A test of gpuwarden"]
    assert "401" in refused.error
    assert "s1gn" not in refused.error


@pytest.mark.parametrize("form", ["no message", "no card"])
def test_the_stand_in_refuses_what_a_workflow_would(form: str) -> None:
    from tests.fakes.answering import Posted

    fake = Teams()
    body = {"text": "x"} if form == "no message" else {"type": "message", "attachments": []}
    posted = Posted(fake.path(), {"content-type": "application/json"}, json.dumps(body).encode())
    assert fake.answer(posted).code == 400

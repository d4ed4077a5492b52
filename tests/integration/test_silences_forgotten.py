"""What holds while an Alertmanager does not list what it listed before, and after that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.notifications.document import Endpoint, EndpointKind, SilenceUse
from gpuwarden_server.notifications.quiet import repository
from gpuwarden_server.notifications.quiet.reader import MOST_OF_ONE, READ_S
from tests.builders.notifying import Story
from tests.fakes.answering import Posted, Reply, answering

HOUR = 3600.0


class Watched:
    """An Alertmanager that lists what a test says, read when it says so."""

    def __init__(self, folder: Path) -> None:
        self.listed: list[dict[str, Any]] = []
        self._running = answering(self._answer)
        url = self._running.__enter__()
        use = SilenceUse.MAINTENANCE
        self._story = Story(
            folder, Endpoint("am", EndpointKind.ALERTMANAGER, urls=(url,), silences=use)
        )

    def close(self) -> None:
        self._story.told.reader.stop(10.0)
        self._story.close()
        self._running.__exit__(None, None, None)

    def lists(self, *nodes: str, state: str = "active", lasts_s: float = HOUR) -> None:
        """List a silence of each of these nodes from now on, and no other."""
        now = self._story.clock.now()
        begin, end = (datetime.fromtimestamp(at, UTC).isoformat() for at in (now, now + lasts_s))
        self.listed = [
            {
                "id": f"silence of {node}",
                "status": {"state": state},
                "startsAt": begin,
                "endsAt": end,
                "matchers": [{"name": "node", "value": node, "isRegex": False}],
            }
            for node in nodes
        ]

    def read(self, times: int = 1, every_s: float = READ_S) -> set[str]:
        """Read it, and tell which nodes are under maintenance then."""
        for _ in range(times):
            self._story.clock.move(every_s)
            self._story.told.reader.read_once()
        return self.held()

    def held(self) -> set[str]:
        with self._story.state.read() as connection:
            found = repository.not_ended(connection, self._story.clock.now())
        return {one.matchers[0].pattern for one in found}

    def a_person_ends_all(self) -> None:
        now = self._story.clock.now()

        def write(connection: Any) -> None:
            for one in repository.not_ended(connection, now):
                repository.expire(connection, one.id, now, "op")

        self._story.state.writer.call(write)

    def _answer(self, posted: Posted) -> Reply:
        return Reply(200, json.dumps(self.listed).encode())


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path / "state")
    yield made
    made.close()


def test_one_empty_answer_ends_nothing(watched: Watched) -> None:
    watched.lists("n1", "n2")
    assert watched.read() == {"n1", "n2"}
    listed, watched.listed = watched.listed, []
    assert watched.read() == {"n1", "n2"}, "restarted without its memory"
    watched.listed = listed
    assert watched.read() == {"n1", "n2"}
    watched.listed = []
    assert watched.read(8) == {"n1", "n2"}, "counted anew since it was listed"
    assert watched.read(1) == set(), "lacking for two minutes"


def test_few_reads_in_a_long_time_end_nothing(watched: Watched) -> None:
    watched.lists("n1")
    watched.read()
    watched.listed = []
    assert watched.read(3, every_s=300.0) == {"n1"}
    assert watched.read(1, every_s=300.0) == set()


def test_one_that_was_given_up_and_is_listed_again_holds_again(watched: Watched) -> None:
    watched.lists("n1")
    watched.read()
    listed, watched.listed = watched.listed, []
    assert watched.read(9) == set()
    watched.listed = listed
    assert watched.read() == {"n1"}
    watched.a_person_ends_all()
    assert watched.read(3) == set(), "what a person ended stays ended"
    watched.listed = []
    watched.read(9)
    watched.listed = listed
    assert watched.read() == set()


def test_what_it_says_has_ended_ends_at_once(watched: Watched) -> None:
    watched.lists("n1")
    watched.read()
    watched.lists("n1", state="expired", lasts_s=0.0)
    assert watched.read() == set()


def test_one_that_is_prolonged_there_after_it_has_run_out_here_holds_again(
    watched: Watched,
) -> None:
    watched.lists("n1", lasts_s=60.0)
    assert watched.read() == {"n1"}
    watched.lists("n1", lasts_s=HOUR)
    assert watched.read(every_s=120.0) == {"n1"}


def test_one_that_a_long_list_leaves_no_place_for_a_while_holds_on(watched: Watched) -> None:
    watched.lists("n1")
    watched.read()
    listed = watched.listed
    watched.lists(*(f"other{number}" for number in range(MOST_OF_ONE)), lasts_s=2 * HOUR)
    watched.listed += listed
    assert "n1" in watched.read()
    assert "n1" not in watched.read(8)
    watched.listed = listed
    assert "n1" in watched.read()

"""Two machines that speak for one node: shown as trouble of the node while it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.batches import Stream
from tests.builders.feed import exclusions_of, get, quick_settings
from tests.builders.server import Feeder, Running, make_event, make_gpu, running_server
from tests.fakes.clock import MovedClock


@dataclass
class House:
    """One node, a second machine of its name, and the server's clock."""

    server: Running
    clock: MovedClock
    first: Feeder
    second: Feeder

    def trouble(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = get(self.server, "/v1/nodes/twin")["trouble"]
        return shown

    def refused(self, code: str) -> None:
        answer = self.second.post(self.second.batch(Stream.EVENTS, events=(make_event(),)))
        assert (answer.status_code, answer.json()["code"]) == (409, code)

    def copy_spool(self) -> None:
        """The second machine boots with a copy of the first one's spool folder."""
        self.second.spool_id, self.second.seqs = self.first.spool_id, dict(self.first.seqs)

    def assert_nobody_accused(self) -> None:
        assert get(self.server, "/v1/incidents")["items"] == []
        assert exclusions_of(self.server)["would_exclude"] == []
        assert get(self.server, "/v1/nodes/twin")["usable"] == "yes"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path), clock) as server:
        key = server.mint("agent", "twin")
        first, second = (Feeder(server, key, "twin", boot_id=f"boot-{n}") for n in range(2))
        first.introduce([make_gpu(0, "twin")])
        yield House(server, clock, first, second)
        first.close()
        second.close()


def test_a_second_agent_of_one_name_is_trouble_of_the_node(house: House) -> None:
    house.refused("node_claimed")
    assert house.trouble() == []  # as after a new start with an empty spool: the first may be gone
    began = house.clock.now()
    house.clock.ahead += 5
    house.first.events()
    house.refused("node_claimed")
    (shown,) = house.trouble()
    assert shown["source"] == "node_claimed"
    reason = (
        f"refused spool {house.second.spool_id} of another machine: it speaks for the same node"
    )
    assert shown["reason"] == reason
    assert "GPUWARDEN_AGENT_NODE_ID" in shown["mend"]
    assert began - 5 < shown["since"] <= began
    house.assert_nobody_accused()


def test_it_lasts_while_the_second_one_tries_and_some_minutes_more(house: House) -> None:
    for _ in range(3):
        house.refused("node_claimed")
        house.clock.ahead += 200
        house.first.events()
    (shown,) = house.trouble()
    house.refused("node_claimed")
    assert house.trouble() == [shown]
    house.clock.ahead += 301
    house.first.events()
    assert house.trouble() == []


def test_it_ends_when_the_second_one_takes_over(house: House) -> None:
    house.refused("node_claimed")
    house.clock.ahead += 5
    house.first.events()
    house.refused("node_claimed")
    assert len(house.trouble()) == 1
    house.clock.ahead += 16  # three intervals of silence
    house.second.introduce([make_gpu(0, "twin")])
    assert house.trouble() == []


def test_a_copied_spool_is_trouble_of_the_node(house: House) -> None:
    house.copy_spool()
    house.first.events(make_event())
    house.refused("sequence_conflict")
    (shown,) = house.trouble()
    assert shown["source"] == "sequence_conflict"
    assert f"conflicting batches of spool {house.second.spool_id}" in shown["reason"]
    assert "copied spool folder" in shown["mend"]
    house.assert_nobody_accused()
    house.clock.ahead += 301
    house.first.events()
    assert house.trouble() == []


def test_the_same_batch_again_is_no_trouble(house: House) -> None:
    batch = house.first.batch(Stream.EVENTS, events=(make_event(),))
    for _ in range(2):
        house.first.send(batch)
    assert house.trouble() == []


def test_any_number_of_spools_is_shown_as_a_few(house: House) -> None:
    for _ in range(2):
        for number in range(20):
            house.second.spool_id = f"{number:032x}"
            house.refused("node_claimed")
        house.clock.ahead += 1
        house.first.events()
    house.refused("node_claimed")
    assert 1 <= len(house.trouble()) <= 4

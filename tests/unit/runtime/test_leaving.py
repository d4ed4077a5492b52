"""Planned leaves as the runtime reads them: what it cannot read or reach ends nothing."""

from __future__ import annotations

import json

import pytest

from gpuwarden_runtime.feed import digest_of
from gpuwarden_runtime.following import Follower
from gpuwarden_runtime.leaving import LONGEST_WAIT_S, LeaveNotice, sentence
from gpuwarden_runtime.plan_records import PlannedLeave
from gpuwarden_runtime.records import ExclusionSet

NOW = 1_764_500_000.0
GOOD = {"id": "pin-1", "node_id": "n1", "at": NOW + 60, "reason": "riser", "by": "ann"}
OUT = {"entity_kind": "node", "entity": "n2", "node_id": "n2"}


def message(epoch: int, planned: object) -> str:
    change = {"feed_id": "f", "epoch": epoch, "count": 1, "digest": digest_of(["node:n2"])}
    return json.dumps({**change, "added": [OUT], "planned": planned})


@pytest.mark.parametrize("wrong", [{**GOOD, "at": None}, {**GOOD, "until": "soon"}, 7, {}])
def test_a_leave_that_cannot_be_read_costs_no_exclusion(wrong: object) -> None:
    told: list[str] = []
    follower = Follower(lambda state: None, told.append)
    follower.take_set(_empty())
    assert not follower.take_event("exclusions", message(2, [wrong, GOOD])), "no set is asked for"
    assert follower.state is not None
    assert list(follower.state.exclusions) == ["node:n2"]
    assert _ids(follower) == ["pin-1"]
    (sentence_told,) = told
    assert "planned leave" in sentence_told
    assert not follower.take_event("exclusions", message(3, {"of": "a later version"}))
    assert _ids(follower) == []
    assert not follower.take_event("exclusions", message(4, [GOOD]))
    assert not follower.take_event("exclusions", message(5, None))
    assert _ids(follower) == ["pin-1"], "unchanged"


def _ids(follower: Follower) -> list[str]:
    assert follower.state is not None
    return [one.id for one in follower.state.planned]


def _empty() -> ExclusionSet:
    return ExclusionSet(feed_id="f", epoch=1, count=0, digest=digest_of([]), exclusions=())


@pytest.mark.parametrize("at", [1_764_500_000_000.0, 253_402_300_800.0, 1e308])
def test_a_leave_beyond_every_calendar_ends_no_command(at: float) -> None:
    leave = PlannedLeave(id="pin-1", node_id="n1", at=at, until=at)
    notice = LeaveNotice("n1", 600.0, None)
    notice.hear([leave], NOW)
    assert notice.wait_s(NOW) == LONGEST_WAIT_S
    assert notice.ask(NOW) is None, "it is only looked at again"
    assert f"{at:g} s" in sentence(leave)

from __future__ import annotations

import random

import pytest

from gpuwarden_agent.transport.answers import (
    MAX_RETRY_AFTER_S,
    Fate,
    Reply,
    fate_of,
    retry_after_s,
)
from gpuwarden_agent.transport.backoff import Backoff
from gpuwarden_wire.acknowledgement import Problem


def problem(status: int, code: str, leader: str | None = None) -> Reply:
    return Reply(
        status, problem=Problem(type="t", title="t", status=status, code=code, leader=leader)
    )


FATES = [
    (Reply(200), Fate.ACCEPTED),
    *[(Reply(status), Fate.KEPT) for status in (401, 403, 404, 408, 429)],
    *[(Reply(status), Fate.KEPT) for status in (500, 502, 503, 504, 599)],
    *[(Reply(status), Fate.KEPT) for status in (100, 204, 301, 302, 307)],
    *[(Reply(status), Fate.REFUSED) for status in (400, 402, 405, 406, 409, 410, 415, 422, 451)],
    (problem(409, "node_claimed"), Fate.KEPT),
    (problem(409, "sequence_conflict"), Fate.REFUSED),
    (problem(503, "not_leader", "http://b:1"), Fate.MOVED),
    (problem(503, "overloaded"), Fate.KEPT),
    (Reply(428), Fate.SCHEMA_REQUIRED),
    (Reply(413), Fate.TOO_LARGE),
]


@pytest.mark.parametrize(("reply", "fate"), FATES)
def test_every_answer_has_its_fate(reply: Reply, fate: Fate) -> None:
    assert fate_of(reply) is fate


RETRY_AFTER = [
    ("5", 5.0),
    (" 120 ", 120.0),
    ("999999", MAX_RETRY_AFTER_S),
    ("Thu, 01 Jan 1970 00:17:20 GMT", 40.0),
    ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
    ("", None),
    ("soon", None),
    ("-5", None),
    ("1" * 500, None),
    ("²", None),
]


@pytest.mark.parametrize(("header", "seconds"), RETRY_AFTER)
def test_retry_after_is_read_in_both_forms(header: str, seconds: float | None) -> None:
    assert retry_after_s(header, now=1000.0) == seconds


def test_pauses_double_up_to_the_limit_and_are_jittered() -> None:
    backoff = Backoff(8.0, random.Random(1))
    pauses = [backoff.next_s() for _ in range(10)]
    full = [0.25, 0.5, 1, 2, 4, 8, 8, 8, 8, 8]
    assert all(top / 2 <= pause <= top for pause, top in zip(pauses, full, strict=True))
    assert len(set(pauses[5:])) == 5
    backoff.reset()
    assert backoff.next_s() <= 0.25


def test_what_the_server_asks_for_is_the_least() -> None:
    backoff = Backoff(1.0, random.Random(1))
    assert 30.0 <= backoff.next_s(30.0) <= 33.0

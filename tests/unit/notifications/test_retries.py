from __future__ import annotations

import random

import pytest

from gpuwarden_server.core.answer import Answer
from gpuwarden_server.notifications.domain import (
    KEEP_TRYING_S,
    LONGEST_PAUSE_S,
    RETRY_WAITS_S,
    pause_s,
    retry_wait_s,
)
from gpuwarden_server.notifications.http import delivery_of, retry_after_s

NOW = 1_700_000_000.0


def test_a_refused_message_is_tried_for_about_a_day_with_jitter() -> None:
    jitter = random.Random(7)
    for attempts, mean in enumerate((*RETRY_WAITS_S, RETRY_WAITS_S[-1]), start=1):
        waits = [retry_wait_s(attempts, jitter) for _ in range(50)]
        assert all(0.75 * mean <= wait <= 1.25 * mean for wait in waits)
        assert len(set(waits)) > 40, "many senders must not come back together"
    assert 0.6 * KEEP_TRYING_S < sum(RETRY_WAITS_S) < KEEP_TRYING_S


def test_an_endpoint_that_is_down_is_asked_at_least_every_five_minutes() -> None:
    jitter = random.Random(7)
    assert pause_s(1, jitter) <= 6.25
    assert all(pause_s(n, jitter) <= 1.25 * LONGEST_PAUSE_S for n in range(1, 2000))
    assert pause_s(50, jitter) >= 0.75 * LONGEST_PAUSE_S


@pytest.mark.parametrize(
    ("http_status", "lane_down", "gone"),
    [
        *[(500, True, False), (429, True, False), (408, True, False), (503, True, False)],
        *[(404, False, False), (302, False, False), (410, False, True)],
    ],
)
def test_only_what_speaks_for_the_endpoint_holds_the_rest_back(
    http_status: int, lane_down: bool, gone: bool
) -> None:
    delivery = delivery_of(Answer(http_status), NOW)
    assert not delivery.delivered
    assert (delivery.lane_down, delivery.gone) == (lane_down, gone)


def test_only_2xx_is_a_delivery_and_no_answer_is_none() -> None:
    assert delivery_of(Answer(202), NOW).delivered
    assert delivery_of(Answer(error="ReadTimeout: late"), NOW).lane_down


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("999999999", 86_400.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after_s(header, NOW) == seconds

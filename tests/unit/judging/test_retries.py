from __future__ import annotations

import random

from gpuwarden_server.webhooks.domain import LONGEST_WAIT_S, Attempt, retry_wait_s


def test_waits_double_up_to_an_hour_within_a_quarter() -> None:
    jitter = random.Random(7)
    for attempts in range(1, 40):
        mean = min(LONGEST_WAIT_S, 5.0 * 2 ** (attempts - 1))
        waits = [retry_wait_s(attempts, 5.0, jitter) for _ in range(50)]
        assert all(0.75 * mean <= wait <= 1.25 * mean for wait in waits)
        assert len(set(waits)) > 40, "many senders must not come back together"


def test_only_what_speaks_for_the_endpoint_holds_the_rest_back() -> None:
    def attempt(status: int | None, error: str = "x") -> Attempt:
        return Attempt(0.0, 0.1, status, error)

    assert attempt(None).endpoint_is_down
    assert attempt(500).endpoint_is_down
    assert attempt(429).endpoint_is_down
    assert not attempt(404).endpoint_is_down
    assert not attempt(302).endpoint_is_down
    assert not attempt(200, "").endpoint_is_down
    assert attempt(200, "").delivered

"""When a call is tried again, how long it waits, and whom it asks next."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwarden_runtime import calls
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import Refused
from gpuwarden_runtime.exchange import Exchange, Retry
from gpuwarden_wire.acknowledgement import Problem


def busy(code: str = "busy", **fields: Any) -> Refused:
    problem = Problem(type="urn:x", title="Busy", status=503, code=code, detail="x", **fields)
    return Refused(problem, fields.pop("after", 0.0))


def test_waits_grow_and_end_and_never_pass_the_longest() -> None:
    retry = Retry(attempts=4, first_wait_s=1.0, longest_wait_s=3.0)
    exchange = Exchange(calls.nodes(), retry, "http://a")
    ceilings = [1.0, 2.0, 3.0]
    for ceiling in ceilings:
        assert 0.0 <= exchange.fail(busy()) <= ceiling
    with pytest.raises(Refused):
        exchange.fail(busy())
    assert retry.wait_s(1, at_least_s=2.5) >= 2.5
    assert retry.wait_s(1, at_least_s=100.0) == 3.0


def test_a_first_attempt_that_is_still_under_way_is_waited_for() -> None:
    under_way = Problem(
        type="urn:x", title="x", status=409, code="idempotency_in_flight", detail="x"
    )
    assert Refused(under_way).retryable


def test_the_leader_is_asked_next_but_never_in_clear_for_a_server_on_tls() -> None:
    with Client(RuntimeSettings(url="https://a")) as client:
        exchange = Exchange(calls.fleet(), Retry(), "https://a")
        exchange.fail(busy(leader="http://b"))
        assert str(exchange.request(client._http).url) == "https://a/v1/fleet"
        exchange.fail(busy(leader="https://c/"))
        assert str(exchange.request(client._http).url) == "https://c/v1/fleet"

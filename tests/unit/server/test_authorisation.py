from __future__ import annotations

import pytest
from fastapi import APIRouter

from gpuwarden_server.access.authorisation import (
    ROUTE_GRANTS,
    authorise,
    require_complete,
    routes_of,
)
from gpuwarden_server.access.credentials import is_key, new_key
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.core.clock import SystemClock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.store.database import Database


def test_a_route_without_a_row_does_not_start() -> None:
    with pytest.raises(ValueError, match="/v1/forgotten"):
        require_complete([*ROUTE_GRANTS, ("GET", "/v1/forgotten")])


def test_a_nested_router_cannot_hide_routes() -> None:
    inner, outer = APIRouter(), APIRouter()
    inner.add_api_route("/v1/hidden", lambda: None)
    outer.include_router(inner)
    with pytest.raises(ValueError, match="not a plain route"):
        list(routes_of(outer.routes))


def test_a_route_that_slipped_through_lets_nobody_in(ring: KeyRing) -> None:
    with pytest.raises(ProblemError, match="route_not_granted"):
        authorise(ring, ("GET", "/v1/forgotten"), None)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer gw_", f"Bearer {'x' * 10_000}"]
)
def test_a_header_that_is_no_key_is_a_401(ring: KeyRing, header: str | None) -> None:
    with pytest.raises(ProblemError) as refused:
        ring.authenticate(header)
    assert refused.value.status == 401


def test_keys_are_256_random_bits_in_one_form() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(is_key(key) and len(key) == 46 for key in made)
    assert not is_key("gw_short")


def test_only_an_agent_is_held_to_its_node() -> None:
    agent = Principal("key-1", Role.AGENT, "n1", "a")
    agent.require_nodes(["n1", "n1"])
    with pytest.raises(ProblemError, match="wrong_node"):
        agent.require_nodes(["n1", "n2"])
    Principal("key-2", Role.READER, None, "r").require_nodes(["n1", "n2"])


@pytest.fixture
def ring(unused_database: Database) -> KeyRing:
    return KeyRing(unused_database, SystemClock())

"""Every route with keys that are revoked, expired, replaced, or narrowed: made from the table.

The roles, and agents of other nodes, are in test_access.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx
import pytest

from gpuwarden_server.access.authorisation import RESOURCES, ROUTE_GRANTS, RouteKey, need_of
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.scopes import Access
from gpuwarden_server.front import RAW_ROUTES
from gpuwarden_wire.batches import CONTENT_TYPE, Stream
from gpuwarden_wire.codec import decode_problem, encode_batch
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until

OWN, OTHER = "own-node", "other-node"
GUARDED = {route: grant for route, grant in ROUTE_GRANTS.items() if not grant.is_open}
STREAMS = {(route.method, route.path) for route in RAW_ROUTES if route.method == "GET"}
ABOUT_ONE = ("{node_id}", "{gpu_uuid}", "{incident_id}", "{decision_id}")
REFUSED = (401, 403)


@dataclass
class Ward:
    """A server with a failed GPU on OWN, and keys of every kind.

    Attributes:
        server: The server.
        places: What stands for each parameter of a path.
    """

    server: Running
    places: dict[str, str]

    def ask(self, key: str, route: RouteKey, **query: str) -> tuple[int, str]:
        """Status and problem code; no body, so that nothing is changed by who may."""
        method, path = route
        for name, value in self.places.items():
            path = path.replace(name, value)
        content: dict[str, Any] = CALLS.get(route, dict)()
        content["params"] = content.get("params", {}) | query
        headers = {"Authorization": f"Bearer {key}"} | content.pop("headers", {})
        with self._http.stream(method, path, headers=headers, **content) as answer:
            if not answer.is_error:
                return answer.status_code, ""
            problem = decode_problem(answer.read())
            return answer.status_code, problem.code if problem else ""

    def key(self, **wish: Any) -> dict[str, Any]:
        """A new admin key: every row lets admins in."""
        answer = self.server.admin.post("/v1/keys", json={"role": "admin"} | wish)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=20.0)

    @cached_property
    def takes_node(self) -> set[RouteKey]:
        """Routes that know `?node=`."""
        paths = get(self.server, "/openapi.json")["paths"]
        return {
            (method.upper(), path)
            for path, ways in paths.items()
            for method, operation in ways.items()
            if any(one.get("name") == "node" for one in operation.get("parameters", ()))
        }

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def _batch() -> dict[str, Any]:
    away = Running("http://127.0.0.1", httpx.Client())
    feeder = Feeder(away, "", OWN, spool_id="b" * 32)
    body = encode_batch(feeder.batch(Stream.EVENTS))
    feeder.close()
    away.admin.close()
    return {"content": body, "headers": {"Content-Type": CONTENT_TYPE}}


CALLS: dict[RouteKey, Callable[[], dict[str, Any]]] = {
    ("POST", "/v1/ingest"): _batch,
    ("GET", "/v1/verdicts"): lambda: {"params": {"node": OWN}},
    ("POST", "/v1/verdicts"): lambda: {"json": {"nodes": [OWN]}},
}


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with running_server(quick_settings(tmp_path_factory.mktemp("ward"))) as server:
        agent = Feeder(server, server.mint("agent", OWN), OWN)
        agent.introduce([make_gpu(0, OWN)])
        agent.events(xid_event(79, "0000:10:00.0"))
        agent.close()
        wait_until(lambda: get(server, "/v1/decisions", node=OWN)["items"], "a decision", 60.0)
        made = Ward(
            server,
            {
                "{node_id}": OWN,
                "{gpu_uuid}": f"GPU-{OWN}-0",
                "{incident_id}": get(server, "/v1/incidents", node=OWN)["items"][0]["id"],
                "{decision_id}": get(server, "/v1/decisions", node=OWN)["items"][0]["id"],
                "{key_id}": "key-none",
            },
        )
        yield made
        made.close()


@pytest.fixture(scope="module")
def ended(ward: Ward) -> dict[str, tuple[str, str]]:
    """Keys that are over, each with the code that says so."""
    revoked, replaced = ward.key(name="revoked"), ward.key(name="replaced")
    ward.server.admin.delete(f"/v1/keys/{revoked['id']}").raise_for_status()
    path = f"/v1/keys/{replaced['id']}/rotate"
    ward.server.admin.post(path, json={"grace_s": 0}).raise_for_status()
    return {
        "revoked": (revoked["key"], "no_valid_key"),
        "expired": (ward.key(expires_in_s=0.001)["key"], "key_expired"),
        "replaced": (replaced["key"], "key_expired"),
    }


@pytest.fixture(scope="module")
def without(ward: Ward) -> dict[str, str]:
    """For each resource, a key that may write every other."""
    return {
        lacking: ward.key(
            scope={"resources": [f"{one}:write" for one in sorted(RESOURCES - {lacking})]}
        )["key"]
        for lacking in RESOURCES
    }


@pytest.fixture(scope="module")
def reading(ward: Ward) -> str:
    return str(ward.key(scope={"resources": [f"{one}:read" for one in sorted(RESOURCES)]})["key"])


@pytest.fixture(scope="module")
def narrowed(ward: Ward) -> dict[str, str]:
    """By node, a key narrowed to it."""
    return {node: str(ward.key(scope={"nodes": [node]})["key"]) for node in (OWN, OTHER)}


def test_every_row_lets_admins_in() -> None:
    assert [route for route, grant in GUARDED.items() if Role.ADMIN not in grant.roles] == []


@pytest.mark.parametrize("how", ["revoked", "expired", "replaced"])
@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_key_that_is_over_opens_nothing(
    ward: Ward, ended: dict[str, tuple[str, str]], route: RouteKey, how: str
) -> None:
    key, code = ended[how]
    assert ward.ask(key, route) == (401, code)


@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_key_narrowed_to_other_resources_is_refused(
    ward: Ward, without: dict[str, str], route: RouteKey
) -> None:
    assert ward.ask(without[need_of(route)[0]], route) == (403, "outside_scope")


@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_key_narrowed_to_reading_writes_nothing(
    ward: Ward, reading: str, route: RouteKey
) -> None:
    found = ward.ask(reading, route)
    if need_of(route)[1] is Access.WRITE:
        assert found == (403, "outside_scope")
    else:
        assert found[0] not in REFUSED


@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_key_narrowed_to_another_node_learns_and_moves_nothing_of_this_one(
    ward: Ward, narrowed: dict[str, str], route: RouteKey
) -> None:
    code, why = ward.ask(narrowed[OTHER], route, **_about(ward, route, OWN))
    if GUARDED[route].whole or route in STREAMS:
        assert code not in REFUSED
    else:
        assert (code, why) == (403, "outside_scope")


@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_key_narrowed_to_a_node_may_what_is_about_it(
    ward: Ward, narrowed: dict[str, str], route: RouteKey
) -> None:
    grant = GUARDED[route]
    about = _about(ward, route, OWN)
    named = grant.own_node or about or any(name in route[1] for name in ABOUT_ONE)
    code, why = ward.ask(narrowed[OWN], route, **about)
    if grant.whole or named or route in STREAMS:
        assert code not in REFUSED
    else:
        assert (code, why) == (403, "outside_scope"), "it is about the whole fleet"


def _about(ward: Ward, route: RouteKey, node: str) -> dict[str, str]:
    """`?node=` where a route knows it."""
    return {"node": node} if route in ward.takes_node else {}

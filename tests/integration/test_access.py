"""Who may call what, over real HTTP: every route, every role, and other nodes' keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from gpuwarden_server.access.authorisation import ROUTE_GRANTS, RouteKey, routes_of
from gpuwarden_server.access.principals import Role
from gpuwarden_server.front import RAW_ROUTES
from gpuwarden_wire.batches import CONTENT_TYPE, Stream
from gpuwarden_wire.codec import decode_problem, encode_batch
from tests.builders.server import Feeder, Running, make_settings, running_server
from tests.builders.stores import StoreKind, query

BOTH_STORES = True

OWN, OTHER = "own-node", "other-node"
GUARDED = {route: grant for route, grant in ROUTE_GRANTS.items() if not grant.is_open}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="module")
def server(folder: Path, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(make_settings(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def clients(server: Running) -> Iterator[dict[str, httpx.Client]]:
    keys = {role.value: server.mint(role, OWN if role is Role.AGENT else None) for role in Role}
    keys["other agent"] = server.mint(Role.AGENT, OTHER)
    made = {name: httpx.Client(base_url=server.url, timeout=20.0) for name in keys}
    for name, key in keys.items():
        made[name].headers["Authorization"] = f"Bearer {key}"
    made["nobody"] = httpx.Client(base_url=server.url, timeout=20.0)
    yield made
    for client in made.values():
        client.close()


def _ask(client: httpx.Client, route: RouteKey, about: str = OWN) -> tuple[int, str]:
    """Status and problem code of a call; streams are left after their head."""
    method, template = route
    path = template.replace("{", "").replace("}", "")
    call = OWN_NODE_CALLS.get(route)
    content: dict[str, Any] = call(about) if call else {}
    with client.stream(method, path, **content) as answer:
        if not answer.is_error:
            return answer.status_code, ""
        problem = decode_problem(answer.read())
        return answer.status_code, problem.code if problem else ""


def _batch_call(node: str) -> dict[str, Any]:
    feeder = Feeder(Running("http://127.0.0.1", httpx.Client()), "", node, spool_id="a" * 32)
    body = encode_batch(feeder.batch(Stream.EVENTS))
    feeder.close()
    feeder.server.admin.close()
    return {"content": body, "headers": {"Content-Type": CONTENT_TYPE}}


OWN_NODE_CALLS: dict[RouteKey, Callable[[str], dict[str, Any]]] = {
    ("POST", "/v1/ingest"): _batch_call,
    ("GET", "/v1/verdicts"): lambda node: {"params": {"node": node}},
    ("POST", "/v1/verdicts"): lambda node: {"json": {"nodes": [node]}},
}


def _served(server: Running) -> set[RouteKey]:
    document = server.admin.get("/openapi.json").json()
    return {(m.upper(), path) for path, ways in document["paths"].items() for m in ways}


def test_every_served_route_has_a_row_and_every_row_is_served(server: Running) -> None:
    served = _served(server)
    assert served <= set(ROUTE_GRANTS)
    assert {(route.method, route.path) for route in RAW_ROUTES} <= served
    assert set(GUARDED) <= served


def test_a_route_without_a_row_does_not_start() -> None:
    router = APIRouter()
    router.add_api_route("/v1/forgotten", lambda: None, methods=["GET"])
    assert set(routes_of(router.routes)) - set(ROUTE_GRANTS) == {("GET", "/v1/forgotten")}


@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_guarded_route_asks_for_a_key(clients: dict[str, httpx.Client], route: RouteKey) -> None:
    assert _ask(clients["nobody"], route) == (401, "no_valid_key")


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
def test_a_route_lets_in_the_roles_of_its_row_and_no_other(
    clients: dict[str, httpx.Client], route: RouteKey, role: Role
) -> None:
    status, code = _ask(clients[role.value], route)
    if role in GUARDED[route].roles:
        assert status not in (401, 403, 405)
    else:
        assert (status, code) == (403, "role_not_allowed")


@pytest.mark.parametrize(
    "route", [r for r, grant in GUARDED.items() if grant.own_node], ids=" ".join
)
def test_an_agent_may_name_its_own_node_only(
    clients: dict[str, httpx.Client], route: RouteKey
) -> None:
    assert route in OWN_NODE_CALLS
    assert _ask(clients["other agent"], route, OWN) == (403, "wrong_node")
    assert _ask(clients["other agent"], route, OTHER)[0] == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
def test_open_routes_need_no_key(clients: dict[str, httpx.Client], path: str) -> None:
    assert clients["nobody"].get(path).status_code == 200


@pytest.mark.postgres
def test_a_key_is_shown_once_and_stored_as_its_hash_only(server: Running, folder: Path) -> None:
    answer = server.admin.post("/v1/keys", json={"role": "reader", "name": "grafana"})
    made = answer.json()
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    listed = server.admin.get("/v1/keys").text
    assert made["id"] in listed
    assert made["key"] not in listed
    stored = query(folder / "state", f"SELECT key_hash FROM keys WHERE id = '{made['id']}'")
    assert stored == [(hashlib.sha256(made["key"].encode()).hexdigest(),)]
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert made["key"].encode() not in content


def test_a_revoked_key_is_refused_at_once(server: Running) -> None:
    made = server.admin.post("/v1/keys", json={"role": "admin", "name": "leaver"}).json()
    with server.client(made["key"]) as client:
        assert client.get("/v1/keys").status_code == 200
        assert server.admin.delete(f"/v1/keys/{made['id']}").json()["revoked_at"] > 0
        assert client.get("/v1/keys").status_code == 401
    assert server.admin.delete(f"/v1/keys/{made['id']}").status_code == 404


def test_a_key_cannot_revoke_itself(server: Running) -> None:
    own = next(key for key in server.admin.get("/v1/keys").json()["items"] if not key["node_id"])
    answer = server.admin.delete(f"/v1/keys/{own['id']}")
    assert (answer.status_code, answer.json()["code"]) == (409, "own_key")


@pytest.mark.parametrize(
    "wanted",
    [
        {"role": "agent"},
        {"role": "reader", "node": "n1"},
        {"role": "root"},
        {"role": "agent", "node": "a,b"},
        {"role": "reader", "rank": 1},
    ],
)
def test_a_senseless_key_is_not_made(server: Running, wanted: dict[str, Any]) -> None:
    before = len(server.admin.get("/v1/keys").json()["items"])
    answer = server.admin.post("/v1/keys", json=wanted)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(server.admin.get("/v1/keys").json()["items"]) == before


@pytest.mark.postgres
def test_every_write_of_a_key_stands_in_the_audit(server: Running) -> None:
    made = server.admin.post("/v1/keys", json={"role": "operator", "name": "ada"}).json()
    server.admin.delete(f"/v1/keys/{made['id']}")
    items = server.admin.get("/v1/audit", params={"limit": 1000}).json()["items"]
    mine = [item for item in items if item["target"] == made["id"]]
    assert [(item["action"], item["author"]) for item in mine] == [
        ("create_key", "first admin"),
        ("revoke_key", "first admin"),
    ]
    assert mine[0]["before"] is None
    assert mine[0]["after"]["role"] == "operator"
    assert mine[1]["before"]["revoked_at"] is None
    assert mine[1]["after"]["revoked_at"] > 0
    assert made["key"] not in str(items)


def test_the_audit_is_read_page_by_page(server: Running) -> None:
    for number in range(3):
        server.admin.post("/v1/keys", json={"role": "reader", "name": f"page {number}"})
    first = server.admin.get("/v1/audit", params={"limit": 2}).json()
    after = first["next_after"]
    second = server.admin.get("/v1/audit", params={"limit": 2, "after": after}).json()
    assert [item["id"] for item in first["items"] + second["items"]] == [1, 2, 3, 4]


def test_the_first_key_is_printed_once_and_stored_as_its_hash(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(tmp_path, admin_key=None)
    with running_server(settings) as first:
        shown = capfd.readouterr().out
        key = shown.partition("shown only now: ")[2].split()[0]
        with first.client(key) as client:
            assert client.get("/v1/keys").status_code == 200
    with running_server(settings) as second:
        assert "gw_" not in capfd.readouterr().out
        with second.client(key) as client:
            assert client.get("/v1/keys").status_code == 200
    stored = query(tmp_path / "state", "SELECT key_hash FROM keys")
    assert stored == [(hashlib.sha256(key.encode()).hexdigest(),)]

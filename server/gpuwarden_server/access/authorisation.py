"""Who may call what: one explicit table, and the checks made from it.

A route without a row does not start (`require_complete`); a row's roles are all there is to know.
Rows with `own_node` hold an agent to its node: the handler calls `Principal.require_nodes`. A key
that is narrowed to some nodes is held to them by the gate, which finds the nodes that a request
names; what names none is refused to it, so that a new route gives away nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated

from fastapi import Depends, Request
from starlette.routing import BaseRoute, Route, compile_path

from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.access.scopes import Access
from gpuwarden_server.core.errors import ProblemError


@dataclass(frozen=True, slots=True)
class Grant:
    """Who may call a route.

    Attributes:
        roles: Roles that may; empty: open to everybody, no key asked.
        own_node: An agent may only name its own node: the handler calls
            `Principal.require_nodes`, which holds narrowed keys to their nodes too.
        whole: Answers the same to everybody who may call it, also to a key that is narrowed to
            some nodes: it is about no node, or is one whole that cannot be cut.
        reads: Only reads, whatever its method says.
    """

    roles: frozenset[Role]
    own_node: bool = False
    whole: bool = False
    reads: bool = False

    @property
    def is_open(self) -> bool:
        """Whether no key is asked."""
        return not self.roles


OPEN = Grant(frozenset())
_READERS = frozenset({Role.READER, Role.RUNTIME, Role.OPERATOR, Role.ADMIN})
_READ = Grant(_READERS)
_READ_OWN = Grant(_READERS | {Role.AGENT}, own_node=True, reads=True)
_ASK = Grant(_READERS, reads=True)  # a question too long for a URL
_READ_WHOLE = Grant(_READERS, whole=True)
_FEED = Grant(_READERS | {Role.AGENT}, whole=True)
_OPERATE = Grant(frozenset({Role.OPERATOR, Role.ADMIN}))
_EVENTS = Grant(frozenset({Role.READER, Role.OPERATOR, Role.ADMIN}))
_ADMIN = Grant(frozenset({Role.ADMIN}))
# A narrowed key speaks of jobs on its nodes: the door asks where the job runs.
_PROGRESS = Grant(frozenset({Role.RUNTIME, Role.OPERATOR, Role.ADMIN}), whole=True)
_INGEST = Grant(frozenset({Role.AGENT, Role.ADMIN}), own_node=True)
# A narrowed key is held to its nodes by the door: what it tells of others is refused or left out.
_FEED_IN = Grant(frozenset({Role.FEEDER, Role.ADMIN}), whole=True)
_TELL = Grant(frozenset({Role.FEEDER, Role.OPERATOR, Role.ADMIN}), whole=True)

RouteKey = tuple[str, str]
"""Method and path template."""

ROUTE_GRANTS: Mapping[RouteKey, Grant] = MappingProxyType(
    {
        ("POST", "/v1/ingest"): _INGEST,
        ("POST", "/api/v1/write"): _FEED_IN,
        ("POST", "/v1/alerts/alertmanager"): _FEED_IN,
        ("POST", "/v1/events"): _TELL,
        ("POST", "/v1/sessions/{session_id}/progress"): _PROGRESS,
        ("GET", "/v1/verdicts"): _READ_OWN,
        ("POST", "/v1/verdicts"): _READ_OWN,
        ("GET", "/v1/nodes"): _READ,
        ("GET", "/v1/nodes/{node_id}"): _READ,
        ("GET", "/v1/nodes/{node_id}/why"): _READ,
        ("POST", "/v1/nodes/{node_id}/repair"): _OPERATE,
        ("POST", "/v1/nodes/{node_id}/remedies"): _OPERATE,
        ("POST", "/v1/nodes/{node_id}/retire"): _OPERATE,
        ("POST", "/v1/nodes/{node_id}/rename"): _OPERATE,
        ("POST", "/v1/nodes"): _OPERATE,
        ("GET", "/v1/inventory"): _READ,
        ("PUT", "/v1/inventory"): _OPERATE,
        ("GET", "/v1/jobs/{job}/why"): _READ,
        ("POST", "/v1/diagnoses"): Grant(_READERS),  # kept with who asked
        ("GET", "/v1/checkpoints"): _READ_WHOLE,
        ("GET", "/v1/diagnoses"): _READ,
        ("GET", "/v1/diagnoses/{diagnosis_id}"): _READ,
        ("GET", "/v1/gpus"): _READ,
        ("GET", "/v1/gpus/{gpu_uuid}"): _READ,
        ("GET", "/v1/gpus/{gpu_uuid}/why"): _READ,
        ("POST", "/v1/gpus/{gpu_uuid}/repair"): _OPERATE,
        ("GET", "/v1/incidents"): _READ,
        ("GET", "/v1/incidents/stream"): _READ,
        ("GET", "/v1/incidents/{incident_id}"): _READ,
        ("POST", "/v1/incidents/{incident_id}/acknowledge"): _OPERATE,
        ("POST", "/v1/incidents/{incident_id}/clear"): _OPERATE,
        ("POST", "/v1/incidents/{incident_id}/verdict"): _OPERATE,
        ("GET", "/v1/labels"): _READ,
        ("GET", "/v1/models"): _READ_WHOLE,
        ("POST", "/v1/models"): _OPERATE,
        ("GET", "/v1/models/{model_kind}/versions/{version}"): _READ_WHOLE,
        ("POST", "/v1/models/{model_kind}/promotion"): _OPERATE,
        ("POST", "/v1/models/{model_kind}/rollback"): _OPERATE,
        ("POST", "/v1/models/{model_kind}/challenger"): _OPERATE,
        ("DELETE", "/v1/models/{model_kind}/challenger"): _OPERATE,
        ("POST", "/v1/models/{model_kind}/trials"): _OPERATE,
        ("GET", "/v1/shadow"): _READ,
        ("GET", "/v1/feature-rows"): _EVENTS,
        ("GET", "/v1/decisions"): _READ,
        ("GET", "/v1/decisions/{decision_id}"): _READ,
        ("POST", "/v1/decisions/{decision_id}/revoke"): _OPERATE,
        ("POST", "/v1/decisions/{decision_id}/approve"): _OPERATE,
        ("POST", "/v1/decisions/{decision_id}/hold"): _OPERATE,
        ("POST", "/v1/decisions/{decision_id}/let-go"): _OPERATE,
        ("GET", "/v1/pins"): _READ,
        ("POST", "/v1/pins"): _OPERATE,
        ("POST", "/v1/pins/{pin_id}/end"): _OPERATE,
        ("POST", "/v1/leaves"): _OPERATE,
        ("POST", "/v1/decisions/{decision_id}/replay"): _ASK,
        ("GET", "/v1/actuators"): _READ,
        ("GET", "/v1/actuations"): _READ,
        ("GET", "/v1/ledger"): _READ,
        ("GET", "/v1/standby"): _READ_WHOLE,
        ("GET", "/v1/standby/advice"): _READ_WHOLE,
        ("GET", "/v1/standby/leases"): _READ_WHOLE,
        ("POST", "/v1/standby"): _OPERATE,
        ("POST", "/v1/standby/promotions"): _OPERATE,
        ("POST", "/v1/standby/{node_id}/remove"): _OPERATE,
        ("POST", "/v1/standby/{node_id}/release"): _OPERATE,
        ("GET", "/v1/exclusions"): _FEED,
        ("GET", "/v1/exclusions/stream"): _FEED,
        ("GET", "/v1/states/stream"): _READ,
        ("GET", "/v1/events"): _EVENTS,
        ("GET", "/v1/policy"): _READ_WHOLE,
        ("GET", "/v1/policy/versions"): _READ_WHOLE,
        ("GET", "/v1/policy/versions/{version}"): _READ_WHOLE,
        ("POST", "/v1/policy/diff"): _ASK,
        ("POST", "/v1/policy/simulation"): _ASK,
        ("GET", "/v1/thresholds"): _READ_WHOLE,
        ("GET", "/v1/lemons"): _READ_WHOLE,
        ("GET", "/v1/fleet"): _READ,
        ("GET", "/v1/notifications/endpoints"): _READ,
        ("POST", "/v1/notifications/endpoints/{name}/test"): _OPERATE,
        ("POST", "/v1/notifications/endpoints/{name}/enable"): _OPERATE,
        ("POST", "/v1/notifications/endpoints/{name}/replay"): _OPERATE,
        ("GET", "/v1/notifications/messages"): _READ,
        ("GET", "/v1/notifications/deliveries"): _READ,
        ("GET", "/v1/silences"): _READ,
        ("POST", "/v1/silences"): _OPERATE,
        ("POST", "/v1/silences/{silence_id}/expire"): _OPERATE,
        ("GET", "/v1/history"): _READ,
        ("POST", "/v1/keys"): _ADMIN,
        ("GET", "/v1/keys"): _ADMIN,
        ("POST", "/v1/keys/{key_id}/rotate"): _ADMIN,
        ("DELETE", "/v1/keys/{key_id}"): _ADMIN,
        ("POST", "/v1/enrolment-tokens"): _ADMIN,
        ("GET", "/v1/enrolment-tokens"): _ADMIN,
        ("DELETE", "/v1/enrolment-tokens/{token_id}"): _ADMIN,
        ("POST", "/v1/enrol"): OPEN,  # the token in the body is the credential
        ("GET", "/v1/audit"): _ADMIN,
        ("GET", "/healthz"): OPEN,
        ("GET", "/readyz"): OPEN,
        ("GET", "/metrics"): OPEN,
        ("GET", "/"): OPEN,
        ("GET", "/approve/{token}"): OPEN,  # the signed token is the credential
        ("POST", "/approve/{token}"): OPEN,
        ("GET", "/openapi.json"): OPEN,
        ("GET", "/docs"): OPEN,
    }
)


def _resource(path: str) -> str:
    """The word after /v1/; the last word of a path that others dictate."""
    words = path.strip("/").split("/")
    return words[1] if words[0] == "v1" and len(words) > 1 else words[-1]


RESOURCES = frozenset(
    _resource(path) for (_, path), grant in ROUTE_GRANTS.items() if not grant.is_open
)
"""What scopes may name."""
_READING = frozenset({"GET", "HEAD"})
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""U+0000 as JSON escapes it; a backslash that is escaped itself begins no escape."""


_TEMPLATES = tuple((key[0], compile_path(key[1])[0], key) for key in ROUTE_GRANTS if "{" in key[1])


def route_of(method: str, path: str) -> RouteKey | None:
    """The route of a request, None where there is none; HEAD is GET."""
    method = "GET" if method == "HEAD" else method
    if (method, path) in ROUTE_GRANTS:
        return method, path
    found = (key for way, form, key in _TEMPLATES if way == method and form.match(path))
    return next(found, None)


@lru_cache(maxsize=1024)
def need_of(route: RouteKey) -> tuple[str, Access]:
    """The resource of a route, and what it does with it."""
    method, path = route
    reads = method in _READING or ROUTE_GRANTS[route].reads
    return _resource(path), Access.READ if reads else Access.WRITE


def authorise(ring: KeyRing, route: RouteKey, authorization: str | None) -> Principal | None:
    """The principal behind a request that may call `route`; None where the route is open.

    Which nodes it may name is another question: `Principal.require_nodes`.

    Args:
        ring: The keys.
        route: Method and path template.
        authorization: The request's Authorization header.

    Raises:
        ProblemError: 401 without a valid key; 403 with a role that may not, or a key that is
            narrowed to other resources.
    """
    grant = ROUTE_GRANTS.get(route)
    if grant is None:
        raise ProblemError(403, "route_not_granted", f"nobody may {route[0]} {route[1]}")
    if grant.is_open:
        return None
    principal = ring.authenticate(authorization)
    if principal.role not in grant.roles:
        raise ProblemError(
            403,
            "role_not_allowed",
            f"role {principal.role} may not {route[0]} {route[1]}",
            f"Use a key of role {', '.join(sorted(grant.roles))}.",
        )
    resource, access = need_of(route)
    if not principal.scope.allows(resource, access):
        raise ProblemError(
            403,
            "outside_scope",
            f"this key is narrowed to {', '.join(principal.scope.resources)}",
            f"Use a key whose scope holds {resource}:{access}, or one that is not narrowed.",
        )
    return principal


NodeOf = Callable[[str], str | None]
"""The node of what a path names by its id; None where there is no such thing."""


class Gate:
    """FastAPI dependency of every route: lets in whom the table lets in."""

    def __init__(self, ring: KeyRing, nodes_of: Mapping[str, NodeOf]) -> None:
        """Make a gate.

        Args:
            ring: The keys.
            nodes_of: By name of a path's parameter (`incident_id`), how its node is found.
        """
        self._ring = ring
        self._nodes_of = nodes_of

    async def __call__(self, request: Request) -> None:
        """Check the request and leave the principal in its state."""
        route: Route = request.scope["route"]
        key = (request.method, route.path)
        await _refuse_nul(request)
        principal = authorise(self._ring, key, request.headers.get("authorization"))
        request.state.principal = principal
        grant = ROUTE_GRANTS[key]
        if principal is None or not principal.scope.names_nodes or grant.whole or grant.own_node:
            return
        principal.require_nodes(await asyncio.to_thread(self._named_nodes, request, route))

    def _named_nodes(self, request: Request, route: Route) -> list[str]:
        """The nodes that a request is about.

        Raises:
            ProblemError: 403: about all of them, and the key is narrowed to some.
        """
        given = request.path_params
        named = [given["node_id"]] if "node_id" in given else []
        found = [find(given[name]) for name, find in self._nodes_of.items() if name in given]
        if named or found:  # what is not there is told by the handler
            return named + [node for node in found if node is not None]
        if _narrows_by_node(route) and (asked := request.query_params.getlist("node")):
            return asked
        raise ProblemError(
            403,
            "outside_scope",
            f"{request.method} {route.path} is about the whole fleet, this key about some nodes",
            "Name one of its nodes (?node=NODE) where the route takes it, or use another key.",
        )


async def _refuse_nul(request: Request) -> None:
    """Refuse U+0000, which PostgreSQL cannot store in a text, on any database.

    Raises:
        ProblemError: 422.
    """
    asked = "\x00" in request.scope["path"] or b"%00" in request.scope["query_string"]
    body = b"" if request.method in _READING else await request.body()
    if asked or b"\0" in body or _NUL.search(body):
        raise ProblemError(
            422,
            "invalid_value",
            f"the {'address' if asked else 'body'} holds U+0000",
            "Leave that character out of every text.",
        )


def _narrows_by_node(route: Route) -> bool:
    """Whether the route itself knows `?node=`: one that does not would answer about all."""
    dependant = getattr(route, "dependant", None)
    return dependant is not None and any(p.alias == "node" for p in dependant.query_params)


def _principal_of(request: Request) -> Principal:
    principal = request.state.principal
    if not isinstance(principal, Principal):
        raise TypeError(f"{request.url.path} is open and has no principal")
    return principal


Caller = Annotated[Principal, Depends(_principal_of)]
"""Parameter type of endpoints that want to know who calls."""


def routes_of(routes: Iterable[BaseRoute]) -> Iterable[RouteKey]:
    """Method and path of plain routes; HEAD rides on GET.

    Feature routers are flat: nothing is included in them or mounted, so that their own list is
    the whole truth (FastAPI keeps included routers as opaque entries).

    Raises:
        ValueError: A route is not plain; names it.
    """
    for route in routes:
        if not isinstance(route, Route):
            raise ValueError(f"not a plain route, so no row can guard it: {route!r}")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path


def require_complete(routes: Iterable[RouteKey]) -> None:
    """Refuse to start with a route that has no row.

    Raises:
        ValueError: Names the routes.
    """
    missing = [route for route in routes if route not in ROUTE_GRANTS]
    if missing:
        raise ValueError(f"routes without a row in ROUTE_GRANTS: {missing}")

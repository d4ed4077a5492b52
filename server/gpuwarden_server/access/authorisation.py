"""Who may call what: one explicit table, and the checks made from it.

A route without a row does not start (`require_complete`); a row's roles are all there is to know.
Rows with OWN_NODE hold an agent to its node: the handler calls `Principal.require_nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from fastapi import Depends, Request
from starlette.routing import BaseRoute, Route

from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.core.errors import ProblemError


@dataclass(frozen=True, slots=True)
class Grant:
    """Who may call a route.

    Attributes:
        roles: Roles that may; empty: open to everybody, no key asked.
        own_node: An agent may only name its own node.
    """

    roles: frozenset[Role]
    own_node: bool = False

    @property
    def is_open(self) -> bool:
        """Whether no key is asked."""
        return not self.roles


OPEN = Grant(frozenset())
_READERS = frozenset({Role.READER, Role.RUNTIME, Role.OPERATOR, Role.ADMIN})
_READ = Grant(_READERS)
_READ_OWN = Grant(_READERS | {Role.AGENT}, own_node=True)
_FEED = Grant(_READERS | {Role.AGENT})
_OPERATE = Grant(frozenset({Role.OPERATOR, Role.ADMIN}))
_EVENTS = Grant(frozenset({Role.READER, Role.OPERATOR, Role.ADMIN}))
_ADMIN = Grant(frozenset({Role.ADMIN}))
_INGEST = Grant(frozenset({Role.AGENT, Role.ADMIN}), own_node=True)

RouteKey = tuple[str, str]
"""Method and path template."""

ROUTE_GRANTS: Mapping[RouteKey, Grant] = MappingProxyType(
    {
        ("POST", "/v1/ingest"): _INGEST,
        ("GET", "/v1/verdicts"): _READ_OWN,
        ("POST", "/v1/verdicts"): _READ_OWN,
        ("GET", "/v1/nodes"): _READ,
        ("GET", "/v1/nodes/{node_id}"): _READ,
        ("GET", "/v1/nodes/{node_id}/why"): _READ,
        ("POST", "/v1/nodes/{node_id}/repair"): _OPERATE,
        ("POST", "/v1/nodes/{node_id}/retire"): _OPERATE,
        ("GET", "/v1/gpus"): _READ,
        ("GET", "/v1/gpus/{gpu_uuid}"): _READ,
        ("GET", "/v1/gpus/{gpu_uuid}/why"): _READ,
        ("POST", "/v1/gpus/{gpu_uuid}/repair"): _OPERATE,
        ("GET", "/v1/incidents"): _READ,
        ("GET", "/v1/incidents/{incident_id}"): _READ,
        ("POST", "/v1/incidents/{incident_id}/acknowledge"): _OPERATE,
        ("GET", "/v1/decisions"): _READ,
        ("GET", "/v1/decisions/{decision_id}"): _READ,
        ("POST", "/v1/decisions/{decision_id}/revoke"): _OPERATE,
        ("POST", "/v1/decisions/{decision_id}/approve"): _OPERATE,
        ("GET", "/v1/exclusions"): _FEED,
        ("GET", "/v1/exclusions/stream"): _FEED,
        ("GET", "/v1/events"): _EVENTS,
        ("GET", "/v1/policy"): _READ,
        ("GET", "/v1/fleet"): _READ,
        ("POST", "/v1/keys"): _ADMIN,
        ("GET", "/v1/keys"): _ADMIN,
        ("DELETE", "/v1/keys/{key_id}"): _ADMIN,
        ("GET", "/v1/audit"): _ADMIN,
        ("GET", "/healthz"): OPEN,
        ("GET", "/readyz"): OPEN,
        ("GET", "/metrics"): OPEN,
        ("GET", "/"): OPEN,
        ("GET", "/openapi.json"): OPEN,
        ("GET", "/docs"): OPEN,
    }
)


def authorise(ring: KeyRing, route: RouteKey, authorization: str | None) -> Principal | None:
    """The principal behind a request that may call `route`; None where the route is open.

    Args:
        ring: The keys.
        route: Method and path template.
        authorization: The request's Authorization header.

    Raises:
        ProblemError: 401 without a valid key; 403 with a role that may not.
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
    return principal


class Gate:
    """FastAPI dependency of every route: lets in whom the table lets in."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def __call__(self, request: Request) -> None:
        """Check the request and leave the principal in its state."""
        route: Route = request.scope["route"]
        request.state.principal = authorise(
            self._ring, (request.method, route.path), request.headers.get("authorization")
        )


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

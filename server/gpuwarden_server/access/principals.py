"""Who calls: roles and the principal behind a key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_server.access.scopes import WHOLE, PoolOf, Scope
from gpuwarden_server.core.errors import ProblemError


class Role(StrEnum):
    """What a key may do; the table is `authorisation.ROUTE_GRANTS`."""

    AGENT = "agent"  # one node's agent: bound to that node
    READER = "reader"  # dashboards, people who look
    RUNTIME = "runtime"  # launchers: verdicts and exclusions
    FEEDER = "feeder"  # Prometheus, Alertmanager and others that tell of many nodes
    OPERATOR = "operator"  # people who acknowledge, revoke, approve, repair
    ADMIN = "admin"  # keys, and everything else


def _no_pools(node_id: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who stands behind a valid key.

    Attributes:
        key_id: Id of the key, "key-" and 12 hex digits.
        role: What it may do.
        node_id: The node that an agent is bound to, None for other roles.
        name: Name of the key, as it stands in the audit.
        scope: What the key is narrowed to.
        pool_of: Name of a node's pool, which a scope may ask for.
    """

    key_id: str
    role: Role
    node_id: str | None
    name: str
    scope: Scope = WHOLE
    pool_of: PoolOf = _no_pools

    def covers(self, node_id: str) -> bool:
        """Whether it may ask about, or speak for, a node."""
        if self.role is Role.AGENT and node_id != self.node_id:
            return False
        return self.scope.covers(node_id, self.pool_of)

    def require_nodes(self, node_ids: Iterable[str]) -> None:
        """Refuse a key that is bound or narrowed to other nodes than these.

        Raises:
            ProblemError: 403 wrong_node, or outside_scope.
        """
        for node_id in node_ids:
            if self.role is Role.AGENT and node_id != self.node_id:
                raise ProblemError(
                    403,
                    "wrong_node",
                    f"this key is bound to node {self.node_id!r}, not {node_id!r}",
                    "Use the key of that node: gpuwarden keys create --role agent --node NODE.",
                )
            if not self.scope.covers(node_id, self.pool_of):
                raise ProblemError(
                    403,
                    "outside_scope",
                    f"this key is narrowed to nodes that {node_id!r} is none of",
                    "Ask about the nodes of its scope (GET /v1/keys shows it), or use another key.",
                )

    def require_whole(self, what: str) -> None:
        """Refuse a narrowed key where the outcome would reach further than the key does.

        Raises:
            ProblemError: 403 outside_scope.
        """
        if not self.scope.is_whole:
            raise ProblemError(
                403,
                "outside_scope",
                f"a narrowed key may not {what}: that would reach further than the key itself",
                "Use a key that is not narrowed.",
            )

"""Who calls: roles and the principal behind a key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_server.core.errors import ProblemError


class Role(StrEnum):
    """What a key may do; the table is `authorisation.ROUTE_GRANTS`."""

    AGENT = "agent"  # one node's agent: bound to that node
    READER = "reader"  # dashboards, people who look
    RUNTIME = "runtime"  # launchers: verdicts and exclusions
    OPERATOR = "operator"  # people who acknowledge, revoke, approve, repair
    ADMIN = "admin"  # keys, and everything else


@dataclass(frozen=True, slots=True)
class Principal:
    """Who stands behind a valid key.

    Attributes:
        key_id: Id of the key, "key-" and 12 hex digits.
        role: What it may do.
        node_id: The node that an agent is bound to, None for other roles.
        name: Name of the key, as it stands in the audit.
    """

    key_id: str
    role: Role
    node_id: str | None
    name: str

    def require_nodes(self, node_ids: Iterable[str]) -> None:
        """Refuse an agent that asks about, or speaks for, a node other than its own.

        Raises:
            ProblemError: 403 wrong_node.
        """
        if self.role is not Role.AGENT:
            return
        for node_id in node_ids:
            if node_id != self.node_id:
                raise ProblemError(
                    403,
                    "wrong_node",
                    f"this key is bound to node {self.node_id!r}, not {node_id!r}",
                    "Use the key of that node: gpuwarden keys create --role agent --node NODE.",
                )

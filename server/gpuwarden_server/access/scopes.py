"""What a key is narrowed to: some nodes, some resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

PoolOf = Callable[[str], str]
"""Name of the pool of a node."""


class Access(StrEnum):
    """What is done with a resource; write includes read."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a key is narrowed to; empty tuples do not narrow.

    Attributes:
        nodes: Patterns of node ids (`gpu-0*`); a node that one of them matches is covered.
        pools: Names of pools; a node of one of them is covered.
        resources: "RESOURCE:read" or "RESOURCE:write", RESOURCE being what follows /v1/ in paths.
    """

    nodes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is narrowed."""
        return not (self.nodes or self.pools or self.resources)

    @property
    def names_nodes(self) -> bool:
        """Whether it holds for some nodes only."""
        return bool(self.nodes or self.pools)

    def covers(self, node_id: str, pool_of: PoolOf) -> bool:
        """Whether it holds for a node."""
        if not self.names_nodes:
            return True
        if any(fnmatchcase(node_id, pattern) for pattern in self.nodes):
            return True
        return bool(self.pools) and pool_of(node_id) in self.pools

    def allows(self, resource: str, access: Access) -> bool:
        """Whether it holds for a resource."""
        if not self.resources or f"{resource}:{Access.WRITE}" in self.resources:
            return True
        return access is Access.READ and f"{resource}:{Access.READ}" in self.resources


WHOLE = Scope()


def scope_form(scope: Scope) -> dict[str, list[str]]:
    """The JSON form: only what narrows."""
    parts = {"nodes": scope.nodes, "pools": scope.pools, "resources": scope.resources}
    return {name: list(values) for name, values in parts.items() if values}


def scope_from(form: Mapping[str, Any]) -> Scope:
    """The scope of a JSON form."""
    parts = {name: tuple(form.get(name, ())) for name in ("nodes", "pools", "resources")}
    return Scope(**parts)

"""Names that nodes had before, in memory; state.db has the same.

An agent may still send by the name that its node had: what waits in a spool bears it for ever. Its
spool, random and known to be the node's, proves that it is no other machine of that name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest.sessions import Sessions
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.renaming import load_former_names
from gpuwarden_wire.batches import Batch


@dataclass(frozen=True, slots=True)
class FormerName:
    """A name that a node had.

    Attributes:
        name: The name.
        until: When it was given up, epoch seconds.
        node_id: What the node is called now.
    """

    name: str
    until: float
    node_id: str


class FormerNames:
    """All of them; values are replaced whole, so that any thread may read."""

    def __init__(self, is_node: Callable[[str], bool]) -> None:
        """Make none; `load` fills it.

        Args:
            is_node: Whether a node of this name is known now: then it is no former name.
        """
        self._is_node = is_node
        self._by_name: dict[str, tuple[FormerName, ...]] = {}
        self._by_node: dict[str, tuple[FormerName, ...]] = {}

    def load(self, database: Database) -> None:
        """Read them from state.db."""
        with database.read() as connection:
            found = load_former_names(connection)
        self._replace([FormerName(*one) for one in found])

    def note(self, old: str, new: str, at: float) -> None:
        """A node was renamed at `at`, epoch seconds."""
        known = [one for held in self._by_name.values() for one in held]
        followed = [
            FormerName(one.name, one.until, new if one.node_id == old else one.node_id)
            for one in known
        ]
        self._replace(sorted([*followed, FormerName(old, at, new)], key=lambda one: one.until))

    def present(self, name: str) -> str:
        """What the node of this name is called now; the name itself where it is no former one."""
        held = self._by_name.get(name)
        return held[-1].node_id if held and not self._is_node(name) else name

    def at(self, name: str, at: float) -> str:
        """What the node that had this name at a time (epoch seconds) is called now."""
        for one in self._by_name.get(name, ()):
            if at < one.until:
                return one.node_id
        return self.present(name)

    def of(self, node_id: str) -> tuple[FormerName, ...]:
        """Names that a node had, oldest first."""
        return self._by_node.get(node_id, ())

    def lent(self, name: str, node_id: str) -> tuple[tuple[float, float], ...]:
        """When other nodes had a name: from and until, epoch seconds, oldest first.

        A name's holder before its first was given up is taken to have had it ever since.
        """
        held = self._by_name.get(name, ())
        begins, times = float("-inf"), []
        for one in held:
            if one.node_id != node_id:
                times.append((begins, one.until))
            begins = one.until
        if held and name != node_id and self._is_node(name):
            times.append((begins, float("inf")))
        return tuple(times)

    def under_present_name(self, batch: Batch, sessions: Sessions) -> Batch:
        """A batch by the name that its node has now.

        Raises:
            ProblemError: 403 for a former name from a spool that is not known to be its node's: it
                may be another machine. The agent keeps the batch.
        """
        node_id = self.present(batch.node_id)
        if node_id == batch.node_id:
            return batch
        session = sessions.find(node_id)
        if session is None or batch.spool_id not in session.spools:
            raise ProblemError(
                403,
                "node_renamed",
                f"node {batch.node_id} is called {node_id} now, and spool {batch.spool_id} was "
                "never its",
                f"If this is {node_id}, give its agent that name (GPUWARDEN_AGENT_NODE_ID, or the "
                f"host's). If it is another machine, make it known: gpuwarden nodes add "
                f"{batch.node_id} --reason TEXT.",
            )
        return msgspec.structs.replace(batch, node_id=node_id)

    def _replace(self, all_names: list[FormerName]) -> None:
        by_name: dict[str, list[FormerName]] = defaultdict(list)
        by_node: dict[str, list[FormerName]] = defaultdict(list)
        for one in all_names:
            by_name[one.name].append(one)
            by_node[one.node_id].append(one)
        self._by_name = {name: tuple(held) for name, held in by_name.items()}
        self._by_node = {node: tuple(held) for node, held in by_node.items()}

"""A consumer of exclusions in memory, which fails where a test says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuwarden_server.actuators.ports import ActuatorError
from gpuwarden_verdict.actuation import Found, Hold, Wanted


class FakeConsumer:
    """Behaves as Slurm does, and keeps what it was asked.

    Attributes:
        held: Our reasons by node.
        theirs: Reasons of others by node.
        jobs: What runs on each node.
        calls: Changes that were asked for, in order.
        refuse: Acts that fail before they take effect.
        refuse_reads: How many of the next reads after a change fail.
        nodes: Nodes that it has; None has any.
    """

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.theirs: dict[str, str] = {}
        self.jobs: dict[str, tuple[str, ...]] = {}
        self.calls: list[tuple[str, str]] = []
        self.refuse: set[str] = set()
        self.refuse_reads = 0
        self.nodes: set[str] | None = None
        self._changed = False

    def read(self, nodes: Collection[str]) -> Mapping[str, Found]:
        """What it holds."""
        if self._changed and self.refuse_reads:
            self.refuse_reads -= 1
            raise ActuatorError("the read timed out", "Look")
        self._changed = False
        asked = {*nodes, *self.held, *self.theirs}
        known = asked if self.nodes is None else asked & self.nodes
        return {node: self._found(node) for node in known}

    def exclude(self, wanted: Wanted) -> None:
        """Drain."""
        self._call("exclude", wanted.node_id)
        if wanted.node_id not in self.theirs:
            self.held[wanted.node_id] = wanted.text

    def move(self, node_id: str, jobs: Collection[str]) -> None:
        """Requeue."""
        self._call("move", node_id)
        self.jobs.pop(node_id, None)

    def release(self, node_id: str) -> None:
        """Resume."""
        self._call("release", node_id)
        self.held.pop(node_id, None)

    def _call(self, act: str, node_id: str) -> None:
        self.calls.append((act, node_id))
        if act in self.refuse or f"{act} {node_id}" in self.refuse:
            raise ActuatorError(f"{act} of {node_id} was refused", "Look")
        self._changed = True

    def _found(self, node: str) -> Found:
        jobs = self.jobs.get(node, ())
        if node in self.theirs:
            return Found(Hold.THEIRS, self.theirs[node], "ann", jobs)
        if node in self.held:
            return Found(Hold.OURS, self.held[node], "root", jobs)
        return Found(Hold.FREE, jobs=jobs)

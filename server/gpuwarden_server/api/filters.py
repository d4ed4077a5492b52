"""What the lists of nodes and GPUs are narrowed to; None does not narrow."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_verdict.engine.fleet import GpuRecord
from gpuwarden_verdict.entities import Contact, EntityState
from gpuwarden_wire.acknowledgement import Usable


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes are wanted."""

    pool: str | None = None
    rack: str | None = None
    leaf: str | None = None
    state: EntityState | None = None
    usable: Usable | None = None
    silent: bool | None = None

    def holds(self, sources: ReadSources, node_id: str) -> bool:
        """Whether a node is one of them."""
        if not self._is_there(sources, node_id):
            return False
        contact = sources.facts.contact_of(node_id)
        if self.silent is not None and (contact is Contact.SILENT) != self.silent:
            return False
        if self.state is None and self.usable is None:
            return True
        said = sources.board.node_verdict(node_id, contact).node
        return _fits(self.state, said.state) and _fits(self.usable, said.usable)

    def _is_there(self, sources: ReadSources, node_id: str) -> bool:
        if self.pool is not None and sources.placements.pool(node_id).name != self.pool:
            return False
        if self.rack is None and self.leaf is None:
            return True
        words = sources.placements.words(node_id)
        return _fits(self.rack, words.get("rack", "")) and _fits(self.leaf, words.get("leaf", ""))


@dataclass(frozen=True, slots=True)
class GpuFilter:
    """Which GPUs are wanted."""

    node_id: str | None = None
    state: EntityState | None = None
    usable: Usable | None = None
    present: bool | None = None

    def holds(self, sources: ReadSources, gpu: GpuRecord) -> bool:
        """Whether a GPU is one of them."""
        if not (_fits(self.node_id, gpu.node_id) and _fits(self.present, gpu.present)):
            return False
        if self.state is None and self.usable is None:
            return True
        verdicts = sources.board.node_verdict(gpu.node_id).gpus
        said = next((one for one in verdicts if one.entity == gpu.gpu_uuid), None)
        if said is None:
            return False
        return _fits(self.state, said.state) and _fits(self.usable, said.usable)


def _fits(wanted: object, found: object) -> bool:
    return wanted is None or wanted == found

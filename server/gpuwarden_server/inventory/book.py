"""The inventory in memory, beside the policy's pools that may ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock

from sqlalchemy import Connection

from gpuwarden_server.access.domain import audit_by
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.inventory import repository
from gpuwarden_server.inventory.domain import Changes, Entry, Placement, Source, compare, merge
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.policy.document import PolicyDocument, PoolPolicy
from gpuwarden_verdict.policy.parse import pool_of


class Placements:
    """Where nodes are and which pool has them; read from any thread.

    Attributes:
        version: Rises with every change of the inventory: what was worked out from it is old then.
        policy: The rules.
    """

    def __init__(self, directory: FleetDirectory, policy: PolicyDocument) -> None:
        self.version = 0
        self.policy = policy
        self._directory = directory
        self._lock = Lock()
        self._entries: Mapping[Source, dict[str, Entry]] = {source: {} for source in Source}
        self._expected: Mapping[str, int] = {}

    def load(self, database: Database) -> None:
        """Read everything from state.db."""
        with database.read() as connection:
            self._entries = repository.load_entries(connection)
        self._note_change()

    def placement(self, node_id: str) -> Placement:
        """One node, as all sources together have it; empty where none names it."""
        node = self._directory.node(node_id)
        entries = self._entries
        said = {s: entry for s in Source if (entry := entries[s].get(node_id)) is not None}
        return merge(node_id, said, node.labels if node is not None else {})

    def pool(self, node_id: str) -> PoolPolicy:
        """The policy's pool of a node."""
        return pool_of(self.policy, node_id, self.words(node_id))

    def words(self, node_id: str) -> Mapping[str, str]:
        """Labels of a node, rack, leaf and inventory's pool among them."""
        return self.placement(node_id).words

    def named(self) -> list[str]:
        """Nodes that any source names."""
        return sorted(set().union(*(of_source.keys() for of_source in self._entries.values())))

    def sources_of(self, node_id: str) -> list[str]:
        """Sources that name a node."""
        return [source.value for source in Source if node_id in self._entries[source]]

    def expected(self) -> Mapping[str, int]:
        """GPUs that nodes should have, by node, where a source says so."""
        return self._expected

    def put(
        self,
        database: Database,
        source: Source,
        entries: Iterable[Entry],
        by: Principal,
        at: float,
        *,
        whole: bool,
        dry_run: bool = False,
    ) -> Changes:
        """Take what a source says over, with the audit of who said so.

        Args:
            database: state.db.
            source: Who says it.
            entries: What.
            by: Who brought it.
            at: Epoch seconds.
            whole: What is not named is removed.
            dry_run: Only tell what would change.
        """
        with self._lock:
            changes = compare(self._entries[source], entries, whole=whole)
            if dry_run or not changes.changed:
                return changes
            before, after = changes.forms()
            entry = replace(
                audit_by(by, at, "put_inventory", f"inventory:{source.value}"),
                before=before,
                after=after,
            )

            def write(connection: Connection) -> None:
                repository.save_changes(connection, source, changes, at)
                record_audit(connection, entry)

            database.writer.call(write)
            mine = dict(self._entries[source])
            for node_id, (_, one) in changes.changed.items():
                mine.pop(node_id, None)
                if one is not None:
                    mine[node_id] = one
            self._entries = {**self._entries, source: mine}
            self._note_change()
        return changes

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on, as state.db has it already."""
        with self._lock:
            entries = {source: dict(mine) for source, mine in self._entries.items()}
            for mine in entries.values():
                entry = mine.pop(old, None)
                if entry is not None:  # what is said of the new name goes before
                    mine.setdefault(new, replace(entry, node_id=new))
            self._entries = entries
            self._note_change()

    def _note_change(self) -> None:
        self._expected = {
            node_id: count
            for node_id in self.named()
            if (count := self.placement(node_id).entry.gpus_expected) is not None
        }
        self.version += 1

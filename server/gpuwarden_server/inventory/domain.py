"""Entries of the inventory as values, and how several sources are put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Source(StrEnum):
    """Who said it; a field is taken from the first that has it, the agent's labels come last."""

    FILE = "file"  # a file, the API, `gpuwarden nodes add`
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


AGENT = "agent"
_PLACES = ("rack", "leaf", "pool")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one source says of one node; "", () and None where it does not.

    Attributes:
        node_id: The node.
        rack: Where it stands.
        leaf: Switch that it hangs on.
        pool: What it is used for; a policy pool may ask for it.
        mounts: Mount points that it should have.
        gpus_expected: GPUs that it should have.
        labels: Further words, which policy pools and routes of notifications may ask for.
    """

    node_id: str
    rack: str = ""
    leaf: str = ""
    pool: str = ""
    mounts: tuple[str, ...] = ()
    gpus_expected: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def form(self) -> dict[str, Any]:
        """As JSON, for the audit."""
        return {**asdict(self), "mounts": list(self.mounts), "labels": dict(self.labels)}


@dataclass(frozen=True, slots=True)
class Placement:
    """A node as all sources together have it.

    Attributes:
        entry: The values.
        origin: Source of each field that has a value.
    """

    entry: Entry
    origin: Mapping[str, str]

    @property
    def words(self) -> Mapping[str, str]:
        """Labels by name, rack, leaf and pool among them."""
        places = {name: value for name in _PLACES if (value := getattr(self.entry, name))}
        return {**self.entry.labels, **places}


def merge(node_id: str, said: Mapping[Source, Entry], labels: Mapping[str, str]) -> Placement:
    """One node of several sources.

    Args:
        node_id: The node.
        said: What each source says of it.
        labels: Labels that its agent tells.
    """
    told = Entry(node_id, labels.get("rack", ""), labels.get("leaf", ""), labels.get("pool", ""))
    ordered = [(source.value, said[source]) for source in Source if source in said]
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name in (*_PLACES, "mounts", "gpus_expected"):
        for source, entry in (*ordered, (AGENT, told)):
            value = getattr(entry, name)
            if value not in ("", (), None):
                values[name], origin[name] = value, source
                break
    words = {key: value for key, value in labels.items() if key not in _PLACES}
    for _, entry in reversed(ordered):
        words |= entry.labels
    return Placement(Entry(node_id, labels=words, **values), origin)


@dataclass(frozen=True, slots=True)
class Changes:
    """How one source's entries change: (before, after) of each that does, by node."""

    changed: Mapping[str, tuple[Entry | None, Entry | None]]

    @property
    def added(self) -> list[str]:
        """Nodes that the source names anew."""
        return [node for node, (before, _) in self.changed.items() if before is None]

    @property
    def removed(self) -> list[str]:
        """Nodes that it names no more."""
        return [node for node, (_, after) in self.changed.items() if after is None]

    def forms(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Before and after, as JSON by node."""
        before = {node: one.form() for node, (one, _) in self.changed.items() if one}
        after = {node: one.form() for node, (_, one) in self.changed.items() if one}
        return before, after


def compare(before: Mapping[str, Entry], after: Iterable[Entry], *, whole: bool) -> Changes:
    """What changes.

    Args:
        before: The source's entries by node.
        after: What it says now.
        whole: It says all: what it does not name is removed.
    """
    named = {entry.node_id: entry for entry in after}
    changed: dict[str, tuple[Entry | None, Entry | None]] = {
        node: (before.get(node), entry)
        for node, entry in sorted(named.items())
        if before.get(node) != entry
    }
    gone = sorted(before.keys() - named.keys()) if whole else []
    return Changes(changed | {node: (before[node], None) for node in gone})

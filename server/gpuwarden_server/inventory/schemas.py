"""JSON forms of the inventory."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.ids import NODE_ID_PATTERN
from gpuwarden_server.inventory.domain import Changes, Entry, Placement, Source

MAX_NODES = 50_000
_Word = Annotated[str, StringConstraints(max_length=200)]


class EntryBody(Body):
    """What one source says of one node."""

    model_config = ConfigDict(extra="forbid")

    node_id: Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]
    rack: _Word = Field(default="", examples=["r12"])
    leaf: _Word = Field(default="", examples=["leaf-3"], description="switch that it hangs on")
    pool: _Word = Field(default="", examples=["train"])
    mounts: list[_Word] = Field(default_factory=list, max_length=64, examples=[["/scratch"]])
    gpus_expected: int | None = Field(default=None, ge=0, le=1024)
    labels: dict[_Word, _Word] = Field(
        default_factory=dict, max_length=64, examples=[{"zone": "b"}]
    )

    def entry(self) -> Entry:
        """As a value."""
        return Entry(
            node_id=self.node_id,
            rack=self.rack,
            leaf=self.leaf,
            pool=self.pool,
            mounts=tuple(self.mounts),
            gpus_expected=self.gpus_expected,
            labels=dict(self.labels),
        )


class InventoryBody(Body):
    """What one source says."""

    model_config = ConfigDict(extra="forbid")

    nodes: list[EntryBody] = Field(max_length=MAX_NODES)


class NodeBody(EntryBody):
    """A node that is to be known before it was ever heard of."""

    reason: str = Field(min_length=1, max_length=1000, description="Kept in the audit.")


class EntryView(BaseModel):
    """An entry as it is, or was."""

    node_id: str
    rack: str
    leaf: str
    pool: str
    mounts: list[str]
    gpus_expected: int | None
    labels: dict[str, str]

    @classmethod
    def of(cls, entry: Entry) -> EntryView:
        """Of a value."""
        return cls(**entry.form())


class PlacementView(EntryView):
    """A node as all sources together have it."""

    origin: dict[str, str] = Field(
        description="source of each field: file, slurm, kubernetes or agent, in this order",
        examples=[{"rack": "file", "pool": "slurm"}],
    )
    sources: list[str] = Field(description="sources that name it")
    known: bool = Field(description="it was heard of, or added by hand: GET /v1/nodes lists it")

    @classmethod
    def at(cls, placement: Placement, sources: list[str], *, known: bool) -> PlacementView:
        """Of a value."""
        form = placement.entry.form()
        return cls(**form, origin=dict(placement.origin), sources=sources, known=known)


class InventoryPage(BaseModel):
    """A page of the inventory, by node."""

    items: list[PlacementView]
    next_cursor: str | None


class ChangeView(BaseModel):
    """How one node's entry changes; null before: new; null after: removed."""

    node_id: str
    before: EntryView | None
    after: EntryView | None


class ChangesView(BaseModel):
    """How a source's entries change, or would."""

    source: Source
    dry_run: bool
    added: int
    removed: int
    changed: int
    changes: list[ChangeView]

    @classmethod
    def of(cls, source: Source, changes: Changes, *, dry_run: bool) -> ChangesView:
        """Of a value."""
        listed = [
            ChangeView(
                node_id=node_id,
                before=EntryView.of(before) if before else None,
                after=EntryView.of(after) if after else None,
            )
            for node_id, (before, after) in changes.changed.items()
        ]
        added, removed = len(changes.added), len(changes.removed)
        return cls(
            source=source,
            dry_run=dry_run,
            added=added,
            removed=removed,
            changed=len(listed) - added - removed,
            changes=listed,
        )

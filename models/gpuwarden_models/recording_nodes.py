"""What a recording tells of nodes beside readings: that one booted, what it has, what runs there.

The same events that an agent sends, so that whoever reads frames needs no other way in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpuwarden_exporters.rules import GpuFacts
from gpuwarden_models.frames import FrameTable, NodeEvent
from gpuwarden_models.recording_jobs import JobTimeline
from gpuwarden_models.recording_series import Entity, Layout
from gpuwarden_models.recording_tables import FleetRow
from gpuwarden_models.recording_xids import TOLD_BY
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, GpuJob, Inventory, JobKind
from gpuwarden_wire.metrics import EntityKind

_VISIBLE = "node_gpus_visible"
_GONE_FRAMES = 2
"""A GPU that its node does not count is missed once it was not read for so many frames."""
_SAME_BOOT_S = 60.0
"""The clock is corrected, and a scrape comes a little early or late."""


class RecordedNodes:
    """Follows boots, inventory and jobs of all nodes, frame after frame."""

    def __init__(
        self,
        layout: Layout,
        fleet: Sequence[FleetRow],
        facts: Mapping[Entity, GpuFacts],
        jobs: JobTimeline,
        interval_s: float,
    ) -> None:
        self._layout, self._facts, self._jobs = layout, facts, jobs
        self._same_boot_s = max(_SAME_BOOT_S, interval_s)
        self._fleet = {(row.node, row.gpu_uuid): row for row in fleet}
        self._expected = expected_gpus(fleet)
        self._place = {node: number for number, node in enumerate(layout.nodes)}
        self._labels = {row.node: place_labels(row) for row in fleet}
        self._seen = {
            kind: np.zeros(len(item.keys), dtype=np.bool_) for kind, item in layout.kinds.items()
        }
        gpus = layout.kinds.get(EntityKind.GPU)
        self._unread = np.zeros(len(gpus.keys) if gpus is not None else 0, np.int64)
        self._gpus: dict[str, dict[str, GpuIdentity]] = {}
        self._booted = np.full(len(layout.nodes), np.nan)
        self._boot_ids = [""] * len(layout.nodes)
        self._pending: set[str] = set()
        self._number = 0

    @property
    def boot_ids(self) -> tuple[str, ...]:
        """Present boot of each node, "" where nothing tells of one."""
        return tuple(self._boot_ids)

    def events(self, at: float, tables: Sequence[FrameTable], told_at: float) -> list[NodeEvent]:
        """What is new at a moment: boots first, since what comes after is of them.

        Args:
            at: Epoch seconds of the readings.
            tables: The readings.
            told_at: When it is said, at most `at`: before whatever else happened since the moment
                before.
        """
        found = self._boots(at, tables, told_at)
        heard: set[int] = set()
        for table in tables:
            heard |= set(table.node_of[table.reported].tolist())
            fresh = np.flatnonzero(table.reported & ~self._seen[table.kind])
            self._seen[table.kind] |= table.reported
            for row in fresh.tolist():
                self._note(table, row)
        self._note_gone(tables)
        self._pending |= self._jobs.advance(at)
        names = self._layout.nodes
        due = sorted(names[node] for node in heard if names[node] in self._pending)
        self._pending -= set(due)
        return [*found, *(self._inventory(node, told_at) for node in due)]

    def _boots(self, at: float, tables: Sequence[FrameTable], told_at: float) -> list[NodeEvent]:
        table = next((one for one in tables if one.kind is EntityKind.NODE), None)
        if table is None or "node_uptime_seconds" not in table.schema.names:
            return []
        booted = at - table.column("node_uptime_seconds")
        other = ~(np.abs(booted - self._booted[table.node_of]) <= self._same_boot_s)
        fresh = np.flatnonzero(other & ~np.isnan(booted))
        self._booted[table.node_of[fresh]] = booted[fresh]
        return [self._boot(int(table.node_of[row]), float(booted[row]), told_at) for row in fresh]

    def _boot(self, node: int, booted_at: float, at: float) -> NodeEvent:
        name = self._layout.nodes[node]
        boot_id = self._boot_ids[node] = f"{TOLD_BY}:{name}:{round(booted_at)}"
        event = Event(
            id=f"{EventKind.NODE_BOOT}:{boot_id}",
            kind=EventKind.NODE_BOOT,
            observed_at=at,
            attributes={"booted_at": booted_at, "told_by": TOLD_BY},
        )
        return NodeEvent(name, boot_id, event)

    def _note_gone(self, tables: Sequence[FrameTable]) -> None:
        """GPUs that are read no more, of nodes that count fewer than before, leave the inventory.

        Without such a count nobody knows: exporters drop GPUs until they are restarted.
        """
        by_kind = {table.kind: table for table in tables}
        gpus, nodes = by_kind.get(EntityKind.GPU), by_kind.get(EntityKind.NODE)
        if gpus is None or nodes is None or _VISIBLE not in nodes.schema.names:
            return
        visible = np.full(len(self._layout.nodes), np.inf)
        counted = nodes.reported & ~np.isnan(nodes.column(_VISIBLE))
        visible[nodes.node_of[counted]] = nodes.column(_VISIBLE)[counted]
        self._unread[np.isfinite(visible)[gpus.node_of]] += 1
        self._unread[gpus.reported] = 0
        seen = self._seen[EntityKind.GPU]
        held = np.bincount(gpus.node_of[seen], minlength=visible.size)
        gone = seen & (self._unread >= _GONE_FRAMES) & (visible < held)[gpus.node_of]
        for row in np.flatnonzero(gone).tolist():
            node = self._layout.nodes[int(gpus.node_of[row])]
            self._gpus.get(node, {}).pop(gpus.keys[row], None)
            self._pending.add(node)
        seen[gone] = False

    def _note(self, table: FrameTable, row: int) -> None:
        """An entity is seen for the first time; a GPU takes the place of what was in its slot."""
        node = self._layout.nodes[int(table.node_of[row])]
        if table.kind is EntityKind.MOUNT:
            return
        self._pending.add(node)
        if table.kind is not EntityKind.GPU:
            return
        gpu = self._identity(node, table.keys[row])
        own = self._gpus.setdefault(node, {})
        for uuid, other in list(own.items()):
            if gpu.pci_bus_id and other.pci_bus_id == gpu.pci_bus_id:
                del own[uuid]
        own[gpu.gpu_uuid] = gpu

    def _identity(self, node: str, uuid: str) -> GpuIdentity:
        said = self._facts.get((node, uuid)) or GpuFacts(uuid)
        row = self._fleet.get((node, uuid))
        if row is None:
            row = FleetRow(node, uuid)
        return GpuIdentity(
            gpu_uuid=uuid,
            pci_bus_id=row.pci_bus_id or said.pci_bus_id,
            serial=row.serial or said.serial,
            index=said.index if row.gpu_index is None else row.gpu_index,
            model=row.model or said.model,
            driver_version=said.driver_version,
            vbios_version=said.vbios_version,
        )

    def _inventory(self, node: str, at: float) -> NodeEvent:
        self._number += 1
        gpus = sorted(self._gpus.get(node, {}).values(), key=lambda g: (g.pci_bus_id, g.gpu_uuid))
        inventory = Inventory(
            gpus=tuple(gpus),
            nics=self._keys(EntityKind.NIC, node),
            disks=self._keys(EntityKind.DISK, node),
            gpus_expected=self._expected.get(node),
            labels=self._labels.get(node, {}),
            jobs=tuple(
                GpuJob(gpu_uuid=gpu.gpu_uuid, kind=JobKind.SLURM, job_id=job.job_id)
                for gpu in gpus
                for job in self._jobs.on(node)
            ),
        )
        event = Event(
            id=f"{EventKind.INVENTORY}:{TOLD_BY}:{node}:{self._number}",
            kind=EventKind.INVENTORY,
            observed_at=at,
            inventory=inventory,
            attributes={"told_by": TOLD_BY},
        )
        return NodeEvent(node, self._boot_ids[self._place[node]], event)

    def _keys(self, kind: EntityKind, node: str) -> tuple[str, ...]:
        layout = self._layout.kinds.get(kind)
        if layout is None:
            return ()
        place = self._place[node]
        rows = range(*np.searchsorted(layout.node_of, (place, place + 1)).tolist())
        return tuple(layout.wire_keys[row] for row in rows if self._seen[kind][row])


def expected_gpus(fleet: Sequence[FleetRow]) -> dict[str, int]:
    """How many GPUs fleet.csv gives each node: slots, since a slot may have had two GPUs."""
    slots: dict[str, set[str]] = {}
    for row in fleet:
        slots.setdefault(row.node, set()).add(row.slot)
    return {node: len(known) for node, known in slots.items()}


def place_labels(row: FleetRow) -> dict[str, str]:
    """Where a node stands, as an inventory's labels."""
    told = {"rack": row.rack, "leaf": row.leaf, "power": row.power, "mounts": ";".join(row.mounts)}
    return {name: value for name, value in told.items() if value}

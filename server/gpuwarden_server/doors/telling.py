"""What a node's pages tell beside readings: that it booted, what it has, and XIDs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from gpuwarden_exporters.rules import GpuFacts
from gpuwarden_exporters.xids import XidNews
from gpuwarden_kernel_log import xid_entry
from gpuwarden_server.doors.targets import Look
from gpuwarden_verdict.engine.fleet import GpuRecord, NodeRecord
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind

TOLD_BY = "remote_write"
_BOOT = "remote-write:"
_SAME_BOOT_S = 30.0
"""The kernel's boot time moves by what the clock is corrected."""
_LATE_S = 60.0


@dataclass(slots=True)
class NodeTelling:
    """What was told of a node so far.

    Attributes:
        node_id: The node.
        boot_id: Of its present boot, "" while nothing tells of one.
        booted_at: Epoch seconds, None unknown.
        gpus: GPUs by uuid, each as far as its pages have told.
        nics: Ports and interfaces seen.
        disks: Disks seen.
    """

    node_id: str
    boot_id: str = ""
    booted_at: float | None = None
    gpus: dict[str, GpuIdentity] = field(default_factory=dict)
    nics: set[str] = field(default_factory=set)
    disks: set[str] = field(default_factory=set)
    _told: Inventory | None = None

    @classmethod
    def of(cls, node_id: str, node: NodeRecord | None, gpus: Iterable[GpuRecord]) -> NodeTelling:
        """Go on from what the directory has."""
        present = {gpu.gpu_uuid: _identity(gpu) for gpu in gpus if gpu.present}
        if node is None:
            return cls(node_id, gpus=present)
        told = node.boot_id.removeprefix(_BOOT)
        booted_at = float(told) if node.boot_id.startswith(_BOOT) and told.isdecimal() else None
        telling = cls(node_id, node.boot_id, booted_at, present, {*node.nics}, {*node.disks})
        telling._told = telling._inventory() if node.inventory_at is not None else None
        return telling

    def events(self, look: Look) -> list[Event]:
        """Events of one look: the boot first, since what comes after is of it."""
        boot = self._boot(look)
        self._note(look)
        inventory = self._inventory_event(look)
        xids = (self._xid(news, number, look) for news, number in look.xids)
        return [*boot, *inventory, *xids]

    def _boot(self, look: Look) -> list[Event]:
        """A boot, by what node_exporter says of its time.

        A node that an agent told of before keeps that agent's boot until its own time changes.
        """
        uptime = look.rows.get(EntityKind.NODE, {}).get("", {}).get("node_uptime_seconds")
        if not isinstance(uptime, float | int) or not 0 <= uptime < look.at:
            return []
        booted_at, before = look.at - uptime, self.booted_at
        self.booted_at = booted_at
        same = before is not None and abs(booted_at - before) < _SAME_BOOT_S
        if same or (before is None and self.boot_id):
            return []
        self.boot_id = f"{_BOOT}{round(booted_at)}"
        event = Event(
            id=f"{EventKind.NODE_BOOT}:{self.boot_id}",
            kind=EventKind.NODE_BOOT,
            observed_at=look.at,
            text="node_exporter tells of another boot than before",
            attributes={"booted_at": booted_at, "told_by": TOLD_BY},
        )
        return [event]

    def _note(self, look: Look) -> None:
        """GPUs that are named no more are not lost: exporters drop some until they are restarted.

        Another GPU in the slot of one has replaced it.
        """
        for uuid, facts in look.gpus.items():
            self.gpus[uuid] = _merged(self.gpus.get(uuid), facts)
        slots = {self.gpus[uuid].pci_bus_id: uuid for uuid in look.gpus}
        for uuid, gpu in list(self.gpus.items()):
            if gpu.pci_bus_id and slots.get(gpu.pci_bus_id, uuid) != uuid:
                del self.gpus[uuid]
        self.nics |= look.rows.get(EntityKind.NIC, {}).keys()
        self.disks |= look.rows.get(EntityKind.DISK, {}).keys()

    def _inventory(self) -> Inventory:
        ordered = sorted(self.gpus.values(), key=lambda one: (one.pci_bus_id, one.gpu_uuid))
        return Inventory(
            gpus=tuple(ordered), nics=tuple(sorted(self.nics)), disks=tuple(sorted(self.disks))
        )

    def _inventory_event(self, look: Look) -> list[Event]:
        whole = self._inventory()
        if whole == self._told:
            return []
        self._told = whole
        digest = hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:12]
        event = Event(
            id=f"{EventKind.INVENTORY}:{TOLD_BY}:{round(look.at * 1000)}:{digest}",
            kind=EventKind.INVENTORY,
            observed_at=look.at,
            inventory=whole,
            attributes={"told_by": TOLD_BY},
        )
        return [event]

    def _xid(self, news: XidNews, number: int, look: Look) -> Event:
        entry = xid_entry(news.code)
        name = f" ({entry.name})" if entry is not None else ""
        gpu = self.gpus.get(news.gpu_uuid)
        page = hashlib.sha256(look.target.name.encode()).hexdigest()[:8]
        exact = look.at - _LATE_S <= news.seen_at <= look.at
        return Event(
            # A number of ours, not a time: a look that is repeated after a crash has another time.
            id=f"{EventKind.NVML_XID}:{TOLD_BY}:{page}:{news.gpu_uuid}:{news.code}:{number}",
            kind=EventKind.NVML_XID,
            observed_at=news.seen_at if exact else look.at,
            entity_kind=EntityKind.GPU,
            entity=news.gpu_uuid,
            count=news.count,
            xid=news.code,
            pci_bus_id=(gpu.pci_bus_id if gpu else "") or None,
            severity=str(entry.severity) if entry is not None else "warning",
            text=f"an exporter tells XID {news.code}{name}, new since its last scrape: "
            f"{look.target.name}"[:1000],
            attributes={"told_by": TOLD_BY},
        )


def _identity(gpu: GpuRecord) -> GpuIdentity:
    return GpuIdentity(
        gpu_uuid=gpu.gpu_uuid,
        pci_bus_id=gpu.pci_bus_id,
        serial=gpu.serial,
        index=gpu.gpu_index,
        model=gpu.model,
        driver_version=gpu.driver_version,
        vbios_version=gpu.vbios_version,
        nics=gpu.nics,
    )


def _merged(known: GpuIdentity | None, facts: GpuFacts) -> GpuIdentity:
    """What labels say now, completed by what was known."""
    before = known or GpuIdentity(gpu_uuid=facts.gpu_uuid, pci_bus_id="")
    return GpuIdentity(
        gpu_uuid=facts.gpu_uuid,
        pci_bus_id=facts.pci_bus_id or before.pci_bus_id,
        serial=facts.serial or before.serial,
        index=before.index if facts.index is None else facts.index,
        model=facts.model or before.model,
        driver_version=facts.driver_version or before.driver_version,
        vbios_version=facts.vbios_version or before.vbios_version,
        nics=before.nics,
    )

"""The node's GPUs as exporters name them; where NVML answers, what it says goes before."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.sources.nvidia_proc import read_gpu_addresses
from gpuwarden_agent.sources.nvml_ledger import LedgerFile
from gpuwarden_agent.sources.nvml_pci import PciBus
from gpuwarden_agent.sources.pci_rails import PciRails
from gpuwarden_exporters.rules import GpuFacts
from gpuwarden_wire.events import GpuIdentity, Inventory
from gpuwarden_wire.readings import Reading, Unavailable


class ExporterGpus:
    """Keeps every GPU named since the start. Thread-safe: several exporters share one.

    A GPU that an exporter names no more is not lost for that: exporters drop GPUs until they are
    restarted (NVIDIA/dcgm-exporter#164). Another GPU in its slot has replaced it.
    """

    def __init__(
        self,
        bus: PciBus,
        rails: PciRails,
        ledger: LedgerFile,
        expected: int | None,
        proc_root: Path,
    ) -> None:
        self._bus = bus
        self._rails = rails
        self._file = ledger
        self._ledger = ledger.read()
        self._told = expected
        self._proc_root = proc_root
        self._lock = threading.Lock()
        self._gpus: dict[str, GpuFacts] = {}
        self._inventory: Inventory | None = None

    @classmethod
    def of(cls, context: CollectorContext) -> ExporterGpus:
        """As the settings want it."""
        nvml = context.nvml_settings
        return cls(
            PciBus(nvml.sys_root),
            PciRails(nvml.sys_root),
            # where NVML is read, its collector writes the ledger
            LedgerFile(
                None if context.settings.nvml else nvml.state_folder, writable=nvml.keeps_state
            ),
            nvml.gpus_expected,
            context.settings.proc_root,
        )

    def take(self, gpus: Mapping[str, GpuFacts]) -> tuple[Mapping[str, Reading], Inventory | None]:
        """Take the GPUs of one text.

        Returns:
            Readings of the node, and the inventory where it changed.
        """
        with self._lock:
            self._merge(gpus)
            on_pci = self._bus.count_gpus()
            counts = [len(self._gpus)]
            counts += [int(on_pci)] if isinstance(on_pci, float | int) else []
            expected = self._expected(max(counts))
            row: dict[str, Reading] = {
                "node_gpus_on_pci": on_pci,
                "node_gpus_expected": expected or Unavailable("none_seen_yet"),
            }
            whole = Inventory(
                gpus=self._identities(),
                gpus_expected=expected or None,
                gpus_expected_set=self._told is not None,
                gpus_elsewhere=self._bus.away,
            )
            changed, self._inventory = whole != self._inventory, whole
            return row, whole if changed else None

    def _expected(self, present: int) -> int:
        """The most ever seen here, or what the operator says, without those of other drivers."""
        away = self._bus.handed_over
        most = max(self._ledger.most, present + away) if self._told is None else self._told
        if most != self._ledger.most:
            self._ledger = msgspec.structs.replace(self._ledger, most=most)
            self._file.write(self._ledger)
        return max(0, most - away)

    def _merge(self, gpus: Mapping[str, GpuFacts]) -> None:
        if any(not self._address(uuid, facts) for uuid, facts in gpus.items()):
            addresses = read_gpu_addresses(self._proc_root)
            gpus = {
                uuid: facts.merged(GpuFacts(uuid, addresses.get(uuid, "")))
                for uuid, facts in gpus.items()
            }
        for uuid, facts in gpus.items():
            known = self._gpus.get(uuid)
            self._gpus[uuid] = facts.merged(known) if known else facts
        slots = {self._gpus[uuid].pci_bus_id: uuid for uuid in gpus}
        for uuid, facts in list(self._gpus.items()):
            if facts.pci_bus_id and slots.get(facts.pci_bus_id, uuid) != uuid:
                del self._gpus[uuid]  # another sits in its slot

    def _address(self, uuid: str, facts: GpuFacts) -> str:
        known = self._gpus.get(uuid)
        return facts.pci_bus_id or (known.pci_bus_id if known else "")

    def _identities(self) -> tuple[GpuIdentity, ...]:
        ordered = sorted(self._gpus.values(), key=lambda one: (one.pci_bus_id, one.gpu_uuid))
        rails = self._rails.nearest(one.pci_bus_id for one in ordered if one.pci_bus_id)
        return tuple(
            GpuIdentity(
                gpu_uuid=one.gpu_uuid,
                pci_bus_id=one.pci_bus_id,
                serial=one.serial,
                index=one.index,
                model=one.model,
                driver_version=one.driver_version,
                vbios_version=one.vbios_version,
                nics=rails.get(one.pci_bus_id, ()),
            )
            for one in ordered
        )

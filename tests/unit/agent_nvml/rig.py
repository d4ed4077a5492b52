"""The NVML collector with everything around it in the test's hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_agent.collectors.nvml import NvmlCollector
from gpuwarden_agent.sources.nvml import NvmlProbe, NvmlSettings
from gpuwarden_agent.sources.nvml_frames import GpuAnswer
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading
from tests.builders.nvml import pci_bus
from tests.unit.agent_nvml.fake_probe import FakeProbe

SLOTS = ("0000:1b:00.0", "0000:43:00.0")


def bus_of(root: Path, slots: tuple[str, ...]) -> Path:
    """The bus in a folder, made where it is not there yet."""
    return root if root.exists() else pci_bus(root, slots)


def gpu(number: int, code: int = 0) -> GpuAnswer:
    return GpuAnswer(
        uuid=f"GPU-{number}",
        pci_bus_id=SLOTS[number],
        index=number,
        model="NVIDIA H100 80GB HBM3",
        code=code,
        values={} if code else {"gpu_power_watts": 300.0},
    )


class Rig:
    """A collector over a fake probe, a folder as sysfs, and a clock in the test's hand.

    A second one over the same folder is the agent started again.
    """

    def __init__(self, folder: Path, slots: tuple[str, ...] = SLOTS, **settings: object) -> None:
        self.sys_root = folder / "sys"
        self.probe = FakeProbe()
        self.clock = 100.0
        self.count = 0
        facts = {"boot_id": "boot-1", "sys_root": bus_of(self.sys_root, slots), **settings}
        self.collector = NvmlCollector(
            self.typed_probe(),
            NvmlSettings(**facts),  # type: ignore[arg-type]  # a test's keyword arguments
            clock=lambda: self.clock,
            counter=self.next_count,
        )

    def typed_probe(self) -> NvmlProbe:
        return self.probe

    def next_count(self) -> int:
        self.count += 1
        return self.count

    def collect(self) -> Harvest:
        self.clock += 5.0
        return self.collector.collect(1000.0 + self.clock)

    def bind(self, number: int, driver: str) -> None:
        """Bind a GPU to a driver; "" unbinds it."""
        link = (self.sys_root / "bus/pci/devices" / SLOTS[number]).resolve() / "driver"
        link.unlink(missing_ok=True)
        if driver:
            (self.sys_root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.sys_root / "bus/pci/drivers" / driver)

    def node(self, harvest: Harvest) -> Mapping[str, Reading]:
        return harvest.rows[EntityKind.NODE][""]

"""What /metrics looks at; `python -m tests.builders.own_metrics` writes the golden file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.inventory import InventoryKeeper
from gpuwarden_agent.latest import LatestReadings
from gpuwarden_agent.outbox import Outbox
from gpuwarden_agent.own_metrics import AgentMetrics, AgentParts
from gpuwarden_agent.precedence import SourceOrder
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.transport.answers import Fate
from gpuwarden_agent.transport.tally import DeliveryTally
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, GpuJob, Inventory, JobKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable
from tests.builders.agent import BOOT, origin

GOLDEN = Path(__file__).parents[1] / "fixtures" / "agent" / "own_metrics.txt"
NOW = 2_000_000_000.0
GPUS = (
    GpuIdentity(
        gpu_uuid="GPU-a",
        pci_bus_id="0000:1b:00.0",
        serial="1650",
        index=0,
        model="NVIDIA H100 80GB HBM3",
        driver_version="580.95.05",
    ),
    GpuIdentity(gpu_uuid="GPU-b", pci_bus_id="0000:43:00.0", index=1, model='odd "name"\\'),
)


class Rig:
    """Parts of an agent whose every number the test gives."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.spool = Spool(folder, origin(), 1_000_000, clock=lambda: NOW)
        self.outbox = Outbox(self.spool, lambda _: None)
        self.latest = LatestReadings()
        self.board = ConditionBoard(lambda _: None, BOOT, clock=lambda: NOW)
        self.inventory = InventoryKeeper(
            ["nvml"], BOOT, lambda _: None, lambda _: None, lambda *_: None
        )
        self.tally = DeliveryTally()
        self.intervals = {"nvml": 5.0, "host": 5.0, "smart": 300.0}
        self.metrics = AgentMetrics(
            AgentParts(
                node_id="node-1",
                boot_id=BOOT,
                interval_s=5.0,
                intervals=self.intervals,
                order=SourceOrder(self.intervals),
                latest=self.latest,
                board=self.board,
                outbox=self.outbox,
                inventory=self.inventory,
                spool=self.spool,
                tally=self.tally,
            ),
            clock=lambda: self.now,
        )

    def text(self) -> str:
        """The answer to a scrape."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self.metrics)
        return generate_latest(registry).decode()

    def took(self, collector: str, harvest: Harvest, at: float = NOW) -> None:
        """A good call of a collector."""
        self.latest.note_good(collector, harvest, at, 0.025)


def xid(number: int, code: int, *, entity: str = "", pci: str | None = None) -> Event:
    """An XID: of NVML with a uuid, of the kernel log with an address."""
    return Event(
        id=f"x:{number}",
        kind=EventKind.NVML_XID if entity else EventKind.KERNEL_LOG,
        observed_at=NOW - number,
        entity_kind=EntityKind.GPU,
        entity=entity,
        family="" if entity else "xid",
        xid=code,
        pci_bus_id=pci,
    )


def fill(rig: Rig) -> None:
    """A node with two GPUs, one of which does not support everything, and a past."""
    jobs = (GpuJob(gpu_uuid="GPU-a", kind=JobKind.SLURM, job_id="4711"),)
    labels = {"kernel_release": "6.1.0", "product_name": "DGX", "product_vendor": "NVIDIA"}
    rig.inventory.heard("nvml", Inventory(gpus=GPUS, jobs=jobs, labels=labels), NOW)
    gpu_rows: dict[str, dict[str, Reading]] = {
        "GPU-a": {
            "gpu_temperature_celsius": 41.0,
            "gpu_energy_joules_total": 123456789.125,
            "gpu_memory_temperature_celsius": NotSupported(),
            "gpu_power_watts": 350.5,
        },
        "GPU-b": {
            "gpu_temperature_celsius": Unavailable("gpu_is_lost"),
            "gpu_energy_joules_total": Stale(12.0),
            "gpu_memory_temperature_celsius": NotSupported(),
        },
    }
    rig.took("nvml", Harvest(rows={EntityKind.GPU: gpu_rows}))
    node: dict[str, Reading] = {
        "node_load1": 0.5,
        "node_invented": 3,
        "node_uptime_seconds": float("nan"),
    }
    rig.took("host", Harvest(rows={EntityKind.NODE: {"": node}}))
    rig.latest.note_failed("smart", 0.5)
    rig.latest.count("smart", "error")
    rig.board.trouble("smart", "permission_denied", "Give it CAP_SYS_ADMIN.")
    rig.outbox.emit(
        [
            xid(1, 79, pci="0000:1b:00.0"),
            xid(2, 79, pci="0000:1b:00.0"),
            xid(3, 79, entity="GPU-a"),
            xid(4, 31, pci="0000:ff:00.0"),
        ]
    )
    rig.tally.note(Stream.EVENTS, Fate.ACCEPTED)
    rig.tally.note(Stream.TELEMETRY, "unreachable")
    rig.tally.note_acknowledged(NOW - 3)


def golden() -> str:
    """The text that the golden file holds."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        fill(rig)
        text = rig.text()
        rig.spool.close()
        return text


if __name__ == "__main__":
    GOLDEN.write_text(golden())

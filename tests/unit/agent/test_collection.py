from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence

from gpuwarden_agent.collection import Collection
from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_agent.crew import Crew
from gpuwarden_agent.inventory import InventoryKeeper, merge
from gpuwarden_agent.latest import LatestReadings
from gpuwarden_agent.precedence import Precedence, SourceOrder
from gpuwarden_agent.sealing import Sealer
from gpuwarden_wire.batches import MissingKind, Table
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind, Storage
from gpuwarden_wire.readings import Unavailable
from gpuwarden_wire.schema import Schema
from gpuwarden_wire.tables import TableMaker, schema_of
from tests.builders.agent import BOOT, event
from tests.fakes.waiting import wait_for

GPU = GpuIdentity(gpu_uuid="GPU-1", pci_bus_id="0000:3b:00.0")


class Sealed:
    def __init__(self) -> None:
        self.batches: list[tuple[Sequence[Table], dict[str, Schema]]] = []

    def __call__(self, tables: Sequence[Table], schemas: Iterable[Schema]) -> None:
        self.batches.append((tables, {one.hash: one for one in schemas}))


class Rig:
    def __init__(self, *names: str, interval_s: float = 0.5) -> None:
        self.sealed = Sealed()
        self.events: list[Event] = []
        self.facts: dict[str, str] = {}
        self.sealer = Sealer(names, interval_s, self.sealed)
        self.latest = LatestReadings()
        inventory = InventoryKeeper(
            names, BOOT, self.events.extend, self.facts.get, self.facts.__setitem__
        )
        precedence = Precedence(SourceOrder(names), dict.fromkeys(names, interval_s))
        self.collection = Collection(
            self.latest, self.sealer, inventory, self.events.extend, precedence
        )
        self.crew = Crew([self.sealer])
        self.sealer.move(self.crew.wake)
        self.crew.start()

    def stop(self) -> None:
        self.crew.end()
        self.crew.await_idle(5)

    def wait(self, batches: int) -> None:
        wait_for(lambda: len(self.sealed.batches) >= batches)


def load(value: float) -> Harvest:
    return Harvest(rows={EntityKind.NODE: {"": {"node_load1": value}}})


def test_one_batch_holds_all_collectors_of_a_tick() -> None:
    rig = Rig("host", "nic", interval_s=60)
    nic = Harvest(rows={EntityKind.NIC: {"eth0": {"nic_carrier": 1}}})
    rig.collection.took("host", load(1), 1000.0, 0.1)
    assert rig.sealed.batches == []
    rig.collection.took("nic", nic, 1000.1, 0.1)
    rig.wait(1)
    tables, schemas = rig.sealed.batches[0]
    assert [table.observed_at for table in tables] == [1000.0, 1000.1]
    assert {table.schema for table in tables} == set(schemas)
    rig.stop()


def test_a_slow_collector_does_not_hold_the_others_back_for_long() -> None:
    rig = Rig("host", "nvml", interval_s=0.5)
    rig.collection.took("host", load(1), 1000.0, 0.1)
    rig.wait(1)
    assert len(rig.sealed.batches[0][0]) == 1
    rig.stop()


def test_a_failed_call_says_for_each_reading_why_it_is_missing() -> None:
    rig = Rig("host")
    rig.collection.took("host", load(1), 1000.0, 0.1)
    rig.wait(1)
    rig.collection.failed("host", "permission_denied", 1005.0, 0.1)
    rig.wait(2)
    table = rig.sealed.batches[1][0][0]
    assert math.isnan(memoryview(table.f32).cast("f")[0])
    assert [(cell.kind, cell.reason) for cell in table.missing] == [
        (MissingKind.UNAVAILABLE, "permission_denied")
    ]
    assert not rig.latest.records()["host"].current
    rig.stop()


def test_a_stuck_call_makes_its_readings_stale() -> None:
    rig = Rig("host")
    rig.collection.took("host", load(1), 1000.0, 0.1)
    rig.wait(1)
    rig.collection.stuck("host", 4.0, 1012.0)
    rig.wait(2)
    cell = rig.sealed.batches[1][0][0].missing[0]
    assert (cell.kind, cell.age_s) == (MissingKind.STALE, 12.0)
    rig.stop()


def test_a_collector_that_never_answered_adds_nothing() -> None:
    rig = Rig("host", "nic")
    rig.collection.failed("nic", "no_such_file", 1000.0, 0.1)
    rig.collection.took("host", load(1), 1000.0, 0.1)
    rig.wait(1)
    assert len(rig.sealed.batches[0][0]) == 1
    rig.stop()


def test_events_of_a_harvest_go_out_before_its_readings() -> None:
    rig = Rig("host")
    seen = threading.Event()
    rig.collection.took("host", Harvest(rows=load(1).rows, events=(event(1),)), 1000.0, 0.1)
    rig.wait(1)
    assert rig.events[0] == event(1)
    seen.set()
    rig.stop()


def test_the_inventory_goes_out_whole_once_all_were_heard_and_then_on_change() -> None:
    rig = Rig("nvml", "nic")
    rig.collection.took("nvml", Harvest(inventory=Inventory(gpus=(GPU,))), 1000.0, 0.1)
    assert rig.events == []
    rig.collection.took("nic", Harvest(inventory=Inventory(nics=("eth0",))), 1000.0, 0.1)
    rig.collection.took("nic", Harvest(), 1005.0, 0.1)
    rig.collection.took("nic", Harvest(inventory=Inventory(nics=("eth0", "eth1"))), 1010.0, 0.1)
    sent = [e.inventory for e in rig.events if e.kind is EventKind.INVENTORY]
    assert sent == [
        Inventory(gpus=(GPU,), nics=("eth0",)),
        Inventory(gpus=(GPU,), nics=("eth0", "eth1")),
    ]
    assert len({e.id for e in rig.events}) == 2
    rig.stop()


def test_a_collector_in_trouble_after_a_restart_does_not_make_its_devices_vanish() -> None:
    first = Rig("nvml", "nic")
    first.collection.took("nvml", Harvest(inventory=Inventory(gpus=(GPU,))), 1000.0, 0.1)
    first.stop()
    again = InventoryKeeper(
        ["nvml", "nic"], BOOT, first.events.extend, first.facts.get, first.facts.__setitem__
    )
    again.heard("nic", Inventory(nics=("eth0",)), 2000.0)
    again.heard("nvml", None, 2000.0)
    assert first.events[-1].inventory == Inventory(gpus=(GPU,), nics=("eth0",))


def test_shares_are_merged_field_by_field() -> None:
    whole = merge(
        [
            Inventory(gpus=(GPU,), gpus_expected=8),
            Inventory(labels={"a": "1"}),
            Inventory(labels={"b": "2"}, disks=("sda",)),
        ]
    )
    assert whole == Inventory(
        gpus=(GPU,), gpus_expected=8, disks=("sda",), labels={"a": "1", "b": "2"}
    )


def test_a_schema_stays_when_a_reading_comes_and_goes() -> None:
    maker = TableMaker()
    full = {EntityKind.NODE: {"": {"node_load1": 1.0, "node_uptime_seconds": 2.0}}}
    less = {EntityKind.NODE: {"": {"node_load1": 1.0}}}
    (first, _), (second, _) = (
        maker.tables("host", full, 1.0)[0],
        maker.tables("host", less, 2.0)[0],
    )
    assert first.schema == second.schema
    assert [cell.kind for cell in second.missing] == [MissingKind.NOT_SUPPORTED]


def test_f32_columns_stand_before_counters_and_strangers_have_a_column() -> None:
    names = ["node_interrupts_total", "node_load1", "node_invented", "node_invented_total"]
    columns = schema_of(EntityKind.NODE, names).columns
    assert [column.storage for column in columns] == [
        Storage.F32,
        Storage.F32,
        Storage.COUNTER,
        Storage.COUNTER,
    ]
    assert {column.name for column in columns} == set(names)


def test_rows_without_any_reading_make_no_table() -> None:
    assert TableMaker().tables("nic", {EntityKind.NIC: {}}, 1.0) == []
    rows = {EntityKind.NIC: {"eth0": {"nic_carrier": Unavailable("io_error")}}}
    assert len(TableMaker().tables("nic", rows, 1.0)) == 1


POWER = {EntityKind.GPU: {"GPU-a": {"gpu_power_watts": 300.0}}}


def test_what_a_native_source_has_is_not_sent_of_an_exporter_too() -> None:
    rig = Rig("nvml", "exporter_9400", interval_s=60)
    rig.collection.took("nvml", Harvest(rows=POWER), 1000.0, 0.1)
    rig.collection.took("exporter_9400", Harvest(rows=POWER), 1000.1, 0.1)
    rig.wait(1)
    tables, _ = rig.sealed.batches[0]
    assert len(tables) == 1


def test_an_exporter_stands_in_as_soon_as_the_native_source_fails() -> None:
    rig = Rig("nvml", "exporter_9400", interval_s=60)
    rig.collection.took("nvml", Harvest(rows=POWER), 1000.0, 0.1)
    rig.collection.failed("nvml", "nvml_child_exited", 1005.0, 0.1)
    rig.collection.took("exporter_9400", Harvest(rows=POWER), 1005.1, 0.1)
    rig.wait(1)
    table = rig.sealed.batches[0][0][-1]
    assert (table.entities, table.missing) == (("GPU-a",), ())


A, B = (
    GpuIdentity(gpu_uuid=f"GPU-{name}", pci_bus_id=f"0000:{bus}:00.0")
    for name, bus in (("a", "1b"), ("b", "43"))
)


def test_gpus_of_several_sources_stand_once_in_the_inventory_natives_first() -> None:
    named = GpuIdentity(gpu_uuid="GPU-a", pci_bus_id="0000:1b:00.0", model="H100")
    replaced = GpuIdentity(gpu_uuid="GPU-old", pci_bus_id="0000:43:00.0")
    rig = Rig("nvml", "exporter_9400", interval_s=60)
    rig.collection.took("exporter_9400", Harvest(inventory=Inventory(gpus=(A, replaced))), 1.0, 0.1)
    rig.collection.took("nvml", Harvest(inventory=Inventory(gpus=(named, B))), 2.0, 0.1)
    inventory = rig.events[-1].inventory
    assert inventory is not None
    assert inventory.gpus == (named, B)


def statements(rig: Rig) -> list[tuple[str, str]]:
    """(entity, metric) of every cell of the first batch."""
    tables, schemas = rig.sealed.batches[0]
    return [
        (entity, column.name)
        for table in tables
        for entity in table.entities
        for column in schemas[table.schema].columns
    ]


def test_no_cell_of_a_batch_speaks_of_what_another_source_has() -> None:
    rig = Rig("nvml", "exporter_9400", interval_s=60)
    exported = {"gpu_power_watts": 301.0, "gpu_temperature_celsius": 41.0}
    rows = {EntityKind.GPU: {"GPU-a": exported, "GPU-b": exported, "GPU-c": exported}}
    # GPU-c is the exporter's alone; GPU-b's power NVML does not have at all.
    native = {
        EntityKind.GPU: {
            "GPU-a": {"gpu_power_watts": 300.0, "gpu_pcie_link_width": 16.0},
            "GPU-b": {"gpu_pcie_link_width": 16.0},
        }
    }
    rig.collection.took("nvml", Harvest(rows=native), 1000.0, 0.1)
    rig.collection.took("exporter_9400", Harvest(rows=rows), 1000.1, 0.1)
    rig.wait(1)
    said = statements(rig)
    assert len(said) == len(set(said)) + 1  # NVML's first table, sent before the exporter answered
    assert ("GPU-a", "gpu_power_watts") in said
    rig.collection.took("nvml", Harvest(rows=native), 1005.0, 0.1)
    rig.collection.took("exporter_9400", Harvest(rows=rows), 1005.1, 0.1)
    rig.wait(2)
    rig.sealed.batches.pop(0)
    later = statements(rig)
    assert len(later) == len(set(later))
    assert set(later) == {
        ("GPU-a", "gpu_power_watts"),
        ("GPU-a", "gpu_pcie_link_width"),
        ("GPU-a", "gpu_temperature_celsius"),
        ("GPU-b", "gpu_pcie_link_width"),
        ("GPU-b", "gpu_power_watts"),
        ("GPU-b", "gpu_temperature_celsius"),
        ("GPU-c", "gpu_power_watts"),
        ("GPU-c", "gpu_temperature_celsius"),
    }


def test_what_is_left_at_the_end_is_sealed_and_a_seal_that_raises_is_not_the_last() -> None:
    rig = Rig("host", "nic", interval_s=60)
    rig.collection.took("host", load(1), 1000.0, 0.1)
    rig.stop()
    rig.sealer.finish()
    assert len(rig.sealed.batches) == 1

    def refuse(*_: object) -> None:
        raise RuntimeError

    raising = Sealer(["host"], 60, refuse)
    raising.add(
        "host", [(rig.sealed.batches[0][0][0], next(iter(rig.sealed.batches[0][1].values())))]
    )
    raising.take()
    assert raising.due == math.inf

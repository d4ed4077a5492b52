from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_agent.metric_budget import ENTITIES, SERIES_AN_ENTITY, XIDS_A_GPU, Budget
from gpuwarden_wire.events import GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from gpuwarden_wire.registry import METRICS
from tests.builders.own_metrics import GOLDEN, NOW, Rig, fill, golden, xid


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.spool.close()


def samples(text: str) -> Counter[str]:
    """Lines by name and labels; each may be there once."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return Counter(line.rpartition(" ")[0] for line in lines)


def test_the_output_is_the_golden_one() -> None:
    assert golden() == GOLDEN.read_text(), "python -m tests.builders.own_metrics writes it"


def test_every_series_is_there_once_and_has_our_prefix(rig: Rig) -> None:
    fill(rig)
    found = samples(rig.text())
    assert [name for name, count in found.items() if count > 1] == []
    assert [name for name in found if not name.startswith("gpuwarden_")] == []


def test_prometheus_can_read_it(rig: Rig) -> None:
    fill(rig)
    families = list(text_string_to_metric_families(rig.text()))
    assert len(families) > 20
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=rig.text(), capture_output=True, text=True, timeout=60
    )
    unit = re.compile(r"use base unit|should be used|abbreviated")
    complaints = [line for line in done.stderr.splitlines() if not unit.search(line)]
    assert complaints == [], done.stderr


def test_what_is_not_read_now_is_not_shown(rig: Rig) -> None:
    fill(rig)
    shown = "gpuwarden_gpu_temperature_celsius{"
    assert shown in rig.text()
    rig.now = NOW + 16.0  # past three intervals
    assert shown not in rig.text()
    rig.now = NOW
    rig.latest.note_failed("nvml", 0.1)
    text = rig.text()
    assert shown not in text
    # What it has is remembered, and why it is not shown can be seen.
    assert 'gpuwarden_metric_supported{metric="gpu_temperature_celsius",node="node-1"' in text
    assert 'gpuwarden_agent_collector_success{collector="nvml"} 0.0' in text


def test_a_slow_collector_is_shown_for_its_own_interval(rig: Rig) -> None:
    row: dict[str, Reading] = {"disk_invented": 1.0}
    rig.took("smart", Harvest(rows={EntityKind.DISK: {"nvme0n1": row}}), NOW - 600)
    assert 'gpuwarden_disk_invented{device="nvme0n1"' in rig.text()


def support(text: str, metric: str) -> float:
    line = next(line for line in text.splitlines() if f'_supported{{metric="{metric}"' in line)
    return float(line.split()[-1])


def test_support_is_explicit(rig: Rig) -> None:
    fill(rig)
    text = rig.text()
    assert support(text, "gpu_temperature_celsius") == 1.0
    assert support(text, "gpu_memory_temperature_celsius") == 0.0  # says not supported
    assert support(text, "gpu_sm_clock_hertz") == 0.0  # says nothing
    assert 'node="node-1",of="nic"' not in text  # no such entity at all
    why = (
        'gpuwarden_metric_missing_entities{metric="gpu_energy_joules_total",node="node-1",of="gpu"'
    )
    assert f'{why},why="stale"}} 1.0' in text


def crowded(rig: Rig, gpus: int, names: list[str]) -> None:
    rows = {f"GPU-{number:03d}": dict.fromkeys(names, 1.0) for number in range(gpus)}
    rig.took("nvml", Harvest(rows={EntityKind.GPU: rows}))


def test_a_full_node_stays_within_the_budget(rig: Rig) -> None:
    identities = tuple(
        GpuIdentity(gpu_uuid=f"GPU-{n:03d}", pci_bus_id=f"0000:{n:02x}:00.0") for n in range(8)
    )
    rig.inventory.heard("nvml", Inventory(gpus=identities), NOW)
    by_kind = {
        kind: [metric.name for metric in METRICS if metric.entity_kind is kind]
        for kind in EntityKind
    }
    crowded(rig, 8, by_kind[EntityKind.GPU] + [f"check_c{n}" for n in range(64)])
    for kind, count in ((EntityKind.NIC, 8), (EntityKind.DISK, 10), (EntityKind.MOUNT, 5)):
        rows = {f"{kind}{n}": dict.fromkeys(by_kind[kind], 1.0) for n in range(count)}
        rig.took(str(kind), Harvest(rows={kind: rows}))
        rig.intervals[str(kind)] = 5.0
    rig.outbox.emit(
        [xid(n, n % 200, entity=f"GPU-{n % 8:03d}") for n in range(1600)]
        + [xid(n, n % 200, pci=f"0000:{n % 8:02x}:00.0") for n in range(1600)]
    )
    found = samples(rig.text())
    for number in range(8):
        of_gpu = [name for name in found if f'"GPU-{number:03d}"' in name]
        assert 64 < len(of_gpu) <= 400
        assert sum("gpuwarden_xid" in name for name in of_gpu) == 2 * XIDS_A_GPU
    assert sum('device="nic0"' in name for name in found) <= 150
    assert sum('mount="mount0"' in name for name in found) <= 10
    per_node = [name for name in found if "metric_" in name]
    assert len(per_node) <= 4 * (len(METRICS) + 64)


def test_what_is_beyond_the_budget_is_left_out_in_a_fixed_order_and_counted() -> None:
    budget = Budget()
    names = [f"check_{number:04d}" for number in range(500)]
    rows: dict[str, dict[str, Reading]] = {"GPU-1": dict.fromkeys([*names, "gpu_power_watts"], 1.0)}
    (row,) = budget.rows(EntityKind.GPU, rows).values()
    assert next(iter(row)) == "gpu_power_watts"  # what we know goes before what we do not
    assert len(row) == SERIES_AN_ENTITY[EntityKind.GPU]
    assert budget.left_out[EntityKind.GPU] == 501 - len(row)
    many: dict[str, dict[str, Reading]] = {f"d{n:03d}": {"disk_x": 1.0} for n in range(100)}
    assert sorted(budget.rows(EntityKind.DISK, many)) == sorted(many)[: ENTITIES[EntityKind.DISK]]
    assert budget.left_out[EntityKind.DISK] == 100 - ENTITIES[EntityKind.DISK]


def test_codes_that_two_sources_name_differently_make_no_series_twice(rig: Rig) -> None:
    rig.inventory.heard(
        "nvml", Inventory(gpus=(GpuIdentity(gpu_uuid="GPU-a", pci_bus_id="0000:1b:00.0"),)), NOW
    )
    # The same source by uuid and by address, as with two versions of an exporter.
    lines = [xid(1, 79, pci="0000:1b:00.0"), xid(5, 79, entity="GPU-a")]
    rig.outbox.emit(lines)
    found = samples(rig.text())
    assert max(found.values()) == 1
    joined = 'gpu_uuid="GPU-a",node="node-1",pci_bus_id="0000:1b:00.0"'
    assert sum(f"gpuwarden_xid_events_total{{{joined}" in name for name in found) == 2


@pytest.mark.parametrize(
    "reading", [NotSupported(), Unavailable("io_error"), float("nan"), float("inf")]
)
def test_a_reading_that_is_none_is_never_a_number(rig: Rig, reading: Reading) -> None:
    rig.took("host", Harvest(rows={EntityKind.NODE: {"": {"node_load1": reading}}}))
    assert "gpuwarden_node_load1{" not in rig.text()

"""Readings through real pynvml over the compiled stub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from gpuwarden_wire.registry import metrics_of
from tests.builders import nvml
from tests.builders.nvml import NodeScenario, StubbedNode, stubbed_node
from tests.builders.nvml_numbers import GIB

Start = Callable[..., StubbedNode]
GPU_METRICS = {metric.name for metric in metrics_of(EntityKind.GPU)}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    started: list[StubbedNode] = []

    def begin(node: NodeScenario, **settings: Any) -> StubbedNode:
        started.append(stubbed_node(tmp_path, monkeypatch, node, **settings))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def row_of(node: StubbedNode, number: int = 0) -> dict[str, Reading]:
    gpus = node.collect().rows[EntityKind.GPU]
    return dict(gpus[node.scenario.node.gpu(number).uuid])


@pytest.mark.parametrize(
    ("scenario", "absent", "expected"),
    [
        (
            nvml.a100_node,
            {"gpu_recovery_action", "gpu_thermal_slowdown_seconds_total", "gpu_fabric_state"},
            {"gpu_power_watts": 312.5, "gpu_sm_clock_hertz": 1.41e9, "gpu_nvlinks_active": 12.0},
        ),
        (
            nvml.h100_node,
            {
                "gpu_c2c_links",
                "gpu_nvlink_symbol_ber_ratio",
                "gpu_mig_devices",
                "gpu_fabric_health",
            },
            {
                "gpu_power_watts": 648.125,
                "gpu_recovery_action": 0.0,
                "gpu_nvlinks_active": 18.0,
                "gpu_slowdown_margin_celsius": -2.0,
                "gpu_fabric_state": 3.0,
                "gpu_fabric_route_unhealthy": 0.0,
                "gpu_nvlink_transmitted_bytes_total": 5_000_000 * 1024.0,
            },
        ),
        (
            nvml.b200_node,
            {"gpu_nvlink_errors_total", "gpu_nvlink_ecc_errors_total", "gpu_c2c_links"},
            {
                "gpu_memory_total_bytes": float(180 * GIB),
                "gpu_nvlinks_active": 18.0,
                "gpu_nvlink_symbol_ber_ratio": 5e-12,
                "gpu_nvlink_speed_min_bytes_per_second": 53_125e6,
                "gpu_nvlink_transmitted_bytes_total": 18 * 4e9,
                "gpu_fabric_health": 1.0,
            },
        ),
        (
            nvml.gb200_node,
            {"gpu_bar1_used_bytes", "gpu_fan_speed_ratio"},
            {"gpu_c2c_links": 5.0, "gpu_c2c_links_active": 5.0, "gpu_module_power_watts": 1480.0},
        ),
        (
            nvml.l40s_node,
            {"gpu_nvlinks_active", "gpu_nvlinks_inactive", "gpu_nvlink_errors_total"}
            | {"gpu_memory_temperature_celsius", "gpu_recovery_action", "gpu_mig_mode"},
            {"gpu_temperature_celsius": 41.0, "gpu_pcie_link_width": 16.0},
        ),
        (
            nvml.mig_node,
            {"gpu_utilization_ratio", "gpu_memory_utilization_ratio"},
            {"gpu_mig_mode": 1.0, "gpu_mig_devices": 7.0, "gpu_power_watts": 648.125},
        ),
    ],
    ids=["A100", "H100", "B200", "GB200", "L40S", "MIG"],
)
def test_each_model_gives_numbers_or_says_what_it_does_not_have(
    start: Start,
    scenario: Callable[[], NodeScenario],
    absent: set[str],
    expected: dict[str, float],
) -> None:
    node = start(scenario())
    harvest = node.collect()
    rows = harvest.rows[EntityKind.GPU]
    assert set(rows) == {gpu.uuid for gpu in node.scenario.node.gpus}
    for row in rows.values():
        assert set(row) == GPU_METRICS
        assert {name for name in absent if row[name] != NotSupported()} == set()
        assert not any(isinstance(value, Unavailable) for value in row.values())
        assert {name: row[name] for name in expected} == expected
    assert harvest.inventory is not None
    first = harvest.inventory.gpus[0]
    wanted = node.scenario.node.gpu(0)
    assert (first.model, first.serial, first.pci_bus_id) == (wanted.name, wanted.serial, wanted.pci)
    driver = node.scenario.node.driver
    assert (first.vbios_version, first.driver_version) == (wanted.vbios, driver)


def test_units_are_the_registrys(start: Start) -> None:
    scenario = nvml.h100_node(1)
    gpu = scenario.gpu(0)
    gpu.set("power_mw", 123_456)
    gpu.set("energy_mj", 9_007_199_254_740)
    gpu.set("field_270", 2_500_000_000)
    gpu.set("clock_memory_mhz", 2619)
    gpu.set("utilization_gpu", 50)
    row = row_of(start(scenario))
    assert row["gpu_power_watts"] == pytest.approx(123.456)
    assert row["gpu_energy_joules_total"] == pytest.approx(9_007_199_254.740)
    assert row["gpu_thermal_slowdown_seconds_total"] == pytest.approx(2.5)
    assert row["gpu_memory_clock_hertz"] == 2619e6
    assert row["gpu_utilization_ratio"] == 0.5


def test_counters_grow_between_polls(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).set("ecc_corrected_volatile", 1000, gain_per_s=500)
    node = start(scenario)
    began = time.monotonic()
    first = row_of(node)["gpu_ecc_corrected_volatile_total"]
    time.sleep(0.2)
    second = row_of(node)["gpu_ecc_corrected_volatile_total"]
    assert isinstance(first, float)
    assert isinstance(second, float)
    assert 100 <= second - first <= 500 * (time.monotonic() - began) + 1


def test_a_code_becomes_its_reason_and_leaves_the_other_readings(start: Start) -> None:
    scenario = nvml.h100_node(2)
    scenario.gpu(0).rules += [
        "fail nvmlDeviceGetPowerUsage 999",
        "fail nvmlDeviceGetTotalEccErrors 4",
        "fail field_82 10",
        "fail field_165 27",
    ]
    node = start(scenario)
    row = row_of(node, 0)
    assert row["gpu_power_watts"] == Unavailable("unknown_error")
    assert row["gpu_ecc_uncorrected_aggregate_total"] == Unavailable("no_permission")
    assert row["gpu_memory_temperature_celsius"] == Unavailable("timeout")
    assert row["gpu_nvlinks_active"] == Unavailable("not_ready")
    assert row["gpu_temperature_celsius"] == 41.0
    assert row_of(node, 1)["gpu_power_watts"] == 648.125


def test_nvmls_not_available_is_no_number(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).set("power_mw", 0xFFFFFFFF)
    assert row_of(start(scenario))["gpu_power_watts"] == Unavailable("no_reading")


def test_what_a_gpu_does_not_have_is_remembered_until_it_comes_back_from_a_reset(
    start: Start,
) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).rules = ["unsupported nvmlDeviceGetPowerUsage", "unsupported field_82"]
    node = start(scenario)
    assert row_of(node)["gpu_power_watts"] == NotSupported()
    node.scenario.change(lambda n: n.gpu(0).rules.clear())
    assert row_of(node)["gpu_power_watts"] == NotSupported()
    node.scenario.change(lambda n: n.gpu(0).lose())
    assert row_of(node)["gpu_power_watts"] == NotSupported()
    node.scenario.change(lambda n: n.gpu(0).restore())
    row = row_of(node)
    assert row["gpu_power_watts"] == 648.125
    assert row["gpu_memory_temperature_celsius"] == 52.0


def test_links_that_go_down_are_counted_and_their_errors_are_kept(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).set("link_crc_flit_errors", 5)
    node = start(scenario)
    assert row_of(node)["gpu_nvlink_errors_total"] == 90.0
    node.scenario.change(lambda n: n.gpu(0).links_down.update({3, 4}))
    row = row_of(node)
    assert (row["gpu_nvlinks_active"], row["gpu_nvlinks_inactive"]) == (16.0, 2.0)
    assert row["gpu_nvlink_errors_total"] == 90.0


def test_without_the_fields_of_a_link_the_calls_are_asked(start: Start) -> None:
    scenario = nvml.a100_node(1)
    scenario.gpu(0).set("link_replays", 2)
    scenario.gpu(0).links_down.add(5)
    row = row_of(start(scenario))
    assert (row["gpu_nvlinks_active"], row["gpu_nvlinks_inactive"]) == (11.0, 1.0)
    assert (row["gpu_nvlink_dl_replays_total"], row["gpu_nvlink_errors_total"]) == (22.0, 22.0)


def test_the_worst_link_speaks_for_a_ratio_and_all_for_a_count(start: Start) -> None:
    scenario = nvml.b200_node(1)
    gpu = scenario.gpu(0)
    gpu.set("field_222.7", 0x09_07)
    gpu.set("field_164.7", 26_562)
    gpu.set("field_214.7", 2)
    gpu.set("field_214.8", 1)
    row = row_of(start(scenario))
    assert row["gpu_nvlink_symbol_ber_ratio"] == pytest.approx(9e-7)
    assert row["gpu_nvlink_speed_min_bytes_per_second"] == 26_562e6
    assert row["gpu_nvlink_recoveries_failed_total"] == 3.0


def test_a_lost_gpu_is_told_and_the_others_go_on(start: Start) -> None:
    node = start(nvml.h100_node())
    node.collect()
    node.scenario.change(lambda n: n.gpu(3).lose())
    uuid = node.scenario.node.gpu(3).uuid
    kinds = []
    for _ in range(3):
        harvest = node.collect()
        kinds.append([(event.kind, event.entity) for event in harvest.events])
    lost = (EventKind.GPU_LOST, uuid)
    assert kinds == [[lost], [lost], []]
    rows = harvest.rows[EntityKind.GPU]
    assert rows[uuid]["gpu_present"] == 0.0
    assert rows[uuid]["gpu_power_watts"] == Unavailable("gpu_is_lost")
    others = [row for key, row in rows.items() if key != uuid]
    assert all(row["gpu_power_watts"] == 648.125 for row in others)
    node.scenario.change(lambda n: n.gpu(3).restore())
    later = [[event.kind for event in node.collect().events] for _ in range(3)]
    assert later == [[EventKind.GPU_BACK], [EventKind.CHECK_PASSED], []]


def test_a_loss_in_the_middle_of_a_probe_is_a_loss(start: Start) -> None:
    node = start(nvml.h100_node(2))
    node.collect()
    node.scenario.change(lambda n: n.gpu(0).rules.append("fail nvmlDeviceGetFieldValues 15"))
    harvest = node.collect()
    assert [event.kind for event in harvest.events] == [EventKind.GPU_LOST]
    uuid = node.scenario.node.gpu(0).uuid
    assert harvest.rows[EntityKind.GPU][uuid]["gpu_power_watts"] == Unavailable("gpu_is_lost")


def test_a_gpu_that_is_gone_shifts_no_identity(start: Start) -> None:
    scenario = nvml.h100_node()
    for number, gpu in enumerate(scenario.gpus):
        gpu.set("temperature", 40 + number)
    node = start(scenario)
    node.collect()
    node.scenario.change(lambda n: n.gpu(2).remove())
    harvest = node.collect()
    rows = harvest.rows[EntityKind.GPU]
    for number, gpu in enumerate(scenario.gpus):
        expected = Unavailable("not_found") if number == 2 else 40.0 + number
        assert rows[gpu.uuid]["gpu_temperature_celsius"] == expected
    assert rows[scenario.gpu(2).uuid]["gpu_present"] == 0.0
    assert [event.entity for event in harvest.events] == [scenario.gpu(2).uuid]
    counts = harvest.rows[EntityKind.NODE][""]
    assert (counts["node_gpus_visible"], counts["node_gpus_expected"]) == (7.0, 8)


def test_a_pending_remap_that_a_reset_clears_is_a_passed_check(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).set("remap_pending", 1)
    scenario.gpu(0).set("field_230", 1)
    node = start(scenario)
    assert row_of(node)["gpu_row_remap_pending"] == 1.0
    scenario.gpu(0).set("remap_pending", 0)
    scenario.gpu(0).set("field_230", 0)
    node.scenario.write()
    assert node.collect().events == ()
    (check,) = node.collect().events
    assert check.kind is EventKind.CHECK_PASSED
    assert check.attributes == {"after": ["recovery_action", "row_remap_pending"], "probes": 2}


def test_a_driver_that_lacks_the_newer_calls_is_asked_the_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = stubbed_node(tmp_path, monkeypatch, nvml.a100_node(1), old_driver=True)
    row = row_of(node)
    node.close()
    assert row["gpu_temperature_celsius"] == 41.0
    assert row["gpu_clock_event_reasons"] == 0.0


def test_the_library_can_be_named_by_path(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start(nvml.l40s_node(1), library_path=nvml.stub_library())
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert row_of(node)["gpu_power_watts"] == 287.0


LOOK_AROUND = """
import json, pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByUUID({uuid!r})
pci = n.nvmlDeviceGetPciInfo(gpu)
memory = n.nvmlDeviceGetMemoryInfo(gpu)
fields = n.nvmlDeviceGetFieldValues(gpu, [82, 230, 9999])
facts = dict(
    index=n.nvmlDeviceGetIndex(gpu), bus=pci.busId, legacy=pci.busIdLegacy,
    driver=n.nvmlSystemGetDriverVersion(), nvml=n.nvmlSystemGetNVMLVersion(),
    free=memory.total - memory.used - memory.free,
    codes=[f.nvmlReturn for f in fields], types=n.nvmlDeviceGetSupportedEventTypes(gpu),
)
n.nvmlShutdown()
try:
    n.nvmlDeviceGetCount()
except n.NVMLError_Uninitialized:
    facts["after"] = "uninitialized"
print(json.dumps(facts))
"""


def test_the_stub_satisfies_pynvml_beyond_what_the_agent_asks(tmp_path: Path) -> None:
    scenario = nvml.ScenarioFile(tmp_path / "scenario", nvml.h100_node())
    environment = os.environ | nvml.stub_environment(scenario.path)
    script = LOOK_AROUND.format(uuid=scenario.node.gpu(4).uuid)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "index": 4,
        "bus": "00000000:9D:00.0",
        "legacy": "0000:9D:00.0",
        "driver": "580.95.05",
        "nvml": "13.580.95.05",
        "free": 0,
        "codes": [0, 0, 3],
        "types": 0xFF1F,  # XIDs, and the newer ones that announce a fault
        "after": "uninitialized",
    }
    assert done.stderr == ""


def test_gpm_is_sampled_where_it_is_switched_on(start: Start) -> None:
    scenario = nvml.h100_node(1)
    for number, percent in ((1, 90), (2, 75), (5, 40), (10, 20)):
        scenario.gpu(0).set(f"gpm_{number}", percent)
    node = start(scenario, gpm_interval_s=0.01)
    nvml.wait_until(lambda: row_of(node)["gpu_sm_active_ratio"] == 0.75)
    assert row_of(node)["gpu_dram_active_ratio"] == 0.2

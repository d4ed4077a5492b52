"""Exporters on the node as a source, over real HTTP."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import CollectorError, Harvest
from gpuwarden_agent.collectors.exporter import ExporterCollector, build_exporters
from gpuwarden_agent.config import AgentSettings, load_settings
from gpuwarden_agent.once import collect_once
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_exporters.memory import FROZEN_AFTER_S
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Stale, Unavailable
from tests.builders import nvml
from tests.builders.agent import BOOT, agent_settings, origin, running
from tests.builders.dcgm import OTHER_UUID, UUID, DcgmGpu, dcgm_text
from tests.builders.nvml import GpuScenario, stubbed_node
from tests.fakes.exporter_server import FakeExporter, free_url, serving
from tests.fakes.waiting import wait_for

TEMPERATURE: dict[str, float | str] = {"DCGM_FI_DEV_GPU_TEMP": 41}


class Board:
    """Conditions as they were told."""

    def __init__(self) -> None:
        self.troubles: dict[str, tuple[str, str]] = {}

    def trouble(self, source: str, reason: str, mend: str = "", *, renew: bool = False) -> None:
        self.troubles[source] = (reason, mend)

    def fine(self, source: str) -> None:
        self.troubles.pop(source, None)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Node:
    """A node whose exporters are read by hand."""

    def __init__(self, folder: Path, *urls: str, **flags: object) -> None:
        written = {
            "exporters": ",".join(urls),
            "nvml": "off",
            "exporter_deadline_s": "30",
            "sys_root": str(folder / "sys"),
            "proc_root": str(folder / "proc"),
            "verdict_file": str(folder / "run" / "verdict.json"),
        }
        settings = load_settings({}, written | {name: str(value) for name, value in flags.items()})
        self.board = Board()
        self.told: dict[tuple[str, int, str], tuple[int, float]] = {}
        self.spool = Spool(folder / "spool", origin(), settings.spool_cap_bytes)
        context = CollectorContext(
            settings,
            BOOT,
            0.0,
            self.spool_positions(),
            None,
            conditions=self.board,
            known_xids=lambda: self.told,
        )
        self.collectors = build_exporters(context)

    def spool_positions(self) -> Any:
        return None  # no exporter keeps a position

    @property
    def one(self) -> ExporterCollector:
        collector = self.collectors[0]
        assert isinstance(collector, ExporterCollector)
        return collector

    def collect(self, now: float = 1000.0) -> Harvest:
        return self.one.collect(now)

    def failure(self) -> CollectorError:
        with pytest.raises(CollectorError) as caught:
            self.collect()
        assert caught.value.mend
        return caught.value

    def close(self) -> None:
        for collector in self.collectors:
            collector.close()
        self.spool.close()


@contextmanager
def node_of(folder: Path, *urls: str, **flags: object) -> Iterator[Node]:
    node = Node(folder, *urls, **flags)
    try:
        yield node
    finally:
        node.close()


# What the stub has of some parts only: its number, DCGM's field; both in the same unit.
ALIKE = {
    "temperature_shutdown": "SHUTDOWN_TEMP",
    "performance_state": "PSTATE",
    "persistence_mode": "PERSISTENCE_MODE",
    "ecc_mode": "ECC_CURRENT",
    "ecc_mode_pending": "ECC_PENDING",
    "mig_mode": "MIG_MODE",
    "remap_banks_max": "BANKS_REMAP_ROWS_AVAIL_MAX",
    "remap_banks_low": "BANKS_REMAP_ROWS_AVAIL_LOW",
    "field_11": "ECC_SBE_VOL_DEV",
    "field_23": "ECC_DBE_AGG_DEV",
    "field_74": "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
    "field_75": "THERMAL_VIOLATION",
    "field_77": "BOARD_LIMIT_VIOLATION",
    "field_79": "RELIABILITY_VIOLATION",
    "field_173": "PCIE_COUNT_CORRECTABLE_ERRORS",
}


def dcgm_of(gpu: GpuScenario, index: int) -> DcgmGpu:
    """The GPU of the NVML stub as DCGM shows it: each number in DCGM's unit."""
    raw = {name: value for name, (value, _) in gpu.numbers.items()}
    mebi = 1024**2
    numbers: dict[str, float | str] = {
        "DCGM_FI_DEV_GPU_TEMP": int(raw["temperature"]),
        "DCGM_FI_DEV_MEMORY_TEMP": int(raw["field_82"]),
        "DCGM_FI_DEV_SLOWDOWN_TEMP": int(raw["temperature_slowdown"]),
        "DCGM_FI_DEV_POWER_USAGE": f"{raw['power_mw'] / 1000:.6f}",
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": f"{raw['power_limit_mw'] / 1000:.6f}",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": int(raw["energy_mj"]),
        "DCGM_FI_DEV_SM_CLOCK": int(raw["clock_sm_mhz"]),
        "DCGM_FI_DEV_MEM_CLOCK": int(raw["clock_memory_mhz"]),
        "DCGM_FI_DEV_MAX_SM_CLOCK": int(raw["clock_sm_max_mhz"]),
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": int(raw["clock_event_reasons"]),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": int(raw["field_270"]),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": int(raw["field_271"]),
        "DCGM_FI_DEV_GPU_UTIL": int(raw["utilization_gpu"]),
        "DCGM_FI_DEV_MEM_COPY_UTIL": int(raw["utilization_memory"]),
        "DCGM_FI_DEV_FB_USED": int(raw["memory_used"] / mebi),
        "DCGM_FI_DEV_FB_TOTAL": int(raw["memory_total"] / mebi),
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": int(raw["ecc_corrected_volatile"]),
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": int(raw["ecc_uncorrected_volatile"]),
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": int(raw["ecc_corrected_aggregate"]),
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": int(raw["ecc_uncorrected_aggregate"]),
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": int(raw["remapped_corrected"]),
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": int(raw["remapped_uncorrected"]),
        "DCGM_FI_DEV_ROW_REMAP_PENDING": int(raw["remap_pending"]),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": int(raw["remap_failure"]),
        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": int(raw["field_230"]),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": int(raw["pcie_replays"]),
        "DCGM_FI_DEV_PCIE_LINK_GEN": int(raw["pcie_generation"]),
        "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": int(raw["pcie_generation_max"]),
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": int(raw["pcie_width"]),
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": int(raw["pcie_width_max"]),
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": gpu.links
        * int(raw["link_crc_flit_errors"]),
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": gpu.links * int(raw["link_replays"]),
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": gpu.links * int(raw["link_recoveries"]),
        "DCGM_FI_DEV_COUNT": 2,
    }
    numbers |= {
        f"DCGM_FI_DEV_{field}": int(raw[name]) for name, field in ALIKE.items() if name in raw
    }
    return DcgmGpu(
        uuid=gpu.uuid,
        index=index,
        pci=f"0000{gpu.pci.upper()}",
        model=gpu.name,
        numbers=numbers,
        links={link: int(link not in gpu.links_down) for link in range(gpu.links)},
    )


@pytest.mark.parametrize("new", [False, True], ids=["before DCGM 4.6", "since"])
def test_dcgm_text_gives_what_nvml_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    scenario = nvml.h100_node(2)
    for number, (name, value) in enumerate(
        {"pcie_replays": 7, "remap_pending": 1, "field_230": 2, "field_270": 4.5e9}.items()
    ):
        scenario.gpu(number % 2).set(name, value)
    scenario.gpu(0).set("link_replays", 3)
    scenario.gpu(1).links_down = {4, 5}
    stub = stubbed_node(tmp_path, monkeypatch, scenario)
    try:
        native = stub.collect()
    finally:
        stub.close()
    gpus = [dcgm_of(gpu, number) for number, gpu in enumerate(scenario.gpus)]
    with (
        serving(FakeExporter(dcgm_text(gpus, new=new))) as exporter,
        node_of(tmp_path, f"dcgm={exporter.url}") as node,
    ):
        harvest = node.collect()
    for gpu in scenario.gpus:
        mine, theirs = (h.rows[EntityKind.GPU][gpu.uuid] for h in (native, harvest))
        shared = {metric: mine.get(metric) for metric in theirs}
        assert shared == pytest.approx(theirs, rel=1e-9)
        assert len(shared) >= 33
    visible = harvest.rows[EntityKind.NODE][""]["node_gpus_visible"]
    assert visible == native.rows[EntityKind.NODE][""]["node_gpus_visible"] == 2
    told, seen = native.inventory, harvest.inventory
    assert told is not None
    assert seen is not None
    facts = ("gpu_uuid", "pci_bus_id", "index", "model", "driver_version")
    assert [[getattr(g, f) for f in facts] for g in seen.gpus] == [
        [getattr(g, f) for f in facts] for g in told.gpus
    ]


def test_an_exporter_that_has_not_collected_since_is_not_read_anew(tmp_path: Path) -> None:
    with (
        serving(FakeExporter(dcgm_text([DcgmGpu(numbers=TEMPERATURE)]))) as exporter,
        node_of(tmp_path, exporter.url) as node,
    ):
        first, second = node.collect(), node.collect(1015.0)
        assert first.rows[EntityKind.GPU] == second.rows[EntityKind.GPU]
        assert (first.inventory is None, second.inventory is None) == (False, True)
        assert (exporter.requests, exporter.connections) == (2, 1)


@pytest.mark.parametrize(
    ("exporter", "reason"),
    [
        (FakeExporter("nothing that we know 1\nup 1\n"), "no_known_series"),
        (FakeExporter("<html>", headers={"Content-Type": "text/html"}), "wrong_content_type"),
        (FakeExporter(code=500), "http_500"),
        (
            FakeExporter(
                dcgm_text([DcgmGpu(numbers=TEMPERATURE)])
                + dcgm_text([DcgmGpu(OTHER_UUID, numbers=TEMPERATURE)], host="node-2")
            ),
            "several_nodes_in_one_answer",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_cannot_be_used_is_own_trouble(
    tmp_path: Path, exporter: FakeExporter, reason: str
) -> None:
    with serving(exporter), node_of(tmp_path, exporter.url) as node:
        assert node.failure().reason == reason


def test_odd_lines_are_told_with_their_number_and_the_first_of_them(tmp_path: Path) -> None:
    good = dcgm_text([DcgmGpu(numbers=TEMPERATURE)])
    with (
        serving(FakeExporter(good + 'DCGM_FI_DEV_POWER_USAGE{UUID="GP\nx y z 1\n')) as exporter,
        node_of(tmp_path, exporter.url) as node,
    ):
        row = node.collect().rows[EntityKind.GPU][UUID]
        assert row["gpu_temperature_celsius"] == 41
        (source, (reason, mend)), *none = node.board.troubles.items()
        assert (source, reason, none) == (f"{node.one.name}_lines", "broken_lines", [])
        assert "2 lines" in mend
        assert 'DCGM_FI_DEV_POWER_USAGE{UUID="GP' in mend
        exporter.text = good + good.splitlines()[-1] + "\n"
        node.collect()
        assert node.board.troubles[source][0] == "duplicate_series"
        exporter.text = good
        node.collect()
        assert node.board.troubles == {}


def test_an_exporter_that_repeats_itself_gives_stale_readings(tmp_path: Path) -> None:
    numbers: dict[str, float | str] = {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5000,
        "DCGM_FI_DEV_GPU_TEMP": 41,
    }
    text = dcgm_text([DcgmGpu(numbers=numbers)])
    clock = Clock()
    with serving(FakeExporter(text)) as exporter, node_of(tmp_path, exporter.url) as node:
        parts = node.one._parts
        frozen = ExporterCollector("exporter_1", exporter.url, 15.0, 5.0, parts, clock)
        assert frozen.collect(1000.0).rows[EntityKind.GPU][UUID]["gpu_temperature_celsius"] == 41
        clock.now += FROZEN_AFTER_S + 1
        row = frozen.collect(1300.0).rows[EntityKind.GPU][UUID]
        assert set(row.values()) == {Stale(FROZEN_AFTER_S + 1)}


def xid_events(harvest: Harvest) -> list[Event]:
    return [event for event in harvest.events if event.kind is EventKind.NVML_XID]


def with_xid(code: int) -> str:
    return dcgm_text([DcgmGpu(numbers={**TEMPERATURE, "DCGM_FI_DEV_XID_ERRORS": code})])


def test_an_xid_is_an_event_when_it_comes_and_never_at_first_sight(tmp_path: Path) -> None:
    with serving(FakeExporter(with_xid(43))) as exporter, node_of(tmp_path, exporter.url) as node:
        assert xid_events(node.collect(1000.0)) == []
        exporter.text = with_xid(79)
        (event,) = xid_events(node.collect(1015.0))
        assert (event.entity, event.xid, event.pci_bus_id) == (UUID, 79, "0000:1b:00.0")
        assert (event.entity_kind, event.severity) == (EntityKind.GPU, "critical")
        assert (event.observed_at, event.attributes["late_by_s"]) == (1015.0, 15.0)
        assert xid_events(node.collect(1030.0)) == []


def test_an_xid_that_the_kernel_log_told_is_not_told_again(tmp_path: Path) -> None:
    with serving(FakeExporter(with_xid(0))) as exporter, node_of(tmp_path, exporter.url) as node:
        node.collect(1000.0)
        node.told = {("pci:0000:1b:00.0", 79, "kernel_log"): (1, 990.0)}
        exporter.text = with_xid(79)
        assert xid_events(node.collect(1015.0)) == []
        node.told = {(UUID, 48, "nvml"): (1, 500.0)}  # long before the last look: another one
        exporter.text = with_xid(48)
        assert len(xid_events(node.collect(1030.0))) == 1


def test_what_appears_after_a_gap_may_be_old(tmp_path: Path) -> None:
    quiet = dcgm_text([DcgmGpu(numbers=TEMPERATURE)])
    with serving(FakeExporter(quiet)) as exporter, node_of(tmp_path, exporter.url) as node:
        node.collect(1000.0)
        exporter.code = 503
        node.failure()
        exporter.code, exporter.text = 200, with_xid(79)
        assert xid_events(node.collect(1030.0)) == []


def test_a_slot_is_found_in_procfs_where_the_exporter_does_not_tell_it(tmp_path: Path) -> None:
    information = tmp_path / "proc/driver/nvidia/gpus/0000:07:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text(f"Model: \t\t NVIDIA A100\nGPU UUID: \t {UUID}\nDevice Minor: \t 0\n")
    text = f'all_smi_gpu_utilization{{gpu="NVIDIA A100",gpu_uuid="{UUID}",gpu_index="0"}} 30\n'
    with serving(FakeExporter(text)) as exporter, node_of(tmp_path, exporter.url) as node:
        inventory = node.collect().inventory
    assert inventory is not None
    assert [gpu.pci_bus_id for gpu in inventory.gpus] == ["0000:07:00.0"]


def test_a_gpu_that_an_exporter_names_no_more_stays_in_the_inventory(tmp_path: Path) -> None:
    both = [DcgmGpu(numbers=TEMPERATURE), DcgmGpu(OTHER_UUID, 1, "00000000:43:00.0")]
    both[1].numbers = TEMPERATURE
    with (
        serving(FakeExporter(dcgm_text(both))) as exporter,
        node_of(tmp_path, exporter.url) as node,
    ):
        node.collect(1000.0)
        exporter.text = dcgm_text(both[:1])
        harvest = node.collect(1015.0)
        assert harvest.inventory is None
        assert harvest.rows[EntityKind.GPU][OTHER_UUID] == {
            "gpu_temperature_celsius": Unavailable("not_in_exporter")
        }
        both[1].uuid = "GPU-aaaaaaaa-0000-4000-8000-000000000001"  # another GPU in its slot
        exporter.text = dcgm_text(both)
        inventory = node.collect(1030.0).inventory
        assert inventory is not None
        assert [gpu.gpu_uuid for gpu in inventory.gpus] == [UUID, both[1].uuid]
        assert inventory.gpus_expected == 2


def test_each_exporter_is_a_collector_named_after_its_port(tmp_path: Path) -> None:
    urls = ("http://127.0.0.1:9400", "node=http://127.0.0.1:9100", "http://127.0.0.1:9400/other")
    with node_of(tmp_path, *urls) as node:
        names = [one.name for one in node.collectors]
    assert names == ["exporter_9400", "exporter_9100", "exporter_9400_2"]


def test_a_token_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    flags = {"exporter_token_file": tmp_path / "token"}
    with (
        serving(FakeExporter(with_xid(0), token="s3cret")) as exporter,
        node_of(tmp_path, exporter.url, **flags) as node,
    ):
        assert node.failure().reason == "no_token"
        (tmp_path / "token").write_text("s3cret\n")
        assert node.collect().rows


TLS = Path(__file__).parents[1] / "fixtures" / "agent" / "tls"


def test_over_https_with_an_own_authority_and_a_client_certificate(tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(TLS / "ca.pem"))
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    flags = {
        "exporter_ca_file": TLS / "ca.pem",
        "exporter_cert_file": TLS / "client.pem",
        "exporter_cert_key_file": TLS / "client.key",
    }
    with serving(FakeExporter(with_xid(0)), context) as exporter:
        with node_of(tmp_path / "known", exporter.url, **flags) as node:
            assert node.collect().rows
            assert node.collect().rows
        with node_of(tmp_path / "unknown", exporter.url) as node:
            assert node.failure().reason == "tls_failed"
        assert exporter.requests == 2


def once(folder: Path, url: str, **flags: object) -> dict[tuple[str, str], Reading]:
    settings: AgentSettings = agent_settings(folder, exporters=url, **flags)
    readings = list(collect_once(settings).readings())
    found = {(entity, metric): reading for _, entity, metric, reading in readings}
    assert len(found) == len(readings)
    return found


def test_once_shows_each_reading_of_one_source(tmp_path: Path) -> None:
    load = "node_load1 4711\n" + dcgm_text([DcgmGpu(numbers=TEMPERATURE)])
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "loadavg").write_text("12.34 10.01 8.00 7/5121 88412\n")
    flags = {"proc_root": tmp_path / "proc", "sys_root": tmp_path / "sys"}
    with serving(FakeExporter(load)) as exporter:
        native = once(
            tmp_path, exporter.url, collectors="host,exporter_" + port(exporter.url), **flags
        )
        turned = once(tmp_path, exporter.url, exporter_first="node_load*", **flags)
    assert native["", "node_load1"] == 12.34
    assert native[UUID, "gpu_temperature_celsius"] == 41
    assert turned["", "node_load1"] == 4711


def port(url: str) -> str:
    return url.rpartition(":")[2].partition("/")[0]


def test_an_exporter_comes_goes_and_comes_back_beside_the_others(tmp_path: Path) -> None:
    text = dcgm_text([DcgmGpu(numbers=TEMPERATURE)])
    with serving(FakeExporter(text)) as exporter:
        name = f"exporter_{port(exporter.url)}"
        gone = free_url()
        settings = agent_settings(
            tmp_path,
            exporters=f"{exporter.url},{gone}",
            exporter_interval_s=0.2,
            exporter_deadline_s=1,
        )
        with running(settings) as agent:
            wait_for(lambda: agent.latest.records().get(name) is not None)
            assert wait_for(lambda: agent.inventory.present.gpus)[0].gpu_uuid == UUID
            absent = wait_for(lambda: agent.board.troubles().get(f"exporter_{port(gone)}"))
            assert absent.reason == "connection_refused"
            exporter.silent = True
            exporter.stop.clear()
            stuck = wait_for(lambda: agent.board.troubles().get(name))
            assert stuck.reason == "exporter_too_slow"
            host_at = agent.latest.read_at("host")
            wait_for(lambda: agent.latest.read_at("host") > host_at)
            ours = [one for one in threading.enumerate() if one.name.startswith("collect-")]
            assert len({one.name for one in ours}) == len(ours)
            exporter.stop.set()
            exporter.silent = False
            wait_for(lambda: name not in agent.board.troubles())

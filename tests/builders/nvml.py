"""GPU nodes for tests: the compiled NVML stub, scenarios for it, and a PCI bus in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_agent.collectors.nvml import NvmlCollector
from gpuwarden_agent.sources.nvml import NvmlSettings
from gpuwarden_agent.sources.nvml_process import NvmlProbeProcess

STUB_FOLDER = Path(__file__).resolve().parent.parent / "nvml_stub"
LIBRARY = "libnvidia-ml.so.1"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_LINK = ("-pthread", f"-Wl,-soname,{LIBRARY}")

GIB = 1024**3


@dataclass(slots=True)
class GpuScenario:
    """One GPU of a scenario. Numbers are (value, gain a second) in NVML's units."""

    name: str
    uuid: str
    serial: str
    pci: str
    vbios: str
    numbers: dict[str, tuple[float, float]]
    links: int = 0
    links_down: set[int] = field(default_factory=set)
    presence: str = "present"
    rules: list[str] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)

    def set(self, number: str, value: float, gain_per_s: float = 0.0) -> None:
        """Give a number."""
        self.numbers[number] = (value, gain_per_s)

    def lose(self) -> None:
        """Every call says that the GPU is lost."""
        self.presence = "lost"

    def remove(self) -> None:
        """The driver does not know the GPU."""
        self.presence = "absent"

    def restore(self) -> None:
        """There as ever."""
        self.presence = "present"

    def render(self) -> list[str]:
        """Lines of the scenario file."""
        identity = [
            f"uuid {self.uuid}",
            f"serial {self.serial}",
            f"pci {self.pci}",
            f"name {self.name}",
            f"vbios {self.vbios}",
            f"links {self.links}",
        ]
        numbers = [f"{name} {value!r} +{gain!r}" for name, (value, gain) in self.numbers.items()]
        down = [f"link_down {link}" for link in sorted(self.links_down)]
        presence = [] if self.presence == "present" else [self.presence]
        processes = [f"process {pid}" for pid in self.pids]
        return ["gpu", *identity, *numbers, *down, *processes, *presence, *self.rules]


@dataclass(slots=True)
class NodeScenario:
    """One node of a scenario."""

    gpus: list[GpuScenario] = field(default_factory=list)
    driver: str = "580.95.05"
    rules: list[str] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)

    def gpu(self, index: int) -> GpuScenario:
        """GPU by its number in the file."""
        return self.gpus[index]

    def raise_xid(self, gpu: int, xid: int) -> None:
        """Let NVML deliver an XID event."""
        self.events.append((gpu, xid))

    def render(self) -> str:
        """The scenario file."""
        lines = [f"driver {self.driver}", f"nvml 13.{self.driver}", *self.rules]
        for gpu in self.gpus:
            lines += gpu.render()
        lines += [f"event {n} {gpu} {xid}" for n, (gpu, xid) in enumerate(self.events, start=1)]
        return "\n".join(lines) + "\n"


@dataclass(slots=True)
class ScenarioFile:
    """A scenario on disk; every change replaces the file in one step."""

    path: Path
    node: NodeScenario

    def __post_init__(self) -> None:
        self.write()

    def write(self) -> None:
        """Write the scenario as it stands."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(self.node.render())
        fresh.replace(self.path)

    def change(self, edit: Callable[[NodeScenario], object]) -> None:
        """Edit the node and write it."""
        edit(self.node)
        self.write()


def stub_library(*, old_driver: bool = False) -> Path:
    """Path of the compiled stub, compiled once per content; skips the test where gcc is missing."""
    sources = sorted(STUB_FOLDER.glob("*.[ch]"))
    flags = (*_FLAGS, "-DOLD_DRIVER") if old_driver else _FLAGS
    digest = hashlib.sha256(" ".join(flags + _LINK).encode())
    for source in sources:
        digest.update(source.read_bytes())
    library = STUB_FOLDER / "build" / digest.hexdigest()[:16] / LIBRARY
    if library.exists():
        return library
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the NVML stub needs gcc: apt-get install gcc libc6-dev")
    library.parent.mkdir(parents=True, exist_ok=True)
    fresh = library.with_name(f"{LIBRARY}.{os.getpid()}")
    files = [str(source) for source in sources if source.suffix == ".c"]
    command = [compiler, *flags, *files, *_LINK, "-o", str(fresh)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"the NVML stub does not compile:\n{done.stderr}")
    fresh.replace(library)
    return library


def stub_environment(scenario: Path, *, old_driver: bool = False) -> dict[str, str]:
    """Variables under which a process, and its children, load the stub instead of a driver."""
    return {
        "LD_LIBRARY_PATH": str(stub_library(old_driver=old_driver).parent),
        "NVML_STUB_SCENARIO": str(scenario),
    }


def _gpu(name: str, number: int, pci: str, numbers: dict[str, float], links: int) -> GpuScenario:
    return GpuScenario(
        name=name,
        uuid=f"GPU-{number:08x}-5a1c-4c0e-9d8b-{_digits_of(name)}",
        serial=f"16{number:011d}",
        pci=pci,
        vbios="96.00.74.00.1A",
        numbers={key: (float(value), 0.0) for key, value in numbers.items()},
        links=links,
    )


def _digits_of(text: str) -> str:
    """Twelve hex digits that a text always gives."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Addresses as on HGX boards; what matters is that they differ and do not follow the index.
_SLOTS = (
    "0000:1b:00.0",
    "0000:43:00.0",
    "0000:52:00.0",
    "0000:61:00.0",
    "0000:9d:00.0",
    "0000:c3:00.0",
    "0000:d1:00.0",
    "0000:df:00.0",
)

_ECC = {
    "ecc_corrected_volatile": 0,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_aggregate": 12,
    "ecc_uncorrected_aggregate": 0,
}
_REMAP = {
    "remapped_corrected": 0,
    "remapped_uncorrected": 0,
    "remap_pending": 0,
    "remap_failure": 0,
}
_LINK_ERRORS = {"link_replays": 0, "link_recoveries": 0, "link_crc_flit_errors": 0}
_COMMON = {
    "temperature": 41,
    "clock_event_reasons": 0,
    "utilization_gpu": 97,
    "utilization_memory": 35,
    "energy_mj": 5_000_000_000,
    "pcie_replays": 0,
    "pcie_width": 16,
    "pcie_width_max": 16,
}

_MODES = {
    "performance_state": 0,
    "persistence_mode": 1,
    "ecc_mode": 1,
    "ecc_mode_pending": 1,
    "mig_mode": 0,
    "temperature_shutdown": 97,
}
_REMAP_BANKS = {
    "remap_banks_max": 640,
    "remap_banks_high": 0,
    "remap_banks_partial": 0,
    "remap_banks_low": 0,
    "remap_banks_none": 0,
}
_LIMITERS = {f"field_{number}": 0 for number in (75, 76, 77, 79)} | {"field_74": 61_000_000_000}
_BUS_ERRORS = {f"field_{number}": 0 for number in (95, 169, *range(173, 184))}
_DRAM = {f"field_{number}": 0 for number in (11, 12, 22, 23)}
_NVLINK_5 = {f"field_{number}": 0 for number in (*range(206, 216), 219, 221)} | {
    "field_220": 0xFFF,  # 15e-255: none measured
    "field_222": 0x20E,  # 2e-14
}

A100_NUMBERS: dict[str, float] = {
    **_COMMON,
    **_ECC,
    **_REMAP,
    **_LINK_ERRORS,
    **_MODES,
    **_REMAP_BANKS,
    **_LIMITERS,
    **_BUS_ERRORS,
    **_DRAM,
    "temperature_slowdown": 92,
    "power_mw": 312_500,
    "power_limit_default_mw": 400_000,
    "power_limit_mw": 400_000,
    "clock_sm_mhz": 1410,
    "clock_memory_mhz": 1593,
    "clock_sm_max_mhz": 1410,
    "memory_total": 80 * GIB,
    "memory_used": 61 * GIB,
    "memory_reserved": GIB,
    "clock_memory_max_mhz": 1593,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "field_82": 52,
}
H100_NUMBERS: dict[str, float] = {
    **A100_NUMBERS,
    "temperature_slowdown": 95,
    "temperature_margin": 46,
    "power_mw": 648_125,
    "field_186": 655_000,
    "power_limit_mw": 700_000,
    "power_limit_default_mw": 700_000,
    "clock_memory_max_mhz": 2619,
    "sram_parity": 0,
    "sram_secded": 0,
    "sram_corrected": 0,
    "sram_threshold_exceeded": 0,
    "channel_repair_pending": 0,
    "tpc_repair_pending": 0,
    "fabric_state": 3,
    "fabric_error_code": 0,
    "fabric_health_mask": 0b1010,
    "field_269": 0,
    "clock_sm_mhz": 1755,
    "clock_memory_mhz": 2619,
    "clock_sm_max_mhz": 1980,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "field_230": 0,
    "field_270": 0,
    "field_271": 0,
}
B200_NUMBERS: dict[str, float] = {
    **{key: value for key, value in H100_NUMBERS.items() if key not in _LINK_ERRORS},
    "power_mw": 921_000,
    "power_limit_mw": 1_000_000,
    "clock_sm_mhz": 1830,
    "clock_memory_mhz": 3996,
    "clock_sm_max_mhz": 1965,
    "memory_total": 180 * GIB,
    "memory_used": 142 * GIB,
    "power_limit_default_mw": 1_000_000,
    "field_258": 100,
    "field_301": 0,
    "field_302": 0,
    "memory_unrepairable": 0,
    **_NVLINK_5,
}
GB200_NUMBERS: dict[str, float] = {
    **B200_NUMBERS,
    "power_mw": 1_034_000,
    "power_limit_mw": 1_200_000,
    "power_limit_default_mw": 1_200_000,
    "memory_total": 186 * GIB,
    "field_170": 10,  # links to the Grace CPU
    "field_231": 0,
    "field_232": 0,
}
MIG_NUMBERS: dict[str, float] = {
    **{key: value for key, value in H100_NUMBERS.items() if not key.startswith("utilization")},
    "mig_mode": 1,
}
L40S_NUMBERS: dict[str, float] = {
    **{key: value for key, value in A100_NUMBERS.items() if key not in {*_LINK_ERRORS, "field_82"}},
    "power_mw": 287_000,
    "power_limit_mw": 350_000,
    "power_limit_default_mw": 350_000,
    "clock_memory_max_mhz": 9001,
    "clock_sm_mhz": 2520,
    "clock_memory_mhz": 9001,
    "clock_sm_max_mhz": 2520,
    "memory_total": 45 * GIB,
    "memory_used": 20 * GIB,
}


def _node(name: str, numbers: dict[str, float], count: int, links: int) -> NodeScenario:
    slots = _SLOTS[:count]
    return NodeScenario([_gpu(name, n, pci, numbers, links) for n, pci in enumerate(slots)])


def a100_node(count: int = 8) -> NodeScenario:
    """A100 SXM: 12 NVLinks; a driver branch without recovery action and slowdown times."""
    return _node("NVIDIA A100-SXM4-80GB", A100_NUMBERS, count, links=12)


def h100_node(count: int = 8) -> NodeScenario:
    """H100 SXM: 18 NVLinks, everything supported."""
    return _node("NVIDIA H100 80GB HBM3", H100_NUMBERS, count, links=18)


def b200_node(count: int = 8) -> NodeScenario:
    """B200: 18 NVLinks of generation 5, whose errors NVML no longer counts by that call."""
    return _node("NVIDIA B200", B200_NUMBERS, count, links=18)


def gb200_node(count: int = 4) -> NodeScenario:
    """GB200: a compute tray's GPUs, with links to the CPU."""
    return _node("NVIDIA GB200", GB200_NUMBERS, count, links=18)


def mig_node(count: int = 8) -> NodeScenario:
    """H100 in MIG mode: the whole GPU gives no utilisation (NVML API reference, multi-instance)."""
    return _node("NVIDIA H100 80GB HBM3", MIG_NUMBERS, count, links=18)


def l40s_node(count: int = 4) -> NodeScenario:
    """L40S: no NVLink, no HBM."""
    return _node("NVIDIA L40S", L40S_NUMBERS, count, links=0)


def pci_bus(sys_root: Path, gpus: Iterable[str], *, driver: str = "nvidia") -> Path:
    """A sysfs in a folder that shows these GPUs and a NIC on the PCI bus; returns its root."""
    devices = sys_root / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    for address in gpus:
        add_pci_device(sys_root, address, "0x10de", "0x030200", driver)
        for severity, name in (
            ("correctable", "COR"),
            ("nonfatal", "NONFATAL"),
            ("fatal", "FATAL"),
        ):
            (devices / address / f"aer_dev_{severity}").write_text(f"RxErr 0\nTOTAL_ERR_{name} 0\n")
    add_pci_device(sys_root, "0000:05:00.0", "0x15b3", "0x020700", "mlx5_core")
    return sys_root


def add_pci_device(
    sys_root: Path, address: str, vendor: str, device_class: str, driver: str
) -> None:
    """One device under a PCI root of its own bus number's upper digit."""
    root = sys_root / "devices" / f"pci0000:{address[5]}0"
    device = root / address
    device.mkdir(parents=True, exist_ok=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(device_class + "\n")
    (sys_root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(sys_root / "bus/pci/drivers" / driver)
    link = sys_root / "bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(device)


def child_pids() -> list[int]:
    """Process ids of the NVML children of this process."""
    found: list[int] = []
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"gpuwarden_agent.sources.nvml_child" in command:
                found.append(int(pid))
    return found


def is_running(pid: int) -> bool:
    """A process that has neither ended nor is waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for a condition; fails the test after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.01)


@dataclass(slots=True)
class StubbedNode:
    """A node of the stub with a real probe and collector over it."""

    scenario: ScenarioFile
    settings: NvmlSettings
    probe: NvmlProbeProcess
    collector: NvmlCollector

    def collect(self) -> Harvest:
        """One call of the collector."""
        return self.collector.collect(time.time())

    def close(self) -> None:
        """Release whatever hangs and end the child."""
        for pid in child_pids():
            os.kill(pid, signal.SIGCONT)
        for rules in (self.scenario.node.rules, *(gpu.rules for gpu in self.scenario.node.gpus)):
            rules.clear()
        self.scenario.write()
        self.collector.close()
        wait_until(lambda: not any(is_running(pid) for pid in child_pids()))


def stubbed_node(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    node: NodeScenario,
    *,
    old_driver: bool = False,
    **settings: Any,
) -> StubbedNode:
    """A node whose processes load the stub; `settings` are fields of NvmlSettings."""
    scenario = ScenarioFile(folder / "scenario", node)
    for name, value in stub_environment(scenario.path, old_driver=old_driver).items():
        monkeypatch.setenv(name, value)
    bus = pci_bus(folder / "sys", [gpu.pci for gpu in node.gpus])
    facts: dict[str, Any] = {
        "boot_id": "boot-1",
        "sys_root": bus,
        "restart_after_s": 0.1,
        **settings,
    }
    chosen = NvmlSettings(**facts)
    probe = NvmlProbeProcess(chosen)
    return StubbedNode(scenario, chosen, probe, NvmlCollector(probe, chosen))

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
from tests.builders.nvml_numbers import (
    A100_NUMBERS,
    B200_NUMBERS,
    GB200_NUMBERS,
    GIB,
    H100_NUMBERS,
    L40S_NUMBERS,
)

STUB_FOLDER = Path(__file__).resolve().parent.parent / "nvml_stub"
LIBRARY = "libnvidia-ml.so.1"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_LINK = ("-pthread", f"-Wl,-soname,{LIBRARY}")


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
    events: list[tuple[int, int, int]] = field(default_factory=list)

    def gpu(self, index: int) -> GpuScenario:
        """GPU by its number in the file."""
        return self.gpus[index]

    def raise_xid(self, gpu: int, xid: int) -> None:
        """Let NVML deliver an XID event."""
        self.events.append((gpu, xid, 8))

    def announce(self, gpu: int, event_type: int) -> None:
        """Let NVML deliver an event of another type, as nvml.h numbers them."""
        self.events.append((gpu, 0, event_type))

    def render(self) -> str:
        """The scenario file."""
        lines = [f"driver {self.driver}", f"nvml 13.{self.driver}", *self.rules]
        for gpu in self.gpus:
            lines += gpu.render()
        for number, (gpu_number, xid, event_type) in enumerate(self.events, start=1):
            lines.append(f"event {number} {gpu_number} {xid} {event_type}")
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


def _node(name: str, numbers: dict[str, float], count: int, links: int) -> NodeScenario:
    slots = _SLOTS[:count]
    return NodeScenario([_gpu(name, n, pci, numbers, links) for n, pci in enumerate(slots)])


def a100_node(count: int = 8) -> NodeScenario:
    """A100 SXM: 12 NVLinks; a driver branch without recovery action and slowdown times.

    It knows no field of an NVLink either, only the calls.
    """
    node = _node("NVIDIA A100-SXM4-80GB", A100_NUMBERS, count, links=12)
    node.driver = "470.256.02"
    node.rules += [f"fail field_{number} 2" for number in (161, 162, 163, 164, 165)]
    return node


def h100_node(count: int = 8) -> NodeScenario:
    """H100 SXM: 18 NVLinks, everything supported."""
    return _node("NVIDIA H100 80GB HBM3", H100_NUMBERS, count, links=18)


def b200_node(count: int = 8) -> NodeScenario:
    """B200: 18 NVLinks of generation 5, whose errors NVML no longer counts by that call."""
    return _node("NVIDIA B200", B200_NUMBERS, count, links=18)


def gb200_node(count: int = 4) -> NodeScenario:
    """GB200: the tray's GPUs of an NVL72, linked to their CPUs chip to chip, without a BAR1."""
    return _node("NVIDIA GB200", GB200_NUMBERS, count, links=18)


def mig_node(count: int = 2) -> NodeScenario:
    """H100s cut into seven instances: the parent tells no utilisation."""
    node = _node("NVIDIA H100 80GB HBM3", H100_NUMBERS, count, links=18)
    for gpu in node.gpus:
        for number in ("utilization_gpu", "utilization_memory"):
            del gpu.numbers[number]
        for number, value in (("mig_mode", 1), ("mig_mode_pending", 1)):
            gpu.set(number, value)
        gpu.set("mig_devices", 7)
        gpu.set("mig_devices_max", 7)
        for instance in range(7):
            gpu.set(f"mig_{instance}_gpu_instance", 7 + instance)
        for name, value in (
            ("mig_memory_total", 10 * GIB),
            ("mig_memory_used", 7 * GIB),
            ("mig_sram_uncorrected", 0),
        ):
            gpu.set(name, value)
    return node


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
    listed = (_read_or_empty(one) for one in Path("/proc/self/task").glob("*/children"))
    pids = [int(pid) for text in listed for pid in text.split()]
    return [pid for pid in pids if b"nvml_child" in _read_or_empty(Path(f"/proc/{pid}/cmdline"))]


def _read_or_empty(path: Path) -> bytes:
    """A file of procfs; empty where its thread or process has ended meanwhile."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def is_running(pid: int) -> bool:
    """A process that has neither ended nor is waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
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

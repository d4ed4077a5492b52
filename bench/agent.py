"""What the agent weighs beside node_exporter: `.venv/bin/python bench/agent.py [--seconds 60]`.

Both run in the same minutes on the same machine, each with its Debian or checkout defaults: the
agent with all its collectors over the stub NVML of 8 GPUs and this machine's real /proc and kernel
log, sending to a TLS server; `prometheus-node-exporter` scraped every 5 s. The stub's PCI bus lies
in memory (/dev/shm), as a sysfs does, and the spool on the disk. CPU time is that of all processes
of each, from /proc; memory is what is resident of all of them, pages that they share counted once.
Needs gcc and prometheus-node-exporter. `--growth CYCLES` runs the agent alone, as fast as it goes,
and compares its memory after a fifth of the cycles with that at the end.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwarden_wire.batches import Stream
from gpuwarden_wire.codec import Encoding, compress, encode_batch
from tests.builders.nvml import h100_node, pci_bus
from tests.builders.processes import agent_environment, started
from tests.fakes.ingest_server import FakeIngestServer

TLS = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "agent" / "tls"
EXPORTER = "prometheus-node-exporter"
SCRAPE_S = 5.0
WARM_UP_S = 12.0
_AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
_STUB = {"NVML_STUB_FIXED": "1"}  # it need not look at its scenario at each call, as no driver does
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of a whole process, linux/posix-timers_types.h
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Weight:
    """CPU time in seconds and resident bytes of a process and all below it."""

    cpu_s: float
    resident: int


def compile_modules() -> None:
    """As an installer does: a process that compiles what it imports is larger for it."""
    modules = "gpuwarden_agent.cli, gpuwarden_agent.agent, gpuwarden_agent.sources.nvml_child"
    command = [sys.executable, "-c", f"import {modules}"]
    subprocess.run(command, env=os.environ | _AS_INSTALLED, check=True)


def weight(pid: int) -> Weight:
    """Of `pid` and its descendants, those that ended and were waited for included."""
    cpu = 0.0
    resident = shared = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        # proc(5): cutime, cstime are fields 16 and 17, here from field 3 on; in ticks of 10 ms, so
        # that what runs still is asked for by its clock (clock_getcpuclockid(3)), in nanoseconds.
        cpu += sum(int(ticks) for ticks in fields[13:15]) / _TICKS
        cpu += time.clock_gettime(~one << 3 | _CPU_CLOCK)
        pages = _pages(one)
        resident += pages["Rss"] - pages["Shared_Clean"]
        shared = max(shared, pages["Shared_Clean"])
    return Weight(cpu, resident + shared)


def _pages(pid: int) -> Mapping[str, int]:
    """Bytes by the names of smaps_rollup, proc(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (x.partition(":") for x in lines)
    }


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    threads = Path(f"/proc/{pid}/task").iterdir()  # each thread lists the children that it started
    below = [child for one in threads for child in (one / "children").read_text().split()]
    return [pid, *(one for child in below for one in family(int(child)))]


@contextmanager
def agent(folder: Path, **settings: object) -> Iterator[tuple[int, FakeIngestServer]]:
    """A running agent: 8 stub GPUs, this machine's files, a TLS server that takes its batches."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    in_memory = tempfile.TemporaryDirectory(prefix="gpuwarden-bench-", dir="/dev/shm")
    with in_memory as bus, FakeIngestServer(tls=tls) as server:
        sys_root = pci_bus(Path(bus), [gpu.pci for gpu in h100_node(8).gpus])
        own = {"ca_file": TLS / "ca.pem", "kmsg_path": "/dev/kmsg", "sys_root": sys_root}
        environment = (
            _AS_INSTALLED
            | _STUB
            | agent_environment(
                folder, server.url, "gw_bench", "bench", h100_node(8), **own, **settings
            )
        )
        command = [Path(sys.executable).with_name("gpuwarden-agent"), "run"]
        with started(command, folder / "agent.log", environment) as process:
            yield process.pid, server


@contextmanager
def scraped_exporter(folder: Path) -> Iterator[int]:
    """node_exporter with Debian's collectors, scraped every SCRAPE_S."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with started(
        [EXPORTER, f"--web.listen-address=127.0.0.1:{port}"], folder / "exporter.log"
    ) as process:
        stop = threading.Event()
        scraper = threading.Thread(target=_scrape, args=(port, stop), daemon=True)
        scraper.start()
        try:
            yield process.pid
        finally:
            stop.set()
            scraper.join()


def _scrape(port: int, stop: threading.Event) -> None:
    while not stop.wait(SCRAPE_S):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            answer.read()


def beside(seconds: float, folder: Path, **settings: object) -> Mapping[str, float]:
    """Both in one window; ratios are agent / node_exporter."""
    with agent(folder, **settings) as (pid, server), scraped_exporter(folder) as exporter:
        time.sleep(WARM_UP_S)
        before, before_exporter, seen = weight(pid), weight(exporter), len(server.received)
        time.sleep(seconds)
        after, after_exporter = weight(pid), weight(exporter)
        batches = [one.batch for one in server.received[seen:]]
    ours = after.cpu_s - before.cpu_s
    theirs = after_exporter.cpu_s - before_exporter.cpu_s
    raw = sum(len(encode_batch(batch)) for batch in batches)
    packed = sum(len(compress(encode_batch(batch), Encoding.ZSTD)) for batch in batches)
    return {
        "agent CPU, ms/s": 1e3 * ours / seconds,
        "node_exporter CPU, ms/s": 1e3 * theirs / seconds,
        "CPU ratio": ours / theirs if theirs else float("nan"),
        "agent resident, MiB": after.resident / 2**20,
        "node_exporter resident, MiB": after_exporter.resident / 2**20,
        "memory ratio": after.resident / after_exporter.resident,
        "batches": float(len(batches)),
        "raw, MB/node-hour": raw * 3600 / seconds / 1e6,
        "zstd, MB/node-hour": packed * 3600 / seconds / 1e6,
    }


def growth(cycles: int, folder: Path) -> Mapping[str, float]:
    """Memory of the agent after a fifth of the cycles and after all of them."""
    with agent(folder, interval_s=0.05) as (pid, server):
        early = 0
        while (done := _telemetry(server)) < cycles:
            if not early and done >= cycles / 5:
                early = weight(pid).resident
            server.received.clear() if done % 500 == 499 else None
            time.sleep(0.02)
        late = weight(pid).resident
    return {"early, MiB": early / 2**20, "late, MiB": late / 2**20, "growth": late / early}


def _telemetry(server: FakeIngestServer) -> int:
    return max((max(a) for (_, s), a in server.applied.items() if s is Stream.TELEMETRY), default=0)


def machine() -> str:
    """What it ran on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    version = subprocess.run([EXPORTER, "--version"], capture_output=True, text=True, check=False)
    words = (version.stdout or version.stderr).splitlines()
    exporter = words[0].partition(" (")[0] if words else EXPORTER
    return f"{os.cpu_count()} x {model}; Python {platform.python_version()}; {exporter}"


def report(rounds: list[Mapping[str, float]]) -> str:
    """Medians, with the least and the most of all rounds."""
    lines = []
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        middle = statistics.median(values)
        lines.append(f"  {name:32} {middle:10.2f}   {min(values):10.2f} to {max(values):.2f}")
    return "\n".join(lines)


def _folder(root: Path, lane: str, number: int) -> Path:
    folder = root / f"{lane.replace(' ', '-')}-{number}"
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a window")
    parser.add_argument("--rounds", type=int, default=5, help="windows; the table has the medians")
    parser.add_argument("--growth", type=int, default=0, metavar="CYCLES")
    chosen = parser.parse_args()
    if not shutil.which(EXPORTER):
        sys.exit(f"{EXPORTER} is not on PATH: apt-get install {EXPORTER}")
    print(machine())
    compile_modules()
    with tempfile.TemporaryDirectory(prefix="gpuwarden-bench-") as name:
        if chosen.growth:
            print(f"{chosen.growth} cycles", report([growth(chosen.growth, Path(name))]), sep="\n")
            return
        lanes: Mapping[str, Mapping[str, object]] = {
            "5 s lane": {"interval_s": 5, "fast_interval_s": 0},
            "5 s lane and 1 s lane": {"interval_s": 5, "fast_interval_s": 1},
        }
        for lane, settings in lanes.items():
            rounds = [
                beside(chosen.seconds, _folder(Path(name), lane, number), **settings)
                for number in range(chosen.rounds)
            ]
            print(f"{lane}, {chosen.rounds} windows of {chosen.seconds:g} s")
            print(report(rounds))


if __name__ == "__main__":
    main()

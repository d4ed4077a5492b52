"""Ingest at fleet size: `.venv/bin/python bench/ingest.py [--nodes 10000] [--intervals 10,5,2.5]`.

A real server process with persistence, authentication (a node-bound agent key a node), incidents
and policy on takes the batches of simulated nodes: 8 GPUs, 1,000 series each, over one keep-alive
connection a node, compressed as agents do (`--encoding identity` leaves that out). The load
generator is a process of its own on the same machine. `--postgresql` starts a PostgreSQL of its own
instead of SQLite; what that takes is not in the server's figures.

1. Cadences: all nodes at each cadence of `--intervals`; what is acknowledged, how fast, and what
   the server takes of a core and of memory, sweeps and checkpoints included.
2. Limit: as many batches as the server takes, beside a bare uvloop + httptools server that gets
   the same batches, decodes them into memory and does nothing else.
3. Samples: CPU time a sample in the closed loop, beside VictoriaMetrics' remote-write.

2 and 3 are `--repeats` runs in turn, medians. CPU time is the process's, from /proc. Who ends it by
SIGTERM or SIGINT ends all that it started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.ingest_fleet import SERIES, keys_of
from bench.ingest_peers import remote_write_bodies, send_all, victoria_metrics
from gpuwarden_server.access.credentials import hash_key, new_key
from gpuwarden_server.access.domain import KeyRecord
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.repository import insert_key
from gpuwarden_server.config import Settings
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.store.versions import prepare_store
from tests.builders.postgres import PostgresServer
from tests.builders.server import ServerProcess

ROOT = Path(__file__).resolve().parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")
PEER_NODES = 200
SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Weight:
    """CPU seconds so far, and resident MiB now and at most."""

    cpu_s: float
    rss: float
    peak: float


def weigh(pid: int) -> Weight:
    """A process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    sizes = {
        words[0]: float(words[1]) / 1024 for words in lines if words[0] in ("VmRSS:", "VmHWM:")
    }
    cpu = (
        int(fields[11]) + int(fields[12])
    ) / _TICKS  # proc(5): utime and stime, here from field 3
    return Weight(cpu, sizes["VmRSS:"], sizes["VmHWM:"])


def memory_of(url: str, settings: Settings) -> str:
    """What the server says that its memory goes to; the rest of it is small Python objects."""
    key = settings.admin_key.get_secret_value() if settings.admin_key else ""
    answer = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"}, timeout=60)
    told = answer.raise_for_status().text
    found = re.findall(r'gpuwarden_memory_bytes{part="(\w+)"} (\S+)', told)
    return ", ".join(f"{part} {float(size) / 2**20:.0f} MiB" for part, size in found)


class Load:
    """The load generator's process."""

    def __init__(self, url: str, options: argparse.Namespace, nodes: int, *, bare: bool) -> None:
        place = urlsplit(url)
        plan = {
            "host": place.hostname,
            "port": place.port,
            "nodes": nodes,
            "series": SERIES,
            "interval_s": options.intervals[0],
            "encoding": options.encoding,
            "bare": bare,
        }
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "bench" / "ingest_load.py", json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, what: str, **phase: Any) -> dict[str, Any]:
        """Work through one phase."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what} | phase) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the load generator ended")
        found: dict[str, Any] = json.loads(line)
        if found["refused"]:
            print(f"refused {found['refused']}: {found['refusal'][:300]}")
        return found

    def end(self) -> None:
        """End it; one that is in the middle of a phase is ended by force."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid


@contextmanager
def _load(url: str, options: argparse.Namespace, nodes: int, *, bare: bool) -> Iterator[Load]:
    load = Load(url, options, nodes, bare=bare)
    try:
        yield load
    finally:
        load.end()


def main() -> None:
    """Run all parts and print the tables."""
    options = _options()
    with (
        tempfile.TemporaryDirectory(prefix="gpuwarden-ingest-") as folder,
        _database(options) as database,
        _server(Path(folder), options, database) as (pid, url),
        _load(url, options, options.nodes, bare=False) as load,
    ):
        _cadences(load, pid, options)
        if options.repeats:
            _ratios(Path(folder), load, pid, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ingest at fleet size.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--intervals", default="10,5,2.5", help="cadences in seconds, comma apart")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each cadence's run")
    parser.add_argument("--repeats", type=int, default=5, help="of the ratios; 0 leaves them out")
    parser.add_argument("--loop-seconds", type=float, default=5.0, help="length of a closed loop")
    parser.add_argument("--connections", type=int, default=64, help="batches under way in it")
    parser.add_argument("--encoding", choices=("zstd", "identity"), default="zstd")
    parser.add_argument("--postgresql", action="store_true", help="instead of SQLite")
    parser.add_argument("--no-vm", action="store_true", help="leave VictoriaMetrics out")
    options = parser.parse_args()
    options.intervals = [float(one) for one in options.intervals.split(",")]
    return options


@contextmanager
def _database(options: argparse.Namespace) -> Iterator[str | None]:
    """Address of a PostgreSQL of its own that syncs to disk; None for SQLite."""
    if not options.postgresql:
        yield None
        return
    server = PostgresServer(fsync="on", full_page_writes="on", shared_buffers="256MB")
    try:
        yield server.url()
    finally:
        server.close()


@contextmanager
def _server(
    folder: Path, options: argparse.Namespace, database: str | None
) -> Iterator[tuple[int, str]]:
    settings = Settings(
        port=0,
        state_folder=folder / "state",
        admin_key=SecretStr(new_key()),
        database_url=SecretStr(database) if database else None,
        # Nodes are introduced one after the other; an agent would connect again, the load does not.
        keep_alive_s=3600,
    )
    _mint(settings, options.nodes)
    server = ServerProcess(settings)
    try:
        began = time.monotonic()
        server.start()
        print(f"server starts in {time.monotonic() - began:.1f} s")
        yield server.pid, server.url
        print(f"memory: {memory_of(server.url, settings)}")
        ended = time.monotonic()
        code = server.terminate(60.0)
        print(f"server ends with {code} in {time.monotonic() - ended:.1f} s")
        began = time.monotonic()
        server.start()
        print(
            f"server restores {options.nodes} nodes and answers in {time.monotonic() - began:.1f} s"
        )
        print(f"  resident {weigh(server.pid).rss:.0f} MiB, peak {weigh(server.pid).peak:.0f} MiB")
        print(f"  memory: {memory_of(server.url, settings)}")
    finally:
        server.close()
        errors = [
            line for line in server.output.splitlines() if "error" in line or "warning" in line
        ]
        print("\n".join(errors[:10]))


def _mint(settings: Settings, nodes: int) -> None:
    """Keys of all nodes, before the start: minting them one by one is not what is measured."""
    prepare_store(settings.store_place)
    store = connect_store(settings.store_place)
    store.start()

    def write(connection: Any) -> None:
        for number, key in enumerate(keys_of(nodes)):
            name = f"n{number:06d}"
            record = KeyRecord(f"key-{number:012x}", Role.AGENT, name, name, time.time(), "bench")
            insert_key(connection, record, hash_key(key))
        admin = settings.admin_key.get_secret_value() if settings.admin_key else ""
        record = KeyRecord("key-admin", Role.ADMIN, None, "admin", time.time(), "bench")
        insert_key(connection, record, hash_key(admin))

    store.state.writer.call(write, timeout_s=120)
    store.close()


def _cadences(load: Load, pid: int, options: argparse.Namespace) -> None:
    began = time.monotonic()
    load.do("connect")
    took = time.monotonic() - began
    print(f"{options.nodes} nodes introduced in {took:.1f} s; {weigh(pid).rss:.0f} MiB resident")
    load.do("paced", interval_s=options.intervals[0], seconds=2 * options.intervals[0])
    print(
        "cadence s | batches/s | acknowledged | p50 ms | p99 ms | max ms | server cores "
        "| load cores | resident MiB | peak MiB"
    )
    for interval in options.intervals:
        before, sender = weigh(pid), weigh(load.pid)
        began = time.monotonic()
        found = load.do("paced", interval_s=interval, seconds=options.seconds)
        took = time.monotonic() - began
        after = weigh(pid)
        offered = found["sent"] + found["skipped"]
        print(
            f"{interval:9g} | {found['sent'] / options.seconds:9.0f} | "
            f"{100 * found['acked'] / max(1, offered):11.2f}% | {found['p50_ms']:6.1f} | "
            f"{found['p99_ms']:6.1f} | {found['max_ms']:6.0f} | "
            f"{(after.cpu_s - before.cpu_s) / took:12.2f} | "
            f"{(weigh(load.pid).cpu_s - sender.cpu_s) / took:10.2f} | "
            f"{after.rss:12.0f} | {after.peak:8.0f}",
            flush=True,
        )


def _ratios(folder: Path, load: Load, pid: int, options: argparse.Namespace) -> None:
    figures: dict[str, list[float]] = {"server": [], "bare": [], "vm": []}
    with _bare() as (bare_pid, bare_url):
        few = min(options.nodes, PEER_NODES)
        with _load(bare_url, options, few, bare=True) as bare, _vm(folder, options) as vm:
            bare.do("connect")
            for _ in range(options.repeats):
                figures["server"].append(_closed(load, pid, options))
                figures["bare"].append(_closed(bare, bare_pid, options))
                if vm is not None:
                    figures["vm"].append(_remote_write(*vm))
    _print_ratios(figures)


def _print_ratios(figures: Mapping[str, list[float]]) -> None:
    middle = {name: statistics.median(each) for name, each in figures.items() if each}
    ours, bare = middle["server"], middle["bare"]
    print(f"batches per CPU-second: server {ours:.0f}, bare {bare:.0f}; ratio {ours / bare:.3f}")
    print(
        f"  each: {[round(one) for one in figures['server']]}",
        [round(one) for one in figures["bare"]],
    )
    if "vm" in middle:
        share = middle["vm"] / (ours * SERIES)
        print(
            f"samples per CPU-second: server {ours * SERIES / 1e3:.0f} k, "
            f"VictoriaMetrics {middle['vm'] / 1e3:.0f} k; CPU a sample {share:.3f} of it"
        )
        print(f"  each: {[round(one / 1e3) for one in figures['vm']]} k")


def _closed(load: Load, pid: int, options: argparse.Namespace) -> float:
    """Batches per CPU-second of the process."""
    before = weigh(pid).cpu_s
    found = load.do("closed", connections=options.connections, seconds=options.loop_seconds)
    acked: float = found["acked"]
    return acked / (weigh(pid).cpu_s - before)


@contextmanager
def _bare() -> Iterator[tuple[int, str]]:
    process = subprocess.Popen(
        [sys.executable, ROOT / "bench" / "ingest_peers.py"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.pid, f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def _vm(folder: Path, options: argparse.Namespace) -> Iterator[tuple[int, int, list[bytes]] | None]:
    if options.no_vm:
        yield None
        return
    nodes = min(options.nodes, PEER_NODES)
    bodies = remote_write_bodies(nodes, SERIES, options.intervals[0])
    with victoria_metrics(folder) as (pid, port):
        send_all(port, bodies[:nodes])  # its index of series is made once, and not counted
        time.sleep(SETTLE_S)
        yield pid, port, bodies


def _remote_write(pid: int, port: int, bodies: list[bytes]) -> float:
    """Samples per CPU-second of the process, what it flushes in the seconds behind included."""
    before = weigh(pid).cpu_s
    send_all(port, bodies)
    time.sleep(SETTLE_S)
    return len(bodies) * SERIES / (weigh(pid).cpu_s - before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what follows cleans up
    raise KeyboardInterrupt


if __name__ == "__main__":
    # What it started ends with it, whoever ends it.
    signal.signal(signal.SIGTERM, _interrupt)
    with suppress(KeyboardInterrupt):
        main()

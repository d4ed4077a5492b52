"""What the streams cost: `.venv/bin/python bench/sse.py [--readers 5000] [--smoke]`.

1. Fan-out beside sse-starlette: both servers in processes of their own, the same number of readers,
   rounds in turn; time from publication to receipt over all readers, medians over the rounds.
2. Ingest: acknowledgements of the real server, without readers and with them, while the exclusion
   set changes each second.

sse-starlette is no dependency: `uv pip install sse-starlette` (or `pip install --target DIR
--no-deps sse-starlette` and PYTHONPATH=DIR); without it, our figures stand alone.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sse_readers import Hall
from bench.sse_servers import KEY, OURS, THEIRS
from gpuwarden_server.front import EXCLUSION_STREAM
from tests.builders.crowd import percentile
from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import Feeder, Running, ServerProcess, gpu_table, make_gpu

SERVERS = Path(__file__).with_name("sse_servers.py")
EVENTS_A_ROUND = 10
PAUSE_S = 0.2
TIMEOUT_S = 60.0
LIMIT = 0.4
"""Of sse-starlette's p99, at most."""
SENDERS = 50
GPUS = 8


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one server.

    Attributes:
        p50_ms: From publication to receipt.
        p99_ms: The same.
        cpu_us: Server's CPU time for one event to one reader, microseconds.
        reader_kib: Resident memory of the server a reader.
    """

    p50_ms: float
    p99_ms: float
    cpu_us: float
    reader_kib: float


@contextmanager
def serving(name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of bench/sse_servers.py and its URL."""
    with subprocess.Popen(
        [sys.executable, str(SERVERS), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            yield process, url
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


async def fan_out(name: str, readers: int) -> Round:
    """One round: so many readers, some events."""
    with serving(name) as (process, url):
        before = resident_kib(process.pid)
        hall = Hall()
        await hall.fill(url, EXCLUSION_STREAM.path, KEY, readers)
        each = (resident_kib(process.pid) - before) / readers
        waits: list[float] = []
        began = cpu_s(process.pid)
        assert process.stdin is not None
        for number in range(1, EVENTS_A_ROUND + 1):
            hall.expect(b'"n": %d,' % number)
            process.stdin.write("\n")
            process.stdin.flush()
            waits += await hall.heard(TIMEOUT_S)
            await asyncio.sleep(PAUSE_S)
        used = cpu_s(process.pid) - began
        await hall.leave()
    return Round(
        p50_ms=percentile(waits, 0.5) * 1000,
        p99_ms=percentile(waits, 0.99) * 1000,
        cpu_us=used / (readers * EVENTS_A_ROUND) * 1e6,
        reader_kib=each,
    )


def resident_kib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def compare(readers: int, rounds: int) -> None:
    """Print the first table."""
    names = [OURS]
    if importlib.util.find_spec("sse_starlette") is not None:
        names.append(THEIRS)
    found: dict[str, list[Round]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found[name].append(asyncio.run(fan_out(name, readers)))
    print(f"fan-out to {readers} readers, {EVENTS_A_ROUND} events a round, {rounds} rounds\n")
    print("| server | p50 ms | p99 ms | CPU us an event and reader | KiB a reader |")
    print("|---|---|---|---|---|")
    for name in names:
        middle = [
            median(getattr(one, part) for one in found[name])
            for part in ("p50_ms", "p99_ms", "cpu_us", "reader_kib")
        ]
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in middle) + " |")
    if THEIRS in found:
        ratio = median(a.p99_ms / b.p99_ms for a, b in zip(found[OURS], found[THEIRS], strict=True))
        print(f"\np99 of ours over sse-starlette's: {ratio:.2f} (wanted: at most {LIMIT})\n")
    else:
        print("\nsse-starlette is not installed: no comparison (see the top of this file)\n")


class Load:
    """Batches at a steady rate from a thread of its own, and how long each acknowledgement took."""

    def __init__(self, server: Running, rate: float) -> None:
        self._nodes = [_node(server, f"load-{number}") for number in range(SENDERS)]
        self._rate = rate
        self._took: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def taken(self) -> list[float]:
        """Seconds of each acknowledgement since the last call."""
        taken, self._took = self._took, []
        return taken

    def close(self) -> None:
        """End."""
        self._stopping.set()
        self._thread.join(10)

    def _send(self) -> None:
        due = time.monotonic()
        for number in range(sys.maxsize):
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return
            node = self._nodes[number % SENDERS]
            rows = {f"GPU-{node.node_id}-{g}": [40.0, 600.0, float(number)] for g in range(GPUS)}
            table, schema = gpu_table(rows)
            node.telemetry([table], [schema])
            self._took.append(time.monotonic() - due)  # what waited in line counts too
            due += 1 / self._rate


def _node(server: Running, name: str) -> Feeder:
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce([make_gpu(gpu, name) for gpu in range(GPUS)])
    return feeder


async def unharmed(server: Running, load: Load, readers: int, rounds: int, window_s: float) -> None:
    """Print the second table."""
    key = server.mint("runtime")
    alone: list[float] = []
    beside: list[float] = []
    changes = 0
    for _ in range(rounds):
        load.taken()
        await asyncio.sleep(window_s)
        alone.append(percentile(load.taken(), 0.99) * 1000)
        hall = Hall()
        await hall.fill(server.url, EXCLUSION_STREAM.path, key, readers)
        load.taken()
        ends = time.monotonic() + window_s
        while time.monotonic() < ends:
            hall.expect(b'"epoch":')
            await asyncio.to_thread(_change, server, changes)
            changes += 1
            await hall.heard(TIMEOUT_S)
            await asyncio.sleep(1.0)
        beside.append(percentile(load.taken(), 0.99) * 1000)
        await hall.leave()
    print("| ingest beside | acknowledgement p99 ms |\n|---|---|")
    print(f"| no readers | {median(alone):.1f} |")
    print(
        f"| {readers} readers, an exclusion each second ({changes} in all) | {median(beside):.1f} |"
    )


def _change(server: Running, number: int) -> None:
    """A change of the exclusion set: a GPU of a node never seen before falls off the bus."""
    node = _node(server, f"failing-{number}")
    node.events(xid_event(79, "0000:10:00.0"))
    node.close()


def ingest_beside(readers: int, rounds: int, window_s: float, rate: float) -> None:
    """Start the real server and print what readers do to ingest."""
    with tempfile.TemporaryDirectory() as folder:
        process = ServerProcess(
            quick_settings(Path(folder), sweep_interval_s=5.0, max_nodes=10_000)
        )
        try:
            server = process.start()
            load = Load(server, rate)
            try:
                asyncio.run(unharmed(server, load, readers, rounds, window_s))
            finally:
                load.close()
        finally:
            process.close()


def main() -> int:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--readers", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=10.0, help="of the ingest part")
    parser.add_argument("--rate", type=float, default=50.0, help="batches a second")
    parser.add_argument("--smoke", action="store_true", help="100 readers, one round, 3 s")
    chosen = parser.parse_args()
    if chosen.smoke:
        chosen.readers, chosen.rounds, chosen.window_s = 100, 1, 3.0
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < chosen.readers + 500:
        print(f"{chosen.readers} readers need more open files than {hard}: ulimit -Hn")
        return 2
    uvloop.install()
    compare(chosen.readers, chosen.rounds)
    ingest_beside(chosen.readers, chosen.rounds, chosen.window_s, chosen.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""/v1/verdicts for a whole fleet: `.venv/bin/python bench/verdicts.py [--nodes 10000]`.

A real server process over a fleet of 8 GPUs a node; each way to ask is repeated `--repeats` times
over one connection: CPU time of the server (all threads, from /proc) and the bytes of one answer.
The first answer after a start is told apart: it makes the lines that are kept for the others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
from sqlalchemy import Connection, insert

from bench.ingest import weigh
from gpuwarden_server.config import Settings
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.store.tables_fleet import gpus, nodes
from gpuwarden_server.store.versions import prepare_store
from tests.builders.server import ServerProcess, make_settings

GPUS = 8
WAYS = {
    "all GPUs": {},
    "all GPUs, gzip": {"Accept-Encoding": "gzip"},
    "all GPUs, zstd": {"Accept-Encoding": "zstd"},
    "notable GPUs": {},
    "unchanged (304)": {},
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = make_settings(
            Path(folder), sweep_interval_s=3600, silent_after_s=3600, checkpoint_pass_s=300
        )
        seed(settings, options.nodes)
        process = ServerProcess(settings)
        running = process.start()
        try:
            print(f"| {options.nodes} nodes, {GPUS} GPUs each | CPU ms | kB |\n|---|---:|---:|")
            show("first answer", *ask(process, running.admin, "all GPUs", 1))
            for way in WAYS:
                show(way, *ask(process, running.admin, way, options.repeats))
        finally:
            process.close()


def show(way: str, cpu_ms: float, size: float) -> None:
    """One line."""
    print(f"| {way} | {cpu_ms:.1f} | {size / 1000:.1f} |", flush=True)


def ask(process: ServerProcess, client: httpx.Client, way: str, times: int) -> tuple[float, float]:
    """CPU milliseconds of the server and bytes on the wire, of one answer."""
    headers = {"Accept-Encoding": "identity"} | WAYS[way]
    query = {"gpus": "notable"} if way == "notable GPUs" else {}
    if way == "unchanged (304)":
        headers["If-None-Match"] = client.get("/v1/verdicts", headers=headers).headers["etag"]
    before, size = weigh(process.pid).cpu_s, 0
    for _ in range(times):
        with client.stream("GET", "/v1/verdicts", params=query, headers=headers) as answer:
            size = sum(len(part) for part in answer.iter_raw())
    return (weigh(process.pid).cpu_s - before) * 1000 / times, size


def seed(settings: Settings, count: int) -> None:
    """Put the fleet into the database."""
    prepare_store(settings.store_place)
    store = connect_store(settings.store_place)
    store.start()
    names = [f"gpu-{number:05d}" for number in range(count)]

    def write(connection: Connection) -> None:
        connection.execute(insert(nodes), [_NODE | {"node_id": name} for name in names])
        rows = [
            _GPU | {"node_id": name, "gpu_uuid": f"GPU-{name}-{slot}", "pci_bus_id": f"0:{slot}:0"}
            for name in names
            for slot in range(GPUS)
        ]
        connection.execute(insert(gpus), rows)

    store.state.writer.call(write, timeout_s=600.0)
    store.close()


_TIMES = {"first_seen_at": 1.0, "last_seen_at": 1.0}
_NODE = {
    "boot_id": "b",
    "agent_version": "0",
    "interval_s": 10.0,
    "nics": [],
    "disks": [],
    "labels": {},
    **_TIMES,
}
_GPU = {
    "serial": "s",
    "model": "H100",
    "driver_version": "570",
    "vbios_version": "96",
    "nics": [],
    "present": True,
    **_TIMES,
}


if __name__ == "__main__":
    main()

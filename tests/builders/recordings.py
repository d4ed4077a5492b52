"""Recordings in all their forms, and a Prometheus that has one as its history."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gpuwarden_models.frames import Frame
from tests.builders.processes import started
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")


@contextmanager
def prometheus_with(recording: Path, folder: Path) -> Iterator[str]:
    """A Prometheus whose history was made of a recording's OpenMetrics files; gives its address."""
    tsdb = folder / "tsdb"
    for packed in sorted((recording / "metrics").glob("*.om.gz")):
        plain = folder / packed.stem
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        command = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(plain), str(tsdb)]
        subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    port = free_port()
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": tsdb,
        "storage.tsdb.retention.time": "100y",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    with started([PROMETHEUS, *words], folder / "prometheus.log"):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: _is_ready(url), 60.0, "Prometheus is ready")
        yield url


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def assert_same_frames(frames: Sequence[Frame], others: Sequence[Frame]) -> None:
    """Equal to the last bit: times, rows, columns, numbers, what was reported, and events."""
    assert len(frames) == len(others)
    for one, other in zip(frames, others, strict=True):
        assert (one.at, one.nodes, one.boot_ids) == (other.at, other.nodes, other.boot_ids)
        assert one.events == other.events
        for table, twin in zip(one.tables, other.tables, strict=True):
            assert (table.schema, table.keys) == (twin.schema, twin.keys)
            assert np.array_equal(table.reported, twin.reported), (one.at, table.kind)
            assert np.array_equal(table.values, twin.values, equal_nan=True), (one.at, table.kind)

"""What reading a recording costs: `.venv/bin/python bench/recording.py [--nodes 16] [--hours 2]`.

One simulated fleet of 8 GPUs a node at 30 s, written in both forms and read into frames. Beside the
OpenMetrics form prometheus_client's own parser, which makes objects of the same lines and no
frames. CPU time of this process.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_fd_to_metric_families

from gpuwarden_models.names import KEY_COLUMNS
from gpuwarden_models.recording import Recording
from gpuwarden_models.simulate import simulate
from gpuwarden_models.simulator.metrics_writers import Form


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--hours", type=float, default=2.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folders = {form: Path(name) / form for form in (Form.PARQUET, Form.OPENMETRICS)}
        for form, folder in folders.items():
            simulate(folder, options.nodes, 8, options.hours, 1, 30.0, form)
        numbers = _lines(folders[Form.OPENMETRICS])
        print(f"{options.nodes} nodes, {options.hours:g} h, {numbers:,} numbers (simulated)\n")
        print("| reader | CPU s | numbers/s | MB on disk |\n|---|---|---|---|")
        for form, folder in folders.items():
            took = _cpu_s(_read, folder)
            print(f"| {form}, frames | {took:.1f} | {numbers / took:,.0f} | {_megabytes(folder)} |")
        took = _cpu_s(_parse, folders[Form.OPENMETRICS])
        print(f"| prometheus_client, objects only | {took:.1f} | {numbers / took:,.0f} | |")
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"\nmost memory of this process: {most:.0f} MB")
    return 0


def _read(folder: Path) -> int:
    return sum(len(frame.events) for frame in Recording(folder, tuple(KEY_COLUMNS)).frames())


def _parse(folder: Path) -> int:
    families: Callable[[object], Iterator[Metric]] = text_fd_to_metric_families
    found = 0
    for path in sorted((folder / "metrics").iterdir()):
        with gzip.open(path, "rt") as file:
            found += sum(len(family.samples) for family in families(file))
    return found


def _lines(folder: Path) -> int:
    files = (gzip.decompress(path.read_bytes()) for path in (folder / "metrics").iterdir())
    return sum(content.count(b"\n") - 1 for content in files)


def _megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in (folder / 'metrics').iterdir()) / 1e6:.1f}"


def _cpu_s(work: Callable[[Path], object], folder: Path) -> float:
    began = time.process_time()
    work(folder)
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What reading an exporter's text costs: `.venv/bin/python bench/exporter_text.py [FILE]`.

Beside prometheus_client's own parser, over a text of our making or one in FILE. CPU time of this
process, the best of several rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwarden_exporters.gathering import Gatherer
from tests.builders.dcgm import DcgmGpu, dcgm_text

ROUNDS = 7
GPUS, FIELDS, OTHER_SERIES = 8, 60, 4_000


def text_of_our_making() -> str:
    """8 GPUs of dcgm-exporter with 60 fields, and 4,000 series of a node_exporter."""
    numbers: dict[str, float | str] = {f"DCGM_FI_DEV_FIELD_{n}": n for n in range(FIELDS - 2)}
    numbers |= {"DCGM_FI_DEV_GPU_TEMP": 41, "DCGM_FI_DEV_POWER_USAGE": "648.125000"}
    gpus = [
        DcgmGpu(f"GPU-{n:08x}-2461-8638-2d09-caf83c2e470b", n, numbers=numbers) for n in range(GPUS)
    ]
    others = [
        f'node_cpu_seconds_total{{cpu="{n // 8}",mode="mode{n % 8}"}} {n}.5'
        for n in range(OTHER_SERIES)
    ]
    return dcgm_text(gpus) + "\n".join(others) + "\n"


def best_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of the best round."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took) * 1000


def main(arguments: list[str]) -> int:
    """Print the table."""
    text = Path(arguments[0]).read_text() if arguments else text_of_our_making()
    theirs = best_ms(lambda: sum(1 for _ in text_string_to_metric_families(text)))
    first = best_ms(lambda: Gatherer().take(text, 0.0))
    gatherer = Gatherer()
    gatherer.take(text, 0.0)
    again = best_ms(lambda: gatherer.take(text, 0.0))
    print(f"{len(text) / 1000:.0f} kB, {text.count(chr(10))} lines\n")
    print("| parser | CPU ms a scrape | of prometheus_client's |\n|---|---|---|")
    for name, took in (
        ("prometheus_client, samples only", theirs),
        ("ours, first scrape, readings made", first),
        ("ours, every later one", again),
    ):
        print(f"| {name} | {took:.1f} | {took / theirs:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""From a kernel line to the exclusion feed, through the real agent and the real server."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.feed import FeedReader, get, quick_settings, reading_feed
from tests.builders.nvml import h100_node
from tests.builders.processes import agent_environment, started
from tests.builders.server import Running, ServerProcess, wait_until

ROUNDS = 20
NODES = 3  # of 8 GPUs each: more GPUs than rounds
LINE = (
    "[{at:.6f}] NVRM: Xid (PCI:{slot}): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus.\n"
)


@pytest.mark.serial
def test_median_time_from_a_kernel_line_to_the_feed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    server = ServerProcess(quick_settings(tmp_path))
    try:
        running = server.start()
        with running.admin:
            seconds = [s for number in range(NODES) for s in _round(running, tmp_path, number)][
                :ROUNDS
            ]
    finally:
        server.close()
    assert len(seconds) == ROUNDS
    median, worst = statistics.median(seconds), max(seconds)
    record_property(
        "figure",
        f"XID 79 in the kernel log to the exclusion feed: median of {ROUNDS} "
        f"{median * 1e3:.0f} ms, worst {worst * 1e3:.0f} ms",
    )


def _round(running: Running, folder: Path, number: int) -> list[float]:
    """Let every GPU of one node fall off the bus, one after the other."""
    node_id, home, node = f"node-{number}", folder / f"node-{number}", h100_node()
    for index, gpu in enumerate(node.gpus):
        gpu.uuid = f"GPU-{number:08d}-0000-0000-0000-{index:012d}"
    key = running.mint("agent", node_id)
    environment = agent_environment(home, running.url, key, node_id, node)
    kernel_log = home / "kern.log"
    command = [Path(sys.executable).with_name("gpuwarden-agent"), "run"]
    with started(command, home / "agent.log", environment), reading_feed(running) as feed:
        wait_until(lambda: _gpus(running, node_id) == 8, "the server knows the node's GPUs", 30)
        return [_seconds_to(feed, kernel_log, gpu.pci, gpu.uuid) for gpu in node.gpus]


def _seconds_to(feed: FeedReader, kernel_log: Path, slot: str, gpu_uuid: str) -> float:
    line = LINE.format(at=time.monotonic(), slot=slot.removesuffix(".0"))
    begun = time.monotonic()
    with kernel_log.open("a") as log:
        log.write(line)
    return feed.wait_added(gpu_uuid).at - begun


def _gpus(running: Running, node_id: str) -> int:
    nodes = get(running, "/v1/nodes")["items"]
    return sum(len(node["gpus"]) for node in nodes if node["node_id"] == node_id)

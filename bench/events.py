"""Fault to webhook, beside Prometheus and Alertmanager: `.venv/bin/python bench/events.py`.

Each fault is one moment for all: a gauge of an exporter flips, a kernel event of a node is sent to
gpuwarden, and a value of another node changes, which that node's next batch (every 5 s, at a phase
of its own) carries. Measured is the time until each webhook arrives; all run at once. gpuwarden has
its default settings, Prometheus' rule no `for:`, Alertmanager one group a GPU.

Faults are independent and fall at random in a window; the table has the median over them. `--smoke`
takes seconds: few faults, the tightest setting alone.
"""

from __future__ import annotations

import argparse
import base64
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.events_peers import TIGHTEST, USUAL, Arrivals, Exporter, Pace, peers, serving
from gpuwarden_server.access.credentials import new_key
from gpuwarden_server.config import Settings
from tests.builders.feed import xid_event
from tests.builders.server import Feeder, Running, ServerProcess, gpu_table, make_gpu

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
POLL_S = 5.0
METRICS = ("gpu_temperature_celsius", "gpu_row_remap_failure")
KERNEL, VALUE = "kernel event", "value polled at 5 s"
LIMITS = {(KERNEL, USUAL.name): 0.03, (KERNEL, TIGHTEST.name): 0.6, (VALUE, USUAL.name): 0.08}


class Node:
    """What one node's agent would send; `gpu` is its only one."""

    def __init__(self, server: Running, name: str) -> None:
        self.feeder = Feeder(server, server.mint("agent", name), name)
        self.gpu = make_gpu(0, name)
        self.feeder.introduce([self.gpu])
        self.failed = 0.0
        self._known = False

    def fail_line(self) -> None:
        """The kernel says that the GPU has fallen off the bus; agents send events at once."""
        self.feeder.events(xid_event(79, self.gpu.pci_bus_id))

    def send_values(self) -> None:
        """One batch of telemetry."""
        rows = {self.gpu.gpu_uuid: (55.0, self.failed)}
        table, schema = gpu_table(rows, metrics=METRICS)
        self.feeder.telemetry([table], () if self._known else (schema,))
        self._known = True


class Poller(threading.Thread):
    """Sends the values of nodes, each every POLL_S at a phase of its own."""

    def __init__(self, nodes: Sequence[Node], dice: random.Random) -> None:
        super().__init__(daemon=True)
        now = time.monotonic()
        self._due = sorted((now + dice.uniform(0, POLL_S), n) for n in range(len(nodes)))
        self._nodes = nodes
        self._ended = threading.Event()

    def run(self) -> None:
        """Until `end`."""
        while not self._ended.is_set():
            at, number = self._due.pop(0)
            self._ended.wait(max(0.0, at - time.monotonic()))
            self._nodes[number].send_values()
            self._due.append((at + POLL_S, number))

    def end(self) -> None:
        """After the batch under way."""
        self._ended.set()
        self.join(10)


@dataclass(frozen=True, slots=True)
class Result:
    """How long it took.

    Attributes:
        name: Who told.
        seconds: Of each fault that was told.
        missed: Faults that were not.
    """

    name: str
    seconds: tuple[float, ...]
    missed: int

    def row(self) -> str:
        """A line of the table."""
        spread = sorted(self.seconds)
        p90 = quantiles(spread, n=10, method="inclusive")[-1] if len(spread) > 1 else spread[0]
        cells = (min(spread), median(spread), p90, max(spread))
        return (
            f"| {self.name} | {len(spread)} | {' | '.join(f'{one:.3f}' for one in cells)} "
            f"| {self.missed} |"
        )


def main() -> None:
    """Run and print the tables."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="gpuwarden-events-") as folder:
        results = _measure(Path(folder), options)
    print("| told by | faults | min s | median s | p90 s | max s | missed |")
    print("|---|---|---|---|---|---|---|")
    for result in results.values():
        print(result.row())
    print("\n| ratio of medians | measured | limit |\n|---|---|---|")
    for pace in options.paces:
        for name in (KERNEL, VALUE):
            ratio = median(results[name].seconds) / median(results[pace.name].seconds)
            limit = LIMITS.get((name, pace.name))
            print(f"| {name} / {_title(pace)} | {ratio:.3f} | {limit or 'none'} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fault to webhook.")
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--window", type=float, default=60.0, help="seconds in which they fall")
    parser.add_argument("--drain", type=float, default=75.0, help="seconds to wait for the last")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    options = parser.parse_args()
    options.paces = [USUAL, TIGHTEST]
    if options.smoke:
        options.faults, options.window, options.drain = 3, 2.0, 15.0
        options.paces = [TIGHTEST]
    return options


def _measure(folder: Path, options: argparse.Namespace) -> Mapping[str, Result]:
    dice = random.Random(options.seed)
    exporter, ours = Exporter(options.faults), Arrivals()
    told = {pace.name: Arrivals() for pace in options.paces}
    with ExitStack() as running:
        exporter_port = running.enter_context(serving(exporter, None))
        for pace in options.paces:
            port = running.enter_context(serving(None, told[pace.name]))
            running.enter_context(peers(folder / pace.name, pace, exporter_port, port))
        port = running.enter_context(serving(None, ours))
        server = running.enter_context(_server(folder / "gpuwarden", port))
        lines = [Node(server, f"line-{n}") for n in range(options.faults)]
        values = [Node(server, f"value-{n}") for n in range(options.faults)]
        poller = Poller(values, dice)
        poller.start()
        running.callback(poller.end)
        time.sleep(2 * POLL_S)  # every node has told its values, and a sweep has seen them
        begun = _flip_all(exporter, lines, values, options.window, dice)
        _drain([ours, *told.values()], options)
    return {
        KERNEL: _result(KERNEL, begun, ours, [node.gpu.gpu_uuid for node in lines]),
        VALUE: _result(VALUE, begun, ours, [node.gpu.gpu_uuid for node in values]),
        **{
            pace.name: _result(
                _title(pace), begun, told[pace.name], [str(n) for n in range(options.faults)]
            )
            for pace in options.paces
        },
    }


def _flip_all(
    exporter: Exporter,
    lines: Sequence[Node],
    values: Sequence[Node],
    window_s: float,
    dice: random.Random,
) -> list[float]:
    """Begin each fault at a random moment of the window; monotonic seconds of each."""
    start = time.monotonic()
    moments = sorted(dice.uniform(0, window_s) for _ in lines)
    begun = []
    for number, moment in enumerate(moments):
        time.sleep(max(0.0, start + moment - time.monotonic()))
        begun.append(time.monotonic())
        exporter.flip(number)
        values[number].failed = 1.0
        lines[number].fail_line()
    return begun


def _drain(arrivals: Sequence[Arrivals], options: argparse.Namespace) -> None:
    deadline = time.monotonic() + options.drain
    wanted = [options.faults * 2, *([options.faults] * len(options.paces))]
    while time.monotonic() < deadline:
        if all(len(one.at) >= count for one, count in zip(arrivals, wanted, strict=True)):
            return
        time.sleep(0.2)


def _result(name: str, begun: Sequence[float], arrivals: Arrivals, keys: Sequence[str]) -> Result:
    seconds = [
        arrivals.at[key] - at for key, at in zip(keys, begun, strict=True) if key in arrivals.at
    ]
    if not seconds:
        raise SystemExit(f"{name}: no fault was told")
    return Result(name, tuple(seconds), len(keys) - len(seconds))


def _title(pace: Pace) -> str:
    setting = f"{pace.scrape_s} s / {pace.evaluate_s} s / {pace.group_wait_s} s"
    return f"Prometheus + Alertmanager, {pace.name} ({setting})"


@contextmanager
def _server(folder: Path, port: int) -> Iterator[Running]:
    folder.mkdir()
    settings = Settings(
        port=0,
        state_folder=folder / "state",
        admin_key=SecretStr(new_key()),
        webhook_url=f"http://127.0.0.1:{port}/",
        webhook_secret=SecretStr(SECRET),
    )
    process = ServerProcess(settings)
    try:
        server = process.start()
        with server.admin:
            yield server
    finally:
        process.close()


if __name__ == "__main__":
    main()

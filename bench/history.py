"""Bytes of history beside Prometheus and VictoriaMetrics: `.venv/bin/python bench/history.py`.

The same readings with the same timestamps (milliseconds) go three ways: into history.db as the
server keeps them with GPUWARDEN_HISTORY_READINGS=all (one segment a node and half hour, in a real
SQLite file), through `promtool tsdb create-blocks-from openmetrics` into a block of Prometheus, and
by import into VictoriaMetrics, which then merges all it has. Sizes are those of all files, read
after each has written and closed them. Then what roll-ups take, and what keeping them costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection

from bench.history_shapes import BEGIN, Fleet, mix, simulated
from bench.ingest_peers import victoria_metrics
from gpuwarden_server.history.buffer import OpenMinutes
from gpuwarden_server.history.domain import MINUTE_S, QUARTER_S, SHAPES, Level
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_server.history.repository import Segment, save_segments
from gpuwarden_server.history.sealing import Sealer, gather
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_verdict.segments import Block, encode_segment
from gpuwarden_verdict.segments.blocks import NARROW, WIDE, merged
from gpuwarden_verdict.segments.codec import FAST
from gpuwarden_verdict.segments.rollup import roll_up_further
from gpuwarden_verdict.windows import JoinedTables, join_as, layout_of
from gpuwarden_wire.batches import Table
from gpuwarden_wire.schema import Schema

PROMTOOL = "promtool"
RAW_WINDOW_S = SHAPES[Level.RAW].window_s


@dataclass(frozen=True, slots=True)
class Size:
    """What one store made of the readings; `cpu_s` of this process, 0 where another one worked."""

    stored: int
    cpu_s: float = 0.0


def windows_of(blocks: Iterable[Block], length_s: float) -> Iterator[tuple[float, list[Block]]]:
    """Blocks cut at multiples of `length_s`."""
    whole = list(blocks)
    last = max(float(block.times[-1]) for block in whole)
    begin = min(float(block.times[0]) for block in whole) // length_s * length_s
    while begin <= last:
        parts = [part for one in whole if (part := one.between(begin, begin + length_s))]
        if parts:
            yield begin, parts
        begin += length_s


def ours(fleet: Fleet, folder: Path) -> Size:
    """Bytes of history.db with one segment a node and window, less those of an empty one."""
    prepare_store(folder)
    empty = _size_of([folder / "history.db"])
    store = connect_store(folder)
    store.history.writer.start()
    spent = 0.0
    for node_id, blocks in fleet.items():
        began = time.process_time()
        segments = [
            Segment(Level.RAW, node_id, int(at), encode_segment(parts))
            for at, parts in windows_of(blocks, RAW_WINDOW_S)
        ]
        spent += time.process_time() - began

        def write(connection: Connection, made: Sequence[Segment] = segments) -> None:
            save_segments(connection, made)

        store.history.writer.call(write)
    store.close()
    return Size(_size_of(folder.glob("history.db*")) - empty, spent)


def prometheus(fleet: Fleet, folder: Path) -> Size:
    """Bytes of a block of Prometheus."""
    text, blocks = folder / "readings.txt", folder / "blocks"
    with text.open("w") as file:
        for name, labels, values, times in series_of(fleet):
            told = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
            file.writelines(
                f"{name}{told} {value} {at:.3f}\n" for value, at in zip(values, times, strict=True)
            )
        file.write("# EOF\n")
    paths = [str(text), str(blocks)]
    command = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", "-q", *paths]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    return Size(_size_of(blocks.rglob("*")))


def victoria(fleet: Fleet, folder: Path) -> Size:
    """Bytes of VictoriaMetrics' data and index after it merged all parts."""
    with victoria_metrics(folder) as (_, port):
        url = f"http://127.0.0.1:{port}"
        for name, labels, values, times in series_of(fleet):
            stamps = [round(at * 1000) for at in times]
            head = json.dumps({"__name__": name, **labels})
            line = f'{{"metric":{head},"values":[{",".join(values)}],"timestamps":{stamps}}}\n'
            urllib.request.urlopen(f"{url}/api/v1/import", line.encode()).close()
        urllib.request.urlopen(f"{url}/internal/force_flush").close()
        urllib.request.urlopen(f"{url}/internal/force_merge").close()
        _wait_until_still(folder / "vm")
        own = urllib.request.urlopen(f"{url}/metrics").read().decode()
        rows = [line.split()[1] for line in own.splitlines() if line.startswith('vm_rows{type="st')]
        if sum(map(int, rows)) != readings_in(fleet):
            raise RuntimeError(f"VictoriaMetrics holds {rows}, not {readings_in(fleet)} readings")
    # beside these lie its caches, which it could do without
    return Size(sum(_size_of((folder / "vm" / part).rglob("*")) for part in ("data", "indexdb")))


def series_of(
    fleet: Fleet,
) -> Iterator[tuple[str, dict[str, str], list[str], list[float]]]:
    """Name, labels, numbers in their shortest decimal form, and times, without what is missing.

    Series of one name follow each other, as the text format wants it.
    """
    cells = [
        (column.name, block, place, row)
        for blocks in fleet.values()
        for block in blocks
        for place, column in enumerate(block.columns)
        for row in range(len(block.rows))
    ]
    for name, block, place, row in sorted(cells, key=lambda cell: cell[0]):
        narrow = place < block.narrow
        plane = block.planes[NARROW if narrow else WIDE]
        numbers = plane[:, place if narrow else place - block.narrow, row]
        there = block.why[:, place, row] == 0
        if there.any():
            node, entity = block.rows[row]
            labels = {"node": node, "kind": block.kind.value, "entity": entity}
            values = [str(number) for number in numbers[there]]
            yield name, labels, values, block.times[there].tolist()


def readings_in(fleet: Fleet) -> int:
    """Readings that are numbers."""
    return sum(int((block.why == 0).sum()) for blocks in fleet.values() for block in blocks)


def compare(shapes: dict[str, Fleet], folder: Path, peers: bool) -> None:
    """Print bytes per reading of each shape, and the ratios."""
    print(
        f"{'bytes per reading, timestamps included':42}| readings | ours  | Prometheus | "
        "VictoriaMetrics | ours/P | ours/V | us CPU per 1,000"
    )
    for name, fleet in shapes.items():
        count = readings_in(fleet)
        places = [folder / f"{len(list(folder.iterdir()))}-{who}" for who in ("own", "prom", "vm")]
        for place in places:
            place.mkdir()
        own = ours(fleet, places[0])
        theirs = [
            make(fleet, place).stored / count if peers and shutil.which(program) else float("nan")
            for make, place, program in (
                (prometheus, places[1], PROMTOOL),
                (victoria, places[2], "victoria-metrics"),
            )
        ]
        mine = own.stored / count
        print(
            f"{name:42}| {count:8} | {mine:5.3f} | {theirs[0]:10.3f} | {theirs[1]:15.3f} | "
            f"{mine / theirs[0]:6.2f} | {mine / theirs[1]:6.2f} | {1e9 * own.cpu_s / count:6.0f}"
        )


def rollups(shapes: dict[str, Fleet]) -> None:
    """Print what roll-ups take and cost."""
    print(
        f"\n{'roll-ups, bytes per series and step':42}| minutes, slab | minutes | quarters | "
        "us CPU per node and minute: note, seal, pack | series a node"
    )
    for name, fleet in shapes.items():
        series = sum(
            len(block.columns) * len(block.rows) for blocks in fleet.values() for block in blocks
        )
        note_s, seal_s, slab_bytes, minutes = seal(fleet)
        count = len(minutes)
        began = time.process_time()
        whole: dict[str, list[Block]] = {}
        for blocks in minutes.values():
            for own in (own for block in blocks for own in block.by_node()):
                whole.setdefault(own.rows[0].node_id, []).append(own)
        packed = quarters = steps = 0
        for blocks in (merged(blocks) for blocks in whole.values()):
            for _, parts in windows_of(blocks, SHAPES[Level.MINUTE].window_s):
                packed += len(encode_segment(parts))
            further = [roll_up_further(block, QUARTER_S) for block in blocks]
            quarters += len(encode_segment(further))
            steps = max(steps, *(block.times.size for block in further))
        pack_s = time.process_time() - began
        turns = count * len(fleet)
        print(
            f"{name:42}| {slab_bytes / series / count:13.2f} | {packed / series / count:7.2f} | "
            f"{quarters / series / steps:8.2f} | {1e6 * note_s / turns:6.1f}, "
            f"{1e6 * seal_s / turns:6.1f}, {1e6 * pack_s / turns:6.1f} | {series / len(fleet):.0f}"
        )


def seal(fleet: Fleet) -> tuple[float, float, int, dict[int, list[Block]]]:
    """CPU of noting and of sealing, bytes of slabs, and the roll-ups, all nodes as one pack."""
    batches = batches_of(fleet)
    buffer = OpenMinutes(time.monotonic, HistoryMeters(CollectorRegistry()))
    began = time.process_time()
    for node_id, batch in batches:
        buffer.note(node_id, batch)
    noted = time.process_time()
    sealer, written = Sealer(), 0
    minutes: dict[int, list[Block]] = {}
    held = {node_id: buffer.of_node(node_id) for node_id in fleet}
    sealed = 0.0
    for minute in sorted({int(one.times[0] // MINUTE_S) for _, one in batches}):
        due = {
            node_id: [one for one in own if one.times[0] // MINUTE_S == minute]
            for node_id, own in held.items()
        }
        begun = time.process_time()
        minutes[minute] = sealer.roll_up(gather(due.items()))
        sealer.remember(minutes[minute])
        written += len(encode_segment(minutes[minute], FAST))
        sealed += time.process_time() - begun
    return noted - began, sealed, written, minutes


def batches_of(fleet: Fleet) -> list[tuple[str, JoinedTables]]:
    """The fleet's readings as ingest hands them down."""
    batches = []
    book: dict[str, Schema] = {}  # one object for all nodes, as in the server
    for node_id, blocks in fleet.items():
        own = [Schema(block.kind, block.columns) for block in blocks]
        hashes = [schema.hash for schema in own]
        schemas = [book.setdefault(name, one) for name, one in zip(hashes, own, strict=True)]
        names = [tuple(row.entity for row in block.rows) for block in blocks]
        layout = layout_of(schemas, hashes, names)
        for place, at in enumerate(blocks[0].times.tolist()):
            tables = [
                Table(
                    schema=hashes[number],
                    observed_at=at,
                    entities=names[number],
                    f32=block.planes[NARROW][place].astype("<f4").tobytes(),
                    f64=block.planes[WIDE][place].astype("<f8").tobytes(),
                )
                for number, block in enumerate(blocks)
            ]
            batches.append((node_id, join_as(layout, tables, (at,) * len(tables))))
    return batches


def _size_of(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def _wait_until_still(folder: Path) -> None:
    """Wait until a store has stopped to rewrite its files."""
    sizes: list[int] = []
    deadline = time.monotonic() + 60
    while len(sizes) < 6 or len(set(sizes[-6:])) > 1:
        sizes.append(_size_of(folder.rglob("*.bin")))
        time.sleep(0.5)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder} still changes")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--series", type=int, default=1000, help="of each node, for the mix")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--step", type=float, default=10.0, help="seconds between readings")
    parser.add_argument("--shape", default="", help="only shapes whose name begins so")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    seconds = options.hours * 3600
    sizes = (options.nodes, options.series, options.step, seconds)
    shapes = {
        "mix, times on the grid": mix(*sizes, jitter_s=0.0),
        "mix, times 5 ms off": mix(*sizes, jitter_s=0.005),
        "simulated fleet": simulated(options.nodes, options.step, seconds),
    }
    shapes = {name: one for name, one in shapes.items() if name.startswith(options.shape)}
    assert BEGIN % RAW_WINDOW_S == 0
    np.seterr(all="raise", under="ignore")
    with tempfile.TemporaryDirectory() as folder:
        compare(shapes, Path(folder), not options.no_peers)
    rollups(shapes)


if __name__ == "__main__":
    main()

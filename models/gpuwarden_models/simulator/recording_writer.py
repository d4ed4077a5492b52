"""Writes frames as a recording: the folder that training and backtests read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_models.names import KEY_COLUMNS, RECORDED
from gpuwarden_models.simulator.simulation import JobView, Simulation
from gpuwarden_models.simulator.story import Label
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

_ROWS_PER_PART = 250_000

_Block: TypeAlias = dict[str, pa.Array]


class RecordingWriter:
    """Takes frames one by one; `close` writes the small files."""

    def __init__(self, folder: Path) -> None:
        """Start a recording in a new or empty folder.

        Raises:
            FileExistsError: The folder has files in it already.
        """
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty: name a new folder, or empty it")
        self._folder = folder
        (folder / "metrics").mkdir(parents=True, exist_ok=True)
        (folder / "kernel").mkdir(exist_ok=True)
        self._blocks: dict[EntityKind, list[_Block]] = {}
        self._rows: dict[EntityKind, int] = {}
        self._parts: dict[EntityKind, int] = {}
        self._lines: dict[str, list[str]] = {}
        self.events = 0

    def add(self, frame: Frame) -> None:
        """Add one frame; rows not reported, and lost GPUs, are left out, as an exporter would."""
        for table in frame.tables:
            self._add_table(frame, table)
        for event in frame.events:
            self._add_event(event)

    def close(self, simulation: Simulation) -> None:
        """Write what is left: metrics, kernel logs, fleet, jobs, labels."""
        for kind in tuple(self._blocks):
            self._flush(kind)
        for node, lines in self._lines.items():
            path = self._folder / "kernel" / f"{node}.log"
            path.write_text("".join(lines), encoding="utf-8")
        self._write_description(simulation)
        _write_fleet(self._folder / "fleet.csv", simulation)
        _write_jobs(self._folder / "jobs.csv", simulation.board_jobs())
        _write_labels(self._folder / "labels.csv", simulation.labels(), simulation.now)

    def _add_table(self, frame: Frame, table: FrameTable) -> None:
        rows = np.flatnonzero(table.reported & ~_lost(table))
        if rows.size == 0:
            return
        block: _Block = {"timestamp": pa.array(np.full(rows.size, frame.at))}
        block.update(_key_columns(frame, table, rows))
        for column, values in zip(table.schema.columns, table.values, strict=True):
            name = RECORDED[column.name]
            block[name.column] = pa.array(values[rows] * name.factor)
        self._blocks.setdefault(table.kind, []).append(block)
        self._rows[table.kind] = self._rows.get(table.kind, 0) + rows.size
        if self._rows[table.kind] >= _ROWS_PER_PART:
            self._flush(table.kind)

    def _flush(self, kind: EntityKind) -> None:
        blocks = self._blocks.pop(kind, [])
        if not blocks:
            return
        part = self._parts.get(kind, 0)
        table = pa.concat_tables(pa.table(block) for block in blocks)
        path = self._folder / "metrics" / f"{kind}-{part:03d}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=_ROWS_PER_PART // 4)
        self._parts[kind], self._rows[kind] = part + 1, 0

    def _add_event(self, event: NodeEvent) -> None:
        self.events += 1
        if event.event.kind is not EventKind.KERNEL_LOG:
            return
        # kern  :warn  : 2025-01-21T04:41:44,287197+00:00 NVRM: Xid … (dmesg --time-format iso)
        moment = datetime.fromtimestamp(event.event.observed_at, UTC)
        stamp = moment.isoformat(timespec="microseconds").replace(".", ",")
        self._lines.setdefault(event.node_id, []).append(f"{stamp} {event.event.text}\n")

    def _write_description(self, simulation: Simulation) -> None:
        setting = simulation.setting
        description = {
            "format": "gpuwarden-recording",
            "version": 1,
            "start": setting.start,
            "end": simulation.now,
            "interval_s": setting.interval_s,
            "origin": "simulated",
            "seed": setting.seed,
        }
        text = json.dumps(description, indent=2)
        (self._folder / "recording.json").write_text(f"{text}\n", encoding="utf-8")


def _key_columns(frame: Frame, table: FrameTable, rows: NDArray[np.int64]) -> _Block:
    nodes = [frame.nodes[node] for node in table.node_of[rows].tolist()]
    keys = [table.keys[row] for row in rows]
    parts: tuple[Sequence[str], ...]
    match table.kind:
        case EntityKind.GPU:
            parts = (nodes, keys)
        case EntityKind.NODE:
            parts = (nodes,)
        case EntityKind.NIC | EntityKind.DISK:
            parts = tuple(zip(*(key.split("/") for key in keys), strict=True))
        case EntityKind.MOUNT:  # "node//mnt/point"
            parts = (nodes, [key.partition("/")[2] for key in keys])
        case EntityKind.PLACE:
            raise ValueError("a place has no series")
    names = KEY_COLUMNS[table.kind]
    return {
        name: pa.array(part).dictionary_encode() for name, part in zip(names, parts, strict=True)
    }


def _write_fleet(path: Path, simulation: Simulation) -> None:
    topology = simulation.topology
    _write_csv(
        path,
        "node,gpu_index,gpu_uuid,serial,pci_bus_id,model,rack,leaf,mounts",
        (
            (
                topology.nodes[gpu.node],
                gpu.index,
                gpu.gpu_uuid,
                gpu.serial,
                gpu.pci_bus_id,
                simulation.setting.parameters.gpu.model,
                topology.racks[gpu.node],
                topology.leaves[gpu.node],
                "",
            )
            for gpu in topology.gpus
        ),
    )


def _write_jobs(path: Path, jobs: Iterable[JobView]) -> None:
    rows = (
        (
            job.job_id,
            job.user,
            ";".join(job.nodes),
            f"{job.start:.3f}",
            "" if job.end is None else f"{job.end:.3f}",
            job.state,
            {"COMPLETED": "0", "RUNNING": ""}.get(job.state, "1"),
        )
        for job in jobs
    )
    _write_csv(path, "job_id,user,nodes,start,end,state,exit_code", rows)


def _write_labels(path: Path, labels: Iterable[Label], end: float) -> None:
    rows = (
        (
            label.entity_kind,
            label.entity,
            label.fault_class,
            f"{label.start:.3f}",
            # A fault that outlasts the recording ends with it, or when it would have begun.
            f"{min(label.end, max(end, label.start)):.3f}",
            "yes" if label.action_needed else "no",
            label.note,
        )
        for label in labels
    )
    _write_csv(path, "entity_kind,entity,fault_class,start,end,action_needed,note", rows)


def _lost(table: FrameTable) -> NDArray[np.bool_]:
    if table.kind is not EntityKind.GPU:
        return np.zeros(len(table.keys), dtype=np.bool_)
    return np.asarray(table.column("gpu_present") == 0.0)


def _write_csv(path: Path, header: str, rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(rows)

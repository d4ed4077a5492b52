"""Writes frames as a recording: the folder that training and backtests read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_models.names import RECORDED, XID_GAUGE, RecordedName
from gpuwarden_models.simulator.labels import Label
from gpuwarden_models.simulator.metrics_writers import Form, Stretch, make_writers
from gpuwarden_models.simulator.parameters import parameters_hash
from gpuwarden_models.simulator.simulation import JobView, Simulation
from gpuwarden_models.simulator.topology import EXPORTS
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

GENERATOR = "gpuwarden-simulator"
"""What recording.json names as the maker of what is simulated."""

_XID = RecordedName("", XID_GAUGE)


class RecordingWriter:
    """Takes frames one by one; `close` writes the small files."""

    def __init__(
        self,
        folder: Path,
        form: Form = Form.PARQUET,
        *,
        common_causes: bool = False,
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Start a recording in a new or empty folder.

        Args:
            folder: Where.
            form: Of the metrics.
            common_causes: Whether the story has what many entities show together.
            more: What else recording.json says of how it was made.

        Raises:
            FileExistsError: The folder has files in it already.
        """
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty: name a new folder, or empty it")
        self._folder, self._common_causes, self._more = folder, common_causes, more
        (folder / "metrics").mkdir(parents=True, exist_ok=True)
        (folder / "kernel").mkdir(exist_ok=True)
        self._writers = make_writers(folder / "metrics", form)
        self._lines: dict[str, list[str]] = {}
        self._xids: dict[str, float] = {}
        self._coming: list[tuple[float, str, int]] = []
        self.events = 0

    def add(self, frame: Frame) -> None:
        """Add one frame; rows not reported, and lost GPUs, are left out, as an exporter would."""
        for event in frame.events:
            self._add_event(event)
        # The gauge of the last XID cannot show what comes after the scrape.
        for _, gpu, xid in sorted(one for one in self._coming if one[0] <= frame.at):
            self._xids[gpu] = float(xid)
        self._coming = [one for one in self._coming if one[0] > frame.at]
        for table in frame.tables:
            self._add_table(frame, table)

    def close(self, simulation: Simulation) -> None:
        """Write what is left: metrics, kernel logs, fleet, jobs, labels."""
        for writer in self._writers:
            writer.close()
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
        names = [RECORDED[column.name] for column in table.schema.columns]
        # 1 / 1e-9 is not quite 1e9: whole numbers shall be written as such.
        times = np.array([round(1 / name.factor) if name.factor < 1 else 1 for name in names])
        by = np.array([max(name.factor, 1.0) for name in names])
        values = table.values[:, rows] * times[:, None] / by[:, None]
        if table.kind is EntityKind.GPU:
            names.append(_XID)
            xids = [self._xids.get(table.keys[row], 0.0) for row in rows.tolist()]
            values = np.vstack([values, xids])
        stretch = Stretch(table.kind, frame.at, _entities(frame, table, rows), names, values)
        for writer in self._writers:
            writer.add(stretch)

    def _add_event(self, event: NodeEvent) -> None:
        self.events += 1
        told = event.event
        if told.kind is not EventKind.KERNEL_LOG:
            return
        if told.xid is not None and told.entity_kind is EntityKind.GPU:
            self._coming.append((told.observed_at, told.entity, told.xid))
        # kern  :warn  : 2025-01-21T04:41:44,287197+00:00 NVRM: Xid … (dmesg --time-format iso)
        moment = datetime.fromtimestamp(told.observed_at, UTC)
        stamp = moment.isoformat(timespec="microseconds").replace(".", ",")
        self._lines.setdefault(event.node_id, []).append(f"{stamp} {told.text}\n")

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
            "common_causes": self._common_causes,
            "generator": GENERATOR,
            "parameters_sha256": parameters_hash(),
            **self._more,
        }
        text = json.dumps(description, indent=2)
        (self._folder / "recording.json").write_text(f"{text}\n", encoding="utf-8")


def _entities(
    frame: Frame, table: FrameTable, rows: NDArray[np.int64]
) -> tuple[tuple[str, ...], ...]:
    """Values of the columns that name the entities, one tuple a row."""
    nodes = [frame.nodes[node] for node in table.node_of[rows].tolist()]
    keys = [table.wire_keys[row] for row in rows.tolist()]
    match table.kind:
        case EntityKind.NODE:
            return tuple((node,) for node in nodes)
        case EntityKind.NIC:
            return tuple((node, *key.split("/")) for node, key in zip(nodes, keys, strict=True))
        case EntityKind.MOUNT:
            return tuple((n, EXPORTS[key], key) for n, key in zip(nodes, keys, strict=True))
        case _:
            return tuple(zip(nodes, keys, strict=True))


def _write_fleet(path: Path, simulation: Simulation) -> None:
    topology = simulation.topology
    _write_csv(
        path,
        "node,gpu_index,gpu_uuid,serial,pci_bus_id,model,rack,leaf,mounts,power,since",
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
                ";".join(EXPORTS),
                topology.powers[gpu.node],
                "" if part.since == simulation.setting.start else f"{part.since:.3f}",
            )
            for part in simulation.parts
            for gpu in (part.gpu,)
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

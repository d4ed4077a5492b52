"""Frames into the engine: readings, events as each node's agent would send them, and sweeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.history import History, RanJob
from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.job_ends import JobEnd, end_event
from gpuwarden_verdict.windows import ReadTable
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.metrics import EntityKind

SWEEP_S = 5.0
"""Sweeps come no closer than the server's own by default."""
_SPOOL = "0b" * 16


@dataclass(slots=True, eq=False)
class _Rows:
    """Rows of a table's entities in the windows.

    Attributes:
        keys: The table's own list, by which it is known again.
        rows: int64, shape (rows,).
        node_names: Node of each row, in the terms of the frame.
        moves: Whether an entity stands in the table under several nodes.
        reported: Which rows came with the frame before.
    """

    keys: Sequence[str]
    rows: NDArray[np.int64]
    node_names: tuple[str, ...]
    moves: bool
    reported: NDArray[np.bool_]


class Player:
    """Feeds one engine, frame by frame."""

    def __init__(
        self, engine: FleetEngine, history: History, sweep_every_s: float = SWEEP_S
    ) -> None:
        """Tell the engine where the nodes of a history stand.

        Args:
            engine: Who judges.
            history: What is going to be played.
            sweep_every_s: Sweeps come no closer than this.
        """
        self._engine = engine
        self._sweep_every_s = sweep_every_s
        self._interval_s = history.interval_s
        self._rows: dict[EntityKind, _Rows] = {}
        self._seq: dict[str, int] = {}
        self._swept_at = -np.inf
        self._nodes = frozenset(history.nodes)
        ended = (job for job in history.jobs if history.start <= job.end <= history.end)
        self._ends = deque(sorted(ended, key=lambda job: job.end))
        for node_id in history.nodes:
            place = history.places.get(node_id)
            if place is not None:
                engine.place(node_id, place, history.gpus_expected.get(node_id))

    def play(self, frame: Frame) -> None:
        """What happened up to the frame, its readings, and a sweep after them.

        An event of between two frames is judged when it happened, as an agent sends it at once.
        """
        for node_id, events in groupby(frame.events, key=lambda one: one.node_id):
            self._tell(node_id, list(events), frame.at)
        while self._ends and self._ends[0].end <= frame.at:
            self._tell_end(self._ends.popleft())
        tables = [read for table in frame.tables if (read := self._read(frame, table)) is not None]
        self._engine.read(tables, _heard(frame), frame.at, self._interval_s)
        if frame.at - self._swept_at >= self._sweep_every_s:
            self._swept_at = frame.at
            self._engine.sweep(frame.at)

    def _tell_end(self, job: RanJob) -> None:
        """How a job ended, as the epilog of its scheduler tells each of its nodes."""
        code = job.exit_code.partition(":")[0]  # Slurm writes "1:0"
        exit_code = int(code) if code.lstrip("-").isdecimal() else None
        end = JobEnd(job.key, job.state, exit_code, job.user, job.end, len(job.nodes))
        for node_id in job.nodes:
            if node_id in self._nodes:
                self._engine.tell(node_id, end_event(f"job_ended:{job.key}", end), job.end)

    def _tell(self, node_id: str, events: Sequence[NodeEvent], at: float) -> None:
        for boot_id, same in groupby(events, key=lambda one: one.boot_id):
            for observed_at, together in groupby(same, key=lambda one: one.event.observed_at):
                self._send(node_id, boot_id, together, min(observed_at, at))

    def _send(self, node_id: str, boot_id: str, events: Iterable[NodeEvent], at: float) -> None:
        seq = self._seq[node_id] = self._seq.get(node_id, 0) + 1
        batch = Batch(
            version=WIRE_VERSION,
            node_id=node_id,
            spool_id=_SPOOL,
            stream=Stream.EVENTS,
            seq=seq,
            boot_id=boot_id,
            agent_version="backtest",
            sent_at=at,
            interval_s=self._interval_s,
            events=tuple(one.event for one in events),
        )
        self._engine.hear(node_id, batch, at)

    def _read(self, frame: Frame, table: FrameTable) -> ReadTable | None:
        if not table.reported.any():
            return None
        known = self._rows_of(frame, table)
        if known.moves:
            self._follow(known, table)
        known.reported = table.reported
        split = table.schema.f32_count
        values = table.values if table.reported.all() else table.values[:, table.reported]
        return ReadTable(
            table.kind,
            known.rows[table.reported],
            table.schema,
            # The wire carries float32: a backtest must see the numbers that the server sees.
            np.ascontiguousarray(values[:split], "<f4").tobytes(),
            np.ascontiguousarray(values[split:], "<f8").tobytes(),
            (),
            frame.at,
        )

    def _rows_of(self, frame: Frame, table: FrameTable) -> _Rows:
        known = self._rows.get(table.kind)
        if known is None or known.keys is not table.keys:
            names = tuple(frame.nodes[node] for node in table.node_of.tolist())
            known = self._rows[table.kind] = _Rows(
                table.keys,
                self._engine.register(table.kind, table.keys, names),
                names,
                len(set(table.keys)) < len(table.keys),
                np.zeros(len(table.keys), np.bool_),
            )
        return known

    def _follow(self, known: _Rows, table: FrameTable) -> None:
        """An entity that shows up under another node than before sits there from now on."""
        for row in np.flatnonzero(table.reported & ~known.reported).tolist():
            self._engine.register(table.kind, [known.keys[row]], [known.node_names[row]])


def _heard(frame: Frame) -> list[str]:
    heard = np.zeros(len(frame.nodes), np.bool_)
    for table in frame.tables:
        heard[table.node_of[table.reported]] = True
    return [frame.nodes[node] for node in np.flatnonzero(heard).tolist()]

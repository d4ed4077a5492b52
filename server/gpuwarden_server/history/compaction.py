"""From the slabs of a pack to one segment a node and window, and to the next longer roll-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from gpuwarden_server.history import repository
from gpuwarden_server.history.domain import QUARTER_S, SHAPES, Level
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_server.history.repository import Segment, Slab
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.segments import Block, SegmentError, decode_segment, encode_segment
from gpuwarden_verdict.segments.blocks import merged, side_by_side
from gpuwarden_verdict.segments.codec import FAST
from gpuwarden_verdict.segments.rollup import roll_up_further
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Column

Alike = tuple[EntityKind, tuple[Column, ...]]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a pack's window becomes.

    Attributes:
        segments: One a node.
        quarters: Slabs of the next longer roll-up.
        slabs: Ids of the slabs that are in them.
    """

    segments: tuple[Segment, ...]
    quarters: tuple[Slab, ...]
    slabs: tuple[int, ...]


class Compactor:
    """Turns slabs into segments, one pack's window at a time."""

    def __init__(self, history: Database, meters: HistoryMeters) -> None:
        self._history = history
        self._meters = meters

    def run_one(self, level: Level, now: float) -> bool:
        """Compact the oldest window that has settled; False where there is none.

        Args:
            level: Of which slabs.
            now: Epoch seconds.

        Raises:
            WriteFailed: The database took nothing; the slabs are still there.
        """
        shape = SHAPES[level]
        with self._history.read() as connection:
            oldest = repository.oldest_slabs(connection, level)
        for pack, step_at in oldest:
            window = shape.window_of(step_at)
            if window + shape.window_s + shape.settle_s <= now:
                with self._meters.seconds.labels("compact").time():
                    self._write(self._compact(level, pack, window))
                return True
        return False

    def decoded(self, body: bytes) -> list[Block]:
        """Blocks of a row; none where it is damaged, which is counted and logged."""
        try:
            return decode_segment(body)
        except SegmentError as error:
            self._meters.damaged.inc()
            _log.error("history_row_damaged", reason=str(error))
            return []

    def _compact(self, level: Level, pack: int, window: int) -> Compacted:
        end = window + SHAPES[level].window_s
        with self._history.read() as connection:
            slabs = repository.slabs_between(connection, level, pack, window, end)
            nodes = self._by_node(body for _, body in slabs)
            for node_id, blocks in nodes.items():
                for body in repository.segments_between(connection, level, node_id, window, end):
                    blocks[:0] = self.decoded(body)  # older than what came late
        whole = {node_id: merged(blocks) for node_id, blocks in nodes.items()}
        return Compacted(
            segments=tuple(
                Segment(level, node_id, window, encode_segment(blocks))
                for node_id, blocks in whole.items()
            ),
            quarters=tuple(_quarters(pack, whole)) if level is Level.MINUTE else (),
            slabs=tuple(slab_id for slab_id, _ in slabs),
        )

    def _by_node(self, bodies: Iterable[bytes]) -> dict[str, list[Block]]:
        nodes: dict[str, list[Block]] = {}
        blocks = (block for body in bodies for block in self.decoded(body))
        for own in (own for block in blocks for own in block.by_node()):
            nodes.setdefault(own.rows[0].node_id, []).append(own)
        return nodes

    def _write(self, made: Compacted) -> None:
        def write(connection: Connection) -> None:
            repository.save_segments(connection, made.segments)
            repository.insert_slabs(connection, made.quarters)
            repository.delete_slabs(connection, made.slabs)

        self._history.writer.call(write)
        for segment in made.segments:
            self._meters.bytes.labels("segment", segment.level.name.lower()).inc(len(segment.body))
        for slab in made.quarters:
            self._meters.bytes.labels("slab", slab.level.name.lower()).inc(len(slab.body))


def _quarters(pack: int, whole: Mapping[str, Sequence[Block]]) -> Iterable[Slab]:
    steps: dict[int, dict[Alike, list[Block]]] = {}
    for step in (step for blocks in whole.values() for step in _quarter_steps(blocks)):
        alike = steps.setdefault(int(step.times[0]), {})
        alike.setdefault((step.kind, step.columns), []).append(step)
    for at, groups in steps.items():
        body = encode_segment([side_by_side(group) for group in groups.values()], FAST)
        yield Slab(Level.QUARTER, pack, at, body)


def _quarter_steps(blocks: Iterable[Block]) -> Iterable[Block]:
    """Roll-ups of one quarter each."""
    for block in merged(roll_up_further(block, QUARTER_S) for block in blocks):
        for at in block.times.tolist():
            step = block.between(at, at + QUARTER_S)
            if step is not None:
                yield step

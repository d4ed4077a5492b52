"""The thread that seals minutes, packs windows and lets go of what is old."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from threading import Event, Thread

import structlog

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.history import repository
from gpuwarden_server.history.buffer import OpenMinutes, Taken
from gpuwarden_server.history.compaction import Compactor
from gpuwarden_server.history.domain import MINUTE_S, SHAPES, Level, pack_of
from gpuwarden_server.history.lookback import Lookback
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_server.history.repository import Slab
from gpuwarden_server.history.sealing import Sealer, gather, readings_of
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.segments import Block, encode_segment
from gpuwarden_verdict.segments.codec import FAST

TURN_S = 0.5
TURNS = 24
"""Turns in which every node has its turn, so that the work of a minute does not come at once."""
LEAST_NODES = 64
RETAIN_EVERY_S = 60.0
RETAIN_ROWS = 500

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long what is kept.

    Attributes:
        all_readings: Keep readings of all nodes, else of those with an open incident.
        seconds: By level.
    """

    all_readings: bool
    seconds: dict[Level, float]


class HistoryWorker:
    """Everything that history does beside noting and answering."""

    def __init__(
        self,
        history: Database,
        buffer: OpenMinutes,
        sealer: Sealer,
        lookback: Lookback,
        keeping: Keeping,
        watched: Callable[[], frozenset[str]],
        clock: Clock,
        meters: HistoryMeters,
    ) -> None:
        """Make it; `start` makes it run.

        Args:
            history: history.db.
            buffer: Open minutes.
            sealer: Makes roll-ups.
            lookback: Readings in memory.
            keeping: How long what is kept.
            watched: Nodes with an open incident.
            clock: Time.
            meters: Counters.
        """
        self._history = history
        self._buffer = buffer
        self._sealer = sealer
        self._lookback = lookback
        self._keeping = keeping
        self._watched = watched
        self._clock = clock
        self._meters = meters
        self._compactor = Compactor(history, meters)
        self._recorded: frozenset[str] = frozenset()
        self._next_pack = 0
        self._retain_at = float("-inf")
        self._failing = False
        self._stop = Event()
        self._thread = Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """Remember where counters stood, and start the thread."""
        with self._history.read() as connection:
            for pack, _ in repository.oldest_slabs(connection, Level.MINUTE):
                body = repository.latest_slab(connection, Level.MINUTE, pack)
                self._sealer.remember(self._compactor.decoded(body) if body else [])
        self._thread.start()

    def stop(self) -> None:
        """End after the piece of work under way; what is open goes into the last checkpoint."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def probe(self) -> str | None:
        """For /readyz: None while history is written."""
        if not self._thread.is_alive():
            return "the history thread has ended"
        return "roll-ups cannot be written; they are kept in memory" if self._failing else None

    def _run(self) -> None:
        while not self._stop.wait(TURN_S):
            try:
                self._turn()
            except (WriteFailed, TimeoutError) as error:
                self._note_failure(str(error))
            except Exception as error:  # worker thread "history": what fails is tried again
                self._note_failure(repr(error))

    def _note_failure(self, reason: str) -> None:
        if not self._failing:
            _log.error("history_failed", error=reason)
        self._failing = True

    def _turn(self) -> None:
        self._record()
        for pack in self._packs_of_turn():
            self._piece("seal", partial(self._seal, pack))
        now = self._clock.now()
        for level in Level:
            self._piece("compact", partial(self._compactor.run_one, level, now))
        if self._clock.monotonic() >= self._retain_at:
            self._piece("retain", self._retain)
        if self._failing:
            self._failing = False
            _log.info("history_written_again")

    def _piece(self, stage: str, work: Callable[[], object]) -> None:
        outcome = "failed"
        try:
            outcome = "done" if work() else ""
        finally:
            if outcome:
                self._meters.pieces.labels(stage, outcome).inc()

    # sealing

    def _packs_of_turn(self) -> list[int]:
        """The next packs, as many as hold this turn's share of the nodes."""
        packs = self._buffer.packs()
        share = max(LEAST_NODES, sum(nodes for _, nodes in packs) // TURNS)
        behind = [item for item in packs if item[0] >= self._next_pack]
        ahead = [item for item in packs if item[0] < self._next_pack]
        chosen: list[int] = []
        for pack, nodes in behind + ahead:
            chosen.append(pack)
            share -= nodes
            if share <= 0:
                break
        if chosen:
            self._next_pack = chosen[-1] + 1
        return chosen

    def _seal(self, pack: int) -> bool:
        """Roll the minutes of a pack up that are over, and write them."""
        due = self._buffer.due(pack)
        if not due:
            return False
        with self._meters.seconds.labels("seal").time():
            fork = self._sealer.fork()
            slabs: list[Slab] = []
            for minute, taken in groupby(due, key=lambda one: one.minute):
                slabs += self._sealed(pack, minute, list(taken), fork)
            self._write(slabs)
            self._sealer.adopt(fork)
            self._buffer.confirm(due)
        self._meters.minutes.inc(len(due))
        self._meters.lag.set(self._clock.now() - (due[0].minute + 1) * MINUTE_S)
        return True

    def _sealed(self, pack: int, minute: int, taken: list[Taken], sealer: Sealer) -> list[Slab]:
        rolled = sealer.roll_up(
            gather(((one.node_id, one.batches) for one in taken), sealer.rows.of)
        )
        sealer.remember(rolled)
        at = minute * MINUTE_S
        slabs = [Slab(Level.MINUTE, pack, at, encode_segment(rolled, FAST))]
        recorded = [
            block
            for one in taken
            if self._keeping.all_readings or one.node_id in self._recorded
            for block in readings_of(one.node_id, one.batches, sealer.rows.of)
        ]
        if recorded:
            slabs.append(Slab(Level.RAW, pack, at, encode_segment(recorded, FAST)))
        if not self._keeping.all_readings and self._lookback.is_kept:
            share = len(taken) / sum(nodes for _, nodes in self._buffer.packs())
            readings = [
                block
                for one in taken
                for block in readings_of(one.node_id, one.batches, sealer.rows.of)
            ]
            self._lookback.add(minute, pack, encode_segment(readings, FAST), share)
        return slabs

    def _of(self, nodes: frozenset[str], blocks: Iterable[Block]) -> list[Block]:
        return [block for block in blocks if block.rows[0].node_id in nodes]

    def _write(self, slabs: list[Slab]) -> None:
        self._history.writer.call(lambda connection: repository.insert_slabs(connection, slabs))
        for slab in slabs:
            self._meters.bytes.labels("slab", slab.level.name.lower()).inc(len(slab.body))

    # readings around incidents

    def _record(self) -> None:
        """Keep from now on what nodes read that have an open incident, and the hour before it."""
        if self._keeping.all_readings:
            self._meters.recorded.set(sum(nodes for _, nodes in self._buffer.packs()))
            return
        watched = self._watched()
        new = watched - self._recorded
        slabs = [
            slab
            for pack in sorted({pack_of(node_id) for node_id in new})
            for slab in self._looked_back(pack, new)
        ]
        if slabs:
            self._write(slabs)
        self._recorded = watched
        self._meters.recorded.set(len(watched))

    def _looked_back(self, pack: int, nodes: frozenset[str]) -> Iterable[Slab]:
        for minute, body in self._lookback.of_pack(pack):
            own = self._of(nodes, self._compactor.decoded(body))
            if own:
                yield Slab(Level.RAW, pack, minute * MINUTE_S, encode_segment(own, FAST))

    # retention

    def _retain(self) -> bool:
        """Remove some of what is older than it is kept; comes again at once while there is more."""
        now, begun = self._clock.now(), self._clock.monotonic()
        removed = 0
        for level, seconds in self._keeping.seconds.items():
            before = now - seconds - SHAPES[level].window_s
            remove = partial(repository.delete_before, level=level, before=before, most=RETAIN_ROWS)
            with self._meters.seconds.labels("retain").time():
                gone = self._history.writer.call(remove)
            self._meters.deleted.labels(level.name.lower()).inc(gone)
            removed += gone
        self._buffer.forget_before(now - self._keeping.seconds[Level.MINUTE])
        if removed == 0:
            self._retain_at = begun + RETAIN_EVERY_S
        return removed > 0

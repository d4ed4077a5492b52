"""The worker itself: one entity that fails, a disk that fails, a sweep that comes too late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection

from gpuwarden_server.core.clock import SystemClock
from gpuwarden_server.decisions.feed import FeedChange
from gpuwarden_server.decisions.hub import FeedHub
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.refusals import RefusalBook
from gpuwarden_server.ingest.repository import Arrived, insert_event
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.judging.feature import Judging, JudgingParts
from gpuwarden_server.judging.parts import SAVE_EACH_S, LedgerKeeper
from gpuwarden_server.judging.remembering import MemoryKeeper
from gpuwarden_server.judging.repository import (
    RECENT_ROWS,
    read_sweep_memory,
    write_part_ledger,
    write_sweep_memory,
)
from gpuwarden_server.store.database import Database, connect_store
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_verdict.engine.events import EventFlag
from gpuwarden_verdict.engine.facts import Patience
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import Gate
from gpuwarden_verdict.incidents.domain import IncidentMove
from gpuwarden_verdict.ledger import Mark, PartLedger
from gpuwarden_verdict.policy.document import DecisionMove, Mode, PoolPolicy
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_verdict.signals import Risk, Signal
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.feed import xid_event
from tests.builders.server import wait_until
from tests.fakes.windows import NoWindows


class HeardOf:
    """Everybody is heard of, save a node whose look-up fails."""

    def presence(self, node_id: str) -> Presence | None:
        if node_id == "poison":
            raise RuntimeError("this node cannot be looked up")
        return None


@dataclass
class NoScore:
    """No model; calls `meanwhile` in the middle of each sweep."""

    meanwhile: Callable[[], None] = lambda: None

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        self.meanwhile()
        return []

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        return Gate(("no model",))

    def model_of(self, kind: EntityKind) -> str:
        return ""

    def may_exclude(self, kind: EntityKind, version: str, pool: PoolPolicy) -> bool:
        return False


@dataclass
class Facts:
    """Takes what is told; fails where it was told to."""

    told: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def write_facts(
        self,
        connection: Connection,
        incidents: Sequence[IncidentMove],
        decisions: Sequence[DecisionMove],
    ) -> None:
        if self.failures:
            raise self.failures.pop()
        self.told += [move.decision.entity.key for move in decisions]

    def wake(self) -> None:
        """Nobody sleeps."""


class Hub(FeedHub):
    """The real hub, which also keeps what was published."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(StreamMeters(registry))
        self.published: list[FeedChange] = []

    def publish(self, change: FeedChange) -> None:
        self.published.append(change)
        super().publish(change)


class Stage:
    """The judge with a real database, and events put straight into it."""

    def __init__(self, folder: Path, risks: NoScore, sweep_interval_s: float) -> None:
        prepare_store(folder)
        self.store = connect_store(folder)
        self.store.start()
        self.registry = CollectorRegistry()
        self.hub = Hub(self.registry)
        self.facts = Facts()
        self.guarded = GuardedState(FleetState())
        directory = FleetDirectory(lambda node: True)
        policy = parse_policy("[defaults]\ncap = { max_percent = 100 }", Mode.ACT)
        self.judging = Judging(
            JudgingParts(
                state=self.store.state,
                guarded=self.guarded,
                directory=directory,
                presences=HeardOf(),
                refusals=RefusalBook(SystemClock()),
                clock=SystemClock(),
                placements=Placements(directory, policy),
                hub=self.hub,
                moved=lambda: None,
                risks=risks,
                facts=self.facts,
                windows=NoWindows(),
                registry=self.registry,
                sweep_interval_s=sweep_interval_s,
                patience=Patience(silent_after_s=3600.0, gone_after_s=7200.0),
                stopping=asyncio.Event(),
            )
        )
        self.seq = 0

    def put(self, node_id: str, gpu: str, event: Event) -> None:
        """Store an event and tell the judge, as ingest does."""
        arrived = self.arrived(node_id, gpu, event)
        stored = self.store.state.writer.call(lambda writes: insert_event(writes, arrived))
        assert stored is not None
        self.judging.events_stored([stored])

    def arrived(self, node_id: str, gpu: str, event: Event) -> Arrived:
        """An event as ingest takes it."""
        self.seq += 1
        batch = Batch(
            version=WIRE_VERSION,
            node_id=node_id,
            spool_id="0" * 32,
            stream=Stream.EVENTS,
            seq=self.seq,
            boot_id="boot",
            agent_version="0",
            sent_at=time.time(),
        )
        ref = EntityRef(EntityKind.GPU, gpu, node_id)
        flags: frozenset[EventFlag] = frozenset()
        return Arrived(event, ref, batch, time.time(), flags)

    def figure(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def added(self) -> list[str]:
        return [one.entity for change in self.hub.published for one in change.added]

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, NoScore(), sweep_interval_s=3600.0)
    yield made
    made.close()


def play(stage: Stage, story: Callable[[], None]) -> None:
    async def run() -> None:
        await stage.judging.start()
        try:
            await asyncio.to_thread(story)
        finally:
            await stage.judging.stop()

    asyncio.run(run())


def lost(slot: int = 0) -> Event:
    return xid_event(79, f"0000:{0x10 + slot:02x}:00.0")


def test_an_entity_that_fails_does_not_stop_the_others(stage: Stage) -> None:
    def story() -> None:
        stage.put("poison", "GPU-poison", lost())
        stage.put("sound", "GPU-sound", lost())
        wait_until(lambda: "GPU-sound" in stage.added(), "the other one judged")

    play(stage, story)
    assert stage.added() == ["GPU-sound"]
    assert stage.figure("gpuwarden_judge_failures_total", stage="reassess") == 1


def test_a_conclusion_that_cannot_be_written_does_not_stop_the_others(stage: Stage) -> None:
    def story() -> None:
        stage.facts.failures = [ValueError("a bug in one message")]
        stage.put("one", "GPU-one", lost())
        wait_until(lambda: stage.figure("gpuwarden_judge_refused_total") == 1, "refused")
        stage.put("two", "GPU-two", lost())
        wait_until(lambda: "GPU-two" in stage.added(), "the next one judged")

    play(stage, story)
    assert stage.added() == ["GPU-two"]
    assert stage.judging.board.epoch == 1


def test_a_restart_judges_what_was_stored_and_not_judged(stage: Stage, tmp_path: Path) -> None:
    # Stored while nobody judged, as after a crash between ingest's commit and the judge's.
    stage.put("late", "GPU-late", lost())
    play(stage, lambda: wait_until(lambda: "GPU-late" in stage.added(), "judged at the start"))
    again = stage.store.state
    assert position(again) == 1
    play(stage, lambda: time.sleep(0.2))
    assert stage.added() == ["GPU-late"], "nothing is judged twice"


def position(state: Database) -> int:
    with state.read() as connection:
        row = connection.exec_driver_sql("SELECT event_row FROM judged_position").scalar()
        return int(row or 0)


def test_a_sweep_older_than_an_event_of_the_entity_says_nothing_about_it(tmp_path: Path) -> None:
    risks = NoScore()
    stage = Stage(tmp_path, risks, sweep_interval_s=0.3)
    schema = schema_for(EntityKind.GPU, ("gpu_row_remap_failure",))
    with stage.guarded.lock:
        state = stage.guarded.state
        rows = np.array(
            [state.register(EntityRef(EntityKind.GPU, f"GPU-{n}", "node")) for n in range(2)],
            np.int64,
        )
        failed = np.array([[1.0, 1.0]], np.float32)
        empty = np.empty((0, 2), np.float64)
        state.apply_table(EntityKind.GPU, rows, schema, failed, empty, (), time.time())

    def in_the_middle_of_the_first() -> None:
        risks.meanwhile = lambda: None
        stage.put("node", "GPU-0", lost())

    risks.meanwhile = in_the_middle_of_the_first

    def story() -> None:
        wait_until(
            lambda: stage.figure("gpuwarden_sweep_results_dropped_total") == 1, "dropped once"
        )
        wait_until(lambda: len(set(stage.added())) == 2, "both excluded")

    play(stage, story)
    stage.close()
    first = [one for change in stage.hub.published for one in change.added if one.entity == "GPU-0"]
    assert "79" in first[0].reason, "the event spoke, not the sweep that did not know of it"


def test_what_raises_in_a_sweep_does_not_stop_it(tmp_path: Path) -> None:
    """The score raises each time; sweeps come to their end all the same."""

    def raise_it() -> None:
        raise RuntimeError("a bug in the score")

    stage = Stage(tmp_path, NoScore(raise_it), sweep_interval_s=0.3)
    sweeps, failures = "gpuwarden_sweep_duration_seconds_count", "gpuwarden_judge_failures_total"

    def story() -> None:
        wait_until(lambda: stage.figure(sweeps) >= 2, "two sweeps ended")

    play(stage, story)
    stage.close()
    assert stage.figure(failures, stage="sweep") >= 2
    assert stage.figure(failures, stage="pass") == 0


class Unpacked(MemoryKeeper):
    """A memory that is due at each sweep, and cannot be stored while the server runs."""

    def save_if_due(self, now: float) -> None:
        raise RuntimeError("a bug in the packing of what is learnt")


def test_a_memory_that_cannot_be_stored_does_not_stop_sweeps(tmp_path: Path) -> None:
    stage = Stage(tmp_path, NoScore(), sweep_interval_s=0.3)
    stage.judging._keeper = Unpacked(stage.store.state)
    sweeps, failures = "gpuwarden_sweep_duration_seconds_count", "gpuwarden_judge_failures_total"
    play(stage, lambda: wait_until(lambda: stage.figure(sweeps) >= 2, "two sweeps ended"))
    stage.close()
    assert stage.figure(failures, stage="sweep") >= 2
    assert stage.figure(failures, stage="pass") == 0


def test_what_sweeps_learnt_outlives_a_restart(stage: Stage) -> None:
    play(stage, lambda: None)
    with stage.store.state.read() as connection:
        assert read_sweep_memory(connection) is not None, "stored at the end"
    first = MemoryKeeper(stage.store.state)
    first.memory.table("heat", "limit", "H100", 1)[:] = 12.0
    first.save(time.time()).result(30.0)
    second = MemoryKeeper(stage.store.state)
    second.load()
    assert second.memory.table("heat", "limit", "H100", 1).tolist() == [12.0]


def test_what_is_on_record_of_parts_outlives_a_restart(stage: Stage) -> None:
    first, gpu = LedgerKeeper(stage.store.state), EntityRef(EntityKind.GPU, "GPU-1", "n1")
    first.ledger.note("gpu:S1", gpu, Mark.BUS, 7.0)
    now = time.time()
    first.save_if_due(now)
    first.ledger.note("gpu:S1", gpu, Mark.BUS, now)
    first.save_if_due(now + SAVE_EACH_S)

    def stored() -> PartLedger:
        again = LedgerKeeper(stage.store.state)
        again.load()
        return again.ledger

    wait_until(lambda: stored().marks_of("gpu:S1"), "it was stored when it was due")
    assert stored().marks_of("gpu:S1") == ((Mark.BUS, now, 1.0),), "what is long past is left out"
    stage.store.state.writer.call(lambda writes: write_part_ledger(writes, b"nonsense", 1.0))
    assert stored().marks_of("gpu:S1") == ()


def test_a_memory_that_cannot_be_read_is_learnt_anew(stage: Stage) -> None:
    stage.store.state.writer.call(lambda writes: write_sweep_memory(writes, b"nonsense", 1.0))
    keeper = MemoryKeeper(stage.store.state)
    keeper.load()
    assert keeper.memory.tables() == {}


def test_a_repeat_is_known_after_a_restart_though_much_came_between(stage: Stage) -> None:
    """The second contained memory error of a day; the server was restarted after the first."""
    slot = "0000:10:00.0"

    first = xid_event(94, slot, observed_at=time.time() - 3600.0)
    came = [stage.arrived("worn", "GPU-worn", first)]
    came += [stage.arrived("other", "GPU-other", xid_event(45, slot)) for _ in range(RECENT_ROWS)]
    stage.store.state.writer.call(lambda writes: [insert_event(writes, one) for one in came])

    def judged() -> None:
        wait_until(lambda: position(stage.store.state) == len(came), "all are judged", 60.0)

    def again() -> None:
        stage.put("worn", "GPU-worn", xid_event(94, slot))
        wait_until(lambda: "xid_repeat:94" in evidence(stage.store.state), "known again")

    play(stage, judged)
    play(stage, again)


def evidence(state: Database) -> str:
    with state.read() as connection:
        found = connection.exec_driver_sql("SELECT body FROM incidents")
        return "\n".join(str(body) for (body,) in found)

"""Each collector in turn raises, hangs and returns garbage: the others do not notice."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.agent import build_sources, make_context
from gpuwarden_agent.collection import Collection
from gpuwarden_agent.collector_loop import CollectorLoop
from gpuwarden_agent.collectors import TOGETHER
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.inventory import InventoryKeeper
from gpuwarden_agent.latest import LatestReadings
from gpuwarden_agent.outbox import Outbox
from gpuwarden_agent.precedence import Precedence, SourceOrder
from gpuwarden_agent.scheduler import Scheduler
from gpuwarden_agent.sealing import Sealer
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_wire.batches import Table
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders import nvml
from tests.builders.agent import BOOT, agent_settings, origin
from tests.builders.nvml import ScenarioFile, stub_environment
from tests.builders.plug_ins import definitions_file, program
from tests.fakes.waiting import wait_for

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"
INTERVAL_S = 0.02
CALLS_A_PHASE = 3


class Mode(StrEnum):
    SOUND = "sound"
    RAISES = "raises"
    HANGS = "hangs"
    GARBAGE = "garbage"


REASONS = {
    Mode.RAISES: "source_is_gone",
    Mode.HANGS: "deadline_exceeded",
    Mode.GARBAGE: "garbage",
}


def garbage() -> Iterator[Any]:
    """Harvests that are none, again and again."""
    kinds: list[Any] = [
        None,
        "a text",
        Harvest(rows=None),  # type: ignore[arg-type]  # garbage is the point
        Harvest(rows={"gpu": {}}),  # type: ignore[dict-item]  # likewise
        Harvest(rows={EntityKind.NODE: {"": {"node load": 1.0}}}),
        Harvest(events=("x",)),  # type: ignore[arg-type]  # likewise
    ]
    return itertools.cycle(kinds)


class Chaotic:
    """A real collector at a quick cadence, which does otherwise when told."""

    interval_s = INTERVAL_S

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.name = collector.name
        self.mode = Mode.SOUND
        self.free = threading.Event()
        self.calls = 0
        self.running = 0
        self.most_running = 0
        self._garbage = garbage()

    @property
    def deadline_s(self) -> float:
        return 0.05 if self.mode is Mode.HANGS else self._collector.deadline_s

    def collect(self, now: float) -> Harvest:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return self._act(now)
        finally:
            self.running -= 1

    def _act(self, now: float) -> Harvest:
        match self.mode:
            case Mode.SOUND:
                return self._collector.collect(now)
            case Mode.RAISES:
                raise CollectorError("source_is_gone", "Bring it back.")
            case Mode.HANGS:
                self.free.wait(60)
                raise CollectorError("source_is_gone")
            case Mode.GARBAGE:
                harvest: Harvest = next(self._garbage)
                return harvest

    def close(self) -> None:
        self._collector.close()


class Pulse:
    """Reads nothing: its cadence is what the machine can do just now."""

    name = "pulse"
    interval_s = INTERVAL_S
    deadline_s = 60.0

    def collect(self, now: float) -> Harvest:
        return Harvest()

    def close(self) -> None:
        return


class Recording(Sealer):
    """Keeps what each collector gave."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(names, INTERVAL_S, lambda *_: None)
        self.tables: dict[str, list[Table]] = {name: [] for name in names}

    def add(self, collector: str, tables: Any, *, urgent: bool = False) -> None:
        self.tables[collector] += [table for table, _ in tables]
        super().add(collector, tables, urgent=urgent)


@dataclass
class Rig:
    """Every collector of an agent over a node of the fixtures, one of them at a time in trouble."""

    collectors: list[Chaotic]
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [one.name for one in self.collectors]
        self.board = ConditionBoard(self.events.extend, BOOT)
        self.latest = LatestReadings()
        self.sealer = Recording(names)
        inventory = InventoryKeeper(
            names, BOOT, self.events.extend, lambda _: None, lambda *_: None
        )
        cadence = dict.fromkeys(names, INTERVAL_S)
        precedence = Precedence(SourceOrder(cadence), cadence)
        collection = Collection(self.latest, self.sealer, inventory, self.events.extend, precedence)
        self.loops = [CollectorLoop(one, collection, self.board) for one in self.collectors]
        self.scheduler = Scheduler(self.loops, [], TOGETHER, self.sealer)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        watcher = threading.Thread(target=self._supervise, args=(stop,), daemon=True)
        self.scheduler.start()
        watcher.start()
        try:
            yield
        finally:
            for one in self.collectors:
                one.free.set()
            stop.set()
            watcher.join(5)
            self.left = self.scheduler.stop(20)
            self.sealer.finish()

    def _supervise(self, stop: threading.Event) -> None:
        """As the scheduler does, but ten times as often: the test has no time to lose."""
        while not stop.wait(INTERVAL_S):
            self.scheduler.look()

    def counts(self) -> Counter[str]:
        return Counter({one.name: one.calls for one in self.collectors})

    def phase(self, victim: Chaotic | None) -> Counter[str]:
        """Calls of each collector until every one but the victim made some."""
        before = self.counts()

        def made() -> Counter[str]:
            return Counter({n: c - before[n] for n, c in self.counts().items()})

        others = [one.name for one in self.collectors if one is not victim]
        wait_for(lambda: min(made()[name] for name in others) >= CALLS_A_PHASE)
        return made()

    def reason_of(self, name: str) -> str:
        trouble = self.board.troubles().get(name)
        return trouble.reason if trouble is not None else ""

    def is_read(self, name: str) -> bool:
        record = self.latest.records().get(name)
        return record is not None and record.current

    def numbers_since(self, name: str, at: float) -> int:
        """Numbers that a collector's tables hold of calls after `at`."""
        tables = [table for table in self.sealer.tables[name] if table.observed_at >= at]
        cells = [
            cell
            for table in tables
            for cell in (*memoryview(table.f32).cast("f"), *memoryview(table.f64).cast("d"))
        ]
        return sum(map(math.isfinite, cells))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Every collector there is, over a node of the fixtures and two GPUs of the stub."""
    scenario = ScenarioFile(tmp_path / "scenario", nvml.h100_node(2))
    for name, value in stub_environment(scenario.path).items():
        monkeypatch.setenv(name, value)
    check = program(tmp_path / "check", "echo OK", shell=True)
    checks = definitions_file(tmp_path / "checks.json", {"name": "c", "command": [str(check)]})
    settings = agent_settings(
        tmp_path, nvml="on", checks=checks, proc_root=NODE / "proc", sys_root=NODE / "sys"
    )
    with closing(Spool(settings.spool_folder, origin(), 1_000_000)) as spool:
        positions = Outbox(spool, lambda _: None)
        sources = build_sources(make_context(settings, BOOT, time.time(), positions))
        collectors = [_chaotic(one) for one in sources.collectors]
        yield Rig([*collectors, Chaotic(Pulse())])


def _chaotic(collector: Collector) -> Chaotic:
    return Glanced(collector) if collector.name == "rdma" else Chaotic(collector)


@pytest.mark.serial
def test_each_collector_in_turn_fails_in_every_way_and_no_other_notices(rig: Rig) -> None:
    pulse = rig.collectors[-1]
    with rig.running():
        for one in rig.collectors:
            wait_for(lambda one=one: rig.is_read(one.name), what=one.name)  # type: ignore[misc]  # the default binds
        usual = rig.phase(None)
        for victim in rig.collectors[:-1]:
            for mode in REASONS:
                fail(rig, victim, mode)
                wait_for(lambda: not slowed(rig.phase(victim), usual, victim), what=victim.mode)  # noqa: B023  # in this turn
                recover(rig, victim)
        assert pulse.most_running == 1
    assert rig.left == []
    told = Counter((e.kind, e.attributes["source"]) for e in rig.events if "source" in e.attributes)
    for victim in rig.collectors[:-1]:
        assert victim.most_running == 1
        for kind in (EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED):
            assert told[kind, victim.name] == len(REASONS)
    assert not {e.kind for e in rig.events} & {EventKind.GPU_LOST, EventKind.DRIVER_STUCK}


def fail(rig: Rig, victim: Chaotic, mode: Mode) -> None:
    """Let it fail; what it had read is not shown as read from the first call on."""
    victim.mode = mode
    calls = victim.calls
    wait_for(lambda: victim.calls > calls)  # one that began before has ended
    switched_at = time.time()
    wait_for(lambda: rig.reason_of(victim.name).startswith(REASONS[mode]))
    if mode is Mode.HANGS:
        stuck = rig.latest.outcomes().get((victim.name, "stuck"), 0)
        wait_for(lambda: rig.latest.outcomes().get((victim.name, "stuck"), 0) > stuck)
        assert victim.calls == calls + 1, "a call that hangs is never doubled"
    else:
        wait_for(lambda: victim.calls >= calls + 4)
    assert not rig.is_read(victim.name)
    assert rig.numbers_since(victim.name, switched_at) == 0


def slowed(made: Counter[str], usual: Counter[str], victim: Chaotic | None) -> list[str]:
    """Other collectors that are called less often, beside one that does nothing, than before.

    One phase may be slow on a busy machine; a collector that is held up is so in every phase.
    """
    return [
        name
        for name, calls in made.items()
        if (victim is None or name != victim.name)
        and calls / made["pulse"] < usual[name] / usual["pulse"] / 3
    ]


def recover(rig: Rig, victim: Chaotic) -> None:
    victim.mode = Mode.SOUND
    victim.free.set()
    wait_for(lambda: rig.is_read(victim.name) and not rig.reason_of(victim.name))
    victim.free = threading.Event()


class FastMode(StrEnum):
    """What looks of the fast lane find."""

    QUIET = "quiet"
    RAISES = "raises"
    FLAPS = "flaps"
    HANGS = "hangs"


class Glanced(Chaotic):
    """A collector whose glances do as they are told."""

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self.fast_mode = FastMode.QUIET
        self.glances = 0

    def ports(self) -> tuple[str, ...]:
        return ("mlx5_0/1",)

    def glance(self, port: str) -> str:
        self.glances += 1
        match self.fast_mode:
            case FastMode.QUIET:
                return "4: ACTIVE"
            case FastMode.RAISES:
                raise ZeroDivisionError
            case FastMode.FLAPS:
                return str(self.glances)
            case FastMode.HANGS:
                self.free.wait(60)
                return "4: ACTIVE"


@pytest.mark.serial
def test_whatever_the_fast_lane_runs_into_the_cadence_of_all_stays(rig: Rig) -> None:
    port = next(one for one in rig.collectors if isinstance(one, Glanced))
    rig.scheduler.look_between(INTERVAL_S)
    with rig.running():
        for one in rig.collectors:
            wait_for(lambda one=one: rig.is_read(one.name), what=one.name)  # type: ignore[misc]  # the default binds
        usual = rig.phase(None)
        for mode in (FastMode.RAISES, FastMode.FLAPS, FastMode.HANGS):
            seen = port.glances
            port.fast_mode = mode
            wait_for(lambda: port.glances > seen + (mode is not FastMode.HANGS))  # noqa: B023  # in this turn
            wait_for(lambda: not slowed(rig.phase(None), usual, None), what=mode)
            assert all(rig.is_read(one.name) for one in rig.collectors)
        port.mode = Mode.RAISES  # while its glance still hangs
        wait_for(lambda: not rig.is_read(port.name))
        failed_at = time.time()
        rig.scheduler.hurry(port.name)
        wait_for(lambda: not slowed(rig.phase(port), usual, port))
        assert rig.numbers_since(port.name, failed_at) == 0
        rig.scheduler.hurry("pulse")
    assert rig.left == []
    assert not [e for e in rig.events if e.attributes.get("source") not in (None, port.name)]


@pytest.mark.serial
def test_every_collector_reads_again_after_it_was_closed(rig: Rig) -> None:
    for one in rig.collectors:
        before = reads(one)
        one.close()
        assert reads(one) == before, f"{one.name} does not come back as it was"
        one.close()


def reads(one: Chaotic) -> set[tuple[str, str, str]]:
    """(kind, entity, metric) of all that is read, whether a number or not."""
    wait_for(lambda: one.collect(time.time()).rows or one.name in {"pulse"})
    rows = one.collect(time.time()).rows
    return {
        (kind, key, m)
        for kind, rows_of in rows.items()
        for key, row in rows_of.items()
        for m in row
    }

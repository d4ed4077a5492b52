"""One path for features: what serves and what trains see the same numbers, bit for bit.

A small simulated fleet goes to the real server as its agents' batches, and frame by frame into the
engine that recordings are replayed through. Both know jobs, places, past events and the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gpuwarden_models.backtest.history import History
from gpuwarden_models.backtest.player import Player
from gpuwarden_models.frames import Frame, wire_tables
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.engine.facts import Patience
from gpuwarden_verdict.features import FEATURE_SETS, FeatureScene, feature_table
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.batches import Batch, Stream
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import quick_settings
from tests.builders.server import Feeder, Running, running_server, wait_until
from tests.fakes.clock import StillClock

NODES, GPUS, INTERVAL_S, FRAMES, LOOK_EACH = 4, 8, 30.0, 14, 7
SWEEP_S = 5.0
SILENT_S = 75.0  # no frame and no sweep comes near it: both see the same nodes silent
JUDGED, SWEPT = "gpuwarden_judged_events_total", "gpuwarden_sweep_duration_seconds_count"


@dataclass(frozen=True)
class Told:
    """What a recording says beside its frames; here the inventories say it all."""

    nodes: Sequence[str]
    interval_s: float = INTERVAL_S
    start: float = 0.0
    end: float = 0.0
    jobs: Sequence[Any] = ()
    places: Mapping[str, NodePlace] = field(default_factory=dict)


@dataclass
class Both:
    """The server and the engine, told the same."""

    server: Running
    clock: StillClock
    simulation: Simulation
    engine: FleetEngine
    player: Player
    began: float
    nodes: dict[str, Feeder] = field(default_factory=dict)
    judged: int = 0

    def play(self, frame: Frame) -> None:
        self.clock.ahead = frame.at - self.began
        for node_id, told in groupby(frame.events, key=lambda one: one.node_id):
            some = list(told)
            self.nodes[node_id].boot_id = some[0].boot_id
            self.send(node_id, Stream.EVENTS, events=tuple(one.event for one in some))
            self.judged += len(some)
        wait_until(lambda: self.server.figure(JUDGED) == self.judged, "the events were judged")
        schemas = tuple(table.schema for table in frame.tables)
        for number, node_id in enumerate(frame.nodes):
            tables = wire_tables(frame, number)
            if tables:
                self.send(node_id, Stream.TELEMETRY, tables=tables, schemas=schemas)
        self.sweep()
        self.player.play(frame)

    def send(self, node_id: str, stream: Stream, **content: Any) -> None:
        node = self.nodes[node_id]
        header = {"sent_at": self.clock.now(), "interval_s": INTERVAL_S}
        batch: Batch = node.batch(stream, **header, **content)
        node.send(batch)

    def sweep(self) -> None:
        """One more sweep after all that was sent, and time that passes for one."""
        done = self.server.figure(SWEPT)
        self.clock.ahead += SWEEP_S + 1.0  # it is due, and a command wakes the judge
        self.server.admin.post("/v1/gpus/none/repair", json={"reason": "wakes the judge"})
        wait_until(lambda: self.server.figure(SWEPT) > done, "the server swept")

    def scenes(self) -> tuple[FeatureScene, FeatureScene]:
        assert self.server.app is not None
        return self.server.app.state.judging.feature_scene(), self.engine.feature_scene()


def faults(simulation: Simulation) -> tuple[ScriptedFault, ...]:
    gpus = [gpu.gpu_uuid for gpu in simulation.topology.gpus]
    return (
        ScriptedFault(FaultName.SLOW_OVERHEATING, gpus[2], 30.0, ramp_s=60.0),
        ScriptedFault(FaultName.ECC_WEAR, gpus[5], 10.0, ramp_s=100.0),
        ScriptedFault(FaultName.GPU_OFF_BUS, gpus[11], 200.0),
        ScriptedFault(
            FaultName.MISSING_SCRAPES, simulation.topology.nodes[2], 200.0, duration_s=90.0
        ),
    )


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    clock = StillClock()
    began = clock.now()
    setting = Setting(NODES, GPUS, seed=31, interval_s=INTERVAL_S, start=began, salt="served")
    simulation = Simulation(setting, faults(Simulation(setting)))
    settings = quick_settings(
        tmp_path, settle_s=30.0, sweep_interval_s=SWEEP_S, silent_after_s=SILENT_S
    )
    assert settings.policy_file is not None
    policy = parse_policy(settings.policy_file.read_text())
    engine = FleetEngine(policy, patience=Patience(SILENT_S, 3600.0))
    player = Player(engine, cast(History, Told(simulation.topology.nodes)))
    with running_server(settings, clock) as server:
        made = Both(server, clock, simulation, engine, player, began)
        for node_id in simulation.topology.nodes:
            made.nodes[node_id] = Feeder(server, server.mint("agent", node_id), node_id)
        yield made
        for node in made.nodes.values():
            node.close()


def by_key(kind: EntityKind, scene: FeatureScene, now: float) -> tuple[list[str], np.ndarray]:
    table = feature_table(kind, scene, now)
    keys = [ref.key for ref in table.refs]
    return sorted(keys), table.matrix[np.argsort(keys)]


def test_training_and_serving_see_the_same_features(both: Both) -> None:
    spoken: dict[EntityKind, np.ndarray] = {}
    for number, frame in enumerate(both.simulation.frames(FRAMES)):
        both.play(frame)
        if number % LOOK_EACH != LOOK_EACH - 1:
            continue
        served, trained = both.scenes()
        for kind, features in FEATURE_SETS.items():
            keys, there = by_key(kind, served, frame.at)
            assert keys == by_key(kind, trained, frame.at)[0] and len(keys) >= NODES
            here = by_key(kind, trained, frame.at)[1]
            equal = (there == here) | (np.isnan(there) & np.isnan(here))
            odd = [features.names[column] for column in np.flatnonzero(~equal.all(axis=0))]
            assert not odd, f"{kind} at frame {number}: {odd}"
            told = (~np.isnan(here) & (here != 0)).any(axis=0)
            spoken[kind] = spoken.get(kind, np.zeros(len(features), np.bool_)) | told
    for kind, least in ((EntityKind.GPU, 20), (EntityKind.NODE, 12), (EntityKind.NIC, 2)):
        assert spoken[kind].sum() >= least, "too few features were put to the test"
    assert both.engine.ledger.reading().size > 0, "something went on record"

"""The engine in process and the real server conclude the same from the same wire batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarden_server.learning.models import load_models
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.engine.domain import StateMove
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FEATURE_SETS, feature_table
from gpuwarden_verdict.incidents.domain import IncidentMove
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.policy.document import DecisionMove
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.batches import Batch, Stream
from gpuwarden_wire.events import Backlog, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)
from tests.fakes.clock import StillClock

SLOT = "0000:{:02x}:00.0"
METRICS = ("gpu_temperature_celsius", "gpu_row_remap_failure", "gpu_row_remap_pending")
SWEEP_S = 5.0
Told = tuple[object, ...]


@dataclass
class Pair:
    """A server and an engine that hear the same at the same time."""

    server: Running
    clock: StillClock
    engine: FleetEngine
    nodes: dict[str, Feeder] = field(default_factory=dict)
    judged: float = 0.0

    def events(self, name: str, *events: Any, **fields: Any) -> None:
        node = self.nodes[name]
        self.send(name, node.batch(Stream.EVENTS, events=events, **self.header(fields)))

    def telemetry(self, name: str, rows: dict[str, tuple[float, ...]], ago_s: float = 0.0) -> None:
        table, schema = gpu_table(rows, self.clock.now() - ago_s, METRICS)
        content = {"tables": (table,), "schemas": (schema,)}
        self.send(name, self.nodes[name].batch(Stream.TELEMETRY, **self.header(content)))

    def header(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"sent_at": self.clock.now(), "interval_s": SWEEP_S, **fields}

    def send(self, name: str, batch: Batch, stored: int | None = None) -> None:
        self.nodes[name].send(batch)
        self.judged += len(batch.events) if stored is None else stored
        wait_until(lambda: self.server.figure(JUDGED) == self.judged, "the server judged it")
        self.engine.hear(name, batch, self.clock.now())

    def advance(self, seconds: float, step_s: float = SWEEP_S) -> None:
        """Let time pass, with a sweep each `step_s`."""
        for _ in range(round(seconds / step_s)):
            done = self.server.figure(SWEPT)
            self.clock.ahead += step_s
            self.post("gpus/GPU-c-3/repair")  # refused, since it is sound; wakes the judge
            wait_until(lambda done=done: self.server.figure(SWEPT) == done + 1, "swept")
            self.engine.sweep(self.clock.now())

    def post(self, path: str) -> int:
        return self.server.admin.post(
            f"/v1/{path}", json={"reason": "a person says so"}
        ).status_code

    def repair(self, gpu: EntityRef) -> None:
        assert self.post(f"gpus/{gpu.key}/repair") == 200
        self.engine.begin_repair(gpu, "ann", "a person says so", self.clock.now())

    def revoke(self, gpu: EntityRef) -> None:
        live = get(self.server, "/v1/decisions", node=gpu.node_id, phase="live")["items"]
        for decision in (one for one in live if one["entity"] == gpu.key):
            assert self.post(f"decisions/{decision['id']}/revoke") == 200
        self.engine.revoke(gpu, "ann", "a person says so", self.clock.now())

    def has(self, name: str, gpus: list[Any]) -> None:
        node = self.nodes[name]
        self.events(name, node.inventory(gpus))

    def beat(self, *names: str) -> None:
        """Ordinary readings of nodes, all their GPUs the same."""
        for name in names:
            self.telemetry(name, {f"GPU-{name}-{n}": (50.0, 0.0, 0.0) for n in range(4)})

    def told_by_server(self) -> dict[str, list[Told]]:
        assert self.server.app is not None
        with self.server.app.state.base.store.state.read() as connection:
            return {
                name: [tuple(row) for row in connection.exec_driver_sql(query)]
                for name, query in QUERIES.items()
            }

    def told_by_engine(self) -> dict[str, list[Told]]:
        told: dict[str, list[Told]] = {name: [] for name in QUERIES}
        for move in self.engine.moves:
            match move:
                case IncidentMove():
                    told["incidents"].append(_incident_told(move))
                case DecisionMove():
                    told["decisions"].append(_decision_told(move))
                case StateMove():
                    told["states"].append(_state_told(move))
        return told


JUDGED, SWEPT = "gpuwarden_judged_events_total", "gpuwarden_sweep_duration_seconds_count"
QUERIES = {
    "incidents": "SELECT i.entity, m.fault_class, m.severity, m.before, m.after, m.reason, m.at"
    " FROM incident_moves m JOIN incidents i ON i.id = m.incident_id ORDER BY m.row",
    "decisions": "SELECT d.entity, m.rung, m.before, m.after, m.reason, m.at"
    " FROM decision_moves m JOIN decisions d ON d.id = m.decision_id ORDER BY m.row",
    "states": "SELECT entity, before, after, reason, at FROM entity_state_moves ORDER BY row",
}


def _incident_told(move: IncidentMove) -> Told:
    one = move.incident
    before = move.before.value if move.before else None
    return (
        *(one.entity.key, one.fault_class.value, one.severity.value),
        *(before, one.phase.value, move.reason, move.at),
    )


def _decision_told(move: DecisionMove) -> Told:
    before = move.before.value if move.before else None
    one = move.decision
    return one.entity.key, int(one.rung), before, one.phase.value, move.reason, move.at


def _state_told(move: StateMove) -> Told:
    states = move.before.state.value, move.after.state.value
    return move.entity.key, *states, move.reason, move.after.since


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    clock = StillClock()
    settings = quick_settings(
        tmp_path, settle_s=30.0, dwell_s=600.0, sweep_interval_s=SWEEP_S, silent_after_s=60.0
    )
    assert settings.policy_file is not None
    policy = parse_policy(settings.policy_file.read_text())
    with running_server(settings, clock) as server:
        made = Pair(server, clock, FleetEngine(policy, models=load_models(None).models))
        for name in "abc":
            made.nodes[name] = Feeder(server, server.mint("agent", name), name)
            gpus = [make_gpu(number, name) for number in range(4)]
            node = made.nodes[name]
            made.events(name, node.boot(), node.inventory(gpus))
            made.beat(name)
        yield made
        for node in made.nodes.values():
            node.close()


def gpu(name: str, number: int) -> EntityRef:
    return EntityRef(EntityKind.GPU, f"GPU-{name}-{number}", name)


def test_the_engine_and_the_server_make_the_same_moves(pair: Pair) -> None:
    line = {"observed_at": pair.clock.now()}
    pair.events("a", xid_event(79, SLOT.format(0x10), **line))  # lost: acts at once
    pair.events("a", xid_event(154, SLOT.format(0x10), **line))  # an echo of it
    for name in "abc":  # what a program can cause, on all nodes
        pair.events(name, *(xid_event(31, SLOT.format(0x10 + n), **line) for n in (1, 2)))
    pair.telemetry("b", {"GPU-b-3": (50.0, 1.0, 0.0)})  # a remap failed
    pair.advance(45, 15)
    out_of_order_and_twice(pair)
    pair.repair(gpu("a", 0))
    pair.events("a", make_event("pass", kind=EventKind.CHECK_PASSED, observed_at=pair.clock.now()))
    pair.beat("a", "c")
    pair.advance(40, 20)
    pair.beat("a", "b", "c")
    pair.revoke(gpu("b", 3))
    pair.telemetry("b", {"GPU-b-3": (50.0, 1.0, 0.0)})
    pair.advance(20, 20)
    a_board_moves(pair)
    pair.beat("b")
    pair.advance(120, 60)  # all fall silent; probation goes on
    pair.nodes["c"].boot_id = "boot-2-of-c"
    pair.events("c", pair.nodes["c"].boot())
    pair.beat("c")
    pair.advance(700, 350)

    server, engine = pair.told_by_server(), pair.told_by_engine()
    assert engine["decisions"] == server["decisions"]
    assert engine["states"] == server["states"]
    history = [_incident_told(move) for move in pair.engine.history]
    assert sorted(map(repr, engine["incidents"] + history)) == sorted(
        map(repr, server["incidents"])
    )
    assert len(server["decisions"]) > 5
    assert {row[0] for row in server["states"]} >= {"GPU-a-0", "GPU-b-3", "GPU-c-2"}
    excluded = [one["entity"] for one in exclusions_of(pair.server)["exclusions"]]
    assert [one.entity for one in pair.engine.exclusions()] == excluded
    for name in "abc":
        verdict = get(pair.server, "/v1/verdicts", node=name)["verdicts"][0]
        said = pair.engine.verdict(name)
        assert (said.node.usable, said.node.state) == (
            verdict["node"]["usable"],
            verdict["node"]["state"],
        )
        assert [(g.entity, g.usable, g.state) for g in said.gpus] == [
            (g["entity"], g["usable"], g["state"]) for g in verdict["gpus"]
        ]
    they_know_the_same(pair)


def they_know_the_same(pair: Pair) -> None:
    """Equal ledgers, and equal features bit for bit, of all kinds."""
    assert pair.server.app is not None
    now, judging = pair.clock.now(), pair.server.app.state.judging
    served, trained = judging.feature_scene(), pair.engine.feature_scene()
    on_record = marks_by_entity(trained.ledger)
    assert marks_by_entity(served.ledger) == on_record
    assert {"GPU-a-0", "GPU-c-2", "a", "c"} <= {key for _, key in on_record}
    for kind in FEATURE_SETS:
        tables = [feature_table(kind, scene, now) for scene in (served, trained)]
        rows = [np.argsort([ref.key for ref in table.refs]) for table in tables]
        there, here = (table.matrix[order] for table, order in zip(tables, rows, strict=True))
        assert np.array_equal(there, here, equal_nan=True), kind
        assert sorted(tables[0].refs, key=str) == sorted(tables[1].refs, key=str)


def marks_by_entity(ledger: LedgerReading) -> dict[tuple[EntityKind, str], list[Any]]:
    return {
        (kind, key): sorted(
            zip(
                *(array[ledger.part == part].tolist() for array in (ledger.mark, ledger.at)),
                strict=True,
            )
        )
        for kind, keys in ledger.keys.items()
        for key, part in zip(keys, ledger.parts[kind].tolist(), strict=True)
    }


def out_of_order_and_twice(pair: Pair) -> None:
    """A gap that is filled late, a batch that comes twice, history, and a late fault."""
    node, at = pair.nodes["c"], pair.clock.now()
    first, second = (
        node.batch(Stream.EVENTS, events=(xid_event(94, SLOT.format(0x10 + n), observed_at=at),))
        for n in (0, 1)
    )
    pair.send("c", second)
    pair.send("c", first)
    pair.send("c", first, stored=0)
    past = xid_event(79, SLOT.format(0x13), observed_at=at - 9e4, backlog=Backlog.OLDER_BOOT)
    pair.events("c", past)
    late = xid_event(79, SLOT.format(0x12), observed_at=at)
    pair.events("c", late, late=True, more_events=True)
    pair.telemetry("a", {"GPU-a-1": (99.0, 1.0, 0.0)}, ago_s=90.0)  # older than what is known


def a_board_moves(pair: Pair) -> None:
    """GPU-b-3, which a person acquitted, and the lost GPU-c-2 are put into node a."""
    for name, number in (("b", 3), ("c", 2)):
        pair.has(name, [make_gpu(n, name) for n in range(4) if n != number])
    put = [
        make_gpu(3, "b", pci_bus_id=SLOT.format(0x20)),
        make_gpu(2, "c", pci_bus_id=SLOT.format(0x21)),
    ]
    pair.has("a", [*(make_gpu(n, "a") for n in range(4)), *put])

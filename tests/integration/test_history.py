"""History through the front door: what agents sent, rolled up, kept, and read as a chart does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.history.domain import Level
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from tests.builders.feed import xid_event
from tests.builders.server import (
    GPU_METRICS,
    Feeder,
    Running,
    gpu_table,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)
from tests.builders.stores import query
from tests.fakes.clock import MovedClock

BOTH_STORES = True
GPU = "GPU-node-1-0"
WINDOW = 1800.0


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def server(tmp_path: Path, clock: MovedClock) -> Iterator[Running]:
    with running_server(make_settings(tmp_path), clock) as running:
        yield running


@pytest.fixture
def feeder(server: Running) -> Iterator[Feeder]:
    with closing(introduced(server)) as made:
        yield made


def introduced(server: Running) -> Feeder:
    made = Feeder(server, server.mint("agent", "node-1"), "node-1")
    made.introduce([make_gpu(0), make_gpu(1)])
    return made


def window_now(clock: MovedClock) -> float:
    """Where a window begins that is over, by the clock."""
    return (clock.now() // WINDOW - 1) * WINDOW


def tell(feeder: Feeder, at: float, *readings: Reading) -> None:
    """One table: temperature, power and energy of the first GPU."""
    table, schema = gpu_table({GPU: readings}, at)
    feeder.telemetry([table], [schema])


def ask(server: Running, **params: Any) -> dict[str, Any]:
    chosen = {"entity_kind": "gpu", "entity": GPU, "metric": GPU_METRICS} | params
    answer = server.admin.get("/v1/history", params={k: v for k, v in chosen.items() if v})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def series_of(answer: dict[str, Any], metric: str, entity: str = GPU) -> dict[str, Any]:
    (found,) = (s for s in answer["series"] if (s["metric"], s["entity"]) == (metric, entity))
    return dict(found)


def sealed(server: Running) -> float:
    return server.figure("gpuwarden_history_minutes_total")


def seal(server: Running, clock: MovedClock, minutes: float) -> None:
    """Let so much time pass that what was told is over, and wait until it is sealed."""
    clock.ahead += 80.0
    wait_until(lambda: sealed(server) >= minutes, f"{minutes:g} minutes are sealed", 30.0)


@pytest.mark.postgres
def test_a_chart_reads_the_open_minute_then_roll_ups_then_packed_windows(
    server: Running, feeder: Feeder, clock: MovedClock
) -> None:
    begin = window_now(clock)
    for step in range(30):  # three minutes, ten readings each
        energy = 2.0**40 + 7.0 * step
        reading: Reading = 60.0 + step % 10 if step < 20 else Unavailable("gpu_lost")
        tell(feeder, begin + 6.0 * step, reading, NotSupported(), energy)
    for stage in ("open", "sealed", "packed"):
        answer = ask(server, **{"from": begin, "to": begin + 240})
        assert (answer["resolution"], answer["step_s"]) == ("minutes", 60), stage
        assert answer["times"] == [begin + 60.0 * n for n in range(4)]
        heat = series_of(answer, "gpu_temperature_celsius")
        assert heat["min"] == [60.0, 60.0, None, None]
        assert heat["mean"] == [64.5, 64.5, None, None]
        assert heat["max"] == [69.0, 69.0, None, None]
        assert heat["unit"] == "celsius"
        assert heat["gaps"] == [
            {"first": 2, "last": 2, "kind": "unavailable", "reason": "gpu_lost"},
            {"first": 3, "last": 3, "kind": "nothing_received", "reason": ""},
        ]
        power = series_of(answer, "gpu_power_watts")
        assert power["gaps"][0] == {"first": 0, "last": 2, "kind": "not_supported", "reason": ""}
        energies = series_of(answer, "gpu_energy_joules_total")
        assert energies["last"] == [2.0**40 + 63, 2.0**40 + 133, 2.0**40 + 203, None]
        assert energies["increase"] == [63.0, 70.0, 70.0, None], stage
        if stage == "open":
            seal(server, clock, 3)
        elif stage == "sealed":
            clock.ahead += WINDOW
            wait_until(lambda: pieces(server, "compact") >= 1, "the window is packed", 30.0)


def pieces(server: Running, stage: str) -> float:
    return server.figure("gpuwarden_history_pieces_total", stage=stage, outcome="done")


def test_quarters_are_made_of_minutes_and_seen_before_they_are_packed(
    server: Running, feeder: Feeder, clock: MovedClock, tmp_path: Path
) -> None:
    begin = window_now(clock) - WINDOW
    for minute in range(30):
        tell(feeder, begin + 60.0 * minute, 50.0 + minute, 300.0, 1000.0 * minute)
    expected = [50.0, 65.0], [57.0, 72.0], [64.0, 79.0]
    for stage in ("open", "packed"):
        answer = ask(server, **{"from": begin, "to": begin + WINDOW, "resolution": "quarters"})
        heat = series_of(answer, "gpu_temperature_celsius")
        assert (heat["min"], heat["mean"], heat["max"]) == expected, stage
        if stage == "open":
            seal(server, clock, 30)
            clock.ahead += 2 * WINDOW
            wait_until(lambda: pieces(server, "compact") >= 1, "the window is packed", 30.0)
    energy = series_of(answer, "gpu_energy_joules_total")
    assert energy["increase"] == [14_000.0, 15_000.0]
    state = tmp_path / "state"
    levels = query(state, "SELECT level, count(*) FROM history_slabs GROUP BY level", "history")
    assert levels == [(int(Level.QUARTER), 2)]
    clock.ahead += 12 * 3600.0
    wait_until(lambda: pieces(server, "compact") >= 2, "the quarters are packed", 30.0)
    answer = ask(server, **{"from": begin, "to": begin + WINDOW, "step": 1800})
    heat = series_of(answer, "gpu_temperature_celsius")
    assert (answer["resolution"], heat["min"], heat["max"]) == ("quarters", [50.0], [79.0])


def test_what_comes_for_a_sealed_minute_is_counted_and_left_out(
    server: Running, feeder: Feeder, clock: MovedClock
) -> None:
    begin = window_now(clock)
    tell(feeder, begin + 120.0, 50.0, 300.0, 1.0)
    tell(feeder, begin, 40.0, 300.0, 0.0)  # late, but nothing of its minute was sealed
    seal(server, clock, 2)
    tell(feeder, begin + 30.0, 99.0, 300.0, 0.5)
    assert server.figure("gpuwarden_history_dropped_readings_total", reason="late") == 3.0
    answer = ask(server, **{"from": begin, "to": begin + 180})
    assert series_of(answer, "gpu_temperature_celsius")["max"] == [40.0, None, 50.0]


def test_an_incident_keeps_the_readings_around_it(
    server: Running, feeder: Feeder, clock: MovedClock
) -> None:
    begin = window_now(clock)
    for step in range(6):
        tell(feeder, begin + 10.0 * step, 60.0 + step, 300.0, 1.0)
    seal(server, clock, 1)
    feeder.events(xid_event(79, make_gpu(0).pci_bus_id))
    recorded = "gpuwarden_history_recorded_nodes"
    wait_until(lambda: server.figure(recorded) == 1.0, "the node is recorded", 30.0)
    tell(feeder, begin + 61.0, 70.5, 300.0, 2.0)
    seal(server, clock, 2)
    written = "gpuwarden_history_bytes_total"
    assert server.figure(written, form="slab", level="raw") > 0.0
    span = {"from": begin, "to": begin + 120, "resolution": "readings"}
    for packed in (False, True):
        answer = ask(server, **span)
        assert answer["times"] == [*(begin + 10.0 * n for n in range(6)), begin + 61.0]
        heat = series_of(answer, "gpu_temperature_celsius")
        assert heat["value"] == [60.0, 61.0, 62.0, 63.0, 64.0, 65.0, 70.5]
        if not packed:
            clock.ahead += WINDOW
            packed_bytes = partial(server.figure, written, form="segment", level="raw")
            wait_until(packed_bytes, "readings are packed", 30.0)


def test_old_history_goes(tmp_path: Path, clock: MovedClock) -> None:
    with running_server(make_settings(tmp_path), clock) as server, closing(introduced(server)) as f:
        begin = window_now(clock)
        tell(f, begin, 50.0, 300.0, 1.0)
        seal(server, clock, 1)
        clock.ahead += WINDOW
        wait_until(lambda: pieces(server, "compact") >= 1, "the window is packed", 30.0)
        clock.ahead += 4 * 86_400.0
        gone = "gpuwarden_history_deleted_rows_total"
        wait_until(lambda: server.figure(gone, level="minute") == 1.0, "minutes went", 30.0)
        clock.ahead += 9 * 604_800.0
        wait_until(lambda: server.figure(gone, level="quarter") >= 1.0, "quarters went", 30.0)
        tell(f, begin, 50.0, 300.0, 1.0)
        assert server.figure("gpuwarden_history_dropped_readings_total", reason="late") == 3.0


def test_wrong_questions_are_told_what_is_wrong(server: Running, feeder: Feeder) -> None:
    usual = {"entity_kind": "gpu", "entity": GPU, "metric": "gpu_power_watts"}
    for change, status, words in (
        ({"entity": "GPU-never"}, 404, "no GPU"),
        ({"entity": None, "node": "nowhere"}, 404, "no node"),
        ({"entity_kind": "disk", "entity": "nowhere/sda"}, 404, "no node"),
        ({"node": "node-1"}, 422, "not both"),
        ({"entity": None}, 422, "entity or node"),
        ({"metric": None}, 422, "metric"),
        ({"from": 2000, "to": 1000}, 422, "not before"),
        ({"from": 0, "to": 10_000_000, "step": 60, "resolution": "minutes"}, 422, "more than 2000"),
        ({"from": 0, "to": 100_000, "resolution": "readings"}, 422, "27.8 h"),
        ({"from": 1.7e12}, 422, "from"),
    ):
        params: dict[str, Any] = {k: v for k, v in (usual | change).items() if v is not None}
        answer = server.admin.get("/v1/history", params=params)
        assert answer.status_code == status, (change, answer.text)
        assert words in answer.json()["detail"] and answer.json()["mend"], answer.text


def test_all_entities_of_a_node_come_at_once(server: Running, feeder: Feeder) -> None:
    readings = {f"GPU-node-1-{n}": (50.0 + n, 300.0, 1.0) for n in range(2)}
    table, schema = gpu_table(readings)
    feeder.telemetry([table], [schema])
    answer = ask(server, entity=None, node="node-1", metric="gpu_temperature_celsius")
    assert [one["entity"] for one in answer["series"]] == list(readings)
    assert [one["last"][-1] for one in answer["series"]] == [50.0, 51.0]
    assert ask(server, entity_kind="node", entity="node-1", metric="node_load1")["series"] == []

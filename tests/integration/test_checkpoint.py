"""What survives: kill -9 under load, restarts in the middle of telemetry."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from gpuwarden_server.config import Settings
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import Batch, Stream
from gpuwarden_wire.codec import decode_acknowledgement
from gpuwarden_wire.metrics import EntityKind
from tests.builders.server import (
    Feeder,
    Running,
    ServerProcess,
    gpu_table,
    make_event,
    make_settings,
    running_server,
    wait_until,
)
from tests.builders.stores import query

BOTH_STORES = True

NODES = 6


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(make_settings(tmp_path, checkpoint_pass_s=0.3))
    yield made
    made.close()


class _Shooter(threading.Thread):
    """One node's agent: sends events as fast as they are acknowledged, until the line breaks.

    Attributes:
        acknowledged: Ids of events whose batch was acknowledged.
        last: Batch in flight when the line broke.
    """

    def __init__(self, feeder: Feeder) -> None:
        super().__init__(daemon=True)
        self.feeder = feeder
        self.acknowledged: list[str] = []
        self.last: Batch | None = None

    def run(self) -> None:
        while True:
            events = tuple(make_event() for _ in range(3))
            self.last = self.feeder.batch(Stream.EVENTS, events=events)
            try:
                answer = self.feeder.post(self.last)
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                self.acknowledged += [event.id for event in events]


@pytest.mark.serial
def test_after_kill_9_no_event_is_lost_or_doubled_and_telemetry_is_fed_again(
    process: ServerProcess, tmp_path: Path
) -> None:
    server = process.start()
    feeders = [Feeder(server, server.mint("agent", f"n{i}"), f"n{i}") for i in range(NODES)]
    shooters = [_Shooter(feeder) for feeder in feeders]
    for shooter in shooters:
        shooter.start()
    teller = Feeder(server, server.mint("agent", "teller"), "teller")
    sent, durable = _tell_until_durable(teller)
    wait_until(lambda: all(len(s.acknowledged) >= 30 for s in shooters), "events flow")
    process.kill()
    for shooter in shooters:
        shooter.join(10)
    for feeder in (*feeders, teller):
        feeder.close()
    server.admin.close()

    server = process.start()
    _check_events(server, tmp_path, shooters)
    _check_telemetry(server, teller, sent, durable)
    server.admin.close()


def _tell_until_durable(teller: Feeder) -> tuple[dict[int, Batch], int]:
    """Feed telemetry until some of it is durable and some, later, is not."""
    sent: dict[int, Batch] = {}
    durable = 0
    while durable == 0 or len(sent) < durable + 10:
        batch = _reading(teller, len(sent) + 1)
        sent[batch.seq] = batch
        durable = teller.send(batch).durable_seq
        time.sleep(0.002)
    return sent, durable


def _check_events(server: Running, folder: Path, shooters: list[_Shooter]) -> None:
    acknowledged = {event_id for shooter in shooters for event_id in shooter.acknowledged}
    assert acknowledged <= set(_stored(folder))
    for shooter in shooters:
        assert shooter.last is not None
        assert _resend(server, shooter.feeder, shooter.last).durable_seq == shooter.last.seq
        acknowledged |= {event.id for event in shooter.last.events}
    stored = _stored(folder)
    assert len(stored) == len(set(stored))
    assert set(stored) == acknowledged


def _check_telemetry(server: Running, teller: Feeder, sent: dict[int, Batch], durable: int) -> None:
    newest = _reading(teller, len(sent) + 1)
    ack = _resend(server, teller, newest)  # live telemetry first
    assert ack.applied_seq == newest.seq
    assert durable <= ack.durable_seq < newest.seq
    for seq in range(ack.durable_seq + 1, newest.seq):
        assert not _resend(server, teller, sent[seq]).replayed
    assert _resend(server, teller, sent[1]).replayed
    wait_until(
        lambda: _resend(server, teller, newest).durable_seq == newest.seq, "all is durable again"
    )


@pytest.mark.postgres
def test_a_restart_goes_on_where_the_state_was(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with running_server(settings) as first:
        feeder = Feeder(first, first.mint("agent", "n0"), "n0")
        for number in range(1, 6):
            feeder.send(_reading(feeder, number))
        before = _energy_hour(first)
        feeder.close()
    with running_server(settings) as second:
        assert _energy_hour(second) == pytest.approx(before)
        again = Feeder(second, feeder.key, "n0", spool_id=feeder.spool_id, seqs=feeder.seqs)
        ack = again.send(_reading(again, 6))
        assert (ack.applied_seq, ack.durable_seq) == (6, 5)
        assert _energy_hour(second) > before
        again.close()


@pytest.mark.postgres
def test_an_unreadable_checkpoint_is_left_out_and_the_state_grows_again(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with running_server(settings) as first:
        feeder = Feeder(first, first.mint("agent", "n0"), "n0")
        feeder.send(_reading(feeder, 1))
        feeder.close()
    query(tmp_path / "state", "UPDATE checkpoints SET state = ledgers", half="history")
    with running_server(settings) as second:
        again = Feeder(second, feeder.key, "n0", spool_id=feeder.spool_id)
        assert again.send(_reading(again, 2)).applied_seq == 2
        again.close()


def test_a_new_spool_waits_for_the_old_one_after_a_restart(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with running_server(settings) as first:
        feeder = Feeder(first, first.mint("agent", "n0"), "n0", interval_s=60.0)
        feeder.introduce()
        feeder.close()
    with running_server(settings) as second:
        stranger = Feeder(second, feeder.key, "n0")
        assert second.app is not None
        presence = second.app.state.base.sessions.presence("n0")
        assert (presence.live_spool, presence.interval_s) == (feeder.spool_id, 60.0)
        assert stranger.post(stranger.batch(Stream.EVENTS)).status_code == 409
        stranger.close()
        again = Feeder(second, feeder.key, "n0", spool_id=feeder.spool_id, seqs=feeder.seqs)
        assert again.events(make_event()).applied_seq == 2
        again.close()


def _reading(feeder: Feeder, number: int) -> Batch:
    """Reading `number` of one GPU that uses a kilojoule a reading."""
    observed_at = time.time() - 60 + number
    table, schema = gpu_table({"GPU-n0-0": [50.0, 200.0, 1000.0 * number]}, observed_at)
    return feeder.batch(Stream.TELEMETRY, seq=number, tables=(table,), schemas=(schema,))


def _resend(server: Running, feeder: Feeder, batch: Batch) -> Acknowledgement:
    again = Feeder(server, feeder.key, feeder.node_id, spool_id=feeder.spool_id)
    answer = again.post(batch)
    again.close()
    assert answer.status_code == 200, answer.text
    return decode_acknowledgement(answer.content)


def _energy_hour(server: Running) -> float:
    assert server.app is not None
    base = server.app.state.base
    assert isinstance(base.settings, Settings)
    with base.state.lock:
        state: FleetState = base.state.state
        increments = state.view(EntityKind.GPU).increment_1h("gpu_energy_joules_total")
        assert np.isfinite(increments[0])
        return float(increments[0])


def _stored(folder: Path) -> list[str]:
    return [row[0] for row in query(folder / "state", "SELECT id FROM events")]

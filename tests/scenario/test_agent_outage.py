"""A day without the server: what the agent keeps, what it gives up and says so, and the return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.transport.key import KeySource
from gpuwarden_agent.transport.rejected import RejectedFolder
from gpuwarden_agent.transport.sender import Sender, SenderSettings
from gpuwarden_wire.batches import Batch, Stream, Table, pack_table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import METRICS
from gpuwarden_wire.schema import Schema, schema_for
from tests.builders.agent import event, origin
from tests.fakes.ingest_server import FakeIngestServer
from tests.fakes.waiting import wait_for

DAY_S = 86_400.0
BEGAN = 1_700_000_000.0
MIB = 2**20
FAULT_EVERY_S = 600.0


@dataclass
class Clock:
    """Time that the test moves; wall and monotonic alike."""

    now: float = BEGAN

    def __call__(self) -> float:
        return self.now


def full_node(number: int, at: float) -> tuple[list[Table], list[Schema]]:
    """All that a node with 8 GPUs, 8 ports and 4 mounts reads at one tick."""
    counts = {EntityKind.NODE: 1, EntityKind.GPU: 8, EntityKind.NIC: 8, EntityKind.MOUNT: 4}
    tables, schemas = [], []
    for kind, count in counts.items():
        schema = schema_for(kind, [m.name for m in METRICS if m.entity_kind is kind])
        row = [float(number + column) for column in range(len(schema.columns))]
        tables.append(pack_table(schema, at, {f"{kind}-{n}": row for n in range(count)}))
        schemas.append(schema)
    return tables, schemas


def live_through_a_day(spool: Spool, clock: Clock, interval_s: float, cap_bytes: int) -> int:
    """Telemetry each interval and a fault every ten minutes; the number of faults."""
    faults, next_fault = 0, BEGAN
    ticks = int(DAY_S / interval_s)
    for number in range(ticks):
        clock.now = BEGAN + number * interval_s
        if clock.now >= next_fault:
            spool.append_events(
                [event(faults, text="XID 79 " + "x" * 200)], ("log", b"%d" % faults)
            )
            faults, next_fault = faults + 1, next_fault + FAULT_EVERY_S
        spool.append_telemetry(*full_node(number, clock.now))
        if number % 100 == 0:
            assert spool.size().payload_bytes <= cap_bytes
    return faults


def numbers(batches: Iterable[Batch]) -> set[int]:
    return {batch.seq for batch in batches}


@pytest.mark.parametrize(
    ("interval_s", "cap_mib"),
    [(120.0, 2), pytest.param(5.0, 48, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
def test_a_day_without_the_server(tmp_path: Path, interval_s: float, cap_mib: int) -> None:
    cap, clock = cap_mib * MIB, Clock()
    folder = tmp_path / "spool"
    spool = Spool(folder, origin(), cap, clock=clock, monotonic=clock)
    faults = live_through_a_day(spool, clock, interval_s, cap)
    shed = spool.shed[Stream.TELEMETRY]
    held = spool.size()
    ticks = int(DAY_S / interval_s)
    assert faults == 144
    assert (held.events, spool.shed[Stream.EVENTS]) == (144, 0)
    assert shed > ticks / 10, "the day should not fit, or nothing is shown here"
    assert held.telemetry + shed == ticks
    on_disk = sum(file.stat().st_size for file in folder.iterdir())
    assert on_disk <= 1.5 * cap + 8 * MIB  # pages, indexes and a write-ahead log beside the batches
    with FakeIngestServer() as server:
        sender = Sender(
            spool,
            SenderSettings(server_url=server.url),
            KeySource("gw_key", None),
            RejectedFolder(tmp_path / "rejected"),
            lambda _: None,
        )
        sender.start()
        wait_for(lambda: spool.size().events + spool.size().telemetry == 0, timeout_s=300)
        sender.stop(1.0)
        came = [one.batch for one in server.received if one.batch.stream is Stream.TELEMETRY]
        streams = [one.batch.stream for one in server.received]
        assert streams[:144] == [Stream.EVENTS] * 144, "all events come first"
        assert server.event_ids() == [event(number).id for number in range(faults)]
        assert server.duplicates == []
        declared = {
            seq
            for one in server.received
            for lost in one.batch.shed
            if lost.stream is Stream.TELEMETRY
            for seq in range(lost.first_seq, lost.last_seq + 1)
        }
        assert len(declared) == shed
        assert not declared & numbers(came)
        assert declared | numbers(came) == set(range(1, ticks + 1)), "each is there, or declared"
        # What was kept is the newest, and the newest of all comes before the rest.
        times = [batch.tables[0].observed_at for batch in came if batch.tables]
        assert times[0] == BEGAN + (ticks - 1) * interval_s
        assert min(times) == BEGAN + shed * interval_s
    assert spool.close() == 0

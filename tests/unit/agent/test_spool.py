from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from gpuwarden_agent.spool.entry import LATE_S, Outgoing, SpoolUnusable
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_wire.batches import ShedRange, Stream
from gpuwarden_wire.codec import encode_batch
from tests.builders.agent import BOOT, event, node_table, origin


@contextmanager
def opened(
    folder: Path, cap_bytes: int = 1_000_000, boot_id: str = BOOT, memory: int = 1_000_000
) -> Iterator[Spool]:
    spool = Spool(folder, origin(boot_id), cap_bytes, memory, clock=lambda: 1000.0)
    try:
        yield spool
    finally:
        spool.close()


def put_load(spool: Spool, load: float) -> None:
    tables, schemas = node_table(load)
    spool.append_telemetry(tables, schemas)


def load_in(outgoing: Outgoing) -> float:
    return memoryview(outgoing.batch.tables[0].f32).cast("f")[0]


def take_events(spool: Spool, after: int = 0) -> Outgoing:
    outgoing = spool.next_events(after)
    assert outgoing is not None
    return outgoing


def take_telemetry(spool: Spool, after: int = 0) -> Outgoing:
    outgoing = spool.next_telemetry(after)
    assert outgoing is not None
    return outgoing


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow: what a full disk does to SQLite."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)


def test_events_are_numbered_from_one_and_say_that_more_wait(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(1), event(2)])
        spool.append_events([event(3)])
        first, second = take_events(spool), take_events(spool, after=1)
        assert [e.id for e in first.batch.events] == [event(1).id, event(2).id]
        assert (first.batch.seq, first.batch.more_events) == (1, True)
        assert (second.batch.seq, second.batch.more_events) == (2, False)
        assert spool.next_events(2) is None
        assert first.batch.spool_id == spool.spool_id
        assert first.batch.boot_id == BOOT


@pytest.mark.parametrize(
    ("waited_s", "late"), [(0.0, False), (LATE_S, False), (LATE_S + 1, True), (-1.0, True)]
)
def test_events_that_waited_long_say_so_by_the_agents_own_clock(
    tmp_path: Path, waited_s: float, late: bool
) -> None:
    now = [1000.0]
    spool = Spool(tmp_path, origin(BOOT), 1_000_000, 1_000_000, clock=lambda: now[0])
    spool.append_events([event(1)])
    now[0] += waited_s
    assert take_events(spool).batch.late is late
    spool.close()


def test_events_of_a_boot_before_say_so_when_they_are_sent(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(1)])
    with opened(tmp_path, boot_id="another boot") as spool:
        spool.append_events([event(2)])
        assert [take_events(spool, after).batch.late for after in (0, 1)] == [True, False]


def test_telemetry_is_numbered_as_it_is_stored_where_the_sender_waits_for_it(
    tmp_path: Path,
) -> None:
    """Another commit only to number it costs as much as storing it."""
    with opened(tmp_path) as spool:
        put_load(spool, 1)
        assert take_telemetry(spool).batch.seq == 1
        assert _unnumbered(tmp_path) == 0
        put_load(spool, 2)
        assert _unnumbered(tmp_path) == 1, "the sender has not asked for more yet"
        assert take_telemetry(spool, after=1).batch.seq == 2
        assert spool.next_telemetry(2) is None
        put_load(spool, 3)
        assert _unnumbered(tmp_path) == 0
        third = take_telemetry(spool, after=2)
        assert (third.batch.seq, load_in(third)) == (3, 3.0)


def _unnumbered(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "spool.db")) as database:
        found = database.execute("SELECT count(*) FROM batches WHERE seq IS NULL").fetchone()
    return int(found[0])


def test_a_sequence_never_restarts(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(1)])
        put_load(spool, 1)
        take_telemetry(spool)
        spool.trim(Stream.EVENTS, 1)
        spool.trim(Stream.TELEMETRY, 1)
        name = spool.spool_id
    with opened(tmp_path) as spool:
        assert spool.spool_id == name
        spool.append_events([event(2)])
        put_load(spool, 2)
        assert take_events(spool).batch.seq == 2
        assert take_telemetry(spool).batch.seq == 2


def test_durable_batches_are_let_go_and_others_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in range(5):
            put_load(spool, number)
            take_telemetry(spool, after=number)
        spool.trim(Stream.TELEMETRY, 3)
        assert spool.size().telemetry == 2
        assert load_in(take_telemetry(spool)) == 3.0
        spool.trim(Stream.TELEMETRY, 2)  # an older answer that comes late changes nothing
        assert spool.size().telemetry == 2


def test_a_short_queue_goes_in_order_and_a_long_one_newest_first(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in range(3):
            put_load(spool, number)
        assert [load_in(take_telemetry(spool, after)) for after in range(3)] == [0.0, 1.0, 2.0]
        for number in range(10, 20):
            put_load(spool, number)
        sent = [load_in(take_telemetry(spool, after)) for after in range(3, 13)]
        assert sent == [19.0, *range(10, 19)]


def test_live_telemetry_overtakes_the_backlog_while_that_is_sent(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in range(20):
            put_load(spool, number)
        assert load_in(take_telemetry(spool, 0)) == 19.0
        assert load_in(take_telemetry(spool, 1)) == 0.0
        put_load(spool, 100)
        assert load_in(take_telemetry(spool, 2)) == 100.0
        assert load_in(take_telemetry(spool, 3)) == 1.0


def test_a_resent_batch_says_the_same_under_the_same_number(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        put_load(spool, 7)
        first = take_telemetry(spool)
    with opened(tmp_path) as spool:
        assert take_telemetry(spool) == first


def test_over_its_cap_it_sheds_the_oldest_telemetry_and_declares_it(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        put_load(spool, 0)
        size = spool.size().payload_bytes
    with opened(tmp_path / "b", cap_bytes=size * 5 + size // 2) as spool:
        spool.append_events([event(1)])
        for number in range(20):
            put_load(spool, number)
        held = spool.size()
        assert held.payload_bytes <= size * 5 + size // 2
        assert held.events == 1
        assert spool.shed == {Stream.EVENTS: 0, Stream.TELEMETRY: 20 - held.telemetry}
        dropped = 20 - held.telemetry
        declared = take_events(spool).batch.shed
        assert declared == (ShedRange(Stream.TELEMETRY, 1, dropped),)
        assert take_events(spool).batch.shed == declared  # told again until it has arrived
        spool.trim(Stream.EVENTS, 1)
        assert take_telemetry(spool).batch.shed == ()
        assert take_telemetry(spool).batch.seq == dropped + 1
        assert load_in(take_telemetry(spool)) == float(dropped)


def test_events_are_shed_only_when_no_telemetry_is_left(tmp_path: Path) -> None:
    with opened(tmp_path, cap_bytes=3_000) as spool:
        put_load(spool, 1)
        for number in range(40):
            spool.append_events([event(number, text="x" * 100)])
        held = spool.size()
        assert held.telemetry == 0
        assert 0 < held.events < 40
        first = take_events(spool).batch
        assert first.seq == 40 - held.events + 1
        assert ShedRange(Stream.EVENTS, 1, first.seq - 1) in first.shed


def test_a_position_is_stored_with_its_events(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        assert spool.position("kernel_log") is None
        spool.append_events([event(1)], ("kernel_log", b"here"))
        spool.append_events([], ("kernel_log", b"further"))
    with opened(tmp_path) as spool:
        assert spool.position("kernel_log") == b"further"
        assert spool.size().events == 1


def test_a_batch_too_large_is_halved_in_its_place(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(number) for number in range(4)])
        spool.append_events([event(4)])
        assert spool.split(take_events(spool))
        sent = [take_events(spool, after).batch for after in range(3)]
        assert [[e.id for e in batch.events] for batch in sent] == [
            [event(0).id, event(1).id],
            [event(2).id, event(3).id],
            [event(4).id],
        ]
        assert [batch.seq for batch in sent] == [1, 2, 3]
        spool.append_events([event(5)])
        assert take_events(spool, 3).batch.seq == 4
        assert not spool.split(take_events(spool, 2))


def test_a_refused_batch_is_dropped_and_declared(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(1)])
        spool.append_events([event(2)])
        spool.drop(take_events(spool))
        following = take_events(spool).batch
        assert following.seq == 2
        assert following.shed == (ShedRange(Stream.EVENTS, 1, 1),)


def test_a_full_disk_keeps_batches_in_memory_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(1)])
        with full_disk():
            spool.append_events([event(2)], ("kernel_log", b"two"))
            put_load(spool, 1)
            assert spool.trouble in {"disk_full", "disk_io_error"}
            assert spool.size().in_memory == 2
            assert take_events(spool, 1).batch.events[0].id == event(2).id
            assert load_in(take_telemetry(spool)) == 1.0
            assert spool.position("kernel_log") == b"two"
            spool.trim(Stream.EVENTS, 1)
            assert take_events(spool).batch.seq == 2  # what could not be deleted is not sent again
    with opened(tmp_path) as spool:  # closing moved it to the disk, which takes it again
        assert spool.trouble is None
        assert [e.id for e in take_events(spool).batch.events] == [event(2).id]
        assert spool.position("kernel_log") == b"two"


def test_memory_is_bounded_while_the_disk_is_full(tmp_path: Path) -> None:
    with opened(tmp_path, memory=20_000) as spool:
        put_load(spool, 0)
        with full_disk():
            for number in range(500):
                put_load(spool, number)
            spool.append_events([event(1)])
            held = spool.size()
            assert held.payload_bytes < 25_000
            assert held.events == 1
            assert spool.shed[Stream.TELEMETRY] > 300


def test_it_recovers_by_itself(tmp_path: Path) -> None:
    clock = [1000.0]
    spool = Spool(tmp_path, origin(), 1_000_000, monotonic=lambda: clock[0])
    with full_disk():
        spool.append_events([event(1)])
        assert spool.size().in_memory == 1
        assert spool.trouble is not None
    clock[0] += 10
    spool.retry_disk()
    assert spool.size().in_memory == 0
    assert take_events(spool).batch.events[0].id == event(1).id
    assert spool.close() == 0


def test_numbers_given_in_memory_and_lost_are_never_given_again(tmp_path: Path) -> None:
    program = f"""
        import os, resource, signal
        from pathlib import Path
        from gpuwarden_agent.spool.spool import Spool
        from tests.builders.agent import event, origin
        spool = Spool(Path({str(tmp_path)!r}), origin(), 1_000_000)
        spool.append_events([event(1)])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        spool.append_events([event(2)])
        os.write(1, spool.spool_id.encode())
        os.kill(os.getpid(), signal.SIGKILL)
    """
    former = _run(program)
    with opened(tmp_path) as spool:
        assert spool.spool_id != former
        assert [e.id for e in take_events(spool).batch.events] == [event(1).id]


def test_a_power_cut_starts_a_new_life_and_a_kill_does_not(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from gpuwarden_agent.spool.spool import Spool
        from tests.builders.agent import event, node_table, origin
        spool = Spool(Path({str(tmp_path)!r}), origin(), 1_000_000)
        spool.append_events([event(1)])
        spool.append_telemetry(*node_table(1.0))
        spool.next_telemetry(0)
        os.write(1, spool.spool_id.encode())
        os.kill(os.getpid(), signal.SIGKILL)
    """
    former = _run(program)
    with opened(tmp_path) as spool:
        assert spool.spool_id == former
        assert take_telemetry(spool).batch.seq == 1
    former = _run(program.replace("event(1)", "event(2)"))
    with opened(tmp_path, boot_id="0b00b00b-0000-4000-8000-000000000002") as spool:
        assert spool.spool_id != former
        assert [take_events(spool, n).batch.events[0].id for n in (0, 1)] == [
            event(1).id,
            event(2).id,
        ]
        assert take_events(spool).batch.boot_id == BOOT  # the boot in which it was sealed
        assert spool.size().telemetry == 2


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        timeout=30,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return done.stdout.decode()


def test_an_event_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from gpuwarden_agent.spool.spool import Spool
        from tests.builders.agent import event, origin
        spool = Spool(Path({str(tmp_path)!r}), origin(), 1_000_000)
        for number in range(200):
            spool.append_events([event(number)])
            if number == 137:
                os.kill(os.getpid(), signal.SIGKILL)
    """
    _run(program)
    with opened(tmp_path) as spool:
        assert spool.size().events == 138
        assert take_events(spool, 137).batch.events[0].id == event(137).id


def test_a_spoilt_database_is_set_aside(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        former = spool.spool_id
        assert spool.set_aside is None
    (tmp_path / "spool.db").write_bytes(b"no database at all" * 1000)
    with opened(tmp_path) as spool:
        assert spool.spool_id != former
        assert spool.set_aside == tmp_path / "spool.db.corrupt"
        spool.append_events([event(1)])
        assert take_events(spool).batch.seq == 1


def test_a_folder_that_cannot_be_made_is_named_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolUnusable, match="GPUWARDEN_AGENT_SPOOL_FOLDER"):
        Spool(tmp_path / "file" / "spool", origin(), 1_000_000)


def test_the_file_shrinks_after_an_outage(tmp_path: Path) -> None:
    with opened(tmp_path, cap_bytes=50_000_000) as spool:
        for number in range(120):
            spool.append_events([event(number, text="x" * 1000) for _ in range(40)])
        swollen = (tmp_path / "spool.db").stat().st_size
        for seq in range(1, 121):
            spool.trim(Stream.EVENTS, seq)
    assert (tmp_path / "spool.db").stat().st_size < swollen / 2


def test_other_programs_can_read_it_with_sqlite(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append_events([event(1)])
        body = encode_batch(msgspec.structs.replace(take_events(spool).batch, spool_id="", seq=0))
    with sqlite3.connect(tmp_path / "spool.db") as connection:
        rows = connection.execute("SELECT stream, seq, body FROM batches").fetchall()
    connection.close()
    assert rows == [("events", 1, body)]

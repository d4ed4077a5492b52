from __future__ import annotations

import errno
from collections import deque

import pytest

from gpuwarden_agent.sources.kernel_lines import KernelLine, KmsgMark
from gpuwarden_agent.sources.kmsg import KmsgReader
from gpuwarden_wire.events import Backlog

NOW = 1_700_000_000.0
UPTIME = 500.0


class Ring:
    """A kernel ring: records, or an overrun (EPIPE)."""

    def __init__(self, *records: bytes | None) -> None:
        self.records = deque(records)

    def wait(self, timeout_s: float) -> bool:
        return bool(self.records)

    def read(self) -> bytes:
        if not self.records:
            raise BlockingIOError
        record = self.records.popleft()
        if record is None:
            raise BrokenPipeError(errno.EPIPE, "overrun")
        return record

    def close(self) -> None:
        self.records.clear()


def record(seq: int, text: str, priority: int = 4, micros: int = 1_000_000) -> bytes:
    return f"{priority},{seq},{micros},-;{text}\n".encode()


def reader(ring: Ring, mark: KmsgMark | None = None) -> KmsgReader:
    return KmsgReader(ring, "boot-1", mark, clock=lambda: NOW, uptime=lambda: UPTIME)


def test_a_record_gives_its_text_its_id_and_its_time() -> None:
    raw = b"6,339,5140900,c,caller=T1;NET: Registered PF_INET6\n SUBSYSTEM=net\n DEVICE=n2\n"
    kmsg = reader(Ring(raw))
    assert kmsg.read(0) == [
        KernelLine(
            id="kmsg:boot-1:339",
            text=b"NET: Registered PF_INET6",
            observed_at=NOW - UPTIME + 5.1409,
            backlog=Backlog.FIRST_LOOK,
        )
    ]
    assert kmsg.mark() == KmsgMark("boot-1", 339)


def test_what_comes_after_the_first_pause_is_live_and_seen_now() -> None:
    ring = Ring(record(1, "old"))
    kmsg = reader(ring)
    assert [line.backlog for line in kmsg.read(0)] == [Backlog.FIRST_LOOK]
    ring.records.append(record(2, "new"))
    assert [(line.backlog, line.observed_at) for line in kmsg.read(0)] == [(Backlog.NONE, NOW)]


@pytest.mark.parametrize("boot", ["boot-1", "boot-0"])
def test_what_was_written_since_the_last_run_is_news_of_its_own_time(boot: str) -> None:
    kmsg = reader(Ring(record(1, "written meanwhile")), KmsgMark(boot, 0))
    lines = kmsg.read(0)
    written = NOW - UPTIME + 1.0
    assert [(line.backlog, line.observed_at) for line in lines] == [(Backlog.NONE, written)]


def test_what_was_read_in_this_boot_is_not_read_again() -> None:
    ring = [record(number, f"line {number}") for number in range(5)]
    assert [line.text for line in reader(Ring(*ring), KmsgMark("boot-1", 2)).read(0)] == [
        b"line 3",
        b"line 4",
    ]
    assert len(reader(Ring(*ring), KmsgMark("boot-0", 2)).read(0)) == 5


def test_an_overrun_is_counted_and_reading_goes_on() -> None:
    kmsg = reader(Ring(record(1, "a"), None, record(10, "b"), record(11, "c")))
    assert [line.text for line in kmsg.read(0)] == [b"a", b"b", b"c"]
    assert kmsg.take_lost() == 8
    assert kmsg.take_lost() == 0


def test_lines_overwritten_while_the_agent_was_away_are_counted() -> None:
    kmsg = reader(Ring(record(50, "x")), KmsgMark("boot-1", 40))
    kmsg.read(0)
    assert kmsg.take_lost() == 9


def test_a_first_start_counts_nothing_as_lost() -> None:
    kmsg = reader(Ring(record(5000, "x")))
    kmsg.read(0)
    assert kmsg.take_lost() == 0


def test_a_line_that_a_program_wrote_is_marked() -> None:
    lines = reader(Ring(record(1, "kernel", 4), record(2, "program", 12))).read(0)
    assert [line.relayed for line in lines] == [False, True]


def test_garbage_is_skipped() -> None:
    kmsg = reader(Ring(b"", b"garbage\n", b"6,x,1,-;no\n", b"\xff\xfe;", record(1, "good")))
    assert [line.text for line in kmsg.read(0)] == [b"good"]


def test_a_device_that_is_gone_raises() -> None:
    class Gone(Ring):
        def read(self) -> bytes:
            raise OSError(errno.ENODEV, "gone")

    with pytest.raises(OSError, match="gone"):
        reader(Gone()).read(0)


def test_a_stamp_ahead_of_the_clock_is_not_in_the_future() -> None:
    lines = reader(Ring(record(1, "x", micros=900_000_000))).read(0)
    assert lines[0].observed_at == NOW

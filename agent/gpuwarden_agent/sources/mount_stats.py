"""RPC statistics of NFS mounts: the text of /proc/PID/mountstats as numbers. Pure.

Its form is the kernel's: fs/nfs/super.c (nfs_show_stats), net/sunrpc/stats.c and xprtsock.c.
Looking at it never waits for a server, which statvfs of a mount point does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuwarden_agent.sources.proc_files import IMPLAUSIBLE
from gpuwarden_wire.readings import Reading, Unavailable

# "192.168.1.1:/srv mounted on /mnt with fstype nfs4 statvers=1.1"
_STATS = b" statvers="
_OCTAL = re.compile(rb"\\([0-7]{3})")  # blanks, tabs, line ends and backslashes in a mount point

# Numbers of a line of "per-op statistics", linux/sunrpc/metrics.h:
# "READ: 1298 1298 0 207680 1210292152 6 79386 79407" and, since 5.3, a count of errors.
_OPERATIONS, _TRANSMISSIONS, _TIMEOUTS, _QUEUE, _ROUND_TRIP, _EXECUTE = 0, 1, 2, 5, 6, 7
_OPERATION_NUMBERS = _AGAIN = 8
_IDLE = b": 0 0 "

# Where an "xprt:" line has sends, requests in use and backlog (each summed at every send), and the
# most slots ever in use, counted from 0 behind the protocol; rdma has no slots.
# "tcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726", "udp 832 0 6428 6428 0 12154 0 24 26 5726"
_TRANSPORTS: dict[bytes, tuple[int, ...]] = {
    b"tcp": (5, 8, 9, 10),
    b"udp": (2, 5, 6, 7),
    b"local": (4, 7, 8, 9),
    b"rdma": (5, 8, 9),
}


@dataclass(frozen=True, slots=True)
class Transports:
    """All transports of a mount together; "nconnect" makes several.

    Attributes:
        sends: Requests sent.
        in_use: Sum of the slots in use at each of them.
        backlog: Sum of the requests that waited for a slot at each of them.
        slots: Most slots ever in use, 0 where the transport does not say.
    """

    sends: int
    in_use: int
    backlog: int
    slots: int


@dataclass(frozen=True, slots=True)
class MountStats:
    """One NFS super block; a file system that is mounted in several places is one.

    Attributes:
        point: Where it is mounted first.
        counters: Readings by metric.
        transports: None where no line says how they fare.
    """

    point: str
    counters: dict[str, Reading]
    transports: Transports | None


def parse_mounts(text: bytes) -> Iterator[MountStats]:
    """Every NFS super block in the text of mountstats.

    A mount over another one hides it: the later line is what is seen at that point.
    """
    seen: set[tuple[bytes, bytes]] = set()
    found: dict[str, MountStats] = {}
    for block in text.removeprefix(b"device ").split(b"\ndevice "):
        head, _, body = block.partition(b"\n")
        words = head.split(b" ")
        if _STATS not in head or len(words) < 8:
            continue
        # Two mounts of one export with the same options share their super block, and so all below.
        identity = (words[-8], words[-2] + _line(body, b"\topts:"))
        if identity in seen:
            continue
        seen.add(identity)
        point = _unescaped(words[-5])
        found[point] = MountStats(point, _counters(body), _transports(body))
    yield from found.values()


def _unescaped(word: bytes) -> str:
    plain = _OCTAL.sub(lambda digits: bytes((int(digits[1], 8) & 0xFF,)), word)
    return plain.decode("utf-8", errors="replace")


def _line(body: bytes, key: bytes) -> bytes:
    """What stands behind a key at the beginning of a line, b"" where no line has it."""
    if body.startswith(key):
        start = len(key)
    elif (at := body.find(b"\n" + key)) >= 0:
        start = at + 1 + len(key)
    else:
        return b""
    end = body.find(b"\n", start)
    return body[start:] if end < 0 else body[start:end]


def _counters(body: bytes) -> dict[str, Reading]:
    row: dict[str, Reading] = {}
    # nfs_iostat.h: bytes read and written by programs, likewise direct, then from and to the server
    transferred = _line(body, b"\tbytes:").split()
    row["mount_read_bytes_total"] = _plausible(_number(transferred, 4))
    row["mount_written_bytes_total"] = _plausible(_number(transferred, 5))
    row["mount_age_seconds"] = _plausible(_number(_line(body, b"\tage:").split(), 0))
    row.update(_operations(body))
    return row


def _operations(body: bytes) -> dict[str, Reading]:
    sums = _sum_of_operations(body)
    if isinstance(sums, Unavailable):
        sums = [sums] * (_OPERATION_NUMBERS + 1)
    return {
        "mount_operations_total": sums[_OPERATIONS],
        "mount_retransmits_total": sums[_AGAIN],
        "mount_major_timeouts_total": sums[_TIMEOUTS],
        "mount_queue_seconds_total": _seconds(sums[_QUEUE]),
        "mount_round_trip_seconds_total": _seconds(sums[_ROUND_TRIP]),
        "mount_execute_seconds_total": _seconds(sums[_EXECUTE]),
    }


def _sum_of_operations(body: bytes) -> list[Reading] | Unavailable:
    """Each column over all operations; one number beyond reason spoils its column only.

    The last sum is of transmissions beyond the first. An operation that ended before it was sent
    is counted and never transmitted, so that the difference may even be below 0 for one kind of
    operation: what is given is the least that it can be.
    """
    _, header, lines = body.partition(b"\tper-op statistics\n")
    if not header:
        return Unavailable("no_such_line")
    totals = [0] * (_OPERATION_NUMBERS + 1)
    spoilt: set[int] = set()
    for line in lines.split(b"\n"):
        if _IDLE in line or not line.strip():
            continue
        try:
            numbers = [int(word) for word in line.partition(b": ")[2].split()]
        except ValueError:
            return Unavailable("not_a_number")
        if len(numbers) < _OPERATION_NUMBERS:
            return Unavailable("line_cut_short")
        for column in range(_OPERATION_NUMBERS):
            totals[column] += numbers[column]
            if not 0 <= numbers[column] < IMPLAUSIBLE:
                spoilt.add(column)
        totals[_AGAIN] += max(0, numbers[_TRANSMISSIONS] - numbers[_OPERATIONS])
    if spoilt & {_OPERATIONS, _TRANSMISSIONS}:
        spoilt.add(_AGAIN)
    return [
        Unavailable("implausible_value") if column in spoilt else total
        for column, total in enumerate(totals)
    ]


def _transports(body: bytes) -> Transports | None:
    totals = [0, 0, 0, 0]
    found = False
    start = body.find(b"\txprt:")
    while start >= 0:
        end = body.find(b"\n", start)
        words = (body[start:] if end < 0 else body[start:end]).split()
        start = body.find(b"\txprt:", start + 1)
        places = _TRANSPORTS.get(words[1]) if len(words) > 1 else None
        if places is None:
            continue  # a transport of a later kernel
        found = True
        try:
            for column, place in enumerate(places):
                totals[column] += int(words[2 + place])
        except (IndexError, ValueError):
            return None
    return Transports(*totals) if found else None


def _number(words: list[bytes], index: int) -> int | Unavailable:
    try:
        return int(words[index])
    except IndexError:
        return Unavailable("no_such_line" if not words else "line_cut_short")
    except ValueError:
        return Unavailable("not_a_number")


def _plausible(reading: Reading) -> Reading:
    """A cumulative number: what the kernel subtracted too much from reads as just under 2**64."""
    if isinstance(reading, float | int) and not 0 <= reading < IMPLAUSIBLE:
        return Unavailable("implausible_value")
    return reading


def _seconds(reading: Reading) -> Reading:
    return reading * 1e-3 if isinstance(reading, float | int) else reading

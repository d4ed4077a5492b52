from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from gpuwarden_kernel_log import LineContext, event_to_json, parse_line, scan_lines

TEXT = "NVRM: Xid (PCI:0000:3b:00): 94, pid=5, name=KMS thread, Contained"
KNOWN = LineContext(timezone=UTC, year=2025)
AT = datetime(2025, 1, 21, 4, 41, 44, tzinfo=UTC)
FINE = AT.replace(microsecond=283758)

# wrapper, time with zone and year known, uptime, host
WRAPPERS = [
    ("{}", None, None, None),
    ("[16450076.435595] {}", None, 16450076.435595, None),
    ("[    8.951695][  T123] {}", None, 8.951695, None),
    ("<4>[   13.868374] {}", None, 13.868374, None),
    ("[Tue Jan 21 04:41:44 2025] {}", AT, None, None),
    ("kern  :err   : [Tue Jan 21 04:41:44 2025] {}", AT, None, None),
    ("kern  :warn  : 2025-01-21T04:41:44,283758+00:00 {}", FINE, None, None),
    ("2025-01-21T04:41:44,283758+00:00 {}", FINE, None, None),
    ("[  +0.000844] {}", None, None, None),
    ("[Jan21 04:41] {}", None, None, None),
    ("4,1234,5678901234,-;{}", None, 5678.901234, None),
    ("4,1234,5678901234,-,caller=T812;{}", None, 5678.901234, None),
    ("Jan 21 04:41:44 node7 kernel: [   12.500000] {}", AT, 12.5, "node7"),
    ("Jan 21 04:41:44 node7 kernel: {}", AT, None, "node7"),
    ("Jan 21 04:41:44.283758 node7 kernel: {}", FINE, None, "node7"),
    ("Jan 21 04:41:44 {}", AT, None, None),
    ("<4>1 2025-01-21T04:41:44.283758+00:00 node7 kernel - - - {}", FINE, None, "node7"),
    ("2025-01-21T04:41:44+0000 node7 kernel: {}", AT, None, "node7"),
    ("2025-01-21T05:41:44.283758+01:00 node7 kernel[0]: {}", FINE, None, "node7"),
    ("Tue 2025-01-21 04:41:44 UTC node7 kernel: {}", AT, None, "node7"),
    ("1737434504.283758 node7 kernel: {}", FINE, None, "node7"),
    ("node7 kernel: {}", None, None, "node7"),
    ("kernel: [   12.500000] {}", None, 12.5, None),
    ("10.0.0.7: kern: warning: [2025-01-21T04:41:44.283758123Z]: {}", FINE, None, "10.0.0.7"),
    ("2025-01-21T04:41:44.283758123Z stdout F {}", FINE, None, None),
    ("2025-01-21T04:41:44.283758123Z stdout F [   12.500000] {}", FINE, 12.5, None),
    ("[pod/watcher-x2x/watcher] [   12.500000] {}", None, 12.5, None),
    ("    MESSAGE={}", None, None, None),
    ("> `[   12.500000] {}`", None, 12.5, None),
    ("Poll 3:  [   12.500000] {}", None, 12.5, None),
    ("Error: Jan 21 04:41:44 node7 kernel: [   12.500000] {}", AT, 12.5, "node7"),
    ("jan. 21 04:41:44 node7 kernel: {}", AT, None, "node7"),
    ("\x1b[32m[   12.500000] \x1b[0m{}", None, 12.5, None),
]


@pytest.mark.parametrize(("wrapper", "at", "uptime", "host"), WRAPPERS)
def test_any_wrapper_is_peeled(
    wrapper: str, at: datetime | None, uptime: float | None, host: str | None
) -> None:
    event = parse_line(wrapper.format(TEXT), KNOWN)
    assert event is not None
    assert event.text.removesuffix("`") == TEXT
    assert (event.xid, event.pid, event.process) == (94, 5, "KMS thread")
    assert (event.observed_at, event.uptime_s, event.host) == (at, uptime, host)


def test_a_journald_record_in_json() -> None:
    record = {
        "__REALTIME_TIMESTAMP": "1737434504283758",
        "_SOURCE_MONOTONIC_TIMESTAMP": "12500000",
        "_TRANSPORT": "kernel",
        "_HOSTNAME": "node7",
        "MESSAGE": TEXT,
    }
    for message in (TEXT, list(TEXT.encode()), [*TEXT.encode(), 0xFF]):
        event = parse_line(json.dumps(record | {"MESSAGE": message}))
        assert event is not None and event.text.startswith(TEXT)
        assert (event.observed_at, event.uptime_s, event.host) == (FINE, 12.5, "node7")


def test_a_docker_record_in_json() -> None:
    record = {"log": f"[   12.500000] {TEXT}\n", "time": "2025-01-21T04:41:44.283758000Z"}
    event = parse_line(json.dumps(record))
    assert event is not None
    assert (event.text, event.observed_at, event.uptime_s) == (TEXT, FINE, 12.5)


@pytest.mark.parametrize(
    "line",
    [
        f"[Tue Jan 21 04:41:44 2025] {TEXT}",
        f"2025-01-21T04:41:44 node7 kernel: {TEXT}",
        f"Tue 2025-01-21 04:41:44 CET node7 kernel: {TEXT}",
    ],
)
def test_a_time_without_a_zone_stays_unknown(line: str) -> None:
    event = parse_line(line)
    assert event is not None and event.observed_at is None


def test_syslog_needs_zone_and_year() -> None:
    line = f"Jan 21 04:41:44 node7 kernel: {TEXT}"
    for context in (LineContext(timezone=UTC), LineContext(year=2025)):
        event = parse_line(line, context)
        assert event is not None and event.observed_at is None
    east = LineContext(timezone=timezone(timedelta(hours=9)), year=2025)
    event = parse_line(line, east)
    assert event is not None and event.observed_at == AT - timedelta(hours=9)


def test_impossible_dates_are_unknown_times() -> None:
    for stamp in ("Feb 30 04:41:44", "Jan 21 29:41:44"):
        event = parse_line(f"{stamp} node7 kernel: {TEXT}", KNOWN)
        assert event is not None and event.xid == 94 and event.observed_at is None


def test_lines_are_numbered_from_one() -> None:
    found = list(scan_lines(["nothing", TEXT, "", f"[ 1.000000] {TEXT}[ 2.000000] {TEXT}"]))
    assert [number for number, _ in found] == [2, 4, 4]


def test_a_sentence_over_three_lines_gets_its_address() -> None:
    lines = [
        "[   18.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    ]
    *_, (number, event) = scan_lines(lines)
    assert (number, event.family, event.pci_bus_id) == (3, "gpu_lost", "0000:b3:00.0")


def test_json_has_the_documented_keys_in_order() -> None:
    event = parse_line(f"2025-01-21T04:41:44.283758+00:00 node7 kernel: {TEXT}")
    assert event is not None
    assert list(event_to_json(7, event).items()) == [
        ("line_number", 7),
        ("observed_at", "2025-01-21T04:41:44.283758Z"),
        ("family", "xid"),
        ("xid", 94),
        ("sxid", None),
        ("pci_bus_id", "0000:3b:00.0"),
        ("pid", 5),
        ("process", "KMS thread"),
        ("severity", "error"),
        ("action", "RESTART_APP"),
        ("application_possible", False),
        ("text", TEXT),
    ]
    bare = parse_line(TEXT)
    assert bare is not None and event_to_json(1, bare)["observed_at"] is None

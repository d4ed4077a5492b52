from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_kernel_log import event_to_json, parse_events, parse_line, scan_lines
from tests.unit.kernel_log.test_families import QUIET, TROUBLE
from tests.unit.kernel_log.test_wrappers import TEXT, WRAPPERS

SHAPES = [
    *(line for _, line in TROUBLE),
    *QUIET,
    *(wrapper.format(TEXT) for wrapper, *_ in WRAPPERS),
    "NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 0x0)",
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU",
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    '{"MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, x","__REALTIME_TIMESTAMP":"17374345042837"}',
]
EXAMPLES = 120  # enough to meet every shape; the whole file stays near a second


def check(line: str | bytes) -> None:
    for event in parse_events(line):
        assert event_to_json(1, event)["text"] == event.text
        assert len(event.text) <= 65536
        assert not (event.echo and event.acts_alone)


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=400))
def test_random_bytes_never_raise(line: bytes) -> None:
    check(line)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(SHAPES), st.data())
def test_cut_lines_never_raise(line: str, draw: st.DataObject) -> None:
    raw = line.encode()
    start = draw.draw(st.integers(0, len(raw)))
    end = draw.draw(st.integers(start, len(raw)))
    check(raw[start:end])


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(SHAPES), st.sampled_from(SHAPES), st.sampled_from(["", " ", "\x00", "\n"]))
def test_glued_lines_never_raise(first: str, second: str, glue: str) -> None:
    check(first + glue + second)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(SHAPES), st.binary(min_size=1, max_size=6), st.data())
def test_damaged_lines_never_raise(line: str, noise: bytes, draw: st.DataObject) -> None:
    raw = line.encode()
    at = draw.draw(st.integers(0, len(raw)))
    check(raw[:at] + noise + raw[at:])


@pytest.mark.parametrize(
    "line",
    [
        b"x" * 1_000_000,
        b" " * 1_000_000,
        b"[" * 1_000_000,
        b"NVRM: " * 170_000,
        b"NVRM: Xid (PCI:0000:3b:00): 79, " * 30_000,
        b"[   12.345678] " * 66_000,
        b"mlx5_core " * 100_000,
        b"Jan 21 04:41:44 node7 kernel: " * 33_000,
        b"invoked oom-killer: " * 50_000,
        b"task " * 200_000 + b"blocked for more than 120 seconds",
        b"nvme0n1 " * 125_000,
        b"drm " * 250_000 + b"nvidia",
        b'{"MESSAGE":' + b"[" * 1_000_000,
        b'{"MESSAGE":"' + b"NVRM: nvlink " * 80_000 + b'"}',
        b"a.b-c" * 200_000 + b": Link ",
        b"2025-01-21T04:41:44 " * 50_000 + b"nvrm",
    ],
)
def test_a_megabyte_in_one_line_takes_bounded_time(line: bytes) -> None:
    start = time.process_time()
    parse_events(line)
    # A line is cut to 8 KiB first (64 KiB of JSON); the slowest of these takes about 30 ms.
    assert time.process_time() - start < 1.0


def test_bytes_and_text_read_alike() -> None:
    for line in SHAPES:
        assert parse_line(line) == parse_line(line.encode())


def test_a_hundred_thousand_ordinary_lines_are_cheap() -> None:
    line = b"Jan 21 04:41:44 node7 sshd[8]: session opened for user root by (uid=0) from 10.0.0.1"
    start = time.process_time()
    assert list(scan_lines([line] * 100_000)) == []
    # About 0.5 s on one core; the bound leaves room for a loaded machine.
    assert time.process_time() - start < 5.0

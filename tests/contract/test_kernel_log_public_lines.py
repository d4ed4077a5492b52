from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwarden_kernel_log import Severity, nvlink5_decode, scan_lines, xid_entry
from tests.contract import kernel_log_table as table

FOLDER = os.environ.get("GPUWARDEN_PUBLIC_DATA", "")
pytestmark = pytest.mark.skipif(
    not (Path(FOLDER) / "klog").is_dir() if FOLDER else True,
    reason="GPUWARDEN_PUBLIC_DATA names no folder with klog/: public lines are not shipped",
)

REAL_XID_LINES = 73
# Lines of Linux_2k that report a genuine fault: a hit on one of these is not a false one.
GENUINE_LINUX_FAULTS: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(FOLDER)


def test_every_real_xid_line_is_exact_in_code_and_address(folder: Path) -> None:
    score = table.score_codes(folder)["real", "xid"]
    assert score.total == REAL_XID_LINES
    assert score.wrong == []


def test_every_sxid_line_is_exact_in_code_and_address(folder: Path) -> None:
    scores = table.score_codes(folder)
    assert scores["real", "sxid"].wrong + scores["vendor", "sxid"].wrong == []


@pytest.mark.parametrize("group", ["real", "vendor"])
def test_the_family_is_right(folder: Path, group: str) -> None:
    score = table.score_families(folder)[group, "all"]
    assert score.share >= 0.95, score.wrong


def test_corrections_name_lines_that_exist(folder: Path) -> None:
    assert set(table.CORRECTIONS) <= {line.line_id for line in table.read_lines(folder)}


def test_benign_logs_raise_no_alarm(folder: Path) -> None:
    hits = table.benign_hits(folder)
    false = [hit for _, wrong in hits.values() for hit in wrong if hit not in GENUINE_LINUX_FAULTS]
    lines = sum(count for count, _ in hits.values())
    assert len(false) <= lines / 1000, false


def test_an_application_line_never_acts_alone(folder: Path) -> None:
    for line in table.read_lines(folder):
        for _, event in scan_lines([line.line]):
            if event.acts_alone:
                assert event.severity is Severity.CRITICAL
                assert not event.application_possible
                assert not event.echo


def test_whole_captured_logs_are_read(folder: Path) -> None:
    for path in sorted((folder / "klog" / "raw").iterdir()):
        numbers = [number for number, _ in scan_lines(path.read_bytes().splitlines())]
        assert numbers == sorted(numbers)


def test_actions_are_those_of_the_vendor_sheet(folder: Path) -> None:
    wrong = []
    for row in _sheet(folder / "klog" / "nvidia_xid_catalog.csv"):
        bucket = row["Resolution Bucket  (Immediate Action)"].split()
        entry = xid_entry(int(row["Code"]))
        if entry is None or entry.action != (bucket[0] if bucket else None):
            wrong.append((row["Code"], bucket, entry and entry.action))
    assert wrong == []


def test_every_row_of_the_decode_sheet_is_found_in_both_layouts(folder: Path) -> None:
    wrong = []
    for row in _sheet(folder / "klog" / "nvidia_xid_144_150_decode.csv"):
        keys = list(row)
        bits = row["Error Status (hex)"].split("/")[0]
        for pattern, version in ((row[keys[2]], "550.1"), (row[keys[3]], "580.1")):
            word = int(pattern.strip().replace("-", "0"), 2)
            unit = row[keys[1]].replace(" Degraded", "_DEGRADED")
            found = nvlink5_decode(
                int(row["Xid"]), unit, word, int(bits, 16) if bits else None, version
            )
            action = row["Resolution Bucket  (Data Center Recovery Action)"]
            if found is None or found.action != action:
                wrong.append((row["Xid"], unit, pattern, version, found))
    assert wrong == []


def test_the_table_is_told(folder: Path, record_property: Callable[[str, object], None]) -> None:
    text = table.render(folder)
    record_property("figure", text)
    assert "real" in text


def _sheet(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as rows:
        yield from csv.DictReader(rows)

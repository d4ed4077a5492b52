"""The CSV for dcgm-exporter that we ship asks for what we read, and for nothing else."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gpuwarden_exporters.dcgm import XID_NAMES
from gpuwarden_exporters.dcgm_fields import FIELDS
from gpuwarden_wire.registry import METRIC_BY_NAME, METRICS

CSV = Path(__file__).resolve().parents[2] / "deploy" / "dcgm-exporter" / "gpuwarden.csv"
LABELS = {"DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VBIOS_VERSION"}
METRIC_BY_FIELD = {name: field.rule.metric for field in FIELDS for name in field.names}


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """Rows in force and those for newer DCGMs."""
    lines = [line.removeprefix("#+ ") for line in CSV.read_text().splitlines()]
    return list(csv.reader(line for line in lines if line and not line.startswith("#")))


def test_each_row_is_as_dcgm_exporter_wants_it(rows: list[list[str]]) -> None:
    assert [row for row in rows if len(row) != 3] == []
    assert {row[1].strip() for row in rows} == {"gauge", "counter", "label"}
    names = [row[0] for row in rows]
    assert len(names) == len(set(names))


def test_what_it_asks_for_is_read_and_of_the_kind_it_says(rows: list[list[str]]) -> None:
    for name, kind, _ in rows:
        if kind.strip() == "label":
            assert name in LABELS
        elif name not in XID_NAMES:
            counter = METRIC_BY_NAME[METRIC_BY_FIELD[name]].kind == "counter"
            assert counter == (kind.strip() == "counter"), name


def test_what_we_read_of_dcgm_is_in_it(rows: list[list[str]]) -> None:
    names = {row[0] for row in rows}
    asked = {field.rule.metric for field in FIELDS if names.intersection(field.names)}
    assert {field.rule.metric for field in FIELDS} == asked


def test_the_registry_names_fields_of_dcgm_that_we_read() -> None:
    named = {one.dcgm_name: one.name for one in METRICS if one.dcgm_name}
    by_field: dict[str, set[str]] = {}
    for field in FIELDS:
        for name in field.names:
            by_field.setdefault(name, set()).add(field.rule.metric)
    assert [name for name, metric in named.items() if metric not in by_field.get(name, ())] == []

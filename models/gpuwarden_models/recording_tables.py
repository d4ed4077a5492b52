"""The small tables of a recording: fleet.csv and labels.csv."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from gpuwarden_verdict.entities import FaultClass


class RecordingError(Exception):
    """A recording that cannot be read; the message names the file and the mend."""


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One GPU of fleet.csv."""

    node: str
    gpu_uuid: str
    pci_bus_id: str
    model: str


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One row of labels.csv.

    Attributes:
        entity_kind: gpu, node, nic, mount, fabric or job.
        entity: What it speaks about.
        fault_class: Where the fault lies.
        start: Epoch seconds from which action is needed.
        end: Epoch seconds of its end.
        action_needed: False for confounders.
        precursor_start: Epoch seconds from which it may be flagged; `start` where it says nothing.
    """

    entity_kind: str
    entity: str
    fault_class: FaultClass
    start: float
    end: float
    action_needed: bool
    precursor_start: float


def read_fleet(path: Path) -> tuple[FleetRow, ...]:
    """Rows of fleet.csv, none where there is no such file.

    Raises:
        RecordingError: A column is missing.
    """
    return tuple(
        FleetRow(
            node=row["node"],
            gpu_uuid=row["gpu_uuid"],
            pci_bus_id=row.get("pci_bus_id", ""),
            model=row.get("model", ""),
        )
        for _, row in _rows(path, ("node", "gpu_uuid"))
    )


def read_labels(path: Path) -> tuple[LabelRow, ...]:
    """Rows of labels.csv, none where there is no such file.

    Raises:
        RecordingError: A column is missing or a value is none of those allowed.
    """
    wanted = ("entity_kind", "entity", "fault_class", "start", "end", "action_needed")
    return tuple(_label(path, number, row) for number, row in _rows(path, wanted))


def _label(path: Path, number: int, row: Mapping[str, str]) -> LabelRow:
    try:
        start = parse_time(row["start"])
        precursor = start
        for word in row.get("note", "").split():
            if word.startswith("precursor_start="):
                precursor = parse_time(word.partition("=")[2])
        needed = {"yes": True, "no": False}[row["action_needed"]]
        return LabelRow(
            entity_kind=row["entity_kind"],
            entity=row["entity"],
            fault_class=FaultClass(row["fault_class"]),
            start=start,
            end=parse_time(row["end"]) if row["end"] else inf,
            action_needed=needed,
            precursor_start=precursor,
        )
    except (ValueError, KeyError) as error:
        raise RecordingError(
            f"{path}, line {number}: {error}; fault_class is one of"
            f" {', '.join(FaultClass)}, action_needed yes or no, times epoch seconds or ISO 8601"
        ) from error


def parse_time(text: str) -> float:
    """Epoch seconds from a number or an ISO 8601 time; one without a zone is UTC.

    Raises:
        ValueError: Neither.
    """
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _rows(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = set(wanted) - set(reader.fieldnames or ())
        if missing:
            raise RecordingError(
                f"{path}: no column {', '.join(sorted(missing))}; it has"
                f" {', '.join(reader.fieldnames or ('none',))}"
            )
        for row in reader:
            yield reader.line_num, {key: value or "" for key, value in row.items() if key}

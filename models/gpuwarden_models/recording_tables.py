"""The small tables of a recording: fleet.csv and labels.csv."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from gpuwarden_kernel_log.pci import canonical_pci
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.events import JobKind

LATEST_S = 1e11
"""Epoch seconds of the year 5138: what is later was written in milliseconds."""


class RecordingError(Exception):
    """A recording that cannot be read; the message names the file and the mend."""


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One GPU of fleet.csv; "", None and () where it does not say.

    Attributes:
        node: Its node.
        gpu_uuid: The GPU.
        gpu_index: The driver's index.
        serial: Of the board.
        pci_bus_id: Lower-case dddd:bb:dd.f.
        model: NVIDIA's product name.
        rack: Where the node stands.
        leaf: Leaf switch of the node.
        power: Power domain of the node; a column beyond those that every recording may have.
        mounts: Mount points that the node should have.
        since: Epoch seconds from which it has been in its slot; None where it always was.
    """

    node: str
    gpu_uuid: str
    gpu_index: int | None = None
    serial: str = ""
    pci_bus_id: str = ""
    model: str = ""
    rack: str = ""
    leaf: str = ""
    power: str = ""
    mounts: tuple[str, ...] = ()
    since: float | None = None

    @property
    def slot(self) -> str:
        """What tells GPUs of a node apart that were there one after the other."""
        return self.pci_bus_id or (self.gpu_uuid if self.gpu_index is None else f"{self.gpu_index}")


_NO_END = ("", "None", "Unknown")  # the latter two as sacct writes it

JOB_STATES = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "RUNNING")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of jobs.csv.

    Attributes:
        job_id: As the scheduler numbers it.
        user: Owner.
        nodes: Names.
        start: Epoch seconds.
        end: Epoch seconds; infinite while it runs.
        state: One of JOB_STATES.
        exit_code: As written, "" where it does not say.
    """

    job_id: str
    user: str
    nodes: tuple[str, ...]
    start: float
    end: float
    state: str
    exit_code: str

    @property
    def key(self) -> str:
        """As sweeps name it, "slurm:ID": the states of jobs.csv are Slurm's words."""
        return f"{JobKind.SLURM}:{self.job_id}"


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
        mechanism: How it came about, one word of whoever labelled it; "" where it does not say.
        shows_at: Epoch seconds from which anything that is read or logged is changed by it; None
            where it does not say.
        never_shows: Whether it says that nothing ever is.
    """

    entity_kind: str
    entity: str
    fault_class: FaultClass
    start: float
    end: float
    action_needed: bool
    precursor_start: float
    mechanism: str = ""
    shows_at: float | None = None
    never_shows: bool = False


def read_fleet(path: Path) -> tuple[FleetRow, ...]:
    """Rows of fleet.csv, none where there is no such file.

    Raises:
        RecordingError: A column is missing, a row names no GPU or one that another row has too.
    """
    found: dict[str, FleetRow] = {}
    for number, row in _rows(path, ("node", "gpu_uuid")):
        try:
            fleet_row = _fleet_row(row)
        except ValueError as error:
            raise RecordingError(
                f"{path}, line {number}: since: {error}; epoch seconds or ISO 8601, or empty"
            ) from error
        if not (fleet_row.node and fleet_row.gpu_uuid):
            raise RecordingError(
                f"{path}, line {number}: names no node or no gpu_uuid; fill it in, or take it out"
            )
        if fleet_row.gpu_uuid in found:
            raise RecordingError(
                f"{path}, line {number}: {fleet_row.gpu_uuid} stands in an earlier line too,"
                f" on {found[fleet_row.gpu_uuid].node}; a GPU has one line"
            )
        found[fleet_row.gpu_uuid] = fleet_row
    return tuple(found.values())


def _fleet_row(row: Mapping[str, str]) -> FleetRow:
    index, pci = row.get("gpu_index", ""), row.get("pci_bus_id", "")
    return FleetRow(
        node=row["node"],
        gpu_uuid=row["gpu_uuid"],
        gpu_index=int(index) if index.isdecimal() else None,
        serial=row.get("serial", ""),
        pci_bus_id=canonical_pci(pci) or pci,
        model=row.get("model", ""),
        rack=row.get("rack", ""),
        leaf=row.get("leaf", ""),
        power=row.get("power", ""),
        mounts=_words(row.get("mounts", "")),
        since=parse_time(row["since"]) if row.get("since") else None,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(";") if word.strip())


def read_jobs(path: Path) -> tuple[JobRow, ...]:
    """Rows of jobs.csv, none where there is no such file.

    Raises:
        RecordingError: A column is missing or a value is none of those allowed.
    """
    wanted = ("job_id", "nodes", "start")
    return tuple(_job(path, number, row) for number, row in _rows(path, wanted))


def _job(path: Path, number: int, row: Mapping[str, str]) -> JobRow:
    try:
        start = parse_time(row["start"])
        end = parse_time(row["end"]) if row.get("end", "") not in _NO_END else inf
        state = row.get("state") or ("RUNNING" if end == inf else "COMPLETED")
        state = state.split()[0]  # "CANCELLED by 1000", as sacct writes it
        if end < start:
            raise ValueError("it ends before it starts")
        if state not in JOB_STATES:
            raise ValueError(f"state {state!r}")
        if "[" in row["nodes"]:
            raise ValueError("nodes are folded: write them out, as scontrol show hostnames does")
    except (ValueError, IndexError) as error:
        raise RecordingError(
            f"{path}, line {number}: {error}; state is one of {', '.join(JOB_STATES)}, times are"
            " epoch seconds or ISO 8601, end is empty while the job runs"
        ) from error
    return JobRow(
        job_id=row["job_id"],
        user=row.get("user", ""),
        nodes=_words(row["nodes"]),
        start=start,
        end=end,
        state=state,
        exit_code=row.get("exit_code", ""),
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
        said = dict(word.split("=", 1) for word in row.get("note", "").split() if "=" in word)
        shown = said.get("shows", "")
        needed = {"yes": True, "no": False}[row["action_needed"]]
        return LabelRow(
            entity_kind=row["entity_kind"],
            entity=row["entity"],
            fault_class=FaultClass(row["fault_class"]),
            start=start,
            end=parse_time(row["end"]) if row["end"] else inf,
            action_needed=needed,
            precursor_start=parse_time(said.get("precursor_start", f"{start}")),
            mechanism=said.get("mechanism", ""),
            shows_at=parse_time(shown) if shown not in ("", "never") else None,
            never_shows=shown == "never",
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
        seconds = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not abs(seconds) < LATEST_S:
        raise ValueError(f"{text} is no time in seconds")
    return seconds


def _rows(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    if not path.exists():
        return
    number = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = set(wanted) - set(reader.fieldnames or ())
            if missing:
                raise RecordingError(
                    f"{path}: no column {', '.join(sorted(missing))}; it has"
                    f" {', '.join(reader.fieldnames or ('none',))}"
                )
            for row in reader:
                number = reader.line_num
                yield number, {key: (value or "").strip() for key, value in row.items() if key}
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise RecordingError(
            f"{path}, after line {number}: {error}; write it as CSV in UTF-8"
        ) from error

"""`gpuwarden-agent once`: everything read one time, for people and programs; no server needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuwarden_agent.agent import Sources, build_sources, make_context
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.kernel_log import KernelLogFollower
from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.harvest_check import sound
from gpuwarden_agent.identity import read_boot_id
from gpuwarden_agent.inventory import merge
from gpuwarden_agent.precedence import SourceOrder, admit_all
from gpuwarden_agent.sources.nvml import ProbeState
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME
from gpuwarden_wire.tables import flatten
from gpuwarden_wire.version import __version__

_LOG_PATIENCE_S = 10.0


@dataclass(slots=True)
class Visit:
    """What one collector or follower gave."""

    name: str
    harvest: Harvest | None = None
    events: list[Event] = field(default_factory=list)
    reason: str = ""
    mend: str = ""
    note: str = ""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything read one time."""

    node_id: str
    boot_id: str
    visits: tuple[Visit, ...]
    exporter_first: tuple[str, ...] = ()

    def readings(self) -> Iterator[tuple[EntityKind, str, str, Reading]]:
        """(kind, entity, metric, reading) of all collectors, each from the source that has it."""
        rows = {visit.name: visit.harvest.rows for visit in self.visits if visit.harvest}
        for admitted in admit_all(SourceOrder(rows, self.exporter_first), rows).values():
            yield from flatten(admitted)

    def events(self) -> list[Event]:
        """Events found on the way and in the kernel log."""
        return [event for visit in self.visits for event in visit.events]

    def to_json(self) -> dict[str, Any]:
        """The form that `--json` prints."""
        shares = [v.harvest.inventory for v in self.visits if v.harvest and v.harvest.inventory]
        whole = merge(shares)
        return {
            "agent_version": __version__,
            "node_id": self.node_id,
            "boot_id": self.boot_id,
            "collectors": [_visit_json(visit) for visit in self.visits],
            "readings": [_reading_json(*one) for one in self.readings()],
            "inventory": whole,
            "events": self.events(),
        }


class _NoPositions:
    """Nothing is remembered: each run reads from the beginning."""

    def load_position(self, follower: str) -> bytes | None:
        return None

    def commit_position(self, follower: str, position: bytes, events: Sequence[Event]) -> None:
        return


def collect_once(settings: AgentSettings) -> Snapshot:
    """Call every collector once, each in its own thread and deadline, and read the kernel log.

    Raises:
        ConfigError: A name in the settings is unknown.
    """
    boot_id = read_boot_id(settings.proc_root)
    # A plug-in check may load a GPU that is at work, and is no reading of ours: it is not run.
    bare = replace(settings, checks=None)
    context = make_context(bare, boot_id, time.time(), _NoPositions(), keeps_state=False)
    sources = build_sources(context)
    visits = [Visit(one.name) for one in sources.collectors]
    threads = [
        threading.Thread(target=_visit, args=(one, visit), daemon=True)
        for one, visit in zip(sources.collectors, visits, strict=True)
    ]
    for thread in threads:
        thread.start()
    followed = [_read_log(one) for one in sources.followers if isinstance(one, KernelLogFollower)]
    for collector, visit, thread in zip(sources.collectors, visits, threads, strict=True):
        thread.join(collector.deadline_s)
        if thread.is_alive():
            visit.reason = "deadline_exceeded"
            visit.mend = f"One call takes more than {collector.deadline_s:g} s."
    _note_nvml(sources, visits)
    for collector, thread in zip(sources.collectors, threads, strict=True):
        if not thread.is_alive():
            collector.close()
    return Snapshot(settings.own_node_id, boot_id, (*visits, *followed), settings.exporter_first)


def _note_nvml(sources: Sources, visits: Sequence[Visit]) -> None:
    """Without a GPU on the bus a missing NVML is no trouble, but why it is missing is told."""
    if sources.nvml_probe is None:
        return
    condition = sources.nvml_probe.condition()
    for visit in visits:
        if visit.name == "nvml" and condition.state is ProbeState.UNAVAILABLE:
            visit.note = f"{condition.reason}. {condition.mend}".strip()


def _visit(collector: Collector, visit: Visit) -> None:
    began = time.monotonic()
    try:
        harvest = sound(collector.collect(time.time()))
    except CollectorError as error:
        visit.reason, visit.mend = error.reason, error.mend
    except Exception as error:
        visit.reason, visit.mend = f"internal_error:{type(error).__name__}", "Report this bug."
    else:
        visit.events += harvest.events
        visit.harvest = harvest
        visit.note = "; ".join(f"{what}: {one.reason}" for what, one in harvest.notices.items())
    visit.took_s = time.monotonic() - began


def _read_log(log: KernelLogFollower) -> Visit:
    visit = Visit(log.name)
    began = time.monotonic()
    try:
        visit.events += log.read_present(_LOG_PATIENCE_S)
    except CollectorError as error:
        visit.reason, visit.mend = error.reason, error.mend
    visit.took_s = time.monotonic() - began
    return visit


def unit_of(metric: str) -> str:
    """Base unit of a metric, "" for counts and metrics of our own invention."""
    known = METRIC_BY_NAME.get(metric)
    return known.unit if known else ""


def reason_of(reading: Reading) -> str:
    """Why a reading is missing, in words; "" where it is a number."""
    match reading:
        case NotSupported(reason=reason) | Unavailable(reason=reason):
            return reason
        case Stale(age_s=age_s):
            return f"stale: {age_s:.0f} s old"
        case _:
            return ""


def _visit_json(visit: Visit) -> dict[str, Any]:
    return {
        "name": visit.name,
        "outcome": "trouble" if visit.reason else "ok",
        "reason": visit.reason,
        "mend": visit.mend,
        "note": visit.note,
        "duration_s": round(visit.took_s, 4),
    }


def _reading_json(kind: EntityKind, entity: str, metric: str, reading: Reading) -> dict[str, Any]:
    row: dict[str, Any] = {
        "entity_kind": kind,
        "entity": entity,
        "metric": metric,
        "value": reading if isinstance(reading, float | int) else None,
        "unit": unit_of(metric),
    }
    if row["value"] is None:
        row["missing"] = _missing_kind(reading)
        row["reason"] = reason_of(reading)
    return row


def _missing_kind(reading: Reading) -> str:
    match reading:
        case NotSupported():
            return "not_supported"
        case Stale():
            return "stale"
        case _:
            return "unavailable"

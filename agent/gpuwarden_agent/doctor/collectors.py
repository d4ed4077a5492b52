"""Each collector once, the kernel log, and the definitions of plug-in checks."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpuwarden_agent.checks.definitions import CheckDefinition, load_checks
from gpuwarden_agent.checks.ownership import refusal
from gpuwarden_agent.collectors.contract import FIRST_ROUND, Harvest
from gpuwarden_agent.config import AgentSettings, ConfigError
from gpuwarden_agent.doctor.finding import Finding, Level
from gpuwarden_agent.maintenance import AgentNote
from gpuwarden_agent.once import Visit, collect_once
from gpuwarden_agent.sources.kernel_files import read_text
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported
from gpuwarden_wire.tables import flatten

_AREA = "collectors"
_VITAL = frozenset({"nvml", "kernel_log"})
_CAP_SYSLOG = 34  # linux/capability.h
_SHOWN_REASONS = 3


def look_at_collectors(settings: AgentSettings, note: AgentNote | None) -> Iterator[Finding]:
    """Call every collector once, as the agent does, beside one that runs.

    The GPUs are left alone where the running agent says that their driver hangs, or that it is in
    maintenance: a second process would hang in it too, or hold what is to be let go of.
    """
    kept_off = _kept_off(note)
    if kept_off:
        yield Finding(_AREA, "nvml", Level.WARNING, f"not looked at: {kept_off}")
    with tempfile.TemporaryDirectory(prefix="gpuwarden-doctor-") as folder:
        # What collectors remember about this boot is the running agent's to write.
        apart = replace(
            settings,
            verdict_file=Path(folder) / "verdict.json",
            nvml=settings.nvml and not kept_off,
            collectors=tuple(
                name for name in settings.collectors if not (kept_off and name.startswith("nvml"))
            ),
        )
        snapshot = collect_once(apart)
    for visit in snapshot.visits:
        yield _visited(visit, settings)
        if visit.name == "nvml" and visit.harvest is not None:
            yield from _gpus(visit.harvest)


def _gpus(harvest: Harvest) -> Iterator[Finding]:
    """Whether as many GPUs answer as there are."""
    row = harvest.rows.get(EntityKind.NODE, {}).get("", {})
    counts = [row.get(f"node_gpus_{which}") for which in ("visible", "on_pci", "expected")]
    numbers = [int(count) if isinstance(count, float | int) else 0 for count in counts]
    if not any(numbers):
        yield Finding(_AREA, "GPUs", Level.ABSENT, "none on the bus, none expected")
        return
    gpus = harvest.inventory.gpus if harvest.inventory is not None else ()
    driver = next((gpu.driver_version for gpu in gpus if gpu.driver_version), "unknown")
    visible, on_bus, expected = numbers
    says = f"{visible} answer, {on_bus} on the bus, {expected} expected; driver {driver}"
    if visible < max(on_bus, expected):
        mend = "Look for XID 79 in the kernel log; GPUWARDEN_AGENT_GPUS_EXPECTED sets the number."
        yield Finding(_AREA, "GPUs", Level.WARNING, says, mend)
    else:
        yield Finding(_AREA, "GPUs", Level.FINE, says)


def _kept_off(note: AgentNote | None) -> str:
    if note is None:
        return ""
    if note.released or note.held:
        return "the agent is in maintenance"
    return f"the running agent says {note.driver}" if note.driver else ""


def _visited(visit: Visit, settings: AgentSettings) -> Finding:
    if visit.reason:
        level = Level.VITAL if visit.name in _VITAL else Level.WARNING
        mend = visit.mend or "Look at the agent's log."
        if visit.name == "kernel_log" and visit.reason == "permission_denied":
            mend = _mend_of_kernel_log(settings)
        return Finding(_AREA, visit.name, level, visit.reason, mend)
    if visit.harvest is None:
        return Finding(_AREA, visit.name, Level.FINE, f"{len(visit.events)} recognised lines")
    numbers, missing = _counted(visit)
    says = f"{numbers} readings in {visit.took_s * 1000:.0f} ms"
    if visit.note:
        says += f"; {visit.note}"
    if missing:
        most = missing.most_common(_SHOWN_REASONS)
        listed = ", ".join(f"{number} {reason}" for reason, number in most)
        says += f"; missing: {listed}" + (", …" if len(missing) > _SHOWN_REASONS else "")
    if missing and not numbers:
        return Finding(_AREA, visit.name, Level.WARNING, says, "Look why nothing can be read.")
    return Finding(_AREA, visit.name, Level.FINE if numbers else Level.ABSENT, says)


def _counted(visit: Visit) -> tuple[int, Counter[str]]:
    """Numbers, and readings that should be numbers by the reason why they are not."""
    rows = visit.harvest.rows if visit.harvest is not None else {}
    readings = [reading for *_, reading in flatten(rows)]
    missing = Counter(
        getattr(reading, "reason", "stale")
        for reading in readings
        if not isinstance(reading, float | int | NotSupported)
    )
    del missing[FIRST_ROUND]  # one look cannot know it
    return sum(isinstance(reading, float | int) for reading in readings), missing


def _mend_of_kernel_log(settings: AgentSettings) -> str:
    path = settings.kmsg_path
    if os.access(path, os.R_OK) and not _has_cap_syslog():
        return (
            "Reading the kernel log needs CAP_SYSLOG while kernel.dmesg_restrict is 1: "
            "AmbientCapabilities=CAP_SYSLOG in the unit, as docs/install.md shows."
        )
    return f"Let the agent read {path}: DeviceAllow={path} r in the unit, or the file's group."


def _has_cap_syslog() -> bool:
    try:
        lines = read_text("/proc/self/status").splitlines()
    except OSError:
        return False
    # "CapEff:\t0000000400000000": effective capabilities as a hexadecimal mask (proc(5))
    found = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(found, 16) >> _CAP_SYSLOG & 1)


def look_at_checks(settings: AgentSettings) -> Iterator[Finding]:
    """The definitions of plug-in checks and whether each could be started; none is run."""
    if settings.checks is None:
        yield Finding("checks", "plug-in checks", Level.ABSENT, "none defined")
        return
    try:
        checks = load_checks(settings.checks)
    except ConfigError as error:
        yield Finding("checks", str(settings.checks), Level.VITAL, str(error))
        return
    for check in checks:
        yield _startable(check)


def _startable(check: CheckDefinition) -> Finding:
    program = Path(check.command[0])
    refused = refusal(program)
    if refused is not None:
        return Finding("checks", check.name, Level.WARNING, refused.reason, refused.mend)
    if not program.is_file():
        mend = f"Install it, or mend command of {check.name}."
        return Finding("checks", check.name, Level.WARNING, f"{program} is not there", mend)
    if not os.access(program, os.X_OK):
        mend = f"chmod +x {program}"
        return Finding("checks", check.name, Level.WARNING, f"{program} is not executable", mend)
    says = f"every {check.interval_s:g} s, deadline {check.deadline_s:g} s (not run now)"
    return Finding("checks", check.name, Level.FINE, says)

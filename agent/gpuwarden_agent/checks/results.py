"""What a plug-in check says: from exit code and output to results. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import isfinite
from typing import Any

from gpuwarden_agent.checks.definitions import CheckDefinition, Output
from gpuwarden_agent.checks.process import Outcome
from gpuwarden_wire.readings import Reading, Unavailable

MAX_RESULTS = 64
"""JSON lines of one run: one an entity; no node has more GPUs."""

_TEXT_CHARACTERS = 500
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class CheckState(IntEnum):
    """Exit codes of Nagios plug-ins; UNKNOWN is no state but the lack of one."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_STATES = {state.name.lower(): state for state in CheckState}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one run says about one entity.

    Attributes:
        state: UNKNOWN where it could not be found out.
        text: The check's own words.
        reason: Short stable phrase for UNKNOWN, "" else.
        gpu_uuid: GPU it speaks about, "" for the node or where only the address is given.
        pci_bus_id: Lower-case dddd:bb:dd.f of the GPU, "" where not given.
        readings: By our names, every one that the definition asks for.
        figures: Performance figures as printed.
    """

    state: CheckState
    text: str
    reason: str = ""
    gpu_uuid: str = ""
    pci_bus_id: str = ""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    figures: str = ""


class _Unreadable(Exception):
    """The output does not say what it should; carries the reason."""


def results_of(check: CheckDefinition, outcome: Outcome) -> tuple[CheckResult, ...]:
    """At least one result; where the check did not say anything, one that is UNKNOWN and why."""
    if outcome.reason:
        return (_unknown(check, outcome.reason, _line(outcome.output) or _line(outcome.errors)),)
    try:
        match check.output:
            case Output.NAGIOS:
                return (_nagios(check, outcome),)
            case Output.JSON:
                return _json(check, outcome)
    except _Unreadable as unreadable:
        return (_unknown(check, str(unreadable), _line(outcome.output)),)


def _unknown(check: CheckDefinition, reason: str, text: str) -> CheckResult:
    why = Unavailable(reason)
    return CheckResult(
        CheckState.UNKNOWN, text, reason, readings=dict.fromkeys(check.readings, why)
    )


def _nagios(check: CheckDefinition, outcome: Outcome) -> CheckResult:
    state = _state_of_exit(outcome.exit_code)
    words = outcome.output.decode("utf-8", "replace")
    text, _, figures = words.partition("\n")[0].partition("|")
    said = _clean(text) or _line(outcome.errors)
    if state is CheckState.UNKNOWN:
        return _unknown(check, "check_says_unknown", said)
    # Further figures stand behind the "|" of the long text (Nagios plug-in API, version 3).
    figures += " " + words.partition("\n")[2].partition("|")[2].replace("\n", " ")
    found = parse_figures(figures)
    absent = Unavailable("not_reported")
    readings = {name: found.get(label, absent) for name, label in check.readings.items()}
    return CheckResult(state, said, readings=readings, figures=_clean(figures))


def _state_of_exit(code: int | None) -> CheckState:
    if code not in tuple(CheckState):
        raise _Unreadable(f"exit_code_{code}")
    return CheckState(code)


# "'/ used'=42MB;80;90;0;100 time=0.013s": label, value, unit; thresholds behind ";" are left out.
_FIGURE = re.compile(
    r"(?<!\S)(?:'((?:[^']|''){1,100})'|([^\s'=]{1,100}))=(-?\d{1,30}(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?|U)"
    r"([A-Za-z%]{0,4})(?=[;\s]|$)"
)
_UNITS = {
    "": 1.0,
    "c": 1.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "%": 1e-2,
    "B": 1.0,
    "KB": 2.0**10,
    "MB": 2.0**20,
    "GB": 2.0**30,
    "TB": 2.0**40,
}


def parse_figures(text: str) -> dict[str, Reading]:
    """Performance figures by label, in base units: seconds, bytes, ratios (of %)."""
    found: dict[str, Reading] = {}
    for match in _FIGURE.finditer(text[:16_384]):
        quoted, plain, number, unit = match.groups()
        label = quoted.replace("''", "'") if quoted else plain
        if number == "U":  # "the value couldn't be determined"
            found[label] = Unavailable("check_says_unknown")
        elif unit in _UNITS:
            found[label] = _plausible(float(number) * _UNITS[unit])
        else:
            found[label] = Unavailable("unknown_unit")
    return found


def _json(check: CheckDefinition, outcome: Outcome) -> tuple[CheckResult, ...]:
    if outcome.cut:
        raise _Unreadable("output_too_long")
    lines = [line for line in outcome.output.split(b"\n") if line.strip()]
    if not lines:
        raise _Unreadable("no_output")
    if len(lines) > MAX_RESULTS:
        raise _Unreadable("too_many_lines")
    by_exit = _state_of_exit(outcome.exit_code)
    results = tuple(_json_line(check, line, by_exit) for line in lines)
    said = [one.state for one in results if one.state is not CheckState.UNKNOWN]
    if said and by_exit > max(said):
        # Words that say well and an exit code that says otherwise: which of them is wrong?
        raise _Unreadable("exit_code_says_otherwise")
    return results


def _json_line(check: CheckDefinition, line: bytes, by_exit: CheckState) -> CheckResult:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise _Unreadable("not_json") from None
    if not isinstance(said, dict):
        raise _Unreadable("not_a_json_object")
    state = _json_state(said.get("state"), by_exit)
    uuid, address = _json_gpu(said)
    text = _clean(str(said.get("text", "")))
    reason = "check_says_unknown" if state is CheckState.UNKNOWN else ""
    figures = said.get("readings")
    given = figures if isinstance(figures, dict) else {}
    readings = {name: _json_number(given.get(key)) for name, key in check.readings.items()}
    if state is CheckState.UNKNOWN:
        readings = dict.fromkeys(check.readings, Unavailable(reason))
    return CheckResult(state, text, reason, uuid, address, readings)


def _json_state(said: Any, by_exit: CheckState) -> CheckState:
    if said is None:
        return by_exit
    if isinstance(said, str) and said.lower() in _STATES:
        return _STATES[said.lower()]
    raise _Unreadable("no_such_state")


def _json_gpu(said: Mapping[str, Any]) -> tuple[str, str]:
    uuid, address = said.get("gpu_uuid"), said.get("pci_bus_id")
    if (uuid is not None and not _is_name(uuid)) or not isinstance(address, str | None):
        raise _Unreadable("no_such_gpu")
    if address is None:
        return uuid or "", ""
    found = _PCI.fullmatch(address.strip().lower())
    if found is None:
        raise _Unreadable("no_such_pci_address")
    domain, bus, device, function = found.groups()
    # nvidia-smi writes domains with eight digits, the kernel with four.
    return uuid or "", f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"


def _is_name(uuid: Any) -> bool:
    return isinstance(uuid, str) and 0 < len(uuid) <= 100 and uuid.isprintable()


def _json_number(value: Any) -> Reading:
    if value is None:
        return Unavailable("not_reported")
    if isinstance(value, bool) or not isinstance(value, float | int):
        return Unavailable("not_a_number")
    if isinstance(value, int) and value.bit_length() > 64:
        return Unavailable("implausible_value")
    return _plausible(value)


def _plausible(value: float) -> Reading:
    if not isfinite(value) or abs(value) >= 2.0**63:
        return Unavailable("implausible_value")
    return float(value)


def _line(output: bytes) -> str:
    return _clean(output.decode("utf-8", "replace").lstrip().partition("\n")[0])


def _clean(text: str) -> str:
    """Printable characters only: what a check prints ends up on terminals and pages."""
    kept = "".join(
        c if c.isprintable() or c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text[:2_000]
    )
    return " ".join(kept.split())[:_TEXT_CHARACTERS]

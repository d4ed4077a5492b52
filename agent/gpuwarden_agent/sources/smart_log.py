"""What an NVMe drive says of its own health: the JSON of nvme-cli and of smartctl. Pure.

Both print the SMART / health information log (log page 02h of the NVM Express base specification).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuwarden_agent.sources.proc_files import IMPLAUSIBLE
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_PERCENT = 1e-2
_ZERO_CELSIUS = 273.0  # both tools take whole degrees
_COLDEST_KELVIN = 200.0  # no drive works below -70 °C: a smaller number is no kelvin

# Metric, name in `nvme smart-log -o json`, name in `smartctl -j`, factor to base units.
_FIELDS: tuple[tuple[str, str, str, float], ...] = (
    ("disk_critical_warning", "critical_warning", "critical_warning", 1),
    ("disk_media_errors_total", "media_errors", "media_errors", 1),
    ("disk_endurance_used_ratio", "percent_used", "percentage_used", _PERCENT),
    ("disk_available_spare_ratio", "avail_spare", "available_spare", _PERCENT),
    ("disk_temperature_celsius", "temperature", "temperature", 1),
    ("disk_unsafe_shutdowns_total", "unsafe_shutdowns", "unsafe_shutdowns", 1),
    ("disk_error_log_entries_total", "num_err_log_entries", "num_err_log_entries", 1),
)
SMART_METRICS = tuple(metric for metric, *_ in _FIELDS)
_TEMPERATURE = "disk_temperature_celsius"
_SMARTCTL_LOG = "nvme_smart_health_information_log"


def parse_nvme_cli(text: bytes) -> dict[str, Reading] | None:
    """Readings of `nvme smart-log -o json`; None where the text holds no such log.

    Temperatures are in kelvin: {"critical_warning":0,"temperature":315,"avail_spare":100, …}.
    """
    log = _object(text)
    if log is None or not any(name in log for _, name, *_ in _FIELDS):
        return None
    row = {metric: _reading(log, name, factor) for metric, name, _, factor in _FIELDS}
    heat = row[_TEMPERATURE]
    if isinstance(heat, float | int) and heat >= _COLDEST_KELVIN:
        row[_TEMPERATURE] = heat - _ZERO_CELSIUS
    return row


def parse_smartctl(text: bytes) -> dict[str, Reading] | None:
    """Readings of `smartctl -j -a`, of an NVMe drive; None where the text holds no such log.

    {"nvme_smart_health_information_log": {"critical_warning": 0, "temperature": 42, …}, …}
    """
    report = _object(text)
    log = report.get(_SMARTCTL_LOG) if report is not None else None
    if not isinstance(log, dict):
        return None
    return {metric: _reading(log, name, factor) for metric, _, name, factor in _FIELDS}


def smartctl_complaint(text: bytes) -> str:
    """The first error that smartctl's report gives for itself, "" where there is none.

    {"smartctl": {"messages": [{"string": "Smartctl open device: …", "severity": "error"}]}}
    """
    report = _object(text)
    own = report.get("smartctl") if report is not None else None
    messages = own.get("messages") if isinstance(own, dict) else None
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("severity") == "error":
            return str(message.get("string", ""))
    return ""


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _reading(log: Mapping[str, Any], name: str, factor: float) -> Reading:
    value = log.get(name)
    if isinstance(value, dict):  # nvme-cli takes the bits of a warning apart where it is verbose
        value = value.get("value")
    if value is None:
        return NotSupported()
    if isinstance(value, str):  # 128-bit numbers, with thousands marks where the locale has them
        value = _whole(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Unavailable("not_a_number")
    if not 0 <= value < IMPLAUSIBLE:
        return Unavailable("implausible_value")
    return value * factor


def _whole(text: str) -> int | None:
    digits = text.replace(",", "").strip()
    return int(digits) if digits.isdecimal() and len(digits) <= 40 else None

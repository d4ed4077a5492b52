"""Slurm's reservations for maintenance, as `scontrol show reservation` writes them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from gpuwarden_runtime.host_names import read_hosts

MAINTENANCE = "MAINT"
_NONE = "(null)"
_NOBODY = "No reservations in the system"
_RECORD = "ReservationName="


class ReservationFault(Exception):
    """What cannot be read; the message names the place and what is wanted."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A time for which nodes are taken out for maintenance.

    Attributes:
        name: Its own.
        nodes: Their names, sorted.
        starts_at: Epoch seconds.
        ends_at: Epoch seconds.
    """

    name: str
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float


def read_reservations(text: str, zone: tzinfo | None = UTC) -> list[Reservation]:
    """Reservations with the flag MAINT, of what scontrol wrote, as text or as JSON.

    Args:
        text: Of `scontrol show reservation`, with or without -o, or with --json.
        zone: Of the times in text; None for that of this machine. JSON has epoch seconds.

    Raises:
        ReservationFault: It is neither, or a reservation lacks something.
    """
    start = text.lstrip()
    if start.startswith("{"):
        return _of_json(text)
    if not start or start.startswith(_NOBODY):
        return []
    if not start.startswith(_RECORD):
        raise ReservationFault("neither text nor JSON of `scontrol show reservation`")
    # A record may stand on several lines, with blanks before each but the first.
    records = re.split(rf"^(?={_RECORD})", start, flags=re.MULTILINE)
    told = (_fields(record) for record in records if record.strip())
    return _ordered(_of_text(fields, zone) for fields in told if _is_maintenance(fields))


def _fields(record: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in record.split() if "=" in part)


def _is_maintenance(fields: Mapping[str, str]) -> bool:
    return MAINTENANCE in fields.get("Flags", "").split(",")


def _of_text(fields: Mapping[str, str], zone: tzinfo | None) -> Reservation:
    name = fields["ReservationName"]
    try:
        starts_at, ends_at = (_moment(fields[key], zone) for key in ("StartTime", "EndTime"))
        return Reservation(name, _nodes(name, fields["Nodes"]), starts_at, ends_at)
    except (KeyError, ValueError) as error:
        raise ReservationFault(f"reservation {name}: {error}") from error


def _moment(text: str, zone: tzinfo | None) -> float:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None and zone is not None:
        found = found.replace(tzinfo=zone)
    return found.timestamp()


def _of_json(text: str) -> list[Reservation]:
    try:
        found = json.loads(text)["reservations"]
        return _ordered(
            Reservation(
                str(one["name"]),
                _nodes(str(one["name"]), str(one["node_list"])),
                _seconds(one["start_time"]),
                _seconds(one["end_time"]),
            )
            for one in found
            if MAINTENANCE in one["flags"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ReservationFault(
            f"not what `scontrol show reservation --json` writes: {error!r}"
        ) from error


def _seconds(value: Any) -> float:
    """A number; from Slurm 23.02 on, a table that holds it."""
    return float(value["number"] if isinstance(value, dict) else value)


def _nodes(name: str, text: str) -> tuple[str, ...]:
    if text in ("", _NONE):
        raise ReservationFault(f"reservation {name}: it names no nodes")
    return tuple(sorted({host.name for host in read_hosts(text)}))


def _ordered(found: Any) -> list[Reservation]:
    return sorted(found, key=lambda one: one.name)

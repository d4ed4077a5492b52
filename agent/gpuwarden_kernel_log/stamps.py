"""Time stamps of log wrappers, to UTC or to None."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from gpuwarden_kernel_log.event import LineContext

__all__ = [
    "ISO",
    "SYSLOG",
    "WEEKDAY",
    "from_epoch",
    "from_iso",
    "from_named_zone",
    "from_syslog",
    "from_weekday",
]

# 2025-01-21T04:41:44,283758+00:00   2025-01-21 04:41:44.28Z   2025-01-21T04:41:44+0100
ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
# Jan 21 04:41:44.283758   jan. 29 20:50:17 (other locales)   Jan 21 2025 04:41:44
SYSLOG = r"(?:[^\W\d_]{3,5}\.?|\d{1,2}月) {1,2}\d{1,2} (?:\d{4} )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
# Sun May 21 04:41:44 2025 (dmesg -T)
WEEKDAY = r"[^\W\d_]{2,4}\.? [^\W\d_]{3,5}\.? {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}"

_ISO_PARTS = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|GMT"
    r"|[+-]\d\d:?\d\d)?\Z"
)
_SYSLOG_PARTS = re.compile(
    r"([^\W\d_]{3})[^\W\d_]{0,2}\.? {1,2}(\d{1,2}) (?:(\d{4}) )?(\d\d):(\d\d):(\d\d)(?:[.,]"
    r"(\d{1,9}))?\Z"
)
_WEEKDAY_PARTS = re.compile(
    r"\S+ ([^\W\d_]{3})[^\W\d_]{0,2}\.? {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\Z"
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}


def from_iso(text: str, context: LineContext) -> datetime | None:
    """UTC time of an ISO 8601 stamp; the context's zone where it has none; None without either."""
    parts = _ISO_PARTS.match(text)
    if parts is None:
        return None
    year, month, day, hour, minute, second = (int(parts[n]) for n in range(1, 7))
    zone = _offset(parts[8]) if parts[8] else context.timezone
    return _utc((year, month, day, hour, minute, second), parts[7], zone)


def from_named_zone(text: str, zone: str, context: LineContext) -> datetime | None:
    """UTC time of an ISO stamp followed by a zone's short name.

    Short names are ambiguous, so the name only confirms the context's zone; None where it does not.
    """
    moment = from_iso(text, context)
    if moment is None or context.timezone is None:
        return None
    return moment if moment.astimezone(context.timezone).tzname() == zone else None


def from_syslog(text: str, context: LineContext) -> datetime | None:
    """UTC time of a syslog stamp; None where year or zone are unknown, or the month not English."""
    parts = _SYSLOG_PARTS.match(text)
    if parts is None:
        return None
    month = _MONTHS.get(parts[1].lower())
    year = int(parts[3]) if parts[3] else context.year
    if month is None or year is None:
        return None
    clock = (year, month, int(parts[2]), int(parts[4]), int(parts[5]), int(parts[6]))
    return _utc(clock, parts[7], context.timezone)


def from_weekday(text: str, context: LineContext) -> datetime | None:
    """UTC time of a dmesg -T stamp; None where the zone is unknown, or the month not English."""
    parts = _WEEKDAY_PARTS.match(text)
    if parts is None:
        return None
    month = _MONTHS.get(parts[1].lower())
    if month is None:
        return None
    clock = (int(parts[6]), month, int(parts[2]), int(parts[3]), int(parts[4]), int(parts[5]))
    return _utc(clock, None, context.timezone)


def from_epoch(microseconds: int) -> datetime | None:
    """UTC time of microseconds since 1970; None outside the calendar."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _utc(
    clock: tuple[int, int, int, int, int, int], fraction: str | None, zone: tzinfo | None
) -> datetime | None:
    if zone is None:
        return None
    micros = int(((fraction or "") + "000000")[:6])
    try:
        return datetime(*clock, micros, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _offset(text: str) -> tzinfo | None:
    if text in ("Z", "UTC", "GMT"):
        return UTC
    try:
        return datetime.strptime(text, "%z").tzinfo
    except ValueError:
        return None

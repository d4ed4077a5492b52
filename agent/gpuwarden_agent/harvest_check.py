"""What a collector brought is looked at once before it goes on: its bug must stay its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import compress
from math import hypot, isfinite
from typing import Any
from weakref import WeakSet

from gpuwarden_agent.collectors.contract import CollectorError, Harvest
from gpuwarden_wire.events import Event, Inventory
from gpuwarden_wire.metrics import DEVICE_KINDS, EntityKind
from gpuwarden_wire.number_rows import NumberRow, RowLayout
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable

MOST_ENTITIES = 4_096
MOST_METRICS = 1_024
MOST_CHARACTERS = 255
"""Of a key or a reason: a server refuses the whole batch of one that is longer."""

_IMPLAUSIBLE = 1e30
"""No quantity of ours in base units comes near; float32 ends at 3.4e38."""

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,127}")
_MOST_NAMES = 8_192
_names_known: set[str] = set()
"""Names that were found sound before: a node has few, and reads each again and again."""

_MOST_KEYS = 8_192
_keys_known: set[tuple[EntityKind, str]] = set()
_layouts_known: WeakSet[RowLayout] = WeakSet()
"""Likewise."""

_NUMBERS = frozenset({float, int})
_MISSING = frozenset({NotSupported, Unavailable, Stale})
_MEND = "Report this bug."
_NOT_A_READING = Unavailable("not_a_reading")
_TOO_LARGE = Unavailable("implausible_value")


def sound(harvest: object) -> Harvest:
    """The harvest, each reading that is none replaced by the reason.

    Raises:
        CollectorError: It is no harvest at all (reason "garbage:…").
    """
    if not isinstance(harvest, Harvest):
        raise _garbage(f"no harvest but {type(harvest).__name__}")
    if harvest.events != ():
        _check_events(harvest.events)
    if not isinstance(harvest.inventory, Inventory | None):
        raise _garbage("an inventory that is none")
    wrong = _check_rows(harvest.rows)
    return replace(harvest, rows=_mended(harvest.rows)) if wrong else harvest


def _check_events(events: object) -> None:
    for event in _sequence(events):
        if not isinstance(event, Event):
            raise _garbage("an event that is none")
        if event.entity_kind not in DEVICE_KINDS:
            raise _garbage("an event about no device")


def _garbage(what: str) -> CollectorError:
    return CollectorError(f"garbage: {what}"[:200], _MEND)


def _sequence(value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple | list):
        raise _garbage(f"events as {type(value).__name__}")
    return tuple(value)


def _check_rows(rows: object) -> int:
    """Number of readings that are none; raises where the rows have another form."""
    wrong = 0
    for kind, entities in _mapping(rows, "rows").items():
        if kind not in DEVICE_KINDS or not isinstance(kind, EntityKind):
            raise _garbage(f"{kind!r:.40} for a kind of entity")
        if len(_mapping(entities, "entities")) > MOST_ENTITIES:
            raise _garbage(f"{len(entities)} entities of kind {kind}")
        for key, row in entities.items():
            if type(key) is not str or (kind, key) not in _keys_known:
                _check_key(kind, key)
            wrong += _check_row(row if type(row) is NumberRow else _mapping(row, "a row"))
    return wrong


def _mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):  # the first is sooner said
        raise _garbage(f"{what} as {type(value).__name__}")
    return value


def _check_key(kind: EntityKind, key: object) -> None:
    if not isinstance(key, str) or len(key) > MOST_CHARACTERS or "\0" in key:
        raise _garbage("an entity without a name")
    if (kind is EntityKind.NODE) == bool(key):
        raise _garbage(f"{key[:40]!r} as name of a {kind}")
    if len(_keys_known) < _MOST_KEYS:
        _keys_known.add((kind, key))


def _check_row(row: Mapping[Any, Any]) -> int:
    if len(row) > MOST_METRICS:
        raise _garbage(f"{len(row)} metrics in a row")
    if type(row) is NumberRow:
        plausible = _all_numbers_plausible(row)
    else:
        if not row.keys() <= _names_known:
            _check_names(row)
        plausible = _all_plausible(row)
    if plausible:
        return 0
    return sum(_fault_of(reading) is not None for reading in row.values())


def _check_names(row: Mapping[Any, Any]) -> None:
    for name in row:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise _garbage("a metric without a name")
    if len(_names_known) < _MOST_NAMES:
        _names_known.update(row)


def _all_numbers_plausible(row: NumberRow) -> bool:
    layout = row.layout
    if layout not in _layouts_known:
        _check_names(row)
        if any(_fault_of(why) is not None for why in layout.missing.values()):
            return False
        _layouts_known.add(layout)
    # None of them is larger than that; not where one is NaN or infinite
    return hypot(*row.numbers) <= _IMPLAUSIBLE


def _all_plausible(row: Mapping[Any, Any]) -> bool:
    """Whether a whole row is sound at a glance; False where it takes a closer look.

    No Python code runs for each reading: there are a thousand, every few seconds.
    """
    numbers: Collection[Any] = row.values()
    if not _NUMBERS.issuperset(map(type, numbers)):
        types = list(map(type, numbers))
        others = list(compress(numbers, map(_MISSING.__contains__, types)))
        numbers = list(compress(numbers, map(_NUMBERS.__contains__, types)))
        if len(numbers) + len(others) < len(row):
            return False
        each = dict(zip(map(id, others), others, strict=True))  # most rows share a few reasons
        if any(_fault_of(one) is not None for one in each.values()):
            return False
    try:
        total = float(sum(map(abs, numbers)))
    except OverflowError:  # a whole number beyond what a float holds
        return False
    return total <= _IMPLAUSIBLE  # not where one is NaN or infinite


def _fault_of(reading: object) -> Unavailable | None:
    if type(reading) is float or type(reading) is int:
        # A comparison with NaN is false: packing says "not_finite" of it.
        return _TOO_LARGE if reading > _IMPLAUSIBLE or reading < -_IMPLAUSIBLE else None
    match reading:
        case NotSupported(reason=str(reason)) if len(reason) <= MOST_CHARACTERS:
            return None
        case bool():
            return None
        case Unavailable(reason=str(reason)) if len(reason) <= MOST_CHARACTERS:
            return None
        case Stale(age_s=float() | int() as age_s) if isfinite(age_s):
            return None
        case float() | int():
            return _fault_of(float(reading))
        case _:
            return _NOT_A_READING


def _mended(
    rows: Mapping[EntityKind, Mapping[str, Mapping[str, Reading]]],
) -> dict[EntityKind, dict[str, dict[str, Reading]]]:
    return {
        kind: {
            key: {name: _fault_of(reading) or reading for name, reading in row.items()}
            for key, row in entities.items()
        }
        for kind, entities in rows.items()
    }

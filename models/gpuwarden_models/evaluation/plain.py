"""Results as JSON, and numbers as they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

NOTHING = "–"
"""Printed where a figure cannot be told."""


def plain(value: Any) -> Any:
    """Dataclasses, tuples and numpy numbers as JSON; what is not finite is null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value


def share(value: float | None, digits: int = 1) -> str:
    """A share in per cent."""
    return NOTHING if value is None else f"{100 * value:.{digits}f} %"


def span(interval: Sequence[float | None]) -> str:
    """An interval of a share, in per cent."""
    low, high = interval
    return NOTHING if low is None or high is None else f"{100 * low:.0f}–{100 * high:.0f} %"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits."""
    return NOTHING if value is None else f"{value:.{digits}g}"


def fixed(value: float | None, digits: int = 2) -> str:
    """A number with so many decimals."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it; a negative one is late."""
    if seconds is None:
        return NOTHING
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)

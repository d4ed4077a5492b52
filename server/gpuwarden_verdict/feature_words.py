"""Features in words: a name with its unit and window, and a value in that unit."""

from __future__ import annotations

import math
import re

_WINDOW = re.compile(r"_(\d+)([hd])$")
_UNITS = {"celsius": "C", "seconds": "s", "hours": "h", "watts": "W", "bytes": "bytes"}


def said_of(name: str) -> str:
    """A feature's name as people say it, without its unit: "rows remapped within 24 h"."""
    match = _WINDOW.search(name)
    window = "" if match is None else f" within {match[1]} {match[2]}"
    words = name[: match.start()] if match is not None else name
    stem, _, last = words.rpartition("_")
    if stem and (last in _UNITS or last == "ratio"):
        words = stem
    return words.replace("_", " ") + window


def amount_of(name: str, value: float) -> str:
    """A feature's value with its unit; "missing" for NaN."""
    if math.isnan(value):
        return "missing"
    words = _WINDOW.sub("", name)
    last = words.rpartition("_")[2]
    if last == "ratio" and "_to_" not in words:
        return f"{100.0 * value:.3g} %"
    number = f"{value:.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.3g}"
    return f"{number} {_UNITS[last]}" if last in _UNITS else number

"""The Prometheus text format, line by line: a line that is broken costs itself only.

prometheus_client's parser raises at the first broken line and takes the rest of the text along;
ARCHITECTURE.md has the measured cost of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType

LONGEST_LINE = 65_536
_LONGEST_INT = 20
"""Digits of 2**64; what is longer is read as a float."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# gpu="0", UUID="GPU-b5a94169-…", err_msg="a \"quoted\" word"
_PAIR = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPES = MappingProxyType({"\\n": "\n", '\\"': '"', "\\\\": "\\"})
_ESCAPE = re.compile(r"\\.")


def sample_lines(text: str) -> Iterator[str]:
    """Lines that are neither empty nor comments. Only LF ends a line: labels may hold U+2028."""
    for line in text.split("\n"):
        if line and line[0] != "#" and (bare := line.strip()):
            yield bare


def split_sample(line: str) -> tuple[str, str] | None:
    """A sample's series as written and its value as written; None where it is no sample.

    A timestamp behind the value is dropped: the time of the scrape counts.
    """
    if len(line) > LONGEST_LINE:
        return None
    if (end := line.rfind("}")) >= 0:
        series, words = line[: end + 1], line[end + 1 :].split()
    else:
        series, *words = line.split()
    if not 1 <= len(words) <= 2:
        return None
    return series, words[0]


def parse_series(series: str) -> tuple[str, dict[str, str]] | None:
    """Name and labels of a series; None where it is not well-formed.

    Args:
        series: `name` or `name{label="value",…}`.
    """
    found = _NAME.match(series)
    if found is None:
        return None
    rest = series[found.end() :].strip()
    if not rest:
        return found[0], {}
    if rest[0] != "{" or rest[-1] != "}":
        return None
    labels = _parse_labels(rest[1:-1])
    return None if labels is None else (found[0], labels)


def _parse_labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            return None if text[at:].strip() else labels
        if pair[1] in labels:
            return None  # twice the same label
        labels[pair[1]] = _ESCAPE.sub(_unescaped, pair[2]) if "\\" in pair[2] else pair[2]
        at = pair.end()
    return labels


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], found[0])


def parse_value(text: str) -> float | int | None:
    """The number; an int where it is written as one, since sentinels differ in the last digit.

    None where it is no number at all; NaN and infinities are numbers here.
    """
    try:
        whole = len(text) <= _LONGEST_INT and text.lstrip("-").isdigit()
        return int(text) if whole else _float(text)
    except ValueError:
        return None


def _float(text: str) -> float:
    if "_" in text:  # Python reads 1_000
        raise ValueError(text)
    return float(text)

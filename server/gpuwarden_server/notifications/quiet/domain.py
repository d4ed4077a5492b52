"""Silences and maintenance windows: what nobody is told for a while. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from gpuwarden_server.notifications.quiet.regexes import whole_match

_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(=~|!~|!=|=)(.+)", re.DOTALL)
LONGEST_S = 90 * 86_400.0
LABELS_OF_FACTS = frozenset({"entity", "entity_kind", "fault_class", "severity"})
"""Labels of what is told, not of a node."""


class SilenceKind(StrEnum):
    """Why it is quiet."""

    SILENCE = "silence"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on one label.

    Attributes:
        label: node, entity, entity_kind, fault_class, severity, pool, rack, leaf or the node's own.
        pattern: Shell-style pattern, or a regular expression that all of the value must match.
        equal: False where it must not match.
        regex: Whether it is a regular expression.
    """

    label: str
    pattern: str
    equal: bool = True
    regex: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it; a missing label is ""."""
        value = labels.get(self.label, "")
        if self.regex:
            return whole_match(self.pattern)(value) is self.equal
        return fnmatchcase(value, self.pattern) is self.equal

    def __str__(self) -> str:
        sign = ("=~" if self.equal else "!~") if self.regex else ("=" if self.equal else "!=")
        return f"{self.label}{sign}{self.pattern}"


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which what matches is not told.

    Attributes:
        id: "sil-" and 12 hex digits.
        kind: Silence or maintenance.
        matchers: All must hold.
        starts_at: Epoch seconds.
        ends_at: Epoch seconds.
        reason: In a person's words.
        author: Name of the key.
        created_at: Epoch seconds.
        expired_at: When a person ended it early, None else.
        expired_by: Name of the key, None else.
    """

    id: str
    kind: SilenceKind
    matchers: tuple[Matcher, ...]
    starts_at: float
    ends_at: float
    reason: str
    author: str
    created_at: float
    expired_at: float | None = None
    expired_by: str | None = None

    def active(self, now: float) -> bool:
        """Whether it holds at `now`."""
        return self.expired_at is None and self.starts_at <= now < self.ends_at

    def covers(self, labels: Mapping[str, str], now: float) -> bool:
        """Whether a fact with these labels is silenced at `now`."""
        return self.active(now) and all(matcher.holds(labels) for matcher in self.matchers)


def parse_matcher(text: str) -> Matcher:
    """A matcher such as "rack=r12", "node=gpu-0*", "pool!=test" or "node=~gpu-(01|02)".

    Raises:
        ValueError: Not of that form.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is no matcher: write LABEL=PATTERN, LABEL!=PATTERN, LABEL=~REGEX or "
            "LABEL!~REGEX"
        )
    label, sign, pattern = found[1], found[2], found[3].strip()
    if sign.endswith("~"):
        whole_match(pattern)  # raises where it cannot be matched
    return Matcher(label, pattern, sign.startswith("="), sign.endswith("~"))


def silenced(silences: Iterable[Silence], labels: Mapping[str, str], now: float) -> bool:
    """Whether any silence covers these labels."""
    return any(silence.covers(labels, now) for silence in silences)

"""Host names as machine files write them: user@host, host:8, lists and Slurm's ranges. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gpuwarden_runtime.errors import GpuwardenError

MOST_HOSTS = 100_000
"""Of one line; more is a mistyped range."""

_MEND = "write a host a line, leaf0,leaf1 or leaf[0-3,7]"
_NAME = re.compile(r"[\w.:%-]+")  # host names and IPv6 addresses
_ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%\w]*\]")  # [fe80::1]
_PART = re.compile(r"\[(?P<ranges>[^\[\]]*)\]|(?P<plain>[^\[\]]+)|(?P<stray>[\[\]])")
_RANGE = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")


class HostNameError(GpuwardenError):
    """A name that is none, or a range that cannot be read."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a line.

    Attributes:
        name: Its name alone.
        text: As it is written, with the user before it and the slots behind it.
    """

    name: str
    text: str


def read_hosts(word: str) -> tuple[Host, ...]:
    """The hosts in the first word of a line, in order; ranges are written out.

    Raises:
        HostNameError: Names the part that cannot be read, and how it is written.
    """
    hosts: list[Host] = []
    for item in _items(word):
        user, at, rest = item.rpartition("@")
        name, colon, slots = rest.rpartition(":")
        counted = bool(colon and slots.isdecimal())
        for one in _expand(name if counted else rest):
            hosts.append(Host(one, f"{user}{at}{one}{colon + slots if counted else ''}"))
            if len(hosts) > MOST_HOSTS:
                raise HostNameError(f"{word[:80]!r} names over {MOST_HOSTS} hosts", _MEND)
    return tuple(hosts)


def same_host(left: str, right: str) -> bool:
    """True where two names mean one host: equal, or one is the other without its domain.

    Case does not matter (RFC 4343).
    """
    left, right = left.lower(), right.lower()
    if left == right:
        return True
    if "." in left and "." in right:
        return False  # two full names that differ are two hosts
    return left.split(".", 1)[0] == right.split(".", 1)[0]


def _items(word: str) -> Iterator[str]:
    """Parts between commas that stand in no brackets."""
    depth, begin = 0, 0
    for place, character in enumerate(word):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield from filter(None, [word[begin:place]])
            begin = place + 1
    yield from filter(None, [word[begin:]])


def _expand(name: str) -> Iterator[str]:
    if _ADDRESS.fullmatch(name):
        yield name
        return
    choices: list[list[str]] = []
    for part in _PART.finditer(name):
        if part["stray"]:
            raise HostNameError(f"{name!r} has a bracket without its other half", _MEND)
        if part["plain"] and not _NAME.fullmatch(part["plain"]):
            raise HostNameError(f"{name!r} is no host name", _MEND)
        choices.append([part["plain"]] if part["plain"] else _numbers(name, part["ranges"]))
    yield from map("".join, product(*choices))


def _numbers(name: str, ranges: str) -> list[str]:
    """The numbers of "08-10,12": 08, 09, 10 and 12, as wide as the first is written."""
    numbers: list[str] = []
    for item in ranges.split(","):
        found = _RANGE.fullmatch(item.strip())
        first, last = (found["first"], found["last"] or found["first"]) if found else ("1", "0")
        if int(first) > int(last) or int(last) - int(first) >= MOST_HOSTS:
            raise HostNameError(f"{name!r}: {item!r} is no range of numbers", _MEND)
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers

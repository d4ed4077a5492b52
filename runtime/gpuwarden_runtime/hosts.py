"""Host lists: which lines of a machine file stay when some nodes are excluded. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostList:
    """A filtered host list.

    Attributes:
        lines: Lines that stay, as they were; comments and blank lines included.
        kept: Names that stay, in order, each once.
        removed: Names taken out, in order, each once.
        unread: Lines that hold Slurm ranges: left as they are, because a range cannot be judged by
            its text.
    """

    lines: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    unread: tuple[str, ...]


def filter_hosts(text: str, excluded: Collection[str]) -> HostList:
    """Take the excluded nodes out of a host list.

    Read are one host a line ("gpu-03"), Open MPI's "gpu-03 slots=8" and MPICH's "gpu-03:8"; "#"
    begins a comment. A short name and the full name of the same host ("gpu-03",
    "gpu-03.cluster") are the same.

    Args:
        text: Content of the list.
        excluded: Node ids.
    """
    lines: list[str] = []
    kept: dict[str, None] = {}
    removed: dict[str, None] = {}
    unread: list[str] = []
    for line in text.splitlines():
        host = host_of(line)
        if "[" in host:
            unread.append(line)
        elif host and is_among(host, excluded):
            removed[host] = None
            continue
        elif host:
            kept[host] = None
        lines.append(line)
    return HostList(tuple(lines), tuple(kept), tuple(removed), tuple(unread))


def host_of(line: str) -> str:
    """Name of the host in a line, "" where the line has none."""
    words = line.split("#", 1)[0].split()
    if not words:
        return ""
    name, colon, slots = words[0].rpartition(":")
    return name if colon and slots.isdigit() else words[0]


def is_among(host: str, nodes: Collection[str]) -> bool:
    """True where a host is one of the nodes, whichever of both carries a domain."""
    return host in nodes or any(same_host(host, node) for node in nodes)


def same_host(left: str, right: str) -> bool:
    """True where two names mean one host: equal, or one is the other without its domain."""
    if left == right:
        return True
    if "." in left and "." in right:
        return False  # two full names that differ are two hosts
    return left.split(".", 1)[0] == right.split(".", 1)[0]

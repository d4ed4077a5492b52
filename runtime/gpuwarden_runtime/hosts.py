"""Host lists: which lines of a machine file stay when some nodes are excluded. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from gpuwarden_runtime.errors import GpuwardenError
from gpuwarden_runtime.host_names import Host, HostNameError, read_hosts, same_host

_COMMA = re.compile(r"\s*,\s*")


class HostListError(GpuwardenError):
    """A line that cannot be read; the message names it and the mend."""


@dataclass(frozen=True, slots=True)
class HostList:
    """A filtered host list.

    Attributes:
        lines: Lines that stay, as they were where no host of theirs was taken out; comments and
            blank lines included.
        kept: Names that stay, in order, each once.
        removed: Names taken out, in order, each once.
    """

    lines: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...]


def filter_hosts(text: str, excluded: Collection[str]) -> HostList:
    """Take the excluded nodes out of a host list.

    Read are a host a line ("gpu-03"), Open MPI's "gpu-03 slots=8", MPICH's "gpu-03:8",
    "user@gpu-03", lists ("gpu-03,gpu-04") and Slurm's ranges ("gpu-[03-06,9]"); "#" begins a
    comment. A line that loses some of its hosts is written as the list of the others. A short name
    and the full name of the same host ("gpu-03", "GPU-03.cluster") are the same.

    Args:
        text: Content of the list.
        excluded: Node ids.

    Raises:
        HostListError: A line cannot be read, so that nobody can say whether its hosts may be used.
    """
    lines: list[str] = []
    kept: dict[str, None] = {}
    removed: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        hosts, rest = _read_line(number, line)
        stay = [host for host in hosts if not is_among(host.name, excluded)]
        kept |= dict.fromkeys(host.name for host in stay)
        if len(stay) == len(hosts):
            lines.append(line)
            continue
        removed |= dict.fromkeys(host.name for host in hosts if host not in stay)
        if stay:
            lines.append(",".join(host.text for host in stay) + rest)
    return HostList(tuple(lines), tuple(kept), tuple(removed))


def is_among(host: str, nodes: Collection[str]) -> bool:
    """True where a host is one of the nodes, whichever of both carries a domain."""
    return host in nodes or any(same_host(host, node) for node in nodes)


def _read_line(number: int, line: str) -> tuple[tuple[Host, ...], str]:
    """The hosts of a line, and what stands behind them."""
    bare = _COMMA.sub(",", line.split("#", 1)[0]).strip()
    if not bare:
        return (), ""
    word = bare.split(maxsplit=1)[0]
    try:
        return read_hosts(word), bare[len(word) :]
    except HostNameError as error:
        raise HostListError(f"line {number}: {error.detail}", error.mend) from error

"""Statistics of a net driver by ioctl: what `ethtool -S` shows, without starting a program."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Protocol

_SIOCETHTOOL = 0x8946  # linux/sockios.h
# linux/ethtool.h
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATS_SET = 1  # ETH_SS_STATS
_NAME_BYTES = 32  # ETH_GSTRING_LEN
_INTERFACE_BYTES = 15  # IFNAMSIZ less the end

# A driver may grow its statistics between two calls (more channels), and the kernel before 6.14
# writes as many as there are by then, whatever it was asked for: so there is room beyond the count.
MOST_STATISTICS = 32_768
_SPARE = 8_192


class StatisticsSource(Protocol):
    """Reads the driver statistics of net interfaces."""

    def names(self, interface: str) -> tuple[str, ...]:
        """Names of an interface's statistics, in the driver's order; () where it has none.

        Raises:
            OSError: As the kernel says; ENODEV for an interface that is gone.
        """
        ...

    def values(self, interface: str, count: int) -> Sequence[int] | None:
        """Their values; None where the driver has another number of them by now.

        The sequence holds until the next call.

        Raises:
            OSError: As the kernel says.
        """
        ...

    def close(self) -> None:
        """Release the socket."""
        ...


class EthtoolSocket:
    """The kernel's own. Needs no privilege, only to be in the host's network namespace."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._words = array("Q")

    def names(self, interface: str) -> tuple[str, ...]:
        """Names of an interface's statistics."""
        count = self._count(interface)
        if count == 0:
            return ()
        if count > MOST_STATISTICS:
            raise OSError(errno.EOVERFLOW, f"{interface} has {count} statistics")
        room = array("Q", bytes((count + _SPARE) * _NAME_BYTES))
        view = memoryview(room).cast("B")
        struct.pack_into("=III", view, 0, _GSTRINGS, _STATS_SET, count)
        self._call(interface, room)
        found = min(count, struct.unpack_from("=I", view, 8)[0])
        return tuple(_name(view[12 + n * _NAME_BYTES :]) for n in range(found))

    def values(self, interface: str, count: int) -> Sequence[int] | None:
        """Values in the order of the names."""
        if len(self._words) <= count + _SPARE:
            self._words = array("Q", bytes(8 * (count + 2 * _SPARE)))
        words = memoryview(self._words)
        struct.pack_into("=II", words.cast("B"), 0, _GSTATS, count)
        try:
            self._call(interface, self._words)
        except OSError as error:
            if error.errno == errno.EINVAL:  # since Linux 6.14: the count is another one
                return None
            raise
        found = struct.unpack_from("=I", words.cast("B"), 4)[0]
        return words[1 : 1 + count] if found == count else None

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _count(self, interface: str) -> int:
        # struct ethtool_sset_info: cmd, reserved, 64-bit mask of sets, one count for each bit
        request = array("Q", bytes(24))
        view = memoryview(request).cast("B")
        struct.pack_into("=IIQ", view, 0, _GSSET_INFO, 0, 1 << _STATS_SET)
        try:
            self._call(interface, request)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return 0
            raise
        mask, count = struct.unpack_from("=QI", view, 8)
        return int(count) if mask else 0

    def _call(self, interface: str, request: array[int]) -> None:
        name = os.fsencode(interface)
        if len(name) > _INTERFACE_BYTES:
            raise OSError(errno.ENODEV, f"{interface}: no such interface")
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        # struct ifreq: the name, then a pointer in a union of 24 bytes
        ifreq = struct.pack("16sP16x", name, request.buffer_info()[0])
        fcntl.ioctl(self._socket, _SIOCETHTOOL, ifreq)


def _name(raw: memoryview) -> str:
    return bytes(raw[:_NAME_BYTES]).partition(b"\0")[0].decode("ascii", errors="replace").strip()

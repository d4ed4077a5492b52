"""Small kernel files of procfs and sysfs: text or the reason why there is none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import MappingProxyType

from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_LIMIT_BYTES = 1_048_576
"""procfs files grow with devices and interrupts; 1 MiB is far beyond any that we read."""

_PAGE_BYTES, _PART_BYTES = 4_096, 65_536
_IMPLAUSIBLE = 2**63
"""Drivers report 2**64-1 where they could not read a counter; none really gets half that far."""

_REASONS = MappingProxyType(
    {
        errno.ENOENT: "no_such_file",
        errno.ENOTDIR: "no_such_file",
        errno.EACCES: "permission_denied",
        errno.EPERM: "permission_denied",
        errno.EINVAL: "invalid_argument",
        errno.EIO: "io_error",
        errno.ENODEV: "no_such_device",
        errno.ENXIO: "no_such_device",
        errno.ETIMEDOUT: "timeout",
        errno.EOPNOTSUPP: "not_supported_by_kernel",
    }
)


def reason_of(error: OSError) -> str:
    """The stable phrase for an operating-system error."""
    number = error.errno or 0
    return _REASONS.get(number) or errno.errorcode.get(number, "os_error").lower()


def read_text(path: Path | str) -> str:
    """The whole text of a small kernel file, stripped at the end.

    Raises:
        OSError: As the kernel says; sysfs files answer EINVAL or ENODEV from read itself.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        parts: list[bytes] = []
        size = 0
        ask = _PAGE_BYTES  # enough for nearly all; room for more costs as much as the read itself
        while size < _LIMIT_BYTES and (part := os.read(descriptor, ask)):
            parts.append(part)
            size += len(part)
            ask = _PART_BYTES
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", errors="replace").rstrip()


def read_number(path: Path | str) -> Reading:
    """The one number in a counter file, or why there is none.

    A file that is not there is `NotSupported`: drivers leave out the counters that they lack.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return NotSupported()
    except OSError as error:
        return Unavailable(reason_of(error))
    return parse_number(text)


def parse_number(text: str) -> Reading:
    """A number as drivers write it: "42", "0x1003", "4: ACTIVE", "N/A (no PMA)", ""."""
    word = text.split(":", 1)[0].strip()
    if not word:
        return Unavailable("empty_file")
    if word.upper().startswith("N/A"):
        # "N/A (no PMA)": the port has no performance management agent (InfiniBand sysfs counters).
        return Unavailable("no_pma" if "PMA" in word.upper() else "not_available")
    if len(word) > 24:
        return Unavailable("not_a_number")
    try:
        value = int(word, 0) if word[:2].lower() == "0x" else int(word)
    except ValueError:
        return Unavailable("not_a_number")
    if abs(value) >= _IMPLAUSIBLE:
        return Unavailable("implausible_value")
    return value


def list_names(folder: Path | str) -> list[str]:
    """Sorted names in a folder; empty where the folder is not there.

    Raises:
        OSError: The folder is there and cannot be listed.
    """
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names only, no Path object each
    except FileNotFoundError:
        return []

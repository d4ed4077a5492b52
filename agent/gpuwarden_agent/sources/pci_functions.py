"""PCI functions in sysfs: whose device is it, how wide is its link, which errors did it count."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType

from gpuwarden_agent.sources.counter_files import ABSENT, CounterFiles
from gpuwarden_agent.sources.kernel_files import reason_of
from gpuwarden_wire.readings import Reading, Unavailable

AER_FILES = MappingProxyType(
    {
        "correctable": "aer_dev_correctable",
        "nonfatal": "aer_dev_nonfatal",
        "fatal": "aer_dev_fatal",
    }
)
"""Files by severity (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats)."""

_TOTAL = "TOTAL_ERR_"  # "TOTAL_ERR_COR 12", "TOTAL_ERR_NONFATAL 0", "TOTAL_ERR_FATAL 0"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")  # 0000:3b:00.0

# "32.0 GT/s PCIe", before Linux 5.7 "8 GT/s"; "Unknown" without a link
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_GENERATIONS = MappingProxyType({2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7})

# 0 without a link; 255 is the kernel's PCIE_LNK_WIDTH_UNKNOWN (linux/pci.h)
_NO_WIDTH = (0, 255)


def function_behind(device_link: Path) -> str:
    """Real folder of the PCI function that a `device` link leads to; "" where there is none.

    Of a virtio device it is the function that carries it.
    """
    try:
        place = device_link.resolve(strict=True)
    except OSError:
        return ""
    for folder in (place, *place.parents):
        if _ADDRESS.fullmatch(folder.name):
            return str(folder)
    return ""


def read_error_total(files: CounterFiles, path: str) -> Reading:
    """All errors of one severity; `NotSupported` where the kernel or device counts none."""
    try:
        text = files.text(path)
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        return Unavailable(reason_of(error))
    return parse_error_total(text)


def parse_error_total(text: str) -> Reading:
    """The total, which is the last line."""
    line = text[text.rfind("\n") + 1 :]
    if not line.startswith(_TOTAL):
        line = next((line for line in text.splitlines() if line.startswith(_TOTAL)), "")
    if not line:
        return Unavailable("no_such_line")
    number = line.rpartition(" ")[2]
    return int(number) if number.isdecimal() and len(number) < 19 else Unavailable("not_a_number")


def read_link_width(files: CounterFiles, path: str) -> Reading:
    """Lanes of a link."""
    width = files.number(path)
    return Unavailable("width_unknown") if width in _NO_WIDTH else width


def read_link_generation(files: CounterFiles, path: str) -> Reading:
    """PCIe generation that a link's speed belongs to."""
    try:
        text = files.text(path)
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        return Unavailable(reason_of(error))
    found = _SPEED.match(text)
    generation = _GENERATIONS.get(float(found[1])) if found else None
    return Unavailable("speed_unknown") if generation is None else generation

"""Network ports: InfiniBand and RoCE ports, and physical net interfaces.

Every file is read for itself: one odd counter or port never takes the others along.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.kernel_files import list_names, read_number, read_text, reason_of
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_Row = dict[str, Reading]

_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count 4-byte words (sysfs-class-infiniband)
_BITS = 8
_IFF_UP = 0x1  # linux/if.h

# Metric, file under counters/, factor to base units.
_PORT_COUNTERS: tuple[tuple[str, str, int], ...] = (
    ("nic_received_bytes_total", "port_rcv_data", _WORD_BYTES),
    ("nic_transmitted_bytes_total", "port_xmit_data", _WORD_BYTES),
    ("nic_link_downed_total", "link_downed", 1),
    ("nic_link_error_recovery_total", "link_error_recovery", 1),
    ("nic_symbol_errors_total", "symbol_error", 1),
    ("nic_receive_errors_total", "port_rcv_errors", 1),
    ("nic_transmit_discards_total", "port_xmit_discards", 1),
    ("nic_transmit_wait_total", "port_xmit_wait", 1),
)
_INTERFACE_COUNTERS: tuple[tuple[str, str], ...] = (
    ("nic_received_bytes_total", "statistics/rx_bytes"),
    ("nic_transmitted_bytes_total", "statistics/tx_bytes"),
    ("nic_receive_errors_total", "statistics/rx_errors"),
    ("nic_transmit_discards_total", "statistics/tx_dropped"),
    ("nic_carrier_changes_total", "carrier_changes"),
)

# "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec")


class NicCollector:
    """Reads /sys/class/infiniband and /sys/class/net."""

    name = "nic"

    def __init__(
        self,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._infiniband = sys_root / "class" / "infiniband"
        self._net = sys_root / "class" / "net"
        self._seen = SeenDevices(clock)
        self._nics: tuple[str, ...] | None = None

    def collect(self, now: float) -> Harvest:
        """Readings of every port and physical interface.

        Raises:
            CollectorError: Neither folder of sysfs can be listed.
        """
        try:
            rows = {**self._ports(), **self._interfaces()}
        except OSError as error:
            raise CollectorError(reason_of(error), f"Let the agent list {self._net}.") from error
        nics = tuple(rows)
        changed = nics != self._nics
        self._nics = nics
        return Harvest(
            rows={EntityKind.NIC: self._seen.complete(rows)},
            inventory=Inventory(nics=nics) if changed else None,
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _ports(self) -> dict[str, _Row]:
        return {
            f"{device}/{port}": _port_readings(self._infiniband / device / "ports" / port)
            for device in list_names(self._infiniband)
            for port in _names_or_none(self._infiniband / device / "ports")
        }

    def _interfaces(self) -> dict[str, _Row]:
        return {
            name: _interface_readings(self._net / name)
            for name in list_names(self._net)
            if _is_physical(self._net / name)
        }


def _names_or_none(folder: Path) -> list[str]:
    try:
        return list_names(folder)
    except OSError:
        return []  # vanished between two looks; its row says so


def _is_physical(interface: Path) -> bool:
    """A device behind it, and not an SR-IOV virtual function (those have a `physfn` link)."""
    device = interface / "device"
    return device.exists() and not (device / "physfn").exists()


def _port_readings(port: Path) -> _Row:
    row: _Row = {
        "nic_port_state": read_number(port / "state"),
        "nic_port_physical_state": read_number(port / "phys_state"),
        "nic_rate_bytes_per_second": _port_rate(port / "rate"),
    }
    for metric, name, factor in _PORT_COUNTERS:
        reading = read_number(port / "counters" / name)
        row[metric] = reading * factor if isinstance(reading, float | int) else reading
    return row


def _port_rate(path: Path) -> Reading:
    try:
        text = read_text(path)
    except FileNotFoundError:
        return NotSupported()
    except OSError as error:
        return Unavailable(reason_of(error))
    found = _RATE.match(text)
    return float(found[1]) * 1e9 / _BITS if found else Unavailable("not_a_number")


def _interface_readings(interface: Path) -> _Row:
    row: _Row = {
        "nic_carrier": _carrier(interface),
        "nic_rate_bytes_per_second": _speed(interface / "speed"),
    }
    for metric, name in _INTERFACE_COUNTERS:
        row[metric] = read_number(interface / name)
    return row


def _carrier(interface: Path) -> Reading:
    flags = read_number(interface / "flags")
    if isinstance(flags, float | int) and not int(flags) & _IFF_UP:
        return Unavailable("administratively_down")
    try:
        state = read_text(interface / "operstate")
    except OSError as error:
        return Unavailable(reason_of(error))
    if state == "unknown":  # drivers that do not report operstate still have carrier
        return read_number(interface / "carrier")
    return 1 if state == "up" else 0


def _speed(path: Path) -> Reading:
    reading = read_number(path)  # Mb/s; -1 or EINVAL without a link
    if not isinstance(reading, float | int):
        return reading
    return reading * 1e6 / _BITS if reading > 0 else Unavailable("speed_unknown")


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return NicCollector(settings.sys_root, settings.interval_s, settings.deadline_s)

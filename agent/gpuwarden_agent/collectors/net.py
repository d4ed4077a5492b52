"""Physical net interfaces: link, traffic, errors, and the PCI side where no RDMA port tells it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.counter_plan import (
    Counter,
    PciLink,
    Row,
    pci_link,
    read_counters,
)
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.kernel_files import list_names, reason_of
from gpuwarden_agent.sources.listings import DeviceListing, is_physical
from gpuwarden_agent.sources.pci_functions import function_behind
from gpuwarden_agent.sources.state_glance import StateGlance
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

_BITS = 8
_IFF_UP = 0x1  # linux/if.h

_COUNTERS: tuple[tuple[str, str], ...] = (
    ("nic_received_bytes_total", "statistics/rx_bytes"),
    ("nic_transmitted_bytes_total", "statistics/tx_bytes"),
    ("nic_receive_errors_total", "statistics/rx_errors"),
    ("nic_transmit_discards_total", "statistics/tx_dropped"),
    ("nic_carrier_changes_total", "carrier_changes"),
)
_STATES = ("flags", "operstate", "carrier", "speed")


@dataclass(frozen=True, slots=True)
class _Interface:
    """What is read of one interface.

    Attributes:
        folder: Its folder.
        counters: Its counters.
        link: Its PCI side; None where an RDMA port or an earlier interface tells it.
    """

    folder: str
    counters: tuple[Counter, ...]
    link: PciLink | None

    @property
    def paths(self) -> set[str]:
        """Every file that is read."""
        own = {f"{self.folder}/{name}" for name in _STATES}
        own.update(counter.path for counter in self.counters)
        return own.union(self.link.paths if self.link else ())


class NetCollector:
    """Reads /sys/class/net.

    Args:
        sys_root: Where sysfs is mounted.
        interval_s: Cadence.
        deadline_s: Seconds after which a call counts as stuck.
        clock: Monotonic seconds.
    """

    name = "net"

    def __init__(
        self,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._folder = sys_root / "class" / "net"
        self._infiniband = sys_root / "class" / "infiniband"
        self._listing = DeviceListing(self._folder)
        self._files = CounterFiles()
        self._glance = StateGlance()
        self._states: tuple[str, ...] = ()
        self._seen = SeenDevices(clock)
        self._interfaces: dict[str, _Interface] = {}
        self._told: tuple[str, ...] | None = None

    def collect(self, now: float) -> Harvest:
        """Readings of every physical interface.

        Raises:
            CollectorError: The folder cannot be listed.
        """
        try:
            names = self._listing.look()
        except OSError as error:
            raise CollectorError(reason_of(error), f"Let the agent list {self._folder}.") from error
        if names is not None:
            self._plan(names)
            self._states = tuple(f"{one.folder}/operstate" for one in self._interfaces.values())
        self._glance.follow(self._states)
        rows = {name: self._read(interface) for name, interface in self._interfaces.items()}
        keys = tuple(rows)
        changed, self._told = keys != self._told, keys
        return Harvest(
            rows={EntityKind.NIC: self._seen.complete(rows)},
            inventory=Inventory(nics=keys) if changed else None,
        )

    def ports(self) -> tuple[str, ...]:
        """State files."""
        return self._glance.paths

    def glance(self, port: str) -> str:
        """State of an interface as its file has it."""
        return self._glance.look(port)

    def close(self) -> None:
        """Close the counter files."""
        self._files.close()
        self._glance.close()

    def _plan(self, names: list[str]) -> None:
        told = self._functions_of_rdma()
        self._interfaces = {}
        for name in names:
            if not is_physical(self._folder / name):
                continue
            function = function_behind(self._folder / name / "device")
            link = pci_link(self._files, function) if function not in {"", *told} else None
            told.add(function)
            folder = str(self._folder / name)
            counters = tuple(Counter(metric, f"{folder}/{file}") for metric, file in _COUNTERS)
            self._interfaces[name] = _Interface(folder, counters, link)
        self._files.retain(set().union(*(one.paths for one in self._interfaces.values())))

    def _functions_of_rdma(self) -> set[str]:
        try:
            devices = list_names(self._infiniband)
        except OSError:
            devices = []
        return {function_behind(self._infiniband / device / "device") for device in devices}

    def _read(self, interface: _Interface) -> Row:
        row: Row = {
            "nic_carrier": self._carrier(interface.folder),
            "nic_rate_bytes_per_second": self._speed(f"{interface.folder}/speed"),
        }
        read_counters(self._files, interface.counters, row)
        if interface.link is not None:
            interface.link.read(self._files, row)
        return row

    def _carrier(self, folder: str) -> Reading:
        flags = self._files.number(f"{folder}/flags")
        if isinstance(flags, int) and not flags & _IFF_UP:
            return Unavailable("administratively_down")
        try:
            state = self._files.text(f"{folder}/operstate")
        except OSError as error:
            return Unavailable(reason_of(error))
        if state == "unknown":  # drivers that do not report operstate still have carrier
            return self._files.number(f"{folder}/carrier")
        return 1 if state == "up" else 0

    def _speed(self, path: str) -> Reading:
        reading = self._files.number(path)  # Mb/s; -1 or EINVAL without a link
        if not isinstance(reading, int):
            return reading
        return reading * 1e6 / _BITS if reading > 0 else Unavailable("speed_unknown")


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return NetCollector(settings.sys_root, settings.interval_s, settings.deadline_s)

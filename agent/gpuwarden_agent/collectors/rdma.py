"""InfiniBand and RoCE ports.

Every file is read for itself: one odd counter or port never takes the others along. A port that is
down is reported as it is; whether it should be up is for the server to tell.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.counter_plan import (
    NO_CEILING,
    Counter,
    PciLink,
    Row,
    pci_link,
    read_counters,
)
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.counter_files import ABSENT, CounterFiles
from gpuwarden_agent.sources.kernel_files import list_names, reason_of
from gpuwarden_agent.sources.listings import DeviceListing, supported
from gpuwarden_agent.sources.pci_functions import function_behind
from gpuwarden_agent.sources.state_glance import StateGlance
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count 4-byte words (sysfs-class-infiniband)
_BITS = 8
_OPEN_FILES = 448  # ten ports with every counter


def _ceiling(bits: int) -> int:
    return (1 << bits) - 1


# Of counters/: metric, factor, and the bits after which it sticks at all ones, as the PortCounters
# attribute has them (InfiniBand specification 1, 16.1.3.5; PORT_PMA_ATTR in the kernel's
# drivers/infiniband/core/sysfs.c). The two of traffic have 64 bits on newer adapters.
_COUNTERS: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "port_rcv_data": ("nic_received_bytes_total", _WORD_BYTES, _ceiling(32)),
        "port_xmit_data": ("nic_transmitted_bytes_total", _WORD_BYTES, _ceiling(32)),
        "link_downed": ("nic_link_downed_total", 1, _ceiling(8)),
        "link_error_recovery": ("nic_link_error_recovery_total", 1, _ceiling(8)),
        "symbol_error": ("nic_symbol_errors_total", 1, _ceiling(16)),
        "port_rcv_errors": ("nic_receive_errors_total", 1, _ceiling(16)),
        "port_xmit_discards": ("nic_transmit_discards_total", 1, _ceiling(16)),
        "port_xmit_wait": ("nic_transmit_wait_total", 1, _ceiling(32)),
        "local_link_integrity_errors": ("nic_local_link_integrity_errors_total", 1, _ceiling(4)),
        "excessive_buffer_overrun_errors": ("nic_buffer_overruns_total", 1, _ceiling(4)),
        "VL15_dropped": ("nic_vl15_dropped_total", 1, _ceiling(16)),
        "port_rcv_remote_physical_errors": (
            "nic_receive_remote_physical_errors_total",
            1,
            _ceiling(16),
        ),
        "port_rcv_switch_relay_errors": ("nic_receive_switch_relay_errors_total", 1, _ceiling(16)),
        "port_rcv_constraint_errors": ("nic_receive_constraint_errors_total", 1, _ceiling(8)),
        "port_xmit_constraint_errors": ("nic_transmit_constraint_errors_total", 1, _ceiling(8)),
    }
)

# Of hw_counters/, as NVIDIA's "Understanding mlx5 Linux counters" and the kernel's
# drivers/infiniband/hw/mlx5/counters.c name them; other drivers share some.
_HARDWARE_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "out_of_sequence": "nic_out_of_sequence_total",
        "packet_seq_err": "nic_packet_sequence_errors_total",
        "implied_nak_seq_err": "nic_implied_nak_sequence_errors_total",
        "local_ack_timeout_err": "nic_local_ack_timeouts_total",
        "req_transport_retries_exceeded": "nic_transport_retries_exceeded_total",
        "rnr_nak_retry_err": "nic_rnr_nak_retries_total",
        "out_of_buffer": "nic_out_of_buffer_total",
        "np_ecn_marked_roce_packets": "nic_ecn_marked_packets_total",
        "np_cnp_sent": "nic_cnp_sent_total",
        "rp_cnp_handled": "nic_cnp_handled_total",
        "rp_cnp_ignored": "nic_cnp_ignored_total",
        "roce_adp_retrans": "nic_adaptive_retransmits_total",
        "roce_adp_retrans_to": "nic_adaptive_retransmit_timeouts_total",
        "roce_slow_restart": "nic_slow_restarts_total",
        "roce_slow_restart_cnps": "nic_slow_restart_cnps_total",
        "roce_slow_restart_trans": "nic_slow_restart_transitions_total",
        "req_cqe_error": "nic_request_completion_errors_total",
        "resp_cqe_error": "nic_response_completion_errors_total",
        "req_remote_access_errors": "nic_request_remote_access_errors_total",
        "resp_remote_access_errors": "nic_response_remote_access_errors_total",
    }
)

# "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec")


@dataclass(frozen=True, slots=True)
class _Port:
    """What is read of one port.

    Attributes:
        folder: Its folder.
        counters: Counters that it has.
        link: Its PCI side; None where an earlier port tells it, or where there is none.
    """

    folder: str
    counters: tuple[Counter, ...]
    link: PciLink | None

    @property
    def paths(self) -> set[str]:
        """Every file that is read."""
        own = {f"{self.folder}/{name}" for name in ("state", "phys_state", "rate")}
        own.update(counter.path for counter in self.counters)
        return own.union(self.link.paths if self.link else ())


class RdmaCollector:
    """Reads /sys/class/infiniband.

    Args:
        sys_root: Where sysfs is mounted.
        interval_s: Cadence.
        deadline_s: Seconds after which a call counts as stuck.
        clock: Monotonic seconds.
    """

    name = "rdma"

    def __init__(
        self,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._folder = sys_root / "class" / "infiniband"
        self._listing = DeviceListing(self._folder)
        self._files = CounterFiles(_OPEN_FILES)
        self._glance = StateGlance()
        self._states: tuple[str, ...] = ()
        self._seen = SeenDevices(clock)
        self._ports: dict[str, _Port] = {}
        self._told: tuple[str, ...] | None = None

    def collect(self, now: float) -> Harvest:
        """Readings of every port; none on a machine without InfiniBand or RoCE.

        Raises:
            CollectorError: The folder is there and cannot be listed.
        """
        try:
            devices = self._listing.look()
        except OSError as error:
            raise CollectorError(reason_of(error), f"Let the agent list {self._folder}.") from error
        if devices is not None:
            self._plan(devices)
            self._states = tuple(f"{port.folder}/state" for port in self._ports.values())
        self._glance.follow(self._states)
        rows = {key: self._read(port) for key, port in self._ports.items()}
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
        """State of a port as its file has it."""
        return self._glance.look(port)

    def close(self) -> None:
        """Close the counter files."""
        self._files.close()
        self._glance.close()

    def _plan(self, devices: list[str]) -> None:
        known, self._ports = self._ports, {}
        told: set[str] = set()
        for device in devices:
            function = function_behind(self._folder / device / "device")
            for number in _ports_of(self._folder / device):
                key = f"{device}/{number}"
                link = pci_link(self._files, function) if function not in {"", *told} else None
                told.add(function)
                counters = _counters(self._folder / device / "ports" / number, known.get(key))
                self._ports[key] = _Port(
                    str(self._folder / device / "ports" / number), counters, link
                )
        self._files.retain(set().union(*(port.paths for port in self._ports.values())))

    def _read(self, port: _Port) -> Row:
        row: Row = {
            "nic_port_state": self._files.number(f"{port.folder}/state"),
            "nic_port_physical_state": self._files.number(f"{port.folder}/phys_state"),
            "nic_rate_bytes_per_second": self._rate(f"{port.folder}/rate"),
        }
        read_counters(self._files, port.counters, row)
        if port.link is not None:
            port.link.read(self._files, row)
        return row

    def _rate(self, path: str) -> Reading:
        try:
            text = self._files.text(path)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return Unavailable(reason_of(error))
        found = _RATE.match(text)
        return float(found[1]) * 1e9 / _BITS if found else Unavailable("not_a_number")


def _ports_of(device: Path) -> list[str]:
    try:
        return list_names(device / "ports")
    except OSError:
        return []  # vanished between two looks; its row says so


def _counters(folder: Path, known: _Port | None) -> tuple[Counter, ...]:
    """Counters that a port has, and those that it had: one that vanishes says so."""
    had = {counter.path for counter in known.counters} if known else set()
    found = supported(folder / "counters", _COUNTERS)
    hardware = supported(folder / "hw_counters", _HARDWARE_COUNTERS)
    every = [
        (f"{folder}/counters/{name}", name in found, metric, factor, ceiling)
        for name, (metric, factor, ceiling) in _COUNTERS.items()
    ]
    every += [
        (f"{folder}/hw_counters/{name}", name in hardware, metric, 1, NO_CEILING)
        for name, metric in _HARDWARE_COUNTERS.items()
    ]
    return tuple(
        Counter(metric, path, factor, ceiling)
        for path, present, metric, factor, ceiling in every
        if present or path in had
    )


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return RdmaCollector(settings.sys_root, settings.interval_s, settings.deadline_s)

"""Statistics of net drivers that sysfs does not have: pauses by priority, the physical layer.

A collector of its own, since the driver asks its firmware for them under the kernel's lock of all
interfaces: where that hangs, ports and carriers are still read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.counter_plan import Row
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.ethtool import EthtoolSocket, StatisticsSource
from gpuwarden_agent.sources.kernel_files import reason_of
from gpuwarden_agent.sources.listings import DeviceListing, is_physical
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

_EVERY_INTERVALS = 3
"""A pause storm or a dying transceiver shows as well at 15 s, and each look costs the firmware."""

_MICRO = 1e-6
_IMPLAUSIBLE = 1 << 63  # as drivers report what they could not read

_MEND = (
    "Run the agent in the host's network namespace and let it open sockets of AF_INET, or leave "
    "ethtool out of the collectors."
)


def _pauses() -> Iterator[tuple[str, tuple[str, float]]]:
    for way, verb in (("rx", "received"), ("tx", "sent")):
        for priority in range(8):  # IEEE 802.1Qbb
            metric = f"nic_pause_{verb}_priority{priority}"
            yield f"{way}_prio{priority}_pause", (f"{metric}_total", 1)
            yield f"{way}_prio{priority}_pause_duration", (f"{metric}_seconds_total", _MICRO)


# Name of the statistic, metric, factor to base units (Documentation/networking/device_drivers/
# ethernet/mellanox/mlx5/counters.rst).
_STATISTICS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "rx_symbol_err_phy": ("nic_phy_symbol_errors_total", 1),
        "rx_pcs_symbol_err_phy": ("nic_phy_pcs_symbol_errors_total", 1),
        "rx_corrected_bits_phy": ("nic_phy_corrected_bits_total", 1),
        "link_down_events_phy": ("nic_phy_link_downs_total", 1),
        "rx_discards_phy": ("nic_phy_receive_discards_total", 1),
        "tx_discards_phy": ("nic_phy_transmit_discards_total", 1),
        **dict(_pauses()),
    }
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where an interface's metrics stand among its statistics.

    Attributes:
        count: Number of all statistics.
        wanted: Position, metric and factor.
    """

    count: int
    wanted: tuple[tuple[int, str, float], ...]


class EthtoolCollector:
    """Reads the driver statistics of every physical interface.

    Args:
        sys_root: Where sysfs is mounted; tells which interfaces there are.
        source: Where the statistics come from.
        interval_s: Cadence.
        deadline_s: Seconds after which a call counts as stuck.
        clock: Monotonic seconds.
    """

    name = "ethtool"

    def __init__(
        self,
        sys_root: Path,
        source: StatisticsSource,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._folder = sys_root / "class" / "net"
        self._listing = DeviceListing(self._folder)
        self._source = source
        self._seen = SeenDevices(clock)
        self._plans: dict[str, _Plan] = {}
        self._unplanned: dict[str, OSError] = {}

    def collect(self, now: float) -> Harvest:
        """The named statistics of every interface whose driver has them.

        Raises:
            CollectorError: The interfaces cannot be listed, or none can be asked.
        """
        try:
            names = self._listing.look()
        except OSError as error:
            raise CollectorError(reason_of(error), f"Let the agent list {self._folder}.") from error
        if names is not None:
            physical = [name for name in names if is_physical(self._folder / name)]
            self._plans = {name: self._plans.get(name, _Plan(0, ())) for name in physical}
            self._unplanned = {}
            for name in physical:
                self._replan(name)
        for name in list(self._unplanned):
            self._replan(name)
        if self._unplanned and len(self._unplanned) == len(self._plans):
            refusal = next(iter(self._unplanned.values()))
            raise CollectorError(reason_of(refusal), _MEND) from refusal
        rows = {name: self._read(name) for name in self._plans}
        complete = self._seen.complete(rows)
        return Harvest(rows={EntityKind.NIC: {key: row for key, row in complete.items() if row}})

    def close(self) -> None:
        """Close the socket."""
        self._source.close()

    def _replan(self, name: str) -> None:
        self._unplanned.pop(name, None)
        try:
            statistics = self._source.names(name)
        except OSError as error:
            self._unplanned[name] = error
            return
        wanted = tuple(
            (at, *_STATISTICS[statistic])
            for at, statistic in enumerate(statistics)
            if statistic in _STATISTICS
        )
        self._plans[name] = _Plan(len(statistics), wanted)

    def _read(self, name: str) -> Row:
        plan = self._plans[name]
        if not plan.wanted:
            return {}
        if name in self._unplanned:
            return _all(plan, Unavailable(reason_of(self._unplanned[name])))
        try:
            values = self._source.values(name, plan.count)
        except OSError as error:
            return _all(plan, Unavailable(reason_of(error)))
        if values is None:  # the driver has other statistics than at the last look
            self._replan(name)
            return _all(plan, Unavailable("statistics_changed"))
        return {metric: _reading(values[at], factor) for at, metric, factor in plan.wanted}


def _all(plan: _Plan, missing: Reading) -> Row:
    return {metric: missing for _, metric, _ in plan.wanted}


def _reading(value: int, factor: float) -> Reading:
    return value * factor if value < _IMPLAUSIBLE else Unavailable("implausible_value")


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return EthtoolCollector(
        settings.sys_root,
        EthtoolSocket(),
        settings.interval_s * _EVERY_INTERVALS,
        settings.deadline_s,
    )

"""What is read of a device: worked out once, then followed at every collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.pci_functions import (
    AER_FILES,
    read_error_total,
    read_link_generation,
    read_link_width,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

Row = dict[str, Reading]

NO_CEILING = -1


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter file.

    Attributes:
        metric: Metric's name.
        path: The file.
        factor: To base units.
        ceiling: Where the counter sticks, for lack of bits; NO_CEILING where it does not.
    """

    metric: str
    path: str
    factor: int = 1
    ceiling: int = NO_CEILING


def read_counters(files: CounterFiles, counters: Iterable[Counter], row: Row) -> None:
    """Read counters into a row; each that cannot be read says why.

    A counter that stands at its ceiling no longer counts, so that it would not rise whatever
    happens: no number.
    """
    number = files.number
    for counter in counters:
        reading = number(counter.path)
        if not isinstance(reading, int):
            row[counter.metric] = reading
        elif reading < 0:
            row[counter.metric] = Unavailable("implausible_value")
        elif reading == counter.ceiling:
            row[counter.metric] = Unavailable("saturated")
        else:
            row[counter.metric] = reading * counter.factor


@dataclass(frozen=True, slots=True)
class ErrorTotals:
    """Errors that a PCI function counted of itself (advanced error reporting).

    Attributes:
        paths: File by metric.
    """

    paths: Mapping[str, str]

    def read(self, files: CounterFiles, row: Row) -> None:
        """Read them into a row."""
        for metric, path in self.paths.items():
            row[metric] = read_error_total(files, path)


def error_totals(kind: EntityKind, function: str) -> ErrorTotals:
    """The error counters of a PCI function, given its folder."""
    return ErrorTotals(
        {
            f"{kind}_aer_{severity}_total": f"{function}/{name}"
            for severity, name in AER_FILES.items()
        }
    )


@dataclass(frozen=True, slots=True)
class PciLink:
    """The PCI side of a NIC.

    Attributes:
        width: File with the present lanes.
        speed: File with the present speed.
        most: Readings of what the device and its slot can, which do not change.
        errors: Error counters.
    """

    width: str
    speed: str
    most: Mapping[str, Reading]
    errors: ErrorTotals

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that is read."""
        return (self.width, self.speed, *self.errors.paths.values())

    def read(self, files: CounterFiles, row: Row) -> None:
        """Read it into a row."""
        row["nic_pcie_link_width"] = read_link_width(files, self.width)
        row["nic_pcie_link_generation"] = read_link_generation(files, self.speed)
        row.update(self.most)
        self.errors.read(files, row)


def pci_link(files: CounterFiles, function: str) -> PciLink:
    """The PCI side of a NIC, given the folder of its PCI function."""
    return PciLink(
        width=f"{function}/current_link_width",
        speed=f"{function}/current_link_speed",
        most={
            "nic_pcie_link_width_max": read_link_width(files, f"{function}/max_link_width"),
            "nic_pcie_link_generation_max": read_link_generation(
                files, f"{function}/max_link_speed"
            ),
        },
        errors=error_totals(EntityKind.NIC, function),
    )

"""PCIe errors of GPUs, beside what NVML says of them: from the kernel, so also while NVML hangs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpuwarden_agent.sources.nvml_pci import PciBus
from gpuwarden_wire.number_rows import NumberRow, RowLayout, joined
from gpuwarden_wire.readings import Reading

_EVERY_S = 30.0
"""PCIe errors count up over minutes, and fatal ones are in the kernel log at once."""

_TURNS = 2


@dataclass(slots=True)
class _Slot:
    """What is known of one slot.

    Attributes:
        due_at: Monotonic seconds from which it is asked again.
        errors: By metric.
        beside: Layout of the row that they were added to last.
        layout: What it then became.
        numbers: Theirs.
    """

    due_at: float
    errors: Mapping[str, Reading]
    beside: RowLayout | None = None
    layout: RowLayout | None = None
    numbers: array[float] = field(default_factory=lambda: array("d"))


class PcieErrors:
    """Adds PCIe errors to the rows of GPUs. Not thread-safe.

    Args:
        bus: Where they are counted.
        clock: Monotonic seconds.
    """

    def __init__(self, bus: PciBus, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._clock = clock
        self._slots: dict[str, _Slot] = {}

    def add_to(
        self, rows: Mapping[str, Mapping[str, Reading]], slots: Mapping[str, str]
    ) -> dict[str, Mapping[str, Reading]]:
        """Rows with the errors; GPUs take their turns, so that each is asked every 30 s.

        Args:
            rows: Readings by UUID.
            slots: PCI addresses by UUID.
        """
        clock = self._clock()
        added: dict[str, Mapping[str, Reading]] = {}
        for number, (uuid, row) in enumerate(rows.items()):
            address = slots[uuid]
            slot = self._slots.get(address)
            if slot is None or clock >= slot.due_at:
                slot = self._ask(number, address, clock)
            if type(row) is NumberRow and row.layout is slot.beside and slot.layout is not None:
                added[uuid] = NumberRow(slot.layout, row.numbers + slot.numbers)
            else:
                added[uuid] = _join(row, slot)
        return added

    def _ask(self, number: int, address: str, clock: float) -> _Slot:
        turn = number % _TURNS / _TURNS if address not in self._slots else 0.0
        slot = _Slot(clock + _EVERY_S * (1.0 - turn), self._bus.error_totals(address))
        self._slots[address] = slot
        return slot


def _join(row: Mapping[str, Reading], slot: _Slot) -> Mapping[str, Reading]:
    """A row with errors; where it is one of numbers, what the next one needs is kept."""
    whole = joined(row, slot.errors)
    if isinstance(row, NumberRow) and isinstance(whole, NumberRow):
        slot.beside, slot.layout = row.layout, whole.layout
        slot.numbers = whole.numbers[len(row.numbers) :]
    return whole

"""Rows that are an array of numbers under names which stay the same from call to call.

A node reads a thousand numbers of its GPUs every few seconds. In such rows no Python object is made
for each, and what is worked out of the names is worked out once.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar, overload

from gpuwarden_wire.readings import Missing, Reading

_T = TypeVar("_T")
_DERIVED_AT_MOST = 64


class RowLayout:
    """What the numbers of rows are, and why there is no number of the rest.

    Of a metric that comes twice the last number holds. Compared by identity: who shares a layout
    shares what was worked out of it.

    Args:
        names: Metric names, in order of the numbers.
        missing: Reasons by metric name, of what has no number.
    """

    __slots__ = ("__weakref__", "_derived", "missing", "names", "places")

    def __init__(self, names: Iterable[str], missing: Mapping[str, Missing] = {}) -> None:
        self.names = tuple(names)
        self.places = {name: place for place, name in enumerate(self.names)}
        self.missing = {name: why for name, why in missing.items() if name not in self.places}
        self._derived: dict[Hashable, RowLayout] = {}

    def extended(self, names: tuple[str, ...], missing: Mapping[str, Missing]) -> RowLayout:
        """This layout with further names behind its own; for the same names it is the same one."""
        key = names, tuple(missing.items())
        known = self._derived.get(key)
        if known is None:
            if len(self._derived) >= _DERIVED_AT_MOST:
                self._derived.clear()
            told = {n: w for n, w in self.missing.items() if n not in names}
            known = RowLayout((*self.names, *names), {**told, **missing})
            self._derived[key] = known
        return known


class NumberRow(Mapping[str, Reading]):
    """Readings of one entity, as a mapping from metric names.

    Args:
        layout: Names.
        numbers: One each, float64.
    """

    __slots__ = ("layout", "numbers")

    def __init__(self, layout: RowLayout, numbers: array[float]) -> None:
        if len(numbers) != len(layout.names):
            raise ValueError(f"{len(numbers)} numbers, {len(layout.names)} names")
        self.layout = layout
        self.numbers = numbers

    @classmethod
    def of(cls, row: Mapping[str, Reading]) -> NumberRow:
        """A row with a layout of its own."""
        return joined(cls(RowLayout(()), array("d")), row)

    def __getitem__(self, name: str) -> Reading:
        place = self.layout.places.get(name)
        return self.layout.missing[name] if place is None else self.numbers[place]

    @overload
    def get(self, name: str, /) -> Reading | None: ...
    @overload
    def get(self, name: str, /, default: Reading | _T) -> Reading | _T: ...
    def get(self, name: str, /, default: object = None) -> object:
        """As of any mapping."""
        place = self.layout.places.get(name)
        return self.layout.missing.get(name, default) if place is None else self.numbers[place]

    def __contains__(self, name: object) -> bool:
        return name in self.layout.places or name in self.layout.missing

    def __iter__(self) -> Iterator[str]:
        return chain(self.layout.missing, self.layout.places)

    def __len__(self) -> int:
        return len(self.layout.places) + len(self.layout.missing)

    def __repr__(self) -> str:
        return f"NumberRow({dict(self)!r})"


@overload
def joined(row: NumberRow, more: Mapping[str, Reading]) -> NumberRow: ...
@overload
def joined(row: Mapping[str, Reading], more: Mapping[str, Reading]) -> Mapping[str, Reading]: ...
def joined(row: Mapping[str, Reading], more: Mapping[str, Reading]) -> Mapping[str, Reading]:
    """A row with further readings; of what stands in both, `more` has it."""
    if not isinstance(row, NumberRow):
        return {**row, **more}
    numbers = {name: one for name, one in more.items() if isinstance(one, float | int)}
    missing = {name: one for name, one in more.items() if not isinstance(one, float | int)}
    layout = row.layout.extended(tuple(numbers), missing)
    return NumberRow(layout, row.numbers + array("d", numbers.values()))

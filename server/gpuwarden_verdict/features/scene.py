"""What features are made of: the windows, what is known of the fleet besides, and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.reading import Bool
from gpuwarden_verdict.detectors.scene import Scene, T
from gpuwarden_verdict.features.contract import Feature
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32, I64, Array
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class FeatureScene:
    """The fleet at one moment, as detectors and features see it.

    Attributes:
        state: The windows.
        fleet: What is known of the fleet; its memory's scratch is shared with the sweep's
            detectors, so that peers are grouped once.
        ledger: What is on record of parts; nothing where nobody kept one.
    """

    state: FleetReading
    fleet: FleetContext
    ledger: LedgerReading = field(default_factory=LedgerReading)


@dataclass(frozen=True, slots=True)
class Look(Scene):
    """One kind of entity at one moment, with what is on record of parts.

    Attributes:
        ledger: The ledger.
    """

    ledger: LedgerReading = field(default_factory=LedgerReading)

    def at(self, kind: EntityKind) -> Look:
        """The same moment, another kind."""
        return Look(kind, self.state, self.fleet, self.now, self.ledger)

    @property
    def everyone(self) -> Look:
        """All entities of the kind."""
        return self

    def of_all(self, key: Hashable, make: Callable[[Look], Array]) -> Array:
        """Their part, by rows, of what is made of all entities of the kind together."""
        return self.once(("of all", key, self.now), lambda: make(self))

    def of_groups(self, key: Hashable, make: Callable[[Look], tuple[Grouping, Array]]) -> Array:
        """The number of each one's group; `make` tells the groups of all, and theirs, (G + 1,)."""
        grouping, of_group = self.everyone.once(
            ("of groups", key, self.now), lambda: make(self.everyone)
        )
        return cast("Array", of_group[grouping.group_of[self.places]])

    @property
    def places(self) -> I64 | slice:
        """Their rows among all entities of the kind."""
        return slice(None)

    def medians_of(self, grouping: Grouping, values: F32) -> F32:
        """Median of each one's group; `values` are of all entities of the kind."""
        return grouping.per_entity(grouping.medians(values))


@dataclass(frozen=True, slots=True)
class Some(Look):
    """Some entities of a kind at one moment; of the others what is said to be of all.

    Attributes:
        whole: All of the kind.
        rows: Theirs in its view.
        picked: Their view.
        kept: What was made of them.
    """

    whole: Look = field(kw_only=True)
    rows: I64 = field(kw_only=True)
    picked: KindView = field(kw_only=True)
    kept: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, whole: Look, rows: I64) -> Some:
        """The entities of some rows of the view."""
        parts = whole.kind, whole.state, whole.fleet, whole.now, whole.ledger
        return cls(*parts, whole=whole, rows=rows, picked=whole.view.only(rows))

    @property
    def view(self) -> KindView:
        """Only they."""
        return self.picked

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Something made once."""
        if key not in self.kept:
            self.kept[key] = make()
        return cast("T", self.kept[key])

    def fresh(self, metric: str) -> Bool:
        """Of theirs, which reading may be judged."""
        return self._part(("fresh", metric), lambda: Look.fresh(self, metric))

    def latest(self, metric: str) -> F32:
        """Their latest readings."""
        return self._part(("latest", metric), lambda: Look.latest(self, metric))

    def mean(self, metric: str) -> F32:
        """Their means of the last minute."""
        return self._part(("mean", metric), lambda: Look.mean(self, metric))

    def _part(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Their part of what detectors made of all already, else made of them alone."""
        if key in self.kept:
            return cast("Array", self.kept[key])
        of_all = self.whole.known(key)
        if of_all is None:
            return make()
        part = self.kept[key] = cast("Array", of_all[self.rows])
        return part

    def heard(self) -> Bool:
        """Which of them are heard of."""
        return self.once("heard", lambda: self.whole.heard()[self.rows])

    @property
    def everyone(self) -> Look:
        """All entities of the kind."""
        return self.whole

    @property
    def places(self) -> I64 | slice:
        """Their rows among all entities of the kind."""
        return self.rows

    def of_all(self, key: Hashable, make: Callable[[Look], Array]) -> Array:
        """Their part, by rows, of what is made of all entities of the kind together."""
        return cast("Array", self.whole.of_all(key, make)[self.rows])

    def medians_of(self, grouping: Grouping, values: F32) -> F32:
        """Median of each one's group; `values` are of all entities of the kind."""
        around = self.once(("around", id(grouping)), lambda: grouping.around(self.rows))
        return around.medians(values)

    def jobs(self) -> I64:
        """Job of each."""
        return self.once("jobs", lambda: self.whole.jobs()[self.rows])


UNREAD = "nothing that may be judged was read"
"""Of a node that is not heard of, of a part that its node names no more, or too old."""


@dataclass(frozen=True, slots=True)
class Make:
    """How a feature is made, and what it is in words.

    Attributes:
        call: From one kind at one moment to shape (N,), NaN where it is missing.
        said: What it is, for people.
        missing: When it is missing, for people.
        alone: Whether it asks for nothing of other entities of the kind but by `Look.of_all`: then
            it can be made of some of them.
        bound: What it never exceeds, shape (N,), where that is cheaper; NaN where it is missing
            for sure.
    """

    call: Callable[[Look], npt.NDArray[np.floating]]
    said: str
    missing: str = UNREAD
    alone: bool = False
    bound: Callable[[Look], F32] | None = None

    def __call__(self, look: Look) -> npt.NDArray[np.floating]:
        """The values."""
        return self.call(look)


def made(
    said: str, missing: str = UNREAD, *, alone: bool = False
) -> Callable[[Callable[[Look], npt.NDArray[np.floating]]], Make]:
    """Say what a function makes; see `Make`."""
    return lambda call: Make(call, said, missing, alone)


@dataclass(frozen=True, slots=True)
class Column:
    """A feature and how it is made.

    Attributes:
        feature: What it is.
        make: How.
    """

    feature: Feature
    make: Make

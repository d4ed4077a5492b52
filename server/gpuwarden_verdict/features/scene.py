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
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import I64
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


@dataclass(frozen=True, slots=True)
class Some(Look):
    """Some entities of a kind at one moment; for what asks for nothing of the others.

    Attributes:
        picked: Their view.
        heard_of: Which of them are heard of, as the whole kind's readings say.
        kept: What was made of them.
    """

    picked: KindView = field(kw_only=True)
    heard_of: Bool = field(kw_only=True)
    kept: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, whole: Look, rows: I64) -> Some:
        """The entities of some rows of the view."""
        parts = whole.kind, whole.state, whole.fleet, whole.now, whole.ledger
        return cls(*parts, picked=whole.view.only(rows), heard_of=whole.heard()[rows])

    @property
    def view(self) -> KindView:
        """Only they."""
        return self.picked

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Something made once."""
        if key not in self.kept:
            self.kept[key] = make()
        return cast("T", self.kept[key])

    def heard(self) -> Bool:
        """Which of them are heard of."""
        return self.heard_of


UNREAD = "nothing that may be judged was read"
"""Of a node that is not heard of, of a part that its node names no more, or too old."""


@dataclass(frozen=True, slots=True)
class Make:
    """How a feature is made, and what it is in words.

    Attributes:
        call: From one kind at one moment to shape (N,), NaN where it is missing.
        said: What it is, for people.
        missing: When it is missing, for people.
        alone: Whether it asks for nothing of other entities of the kind: then it can be made of
            some of them.
    """

    call: Callable[[Look], npt.NDArray[np.floating]]
    said: str
    missing: str = UNREAD
    alone: bool = False

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

"""What features are made of: the windows, what is known of the fleet besides, and the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.features.contract import Feature
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.windows import FleetReading
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


UNREAD = "nothing that may be judged was read"
"""Of a node that is not heard of, of a part that its node names no more, or too old."""


@dataclass(frozen=True, slots=True)
class Make:
    """How a feature is made, and what it is in words.

    Attributes:
        call: From one kind at one moment to shape (N,), NaN where it is missing.
        said: What it is, for people.
        missing: When it is missing, for people.
    """

    call: Callable[[Look], npt.NDArray[np.floating]]
    said: str
    missing: str = UNREAD

    def __call__(self, look: Look) -> npt.NDArray[np.floating]:
        """The values."""
        return self.call(look)


def made(
    said: str, missing: str = UNREAD
) -> Callable[[Callable[[Look], npt.NDArray[np.floating]]], Make]:
    """Say what a function makes; see `Make`."""
    return lambda call: Make(call, said, missing)


@dataclass(frozen=True, slots=True)
class Column:
    """A feature and how it is made.

    Attributes:
        feature: What it is.
        make: How.
    """

    feature: Feature
    make: Make

"""What features are made of: the windows, and what is known of the fleet besides."""

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
class Column:
    """A feature and how it is made.

    Attributes:
        feature: What it is.
        make: From one kind at one moment to shape (N,), NaN where a reading is missing.
    """

    feature: Feature
    make: Callable[[Scene], npt.NDArray[np.floating]]

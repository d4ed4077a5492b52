"""When the interpreter looks for garbage in circles, which stops all threads."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

OBJECTS, YOUNG_LOOKS, MIDDLE_LOOKS = 10_000, 5, 50
"""A look takes about a microsecond an object: at most some 50,000 of them between two batches."""
WHOLE_S = 86400.0
_OLDEST = 2


class GarbageTurns:
    """Leaves what a full look has seen alive out of the looks that follow, for a day.

    The state of a fleet is millions of objects that stay: looking through all of them again each
    time that it grows by a quarter kept batches waiting for seconds. Once a day all are looked at,
    so that what died meanwhile is freed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._whole_at = clock()

    def take_over(self) -> None:
        """Set the thresholds, and hear of each look from now on."""
        gc.set_threshold(OBJECTS, YOUNG_LOOKS, MIDDLE_LOOKS)
        gc.callbacks.append(self.turn)

    def give_back(self) -> None:
        """Hear of no more looks, and leave nothing out of them."""
        gc.callbacks.remove(self.turn)
        gc.unfreeze()

    def turn(self, phase: str, told: Mapping[str, Any]) -> None:
        """Called by the interpreter before ("start") and after ("stop") each look."""
        if told["generation"] != _OLDEST:
            return
        now = self._clock()
        if phase == "stop":
            gc.freeze()
        elif now - self._whole_at >= WHOLE_S:
            self._whole_at = now
            gc.unfreeze()

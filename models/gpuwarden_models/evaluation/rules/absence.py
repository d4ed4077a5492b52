"""Alert on missing metrics: whoever stops reporting."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.evaluation.rules.contract import Fired, Lasting, names_where, table_of
from gpuwarden_models.frames import Frame
from gpuwarden_wire.metrics import EntityKind

_MINUTES = (1, 5, 15, 60)


class AbsenceRules:
    """One rule a length of silence, for GPUs whose node still reports and for nodes."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._long = {(kind, m): Lasting() for kind in EntityKind for m in _MINUTES}

    def look(self, frame: Frame) -> list[Fired]:
        """What fires at a frame."""
        fired: list[Fired] = []
        for kind in (EntityKind.GPU, EntityKind.NODE):
            table = table_of(frame, kind)
            if table is None:
                continue
            for minutes in _MINUTES:
                long = self._long[kind, minutes]
                rows = long.held(~table.reported, frame.at, 60.0 * minutes)
                if np.any(rows):
                    rule = f"{kind.value} silent for {minutes} min"
                    fired += [Fired(one, frame.at, rule) for one in names_where(frame, table, rows)]
        return fired

"""Static rules of NVIDIA's catalogue: an XID, an uncorrected error, a failed remap."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.evaluation.rules.contract import (
    Fired,
    Growth,
    column,
    event_name,
    names_where,
    table_of,
)
from gpuwarden_models.frames import Frame
from gpuwarden_wire.metrics import EntityKind

_AT_ONCE_S = 600.0


class CatalogueRules:
    """A rule for each XID and SXid code, and for each hard state of the memory."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._uncorrected = Growth(_AT_ONCE_S)

    def look(self, frame: Frame) -> list[Fired]:
        """What fires at a frame."""
        fired = []
        for told in frame.events:
            code, kind = told.event.xid, "XID"
            if code is None:
                code, kind = told.event.sxid, "SXid"
            if code is not None:
                at = min(told.event.observed_at, frame.at)
                fired.append(Fired(event_name(told), at, f"{kind} {code}"))
        return fired + self._states(frame)

    def _states(self, frame: Frame) -> list[Fired]:
        table = table_of(frame, EntityKind.GPU)
        if table is None:
            return []
        grown = self._uncorrected.within(
            column(table, "gpu_ecc_uncorrected_volatile_total"), frame.at
        )
        rules = (
            ("uncorrected ECC error", grown > 0),
            ("row remap failure", column(table, "gpu_row_remap_failure") > 0),
            ("row remap pending", column(table, "gpu_row_remap_pending") > 0),
            ("SRAM threshold exceeded", column(table, "gpu_sram_threshold_exceeded") > 0),
        )
        return [
            Fired(name, frame.at, rule)
            for rule, rows in rules
            if np.any(rows)
            for name in names_where(frame, table, rows)
        ]

"""NVLinks inactive where the same GPU, or GPUs of the same model, have them active."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.peer_groups import medians_of_models
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
    twice,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32, F64
from gpuwarden_wire.metrics import EntityKind

ACTIVE, INACTIVE = "gpu_nvlinks_active", "gpu_nvlinks_inactive"
MIG = "gpu_mig_mode"
"""NVIDIA MIG User Guide, "Application Considerations": no GPU to GPU P2P, PCIe or NVLink, while it
is on."""
FEWEST_PEERS = 4
_SCORE = 0.6
"""Either end of a link may be at fault: suspect, until the driver or an XID agrees."""


class NvlinkDownDetector:
    """Signals of GPUs with fewer active NVLinks than they had, or than most of their model have.

    A PCIe board without a bridge has all its links inactive, and so have its peers: no fault
    (NVSentinel#1481); nor is it one of a GPU that is cut into MIG devices. Links that train after a
    boot are left alone (NVSentinel#1701).
    """

    name = "nvlink_down"
    version = 1
    about = About(
        Plane.STRUCTURE,
        (ACTIVE, INACTIVE),
        "NVLinks are down that were up, or that most GPUs of the model have",
        "in two readings, not in the grace after a boot",
        Rung.EXCLUDE,
        "all usual links are active, or a passed check",
    )
    speaks_for = frozenset({"nvlink_down"})

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU with inactive links that should be active."""
        view = state.view(EntityKind.GPU)
        usual = usual_links(state, view, fleet)
        with np.errstate(invalid="ignore"):
            down = (view.last(INACTIVE) > 0) & (view.last(ACTIVE) < usual)
        down &= twice(view, ACTIVE) & twice(view, INACTIVE)
        down &= fresh(state, view, ACTIVE, fleet) & fresh(state, view, INACTIVE, fleet)
        down &= ~in_boot_grace(state, view, fleet, now) & (view.last(MIG) != 1.0)
        return [
            self._signal(ref, now, float(view.last(ACTIVE)[row]), float(usual[row]))
            for row, ref in hits(view, down)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs with all usual links active now."""
        view = state.view(EntityKind.GPU)
        active = view.last(ACTIVE)
        with np.errstate(invalid="ignore"):
            enough = active >= usual_links(state, view, fleet)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            enough & fresh(state, view, ACTIVE, fleet),
            self.speaks_for,
            now,
            lambda row: f"{active[row]:.0f} NVLinks are active",
        )

    def _signal(self, ref: EntityRef, now: float, active: float, usual: float) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.NVLINK,
            score=_SCORE,
            severity=Severity.ERROR,
            sentence=f"GPU {ref.key} has {active:.0f} of {usual:.0f} NVLinks active",
            numbers={ACTIVE: active},
            thresholds={ACTIVE: usual},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.RESET_GPU,
        )


def usual_links(state: FleetReading, view: KindView, fleet: FleetContext) -> F32:
    """Links that should be active: the most this GPU had, or the median of its model."""
    models, links = links_of_models(state, view, fleet)
    usual: F32 = np.fmax(view.highest(ACTIVE), links[models.group_of]).astype(np.float32)
    return usual


def links_of_models(
    state: FleetReading, view: KindView, fleet: FleetContext
) -> tuple[Grouping, F64]:
    """The models as groups, and the active links of most GPUs of each, NaN where few are seen."""
    readable: Bool = fresh(state, view, ACTIVE, fleet)
    seen = np.where(readable, view.last(ACTIVE), np.nan)
    return medians_of_models(seen, view, fleet, FEWEST_PEERS)

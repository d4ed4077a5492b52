"""A PCIe link that is narrower or slower than it can be, while its GPU works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.load import under_load
from gpuwarden_verdict.detectors.peer_groups import medians_of_models
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F64
from gpuwarden_wire.metrics import EntityKind

HELD_S = 60.0
"""The link is trained up within milliseconds of work; a minute outlasts every change of load."""
FEWEST_PEERS = 4
"""GPUs of the model that work: where most of them run so, it is how the machines are built."""


@dataclass(frozen=True, slots=True)
class PcieDowntrainedDetector:
    """Signals of links below what link and machine allow, under load only.

    A GPU that idles runs its link slowly, to save power: no fault. Nor is what most of the working
    GPUs of the model show: then the slots are so.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: What the link runs at.
        most: What GPU and machine allow (nvmlDeviceGetMaxPcieLinkWidth, …Generation).
        score: 0..1.
        severity: Urgency.
        says: What runs below, in words.
    """

    name: str
    version: int
    metric: str
    most: str
    score: float
    severity: Severity
    says: str

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        return About(
            Plane.STRUCTURE,
            (self.metric, self.most),
            f"the PCIe link runs with fewer {self.says} than it can",
            f"below the maximum, and below most working GPUs of the model, for {HELD_S:.0f} s "
            "under load, not in the grace after a boot",
            Rung.EXCLUDE,
            "the maximum, or a passed check",
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU."""
        view = state.view(EntityKind.GPU)
        below = self._below(view)
        if not below.any():
            return []
        with np.errstate(invalid="ignore"):
            below &= view.steady_s(self.metric) >= HELD_S
            models, usual = self.usual(view, fleet)
            below &= view.last(self.metric) < usual[models.group_of]
        below &= fresh(state, view, self.metric, fleet) & fresh(state, view, self.most, fleet)
        below &= ~in_boot_grace(state, view, fleet, now)
        runs, most = view.last(self.metric), view.last(self.most)
        return [
            self._signal(ref, float(runs[row]), float(most[row]), now)
            for row, ref in hits(view, below)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs whose link runs at its maximum; one that idles tells nothing."""
        view = state.view(EntityKind.GPU)
        runs = view.last(self.metric)
        with np.errstate(invalid="ignore"):
            full = runs >= view.last(self.most)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            full & fresh(state, view, self.metric, fleet),
            self.speaks_for,
            now,
            lambda row: f"the PCIe link runs with {runs[row]:.0f} {self.says}",
        )

    def _below(self, view: KindView) -> Bool:
        with np.errstate(invalid="ignore"):
            below: Bool = (view.last(self.metric) < view.last(self.most)) & under_load(view)
        return below

    def usual(self, view: KindView, fleet: FleetContext) -> tuple[Grouping, F64]:
        """The models, and what most working GPUs of each run at; inf where few are seen."""
        working = np.where(under_load(view), view.last(self.metric), np.nan)
        models, usual = medians_of_models(working, view, fleet, FEWEST_PEERS)
        usual[np.isnan(usual)] = np.inf
        return models, usual

    def _signal(self, ref: EntityRef, runs: float, most: float, now: float) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.BUS,
            score=self.score,
            severity=self.severity,
            sentence=f"the PCIe link of GPU {ref.key} runs with {runs:.0f} of {most:.0f} "
            f"{self.says} under load",
            numbers={self.metric: runs},
            thresholds={self.metric: most},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.CHECK_CABLE,
            max_rung=Rung.EXCLUDE,
        )


PCIE_WIDTH = PcieDowntrainedDetector(
    name="pcie_width",
    version=1,
    metric="gpu_pcie_link_width",
    most="gpu_pcie_link_width_max",
    # lanes are lost by contact: it works at half its speed until it is seated anew. Advice, unless
    # errors of the bus agree.
    score=0.7,
    severity=Severity.ERROR,
    says="lanes",
)
PCIE_GENERATION = PcieDowntrainedDetector(
    name="pcie_generation",
    version=1,
    metric="gpu_pcie_link_generation",
    most="gpu_pcie_link_generation_max",
    score=0.5,
    severity=Severity.WARNING,
    says="generations of PCIe",
)

"""Row remapping of HBM (Ampere on): pending needs a reset, failed needs another part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.reading import clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class RowRemapDetector:
    """Signals of a 0/1 state of nvmlDeviceGetRemappedRows.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: The state.
        score: 0..1 where it is 1.
        severity: Urgency where it is 1.
        persistence: LEVEL: gone after a reset; PART: needs a repair.
        action: Recommended.
        acts_alone: May decide by itself.
        max_rung: Highest rung it may support.
        says: What 1 means, in words.
    """

    name: str
    version: int
    metric: str
    score: float
    severity: Severity
    persistence: Persistence
    action: RecommendedAction
    acts_alone: bool
    max_rung: Rung
    says: str

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU whose state reads 1; not supported is no state."""
        view = state.view(EntityKind.GPU)
        mask = fresh(state, view, self.metric, fleet) & (view.last(self.metric) >= 1)
        return [
            level_signal(
                ref,
                now,
                detector=self.name,
                version=self.version,
                fault_class=FaultClass.MEMORY,
                score=self.score,
                severity=self.severity,
                sentence=f"{self.says} on GPU {ref.key} ({self.metric} = 1)",
                numbers={self.metric: 1.0},
                thresholds={self.metric: 1.0},
                persistence=self.persistence,
                action=self.action,
                acts_alone=self.acts_alone,
                max_rung=self.max_rung,
                boot_id=fleet.boot_ids.get(ref.node_id, ""),
            )
            for _, ref in hits(view, mask)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs whose state reads 0 now."""
        view = state.view(EntityKind.GPU)
        clear = fresh(state, view, self.metric, fleet) & (view.last(self.metric) < 1)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda _row: f"{self.metric} reads 0",
        )


ROW_REMAP_PENDING = RowRemapDetector(
    name="row_remap_pending",
    version=1,
    metric="gpu_row_remap_pending",
    # The row is out of use, the remap takes effect at the next reset: no hurry while nothing else
    # fails (NVIDIA, GPU memory error management guide).
    score=0.6,
    severity=Severity.WARNING,
    persistence=Persistence.LEVEL,
    action=RecommendedAction.RESET_GPU,
    acts_alone=False,
    max_rung=Rung.EXCLUDE,
    says="a row remap waits for a GPU reset",
)
ROW_REMAP_FAILURE = RowRemapDetector(
    name="row_remap_failure",
    version=1,
    metric="gpu_row_remap_failure",
    # No spare row left: NVIDIA's criterion for replacing the board.
    score=0.97,
    severity=Severity.CRITICAL,
    persistence=Persistence.PART,
    action=RecommendedAction.REPAIR,
    acts_alone=True,
    max_rung=Rung.EXCLUDE,
    says="row remapping failed",
)

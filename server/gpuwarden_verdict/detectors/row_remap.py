"""Row remapping of HBM (Ampere on): pending needs a reset, failed needs another part."""

from __future__ import annotations

from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.signals import Persistence

ROW_REMAP_PENDING = StateDetector(
    name="row_remap_pending",
    version=1,
    metric="gpu_row_remap_pending",
    fault_class=FaultClass.MEMORY,
    # The row is out of use, the remap takes effect at the next reset: no hurry while nothing else
    # fails (NVIDIA, GPU memory error management guide).
    score=0.6,
    severity=Severity.WARNING,
    action=RecommendedAction.RESET_GPU,
    says="a row remap waits for a GPU reset",
)
ROW_REMAP_FAILURE = StateDetector(
    name="row_remap_failure",
    version=1,
    metric="gpu_row_remap_failure",
    fault_class=FaultClass.MEMORY,
    # No spare row left: NVIDIA's criterion for replacing the board.
    score=0.97,
    severity=Severity.CRITICAL,
    persistence=Persistence.PART,
    action=RecommendedAction.REPAIR,
    acts_alone=True,
    says="row remapping failed",
)

"""Machine checks and uncorrectable memory errors of the host."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence

HOST_MEMORY = FamilyDetector(
    name="host_memory",
    version=1,
    families=frozenset({Family.MCE, Family.EDAC_UE}),
    fault_class=FaultClass.HOST,
    # EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x0)
    weights=MappingProxyType(
        {
            Severity.CRITICAL: Weight(
                0.85, Severity.CRITICAL, Persistence.BOOT, action=RecommendedAction.REPAIR
            ),
            Severity.ERROR: Weight(0.6, Severity.ERROR),
            Severity.WARNING: Weight(0.1, Severity.WARNING, max_rung=Rung.SUSPECT),
        }
    ),
    says="machine check or uncorrectable host memory error",
)

"""NVLink messages of the driver without an XID."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, Rung, Severity

_ERROR = Weight(0.4, Severity.ERROR, max_rung=Rung.SUSPECT)
NVLINK_LOG = FamilyDetector(
    name="nvlink_log",
    version=1,
    families=frozenset({Family.NVLINK}),
    fault_class=FaultClass.NVLINK,
    # NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!
    weights=MappingProxyType(
        {
            Severity.CRITICAL: _ERROR,
            Severity.ERROR: _ERROR,
            Severity.WARNING: Weight(0.15, Severity.WARNING, max_rung=Rung.SUSPECT),
        }
    ),
    says="NVLink trouble",
    quiet_after_boot=True,
)

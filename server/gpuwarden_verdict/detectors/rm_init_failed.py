"""The driver could not start a GPU."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.signals import Persistence

RM_INIT_FAILED = FamilyDetector(
    name="rm_init_failed",
    version=1,
    families=frozenset({Family.RM_INIT_FAILED}),
    fault_class=FaultClass.DRIVER,
    # NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2168). A driver that does not fit the
    # kernel or firmware fails the same way on sound GPUs: suspect, until a missing device agrees.
    weights=MappingProxyType(
        {
            Severity.CRITICAL: Weight(
                0.7, Severity.ERROR, Persistence.BOOT, action=RecommendedAction.REBOOT_NODE
            ),
            Severity.ERROR: Weight(
                0.7, Severity.ERROR, Persistence.BOOT, action=RecommendedAction.REBOOT_NODE
            ),
        }
    ),
    says="the driver could not start a GPU",
)

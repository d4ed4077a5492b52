"""Uncorrectable PCIe errors on the address of a GPU or a NIC."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.signals import Persistence
from gpuwarden_wire.metrics import EntityKind

AER = FamilyDetector(
    name="aer",
    version=1,
    families=frozenset({Family.AER_UNCORRECTABLE}),
    fault_class=FaultClass.BUS,
    # nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer
    weights=MappingProxyType(
        {
            Severity.CRITICAL: Weight(
                0.85, Severity.CRITICAL, Persistence.BOOT, action=RecommendedAction.REBOOT_NODE
            ),
            Severity.ERROR: Weight(0.5, Severity.ERROR),
        }
    ),
    says="uncorrectable PCIe error",
    # an address that is no device of ours is the bridge's or a disk's: not a GPU's fault
    kinds=frozenset({EntityKind.GPU, EntityKind.NIC}),
)

"""Kernel messages of network adapters."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import HOUR_S, FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence

NIC_ERROR = FamilyDetector(
    name="nic_error",
    version=1,
    families=frozenset({Family.NIC_ERROR}),
    fault_class=FaultClass.NIC,
    # mlx5_core 0000:5e:00.0: assert_var[0] 0x00000001 ... (health syndrome)
    weights=MappingProxyType(
        {
            Severity.CRITICAL: Weight(
                0.85, Severity.CRITICAL, Persistence.BOOT, action=RecommendedAction.REBOOT_NODE
            ),
            Severity.ERROR: Weight(0.5, Severity.ERROR),
            Severity.WARNING: Weight(0.15, Severity.WARNING, max_rung=Rung.SUSPECT),
        }
    ),
    says="network adapter error",
    quiet_after_boot=True,
)

_FLAP = Weight(
    0.25,
    Severity.WARNING,
    ttl_s=HOUR_S,
    action=RecommendedAction.CHECK_CABLE,
    max_rung=Rung.SUSPECT,
)
NIC_LINK_LOG = FamilyDetector(
    name="nic_link_log",
    version=1,
    families=frozenset({Family.NIC_LINK}),
    fault_class=FaultClass.NIC,
    # mlx5_core 0000:5e:00.0 ens1: Link down. Whether it stays down is for the sweep to see; links
    # go down at every planned reboot.
    weights=MappingProxyType(
        {Severity.ERROR: _FLAP, Severity.CRITICAL: _FLAP, Severity.WARNING: _FLAP}
    ),
    says="link went down",
    quiet_after_boot=True,
)

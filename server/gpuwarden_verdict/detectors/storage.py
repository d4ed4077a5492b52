"""Storage trouble of a node, told from sick GPUs."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import HOUR_S, FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence

FS_READONLY = FamilyDetector(
    name="fs_readonly",
    version=1,
    families=frozenset({Family.FS_READONLY}),
    fault_class=FaultClass.STORAGE,
    # EXT4-fs (nvme0n1p2): Remounting filesystem read-only
    weights=MappingProxyType(
        {
            Severity.CRITICAL: Weight(
                0.85, Severity.CRITICAL, Persistence.BOOT, action=RecommendedAction.REPAIR
            ),
            Severity.ERROR: Weight(0.6, Severity.ERROR, Persistence.BOOT),
        }
    ),
    says="file system turned read-only",
)
DISK_ERROR = FamilyDetector(
    name="disk_error",
    version=1,
    families=frozenset({Family.NVME_ERROR, Family.BLOCK_ERROR}),
    fault_class=FaultClass.STORAGE,
    # nvme nvme0: Device not ready; aborting reset, CSTS=0x1
    # blk_update_request: critical medium error, dev nvme0n1, sector 123
    weights=MappingProxyType(
        {
            Severity.CRITICAL: Weight(
                0.7, Severity.ERROR, Persistence.BOOT, action=RecommendedAction.REPAIR
            ),
            Severity.ERROR: Weight(0.4, Severity.ERROR, max_rung=Rung.SUSPECT),
            Severity.WARNING: Weight(0.15, Severity.WARNING, max_rung=Rung.SUSPECT),
        }
    ),
    says="disk error",
)

_SERVER = Weight(
    0.2, Severity.WARNING, ttl_s=HOUR_S, action=RecommendedAction.NONE, max_rung=Rung.SUSPECT
)
NFS_TIMEOUT = FamilyDetector(
    name="nfs_timeout",
    version=1,
    families=frozenset({Family.NFS_TIMEOUT}),
    fault_class=FaultClass.STORAGE,
    # nfs: server fs1 not responding, still trying: the server's fault, or the network's
    weights=MappingProxyType(dict.fromkeys(Severity, _SERVER)),
    says="file server does not answer",
)

"""The closed sets of words a kernel event is described with."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Family", "FaultClass", "RecoveryAction", "Severity"]


class Family(StrEnum):
    """What kind of trouble a kernel line speaks of."""

    XID = "xid"
    SXID = "sxid"
    GPU_LOST = "gpu_lost"
    RM_INIT_FAILED = "rm_init_failed"
    AER_CORRECTABLE = "aer_correctable"
    AER_UNCORRECTABLE = "aer_uncorrectable"
    MCE = "mce"
    EDAC_CE = "edac_ce"
    EDAC_UE = "edac_ue"
    NIC_LINK = "nic_link"
    NIC_ERROR = "nic_error"
    NVME_ERROR = "nvme_error"
    BLOCK_ERROR = "block_error"
    FS_READONLY = "fs_readonly"
    NFS_TIMEOUT = "nfs_timeout"
    LOCKUP = "lockup"
    HUNG_TASK = "hung_task"
    OOM = "oom"
    NVLINK = "nvlink"
    PEERMEM = "peermem"
    OTHER_NVRM = "other_nvrm"


class Severity(StrEnum):
    """How serious one line is, taken alone.

    XIDs take theirs from the catalogue, where "fatal" is written ``critical``. SXids: the line's
    own word, Fatal is ``critical`` and Non-fatal is ``warning``. 144-150: the decoded row. 154:
    what its text states (NONE ``info``, DRAIN_P2P ``error``, reset, reboot and drain-and-reset
    ``critical``). Other families: ``critical`` when the device or the file system is gone or data
    is lost, ``error`` when work failed, ``warning`` when the hardware or the kernel coped,
    ``info`` when the line is a detail of another one or tells of recovery. An unknown code is
    never more than ``warning``.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class FaultClass(StrEnum):
    """The part of the machine, or the actor, that a line points at."""

    MEMORY = "memory"
    NVLINK = "nvlink"
    BUS = "bus"
    DRIVER = "driver"
    THERMAL = "thermal"
    POWER = "power"
    NIC = "nic"
    HOST = "host"
    STORAGE = "storage"
    FABRIC = "fabric"
    APPLICATION = "application"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


class RecoveryAction(StrEnum):
    """What the driver says a GPU needs, in the names of the catalogue's buckets.

    Source: nvmlDeviceGpuRecoveryAction_t (nvml.h) and the text of XID 154.
    """

    NONE = "NONE"
    RESET_GPU = "RESET_GPU"
    RESTART_BM = "RESTART_BM"
    DRAIN_P2P = "DRAIN_P2P"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"

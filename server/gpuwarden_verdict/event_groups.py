"""Groups in which events are counted per entity, for features and repeats."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from gpuwarden_kernel_log import Family, xid_entry
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_wire.events import Event, EventKind


class EventGroup(StrEnum):
    """What is counted together."""

    XID_APPLICATION = "xid_application"
    XID_ECHO = "xid_echo"
    XID_MEMORY = "xid_memory"
    XID_BUS = "xid_bus"
    XID_NVLINK = "xid_nvlink"
    XID_DRIVER = "xid_driver"
    XID_OTHER = "xid_other"
    SXID = "sxid"
    GPU_LOST = "gpu_lost"
    AER_CORRECTABLE = "aer_correctable"
    AER_UNCORRECTABLE = "aer_uncorrectable"
    HOST_MEMORY = "host_memory"
    NIC = "nic"
    STORAGE = "storage"
    HOST_STALL = "host_stall"
    DRIVER = "driver"
    CHECK_FAILED = "check_failed"


_BY_CLASS = MappingProxyType(
    {
        FaultClass.MEMORY: EventGroup.XID_MEMORY,
        FaultClass.BUS: EventGroup.XID_BUS,
        FaultClass.NVLINK: EventGroup.XID_NVLINK,
        FaultClass.DRIVER: EventGroup.XID_DRIVER,
        FaultClass.APPLICATION: EventGroup.XID_APPLICATION,
    }
)
_BY_FAMILY = MappingProxyType(
    {
        Family.SXID: EventGroup.SXID,
        Family.GPU_LOST: EventGroup.GPU_LOST,
        Family.RM_INIT_FAILED: EventGroup.DRIVER,
        Family.AER_CORRECTABLE: EventGroup.AER_CORRECTABLE,
        Family.AER_UNCORRECTABLE: EventGroup.AER_UNCORRECTABLE,
        Family.MCE: EventGroup.HOST_MEMORY,
        Family.EDAC_CE: EventGroup.HOST_MEMORY,
        Family.EDAC_UE: EventGroup.HOST_MEMORY,
        Family.NIC_LINK: EventGroup.NIC,
        Family.NIC_ERROR: EventGroup.NIC,
        Family.NVME_ERROR: EventGroup.STORAGE,
        Family.BLOCK_ERROR: EventGroup.STORAGE,
        Family.FS_READONLY: EventGroup.STORAGE,
        Family.NFS_TIMEOUT: EventGroup.STORAGE,
        Family.LOCKUP: EventGroup.HOST_STALL,
        Family.HUNG_TASK: EventGroup.HOST_STALL,
        Family.OOM: EventGroup.HOST_STALL,
        Family.NVLINK: EventGroup.XID_NVLINK,
        Family.PEERMEM: EventGroup.DRIVER,
        Family.OTHER_NVRM: EventGroup.DRIVER,
    }
)
_BY_KIND = MappingProxyType(
    {
        EventKind.GPU_LOST: EventGroup.GPU_LOST,
        EventKind.DRIVER_STUCK: EventGroup.DRIVER,
        EventKind.CHECK_FAILED: EventGroup.CHECK_FAILED,
    }
)


def group_of(event: Event) -> EventGroup | None:
    """The group an event is counted in; None for events that are not counted.

    What anybody may have written is told and stored, and never feeds the learnt score.
    """
    if not origin_proven(event):
        return None
    if event.kind in (EventKind.KERNEL_LOG, EventKind.NVML_XID) and event.xid is not None:
        return _xid_group(event.xid)
    if event.kind is EventKind.KERNEL_LOG:
        return _BY_FAMILY.get(Family(event.family)) if event.family in _FAMILIES else None
    return _BY_KIND.get(event.kind)


_FAMILIES = frozenset(family.value for family in Family)


def _xid_group(code: int) -> EventGroup:
    entry = xid_entry(code)
    if entry is None:
        return EventGroup.XID_OTHER
    if entry.echo:
        return EventGroup.XID_ECHO
    if entry.application_possible:
        return EventGroup.XID_APPLICATION
    return _BY_CLASS.get(FaultClass(entry.fault_class.value), EventGroup.XID_OTHER)

"""The one value this package produces, what a caller may know beforehand, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from gpuwarden_kernel_log.vocabulary import Family, FaultClass, Severity

__all__ = ["KernelEvent", "LineContext", "event_to_json"]


@dataclass(frozen=True, slots=True)
class LineContext:
    """What the reader knows about a log that its lines do not say.

    Attributes:
        timezone: zone of time stamps written without one (dmesg -T, syslog); None: they stay
        unknown. year: year of time stamps written without one (syslog); None: they stay unknown.
        driver_version: NVIDIA driver of the node, such as "570.124.06"; picks the layout of the
            NVLink 5 words (XID 144-150), which changed with R575; None: both layouts are tried.
    """

    timezone: tzinfo | None = None
    year: int | None = None
    driver_version: str | None = None


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One kernel message that matters to a GPU node.

    Attributes:
        observed_at: UTC time of the line; None where zone or year are unknown.
        uptime_s: the kernel's monotonic seconds, where the line carries them.
        family: kind of trouble.
        xid: code of the GPU driver; None outside family xid.
        sxid: code of the NVSwitch driver; None outside family sxid.
        pci_bus_id: lower-case dddd:bb:dd.f of the device the line names; None if it names none.
        pid: process the line blames; None where it names none.
        process: name of that process.
        severity: how serious the line is, taken alone.
        action: NVIDIA's immediate bucket; None outside the catalogue.
        application_possible: an application can cause this line on sound hardware.
        text: the message without its wrapper.
        device: net interface, NIC, block device or NFS server the line names.
        echo: the line repeats or details another one; it is evidence, never a cause.
        acts_alone: the line may decide without waiting for others (see ``catalog.acts_alone``).
        fault_class: part of the machine the line points at.
        host: host name from a syslog wrapper.
        proven: the line is the kernel's own, as far as wrapper and shape tell; False where a
            program wrote it or the kernel only quotes it: such a line never acts alone.
    """

    family: Family
    severity: Severity
    text: str
    observed_at: datetime | None = None
    uptime_s: float | None = None
    xid: int | None = None
    sxid: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process: str | None = None
    action: str | None = None
    application_possible: bool = False
    device: str | None = None
    echo: bool = False
    acts_alone: bool = False
    fault_class: FaultClass | None = None
    host: str | None = None
    proven: bool = True


def event_to_json(line_number: int, event: KernelEvent) -> dict[str, object]:
    """One event as the JSON object that ``kernel-log scan --json`` prints.

    Args:
        line_number: physical line of the log, from 1.
        event: the event found there.

    Returns:
        Plain values, keys in the documented order; ``observed_at`` is ISO 8601 in UTC with Z, or
        None.
    """
    return {
        "line_number": line_number,
        "observed_at": _iso_utc(event.observed_at),
        "family": event.family.value,
        "xid": event.xid,
        "sxid": event.sxid,
        "pci_bus_id": event.pci_bus_id,
        "pid": event.pid,
        "process": event.process,
        "severity": event.severity.value,
        "action": event.action,
        "application_possible": event.application_possible,
        "text": event.text,
    }


def _iso_utc(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

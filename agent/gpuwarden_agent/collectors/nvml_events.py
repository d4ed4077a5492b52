"""Events that the NVML collector and follower make."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuwarden_agent.collectors.nvml_gpus import Finding, GpuMemory
from gpuwarden_agent.sources.nvml_frames import Xid
from gpuwarden_kernel_log import xid_entry
from gpuwarden_wire.events import Attribute, Event, EventKind
from gpuwarden_wire.metrics import EntityKind

MERGE_S = 5.0
"""Repeats of one XID on one GPU within this time are one event with a count."""


def gpu_event(gpu: GpuMemory, finding: Finding, now: float, boot_id: str, counter: int) -> Event:
    """The event behind a finding.

    Args:
        gpu: GPU with the probe already noted.
        finding: What the probe says.
        now: Epoch seconds.
        boot_id: Present boot.
        counter: Rising number, unique within the boot.
    """
    match finding:
        case Finding.MISSING:
            lost = gpu.missed_reason == "gpu_is_lost"
            kind, severity = EventKind.GPU_LOST, "critical" if lost else "error"
            what = "NVML says that the GPU is lost" if lost else "the driver knows the GPU no more"
            text = f"{what} ({gpu.missed_reason}), probe {gpu.missed_probes} in a row"
            attributes: dict[str, Attribute] = {
                "probes": gpu.missed_probes,
                "reason": gpu.missed_reason,
            }
        case Finding.BACK:
            kind, severity = EventKind.GPU_BACK, "info"
            text, attributes = "the GPU answers again", {}
        case Finding.HANDED_OVER:
            kind, severity = EventKind.GPU_BACK, "info"
            text, attributes = "the GPU is not lost: it is bound to another driver", {}
        case Finding.CHECKED:
            kind, severity = EventKind.CHECK_PASSED, "info"
            former = ", ".join(gpu.cleared)
            text = f"reads clean at {gpu.clean_probes} probes in a row after {former}"
            attributes = {"after": list(gpu.cleared), "probes": gpu.clean_probes}
    return Event(
        id=f"{kind}:{boot_id}:{gpu.last.uuid}:{counter}",
        kind=kind,
        observed_at=now,
        entity_kind=EntityKind.GPU,
        entity=gpu.last.uuid,
        pci_bus_id=gpu.last.pci_bus_id,
        severity=severity,
        text=text,
        attributes=attributes,
    )


def xid_event(xid: Xid, count: int, boot_id: str) -> Event:
    """The event of an XID that NVML delivered.

    Args:
        xid: As delivered.
        count: Deliveries merged into it.
        boot_id: Present boot.
    """
    entry = xid_entry(xid.code)
    attributes = {
        name: instance
        for name, instance in (
            ("gpu_instance", xid.gpu_instance),
            ("compute_instance", xid.compute_instance),
        )
        if instance is not None
    }
    return Event(
        id=f"nvml:{boot_id}:{xid.uuid}:{xid.counter}",
        kind=EventKind.NVML_XID,
        observed_at=xid.observed_at,
        entity_kind=EntityKind.GPU if xid.uuid else EntityKind.NODE,
        entity=xid.uuid,
        count=count,
        xid=xid.code,
        pci_bus_id=xid.pci_bus_id or None,
        severity=str(entry.severity) if entry is not None else "warning",
        text=f"NVML delivered XID {xid.code}" + (f" ({entry.name})" if entry is not None else ""),
        attributes=attributes,
    )


@dataclass(slots=True)
class _Open:
    until: float
    repeat: Xid | None = None
    count: int = 0


@dataclass(slots=True)
class RepeatMerger:
    """Hands the first XID of a kind over at once and its repeats within MERGE_S as one.

    A storm of thousands a second thus becomes two events every five seconds, none lost.
    """

    _open: dict[tuple[str, int], _Open] = field(default_factory=dict)

    def take(self, xid: Xid, now: float) -> list[tuple[Xid, int]]:
        """Take one delivery; what is to be handed over now, each with its count."""
        due = self.due(now)
        key = (xid.uuid, xid.code)
        window = self._open.get(key)
        if window is None:
            self._open[key] = _Open(now + MERGE_S)
            return [*due, (xid, 1)]
        window.repeat = window.repeat or xid
        window.count += 1
        return due

    def due(self, now: float) -> list[tuple[Xid, int]]:
        """Merged repeats whose window has ended."""
        ended = [key for key, window in self._open.items() if now >= window.until]
        return self._close(ended)

    @property
    def waits(self) -> bool:
        """Whether a window is open that will end."""
        return bool(self._open)

    def rest(self) -> list[tuple[Xid, int]]:
        """Merged repeats that have not been handed over yet."""
        return self._close(list(self._open))

    def _close(self, keys: list[tuple[str, int]]) -> list[tuple[Xid, int]]:
        windows = [self._open.pop(key) for key in keys]
        return [(window.repeat, window.count) for window in windows if window.repeat is not None]

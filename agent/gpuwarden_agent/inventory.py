"""What the node has, put together from the collectors' shares."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from gpuwarden_agent.collectors.contract import Emit
from gpuwarden_agent.collectors.exporter_names import is_exporter
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory


class InventoryKeeper:
    """Emits the whole inventory once every collector was heard, then on each change.

    Shares are remembered over restarts: a collector that is in trouble right after the start does
    not make its devices vanish.
    """

    def __init__(
        self,
        collectors: Iterable[str],
        boot_id: str,
        emit: Emit,
        recall: Callable[[str], str | None],
        remember: Callable[[str, str], None],
        also: Iterable[str] = (),
    ) -> None:
        """Start with what was remembered.

        Args:
            collectors: Those whose first call is waited for.
            boot_id: Present boot.
            emit: Takes the events.
            recall: Gives a remembered share.
            remember: Keeps a share.
            also: Slow collectors, whose first call is not waited for.
        """
        self._awaited = set(collectors)
        self._boot_id = boot_id
        self._emit = emit
        self._remember = remember
        self._lock = threading.Lock()
        self._shares: dict[str, Inventory] = {}
        self._sent: Inventory | None = None
        for name in sorted({*self._awaited, *also}):
            if (text := recall(f"inventory.{name}")) is not None:
                self._shares[name] = _read(text)

    @property
    def present(self) -> Inventory:
        """All shares known now."""
        with self._lock:
            return merge(self._shares[name] for name in _ordered(self._shares))

    def heard(self, collector: str, share: Inventory | None, now: float) -> None:
        """A call of a collector ended; `share` is None where its devices are unchanged."""
        if share is not None:
            self._remember(f"inventory.{collector}", msgspec.json.encode(share).decode())
        with self._lock:
            if share is None and collector not in self._awaited:
                return  # as ever: nothing that could change the whole
            self._awaited.discard(collector)
            if share is not None:
                self._shares[collector] = share
            whole = merge(self._shares[name] for name in _ordered(self._shares))
            if self._awaited or whole == self._sent:
                return
            self._sent = whole
        self._emit([_event(whole, self._boot_id, now)])


def _ordered(names: Iterable[str]) -> list[str]:
    """Native collectors first: what they found goes before what an exporter tells of it."""
    return sorted(names, key=lambda name: (is_exporter(name), name))


def merge(shares: Iterable[Inventory]) -> Inventory:
    """One inventory; what several shares have, the first has it."""
    listed = list(shares)
    expected = [share.gpus_expected for share in listed if share.gpus_expected is not None]
    return Inventory(
        gpus=_merge_gpus(listed),
        nics=tuple(dict.fromkeys(nic for share in listed for nic in share.nics)),
        disks=tuple(dict.fromkeys(disk for share in listed for disk in share.disks)),
        gpus_expected=expected[0] if expected else None,
        gpus_expected_set=any(share.gpus_expected_set for share in listed),
        gpus_elsewhere=tuple(
            dict.fromkeys(slot for share in listed for slot in share.gpus_elsewhere)
        ),
        labels={name: text for share in listed for name, text in share.labels.items()},
        jobs=tuple(job for share in listed for job in share.jobs),
    )


def _merge_gpus(shares: Sequence[Inventory]) -> tuple[GpuIdentity, ...]:
    """Each GPU once; an exporter may still name one in whose slot another sits by now."""
    found: dict[str, GpuIdentity] = {}
    slots: set[str] = set()
    for share in shares:
        new = [gpu for gpu in share.gpus if gpu.gpu_uuid not in found]
        found.update({gpu.gpu_uuid: gpu for gpu in new if gpu.pci_bus_id not in slots})
        slots.update(gpu.pci_bus_id for gpu in share.gpus if gpu.pci_bus_id)
    return tuple(found.values())


def _event(inventory: Inventory, boot_id: str, now: float) -> Event:
    stamp = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    return Event(
        id=f"{EventKind.INVENTORY}:{boot_id}:{stamp}",
        kind=EventKind.INVENTORY,
        observed_at=now,
        inventory=inventory,
    )


def _read(text: str) -> Inventory:
    try:
        return msgspec.json.decode(text, type=Inventory)
    except msgspec.DecodeError:
        return Inventory()

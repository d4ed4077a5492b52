"""What the node has, put together from the collectors' shares."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from gpuwarden_agent.collectors.contract import Emit
from gpuwarden_wire.events import Event, EventKind, Inventory


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
    ) -> None:
        self._awaited = set(collectors)
        self._boot_id = boot_id
        self._emit = emit
        self._remember = remember
        self._lock = threading.Lock()
        self._shares: dict[str, Inventory] = {}
        self._sent: Inventory | None = None
        for name in sorted(self._awaited):
            if (text := recall(f"inventory.{name}")) is not None:
                self._shares[name] = _read(text)

    @property
    def present(self) -> Inventory:
        """All shares known now."""
        with self._lock:
            return merge(self._shares.values())

    def heard(self, collector: str, share: Inventory | None, now: float) -> None:
        """A call of a collector ended; `share` is None where its devices are unchanged."""
        if share is not None:
            self._remember(f"inventory.{collector}", msgspec.json.encode(share).decode())
        with self._lock:
            self._awaited.discard(collector)
            if share is not None:
                self._shares[collector] = share
            whole = merge(self._shares[name] for name in sorted(self._shares))
            if self._awaited or whole == self._sent:
                return
            self._sent = whole
        self._emit([_event(whole, self._boot_id, now)])


def merge(shares: Iterable[Inventory]) -> Inventory:
    """One inventory; each field is filled by one collector only, labels by several."""
    listed = list(shares)
    expected = [share.gpus_expected for share in listed if share.gpus_expected is not None]
    return Inventory(
        gpus=tuple(gpu for share in listed for gpu in share.gpus),
        nics=tuple(nic for share in listed for nic in share.nics),
        disks=tuple(disk for share in listed for disk in share.disks),
        gpus_expected=expected[0] if expected else None,
        gpus_expected_set=any(share.gpus_expected_set for share in listed),
        gpus_elsewhere=tuple(slot for share in listed for slot in share.gpus_elsewhere),
        labels={name: text for share in listed for name, text in share.labels.items()},
    )


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

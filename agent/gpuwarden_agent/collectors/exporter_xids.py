"""Events of the XIDs that an exporter tells."""

from __future__ import annotations

from collections.abc import Callable

from gpuwarden_agent.collectors.context import CollectorContext, KnownXids
from gpuwarden_agent.collectors.nvml import boot_micros
from gpuwarden_exporters.gathering import Gathered
from gpuwarden_exporters.rules import GpuFacts
from gpuwarden_exporters.xids import XidNews, XidWatch
from gpuwarden_kernel_log import xid_entry
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_SLACK_S = 60.0
"""An exporter shows an XID at its own next collection, 30 s apart with dcgm-exporter."""


class ExporterXids:
    """Of one exporter; what the kernel log or NVML told already is not told again.

    Args:
        url: The exporter's address, for the text.
        context: Where the boot and the XIDs told so far come from.
        counter: Rising number that makes event ids unique within a boot.
    """

    def __init__(
        self, url: str, context: CollectorContext, counter: Callable[[], int] = boot_micros
    ) -> None:
        self._url = url
        self._boot_id = context.boot_id
        self._told: KnownXids = context.known_xids
        self._counter = counter
        self._watch = XidWatch()
        self._unbroken = False
        self._looked_at = 0.0

    def note_gap(self) -> None:
        """A look failed: what appears at the next may be old."""
        self._unbroken = False

    def take(self, gathered: Gathered, now: float) -> tuple[Event, ...]:
        """Events of what came since the last look; `now` is epoch seconds."""
        news = self._watch.note(gathered.xids, gathered.gpus.keys(), unbroken=self._unbroken)
        since = self._looked_at or now
        self._unbroken, self._looked_at = True, now
        told = self._told() if news else {}
        events = []
        for one in news:
            facts = gathered.gpus.get(one.gpu_uuid) or GpuFacts(one.gpu_uuid)
            keys = {one.gpu_uuid, f"pci:{facts.pci_bus_id}"}
            known = any(
                entity in keys and code == one.code and seen_at >= since - _SLACK_S
                for (entity, code, _), (_, seen_at) in told.items()
            )
            if not known:
                events.append(self._event(one, facts, since, now))
        return tuple(events)

    def _event(self, news: XidNews, facts: GpuFacts, since: float, now: float) -> Event:
        entry = xid_entry(news.code)
        name = f" ({entry.name})" if entry is not None else ""
        exact = since - _SLACK_S <= news.seen_at <= now
        return Event(
            id=f"{EventKind.NVML_XID}:{self._boot_id}:{news.gpu_uuid}:{self._counter()}",
            kind=EventKind.NVML_XID,
            observed_at=news.seen_at if exact else now,
            entity_kind=EntityKind.GPU,
            entity=news.gpu_uuid,
            count=news.count,
            xid=news.code,
            pci_bus_id=facts.pci_bus_id or None,
            severity=str(entry.severity) if entry is not None else "warning",
            text=f"an exporter tells XID {news.code}{name}, new since its last look: {self._url}",
            attributes={
                "told_by": "exporter",
                "late_by_s": 0.0 if exact else round(now - since, 1),
            },
        )

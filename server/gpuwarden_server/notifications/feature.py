"""Notifications as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from gpuwarden_server.config import Settings, variable
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.notifications.addresses import AddressGuard
from gpuwarden_server.notifications.document import Endpoint, NotifyDocument
from gpuwarden_server.notifications.facts.outbox import Outbox, Places
from gpuwarden_server.notifications.http import Poster
from gpuwarden_server.notifications.meters import NotifyMeters, SilenceMeters
from gpuwarden_server.notifications.planning.planner import Planner
from gpuwarden_server.notifications.quiet.maintenance import Maintenance
from gpuwarden_server.notifications.quiet.reader import SilenceReader, reads_silences
from gpuwarden_server.notifications.sending.channels.asking import no_links
from gpuwarden_server.notifications.sending.channels.making import make_channels
from gpuwarden_server.notifications.sending.lane import Lane, LaneParts
from gpuwarden_server.notifications.settings import NotifySettings, load_networks, load_notify
from gpuwarden_server.store.database import Database

STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class NotifyParts:
    """What notifications are built on.

    Attributes:
        state: state.db.
        clock: Time.
        registry: Metrics.
        places: Labels of a node, its pool among them.
        sweep_interval_s: Seconds between its looks.
        approve_path: Path of the page that asks about a decision, by its id; "" for none.
    """

    state: Database
    clock: Clock
    registry: CollectorRegistry
    places: Places
    sweep_interval_s: float
    approve_path: Callable[[str], str] = no_links


class Notifications:
    """Planner and lanes of all endpoints.

    Attributes:
        document: Who is told.
        outbox: What the judge tells its facts to, None where nobody is told.
        lanes: By endpoint name.
        reader: Takes over what Alertmanagers silence.
        maintenance: Windows that hold, for the judge.
    """

    def __init__(self, document: NotifyDocument, guard: AddressGuard, parts: NotifyParts) -> None:
        """Make the parts; `start` makes them run.

        Raises:
            StartError: What an endpoint's kind needs is not installed.
        """
        self.document = document
        self._parts = parts
        self.maintenance = Maintenance(parts.state, parts.clock, parts.places)
        self._sweep_age_s: Callable[[], float | None] = lambda: None
        self._patience_s = max(30.0, 5.0 * parts.sweep_interval_s)
        meters = NotifyMeters(parts.registry)
        self.lanes: dict[str, list[Lane]] = {
            endpoint.name: self._make_lanes(endpoint, guard, meters)
            for endpoint in document.endpoints
        }
        self.reader = SilenceReader(
            [
                (endpoint, Poster(guard, endpoint.timeout_s))
                for endpoint in document.endpoints
                if reads_silences(endpoint)
            ],
            parts.state,
            parts.clock,
            SilenceMeters(parts.registry),
            self.silences_changed,
        )
        self.planner = Planner(
            parts.state, document.endpoints, parts.clock, meters, self._wake_lanes
        )
        told = bool(document.endpoints)
        self.outbox = Outbox(self.planner.wake, parts.places) if told else None

    def silences_changed(self) -> None:
        """What is told, and what is judged, may differ."""
        self.maintenance.forget()
        self.planner.wake()

    def follow_sweeps(self, age_s: Callable[[], float | None]) -> None:
        """Ask there from now on how long ago the fleet was looked over; None: never so far."""
        self._sweep_age_s = age_s

    async def start(self) -> None:
        """Begin to plan and deliver, what an earlier process left first."""
        if not self.document.endpoints:
            return
        for lane in self._all_lanes():
            lane.start()
        self.planner.start()
        self.reader.start()

    async def stop(self) -> None:
        """End after the attempts under way, all lanes at once."""
        await asyncio.to_thread(self.reader.stop, STOP_S)
        await asyncio.to_thread(self.planner.stop)
        await asyncio.gather(*(asyncio.to_thread(lane.stop, STOP_S) for lane in self._all_lanes()))

    def probe(self) -> str | None:
        """Why nothing is told, None where all runs."""
        if not self.document.endpoints:
            return None
        if not self.planner.alive:
            return "the planner of notifications has ended"
        if not self.reader.alive:
            return "the reader of Alertmanagers' silences has ended"
        ended = [lane.name for lane in self._all_lanes() if not lane.alive]
        return f"lanes have ended: {', '.join(ended)}" if ended else None

    def trouble(self) -> str | None:
        """Endpoints that are told nothing until a person enables them, None for none."""
        records = [lane.record() for lane in self._all_lanes()]
        words = [
            f"{one.lane} is disabled: {one.disabled_why}; gpuwarden notify enable {one.lane}"
            for one in records
            if one.disabled_at is not None
        ]
        return "; ".join(words) or None

    def scoring(self) -> bool:
        """Whether the fleet is judged at present."""
        age_s = self._sweep_age_s()
        return age_s is not None and age_s <= self._patience_s

    def _make_lanes(
        self, endpoint: Endpoint, guard: AddressGuard, meters: NotifyMeters
    ) -> list[Lane]:
        channels = make_channels(endpoint, guard, self.document.console_url, self._approve_url)
        parts = self._parts
        return [
            Lane(LaneParts(endpoint, name, channel, parts.state, parts.clock, meters, self.scoring))
            for name, channel in zip(endpoint.lanes, channels, strict=True)
        ]

    def _approve_url(self, decision_id: str) -> str:
        base = self.document.console_url.rstrip("/")
        path = self._parts.approve_path(decision_id) if base else ""
        return base + path if path else ""

    def _all_lanes(self) -> Sequence[Lane]:
        return [lane for lanes in self.lanes.values() for lane in lanes]

    def _wake_lanes(self) -> None:
        for lane in self._all_lanes():
            lane.wake()


def make_notifications(
    settings: Settings,
    state: Database,
    clock: Clock,
    registry: CollectorRegistry,
    places: Places,
    approve_path: Callable[[str], str],
) -> Notifications:
    """Notifications as the settings say.

    Raises:
        StartError: Names what cannot be used, and the mend.
    """
    secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else None
    document = load_notify(
        NotifySettings(
            file=settings.notify_file,
            webhook_url=settings.webhook_url,
            webhook_secret=secret,
            retry_s=settings.webhook_retry_s,
            variables=variable,
        )
    )
    guard = AddressGuard(load_networks(settings.notify_private_networks))
    parts = NotifyParts(state, clock, registry, places, settings.sweep_interval_s, approve_path)
    return Notifications(document, guard, parts)

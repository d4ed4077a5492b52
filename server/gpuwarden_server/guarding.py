"""What every request meets first: who stands by, how often, and the way of batches past ASGI."""

from __future__ import annotations

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from gpuwarden_server.access.doorman import Doorman
from gpuwarden_server.access.feature import door_rules
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.limits import Buckets
from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.front import INGEST
from gpuwarden_server.ingest.direct import IngestDoor
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_server.succession import StandByGate, Succession


def guard(
    app: FastAPI,
    ring: KeyRing,
    settings: Settings,
    clock: Clock,
    registry: CollectorRegistry,
    service: IngestService,
    succession: Succession,
) -> None:
    """Put the outermost layers around the app, and leave its door in `app.state`.

    Args:
        app: Complete but for them.
        ring: The keys.
        settings: How often each may ask.
        clock: Time.
        registry: Metrics.
        service: Takes batches; the door asks the same limits as the layers do.
        succession: Who leads.
    """
    rules = door_rules(
        settings.key_rate_per_s, settings.address_rate_per_s, settings.refused_rate_per_s
    )
    keys = Buckets(rules.key)
    app.add_middleware(Doorman, ring=ring, clock=clock, rules=rules, registry=registry, keys=keys)
    app.add_middleware(StandByGate, succession=succession)

    def is_open() -> bool:
        return succession.refusal(INGEST.method, INGEST.path) is None

    app.state.door = IngestDoor(ring, service, is_open, keys, clock)

"""Makes the ring of keys, with its figures, and the rules of the door."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpuwarden_server.access.domain import KeyRecord
from gpuwarden_server.access.doorman import DoorRules
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.limits import Rate
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.store.database import Database

WARN_S = 14 * 86_400.0
"""How long before its end a key counts as expiring."""


def make_ring(state: Database, clock: Clock, registry: CollectorRegistry) -> KeyRing:
    """The ring of state.db's keys."""
    ring = KeyRing(state, clock)
    registry.register(_KeyFigures(ring, clock))
    return ring


def door_rules(key_per_s: float, address_per_s: float, refused_per_s: float) -> DoorRules:
    """How often callers may come, requests a second; 0 does not limit."""
    return DoorRules(
        key=Rate(key_per_s, max(1.0, 20 * key_per_s)),
        address=Rate(address_per_s, max(1.0, 10 * address_per_s)),
        failures=Rate(refused_per_s, max(1.0, 60 * refused_per_s)),
    )


class _KeyFigures(Collector):
    """Counts keys when somebody looks."""

    def __init__(self, ring: KeyRing, clock: Clock) -> None:
        self._ring = ring
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Keys by role, how many end soon, how many have, and when the next one does."""
        now = self._clock.now()
        records = self._ring.valid_records()
        ending = [one for one in records if one.expires_at is not None]
        expired = [one for one in ending if (one.expires_at or 0.0) <= now]
        soon = [one for one in ending if now < (one.expires_at or 0.0) <= now + WARN_S]
        yield _family("gpuwarden_keys", "Keys that are not revoked.", records)
        yield _family("gpuwarden_keys_expired", "Keys that have expired.", expired)
        yield _family(
            "gpuwarden_keys_expiring", f"Keys that expire within {WARN_S / 86_400:g} days.", soon
        )
        ends = GaugeMetricFamily(
            "gpuwarden_keys_next_expiry_timestamp_seconds",
            "When the next key of a role expires, epoch seconds.",
            labels=["role"],
        )
        for role in sorted({one.role for one in soon}):
            of_role = [one.expires_at or 0.0 for one in soon if one.role is role]
            ends.add_metric([role.value], min(of_role))
        yield ends


def _family(name: str, text: str, records: list[KeyRecord]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["role"])
    for role, count in sorted(Counter(record.role.value for record in records).items()):
        family.add_metric([role], count)
    return family

"""The server's own Prometheus metrics: one registry an app, never the global one.

Features make their counters with `registry=meters.registry`, names prefixed `gpuwarden_`.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gpuwarden_wire.version import __version__


@dataclass(frozen=True, slots=True)
class Meters:
    """Registry of one app's own metrics."""

    registry: CollectorRegistry

    def exposition(self) -> tuple[bytes, str]:
        """Body and content type of /metrics."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


def make_meters() -> Meters:
    """A registry with the process's own figures and the version."""
    meters = Meters(CollectorRegistry(auto_describe=True))
    ProcessCollector(registry=meters.registry)
    build = Gauge(
        "gpuwarden_build", "Version of the server, always 1.", ["version"], registry=meters.registry
    )
    build.labels(version=__version__).set(1)
    return meters

"""One line a read feature."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter

from gpuwarden_server.api.events import events_router
from gpuwarden_server.api.fleet import fleet_router
from gpuwarden_server.api.history import history_router
from gpuwarden_server.api.jobs import jobs_router
from gpuwarden_server.api.lemons import lemons_router
from gpuwarden_server.api.nodes import nodes_router
from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.api.thresholds import thresholds_router
from gpuwarden_server.api.verdicts import verdicts_router
from gpuwarden_server.api.why import why_router


def api_routers(sources: ReadSources) -> Iterable[APIRouter]:
    """All routes that only read."""
    yield verdicts_router(sources)
    yield nodes_router(sources)
    yield why_router(sources)
    yield jobs_router(sources)
    yield events_router(sources)
    yield fleet_router(sources)
    yield history_router(sources)
    yield thresholds_router(sources)
    yield lemons_router(sources)

"""Composition root: every part is made and joined here, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog
from fastapi import APIRouter, Depends, FastAPI

from gpuwarden_server.access.authorisation import Gate, require_complete, routes_of
from gpuwarden_server.access.endpoints import access_router
from gpuwarden_server.access.keys import KeyRing, ensure_admin_key
from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import Clock, SystemClock
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.core.health import HealthBoard, health_router
from gpuwarden_server.core.logs import configure_logging
from gpuwarden_server.core.meters import Meters, make_meters
from gpuwarden_server.core.problems import install_problem_handlers
from gpuwarden_server.front import RAW_ROUTES, Front, RawHandler, RawRoute
from gpuwarden_server.serving import bind_socket, serve
from gpuwarden_server.store.database import Store, connect_store
from gpuwarden_server.store.versions import migrate_store, prepare_store
from gpuwarden_wire.version import __version__

_log = structlog.get_logger(__name__)


class Part(Protocol):
    """Something that runs while the server does."""

    async def start(self) -> None:
        """Begin; the parts before it in the list run already."""
        ...

    async def stop(self) -> None:
        """End, within a second or two; the parts after it have ended."""
        ...


@dataclass(frozen=True, slots=True)
class Foundation:
    """What every feature is built on.

    Attributes:
        settings: The operator's.
        clock: Time.
        store: The two files.
        meters: The server's own metrics.
        board: Probes of /readyz.
        ring: Valid keys.
        stopping: Set when the shutdown begins: long-lived streams end then.
    """

    settings: Settings
    clock: Clock
    store: Store
    meters: Meters
    board: HealthBoard
    ring: KeyRing
    stopping: asyncio.Event


class _StorePart:
    """The two files, the first key and the ring of keys."""

    def __init__(self, base: Foundation) -> None:
        self._base = base

    async def start(self) -> None:
        """Start the writers; at the very first start, make the admin key and show it."""
        store, settings = self._base.store, self._base.settings
        store.start()
        given = settings.admin_key.get_secret_value() if settings.admin_key else None
        now = self._base.clock.now()
        made = await asyncio.wrap_future(
            store.state.writer.submit(lambda connection: ensure_admin_key(connection, given, now))
        )
        if made is not None:
            # The one place where a key is written in clear: to the person who starts the server.
            print(f"Admin key, shown only now: {made}", flush=True)  # noqa: T201
        self._base.ring.load()

    async def stop(self) -> None:
        """Write what is queued and close both files."""
        await asyncio.to_thread(self._base.store.close)


def create_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    """The whole server as one ASGI app; its threads run between lifespan start and end.

    Raises:
        StartError: Settings or files that it cannot work with; names the mend.
    """
    base = _foundation(settings, clock or SystemClock())
    parts: list[Part] = [_StorePart(base)]
    handlers: dict[RawRoute, RawHandler] = {}
    return _assemble(base, _routers(base), handlers, parts)


def _foundation(settings: Settings, clock: Clock) -> Foundation:
    prepare_store(settings.state_folder)
    store = connect_store(settings.state_folder)
    board = HealthBoard(clock)
    return Foundation(
        settings, clock, store, make_meters(), board, KeyRing(store.state, clock), asyncio.Event()
    )


def _routers(base: Foundation) -> Iterable[APIRouter]:
    """One line a feature."""
    yield health_router(base.board, base.meters)
    yield access_router(base.ring, base.store.state)


def _assemble(
    base: Foundation,
    routers: Iterable[APIRouter],
    handlers: Mapping[RawRoute, RawHandler],
    parts: Sequence[Part],
) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        started: list[Part] = []
        try:
            for part in parts:
                await part.start()
                started.append(part)
            yield
        finally:
            for part in reversed(started):
                await part.stop()

    app = FastAPI(
        title="gpuwarden",
        version=__version__,
        lifespan=lifespan,
        dependencies=[Depends(Gate(base.ring))],
    )
    app.state.stopping = base.stopping
    routes = [*routes_of(app.routes), *((route.method, route.path) for route in RAW_ROUTES)]
    for router in routers:
        routes += routes_of(router.routes)
        app.include_router(router)
    require_complete(routes)
    install_problem_handlers(app)
    app.add_middleware(Front, handlers=handlers)
    return app


def run_server(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        Exit code: 0 after a clean end, 1 where the app failed to start, 2 where settings or files
        do not allow a start (the reason and the mend stand on stderr).
    """
    configure_logging(settings.log_form, settings.log_level)
    try:
        listener = bind_socket(settings)
        app = create_app(settings)
    except StartError as error:
        _log.error("cannot_start", reason=str(error))
        return 2
    return 0 if serve(app, listener, settings, app.state.stopping.set) else 1


def run_migration(settings: Settings) -> int:
    """Bring older database files to this version; the server must not run.

    Returns:
        Exit code: 0 done, 2 where a file cannot be migrated (the reason stands on stderr).
    """
    configure_logging(settings.log_form, settings.log_level)
    try:
        migrate_store(settings.state_folder)
    except StartError as error:
        _log.error("cannot_migrate", reason=str(error))
        return 2
    return 0

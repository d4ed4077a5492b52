"""Composition root: every part is made and joined here, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from fastapi import APIRouter, Depends, FastAPI

from gpuwarden_server.access.authorisation import Gate, require_complete, routes_of
from gpuwarden_server.access.endpoints import access_router
from gpuwarden_server.access.enrolment_endpoints import enrolment_router
from gpuwarden_server.access.feature import make_ring
from gpuwarden_server.access.keys import KeyRing, ensure_admin_key
from gpuwarden_server.access.tokens import EnrolmentDesk
from gpuwarden_server.api.meters import install_fleet_meters
from gpuwarden_server.api.reach import nodes_of
from gpuwarden_server.api.renaming import renaming_router
from gpuwarden_server.api.routers import api_routers
from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.config import Settings
from gpuwarden_server.console.page import console_router
from gpuwarden_server.console.routes import routes_router
from gpuwarden_server.core.clock import Clock, SystemClock
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.core.health import HealthBoard, health_router
from gpuwarden_server.core.logs import configure_logging
from gpuwarden_server.core.memory import release_free
from gpuwarden_server.core.meters import Meters, make_meters
from gpuwarden_server.core.problems import install_problem_handlers
from gpuwarden_server.decisions.endpoints import (
    decisions_router,
    exclusions_router,
    repair_router,
)
from gpuwarden_server.decisions.hub import FeedHub
from gpuwarden_server.decisions.policy import load_policy
from gpuwarden_server.doors.feature import make_doors
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.front import (
    INGEST,
    RAW_ROUTES,
    REMOTE_WRITE,
    Front,
    RawHandler,
    RawRoute,
    document_raw_routes,
)
from gpuwarden_server.guarding import guard
from gpuwarden_server.history.feature import History, make_history
from gpuwarden_server.incidents.endpoints import incidents_router
from gpuwarden_server.ingest.checkpoint import Checkpointer, restore
from gpuwarden_server.ingest.endpoints import IngestHandler
from gpuwarden_server.ingest.meters import CheckpointMeters, IngestMeters
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.ingest.ports import EventSink, VerdictSource
from gpuwarden_server.ingest.refusals import RefusalBook
from gpuwarden_server.ingest.schemas import SchemaBook
from gpuwarden_server.ingest.service import IngestParts, IngestService
from gpuwarden_server.ingest.sessions import Sessions
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.inventory.endpoints import InventoryParts, inventory_router
from gpuwarden_server.judging.feature import Judging, JudgingParts
from gpuwarden_server.judging.streams import make_streams, stream_handlers
from gpuwarden_server.learning.feature import Learning
from gpuwarden_server.notifications.endpoints import notifications_router
from gpuwarden_server.notifications.feature import Notifications, make_notifications
from gpuwarden_server.notifications.places import node_labels
from gpuwarden_server.notifications.quiet.endpoints import silences_router
from gpuwarden_server.retention.feature import Retention
from gpuwarden_server.retention.repository import Kept
from gpuwarden_server.serving import Restart, bind_socket, serve, tune_process
from gpuwarden_server.store.database import Store, Watch, connect_store
from gpuwarden_server.store.folder import check_folder_free
from gpuwarden_server.store.heartbeat import beat
from gpuwarden_server.store.leadership import Leadership, make_leadership
from gpuwarden_server.store.meters import WriterMeters
from gpuwarden_server.store.problems import install_storage_handlers
from gpuwarden_server.store.versions import migrate_store, prepare_store
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_server.streams.feature import FactStreams
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_server.succession import Part, Succession
from gpuwarden_server.web.feature import Web
from gpuwarden_verdict.engine.facts import Patience
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.version import __version__

# How long /readyz waits for a write; a healthy disk takes milliseconds.
PROBE_TIMEOUT_S = 2.0

_log = structlog.get_logger(__name__)


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
        state: Columnar state of the fleet and its lock.
        sessions: What the front door remembers of each node; `presence` for readers.
        names: What nodes were called before.
        refusals: Agents that were refused because another machine speaks for their node.
        directory: Nodes and GPUs.
        placements: Where nodes are, and the policy that goes by it.
        history: What was measured.
        stopping: Set when the shutdown begins: long-lived streams end then.
        leadership: Whether this server may write.
    """

    settings: Settings
    clock: Clock
    store: Store
    meters: Meters
    board: HealthBoard
    ring: KeyRing
    state: GuardedState
    sessions: Sessions
    names: FormerNames
    refusals: RefusalBook
    directory: FleetDirectory
    placements: Placements
    history: History
    stopping: asyncio.Event
    leadership: Leadership


class _StorePart:
    """The two files, the first key, and what is restored from them."""

    def __init__(self, base: Foundation, book: SchemaBook) -> None:
        self._base = base
        self._book = book

    async def start(self) -> None:
        """Start the writers; at the very first start, make the admin key and show it; restore."""
        base = self._base
        base.store.start()
        given = base.settings.admin_key.get_secret_value() if base.settings.admin_key else None
        now = base.clock.now()
        made = await asyncio.wrap_future(
            base.store.state.writer.submit(lambda writes: ensure_admin_key(writes, given, now))
        )
        if made is not None:
            # The one place where a key is written in clear: to the person who starts the server.
            print(f"Admin key, shown only now: {made}", flush=True)  # noqa: T201 - meant for stdout
        base.ring.load()
        base.names.load(base.store.state)
        base.directory.load(base.store.state)
        base.placements.load(base.store.state)
        restore(
            base.store,
            base.state,
            base.history,
            base.sessions,
            self._book,
            base.names,
            base.clock.monotonic(),
        )
        release_free()

    async def stop(self) -> None:
        """Write what is queued and close both files."""
        await asyncio.to_thread(self._base.store.close)
        self._base.state.close()


def create_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    """The whole server as one ASGI app; its threads run between lifespan start and end.

    Raises:
        StartError: Settings or files that it cannot work with; names the mend.
    """
    base = _foundation(settings, clock or SystemClock())
    book = SchemaBook()
    meters = IngestMeters(base.meters.registry)
    checkpointer = Checkpointer(
        base.store,
        base.state,
        base.history,
        base.sessions,
        base.clock,
        CheckpointMeters(base.meters.registry),
        settings.checkpoint_pass_s,
    )
    base.board.add_probe("checkpoint", checkpointer.probe)
    side = _verdict_side(base)
    service = _ingest(base, book, meters, side.judging, side.judging.board)
    doors = make_doors(base, service, side.judging.facts)
    handlers: dict[RawRoute, RawHandler] = {
        INGEST: IngestHandler(base.ring, service, meters),
        **stream_handlers(base.ring, side.hub, side.streams, base.placements),
        REMOTE_WRITE: doors.remote_write,
    }
    web = Web(base.ring, base.store.state, base.clock, base.meters.registry)
    parts: list[Part] = [
        _StorePart(base, book),
        checkpointer,
        base.history,
        side.learning,
        side.judging,
        side.streams,
        web,
        side.notifications,
        doors,
        _retention(base),
    ]
    restart = Restart(base.stopping)
    succession = Succession(base.leadership, parts, base.ring.load, restart.ask)
    base.board.stand_by = succession.stand_by
    base.board.add_probe("lease", succession.lapse)
    renaming = renaming_router(
        base, service, side.judging, (checkpointer.rename, doors.rename), restart.ask
    )
    app = _assemble(base, [*_routers(base, side), doors.router, renaming], succession)
    app.state.restart, app.state.judging = restart, side.judging
    document_raw_routes(app)
    web.install(app)
    app.add_middleware(Front, handlers=handlers)
    guard(app, base.ring, settings, base.clock, base.meters.registry, service, succession)
    return app


def _retention(base: Foundation) -> Retention:
    settings = base.settings
    days = {
        Kept.EVENTS: settings.retention_events_days,
        Kept.INCIDENTS: settings.retention_incidents_days,
        Kept.DECISIONS: settings.retention_incidents_days,
        Kept.STATE_MOVES: settings.retention_incidents_days,
        Kept.AUDIT: settings.retention_audit_days,
        Kept.JOB_RUNS: settings.retention_incidents_days,
        Kept.JOB_ENDS: settings.retention_incidents_days,
    }
    return Retention(base.store.state, days, base.clock, base.meters.registry)


def _foundation(settings: Settings, clock: Clock) -> Foundation:
    place = settings.store_place
    prepare_store(place)
    meters = make_meters()
    leadership = make_leadership(place, settings.lease_s, settings.advertise_url, meters.registry)
    watch = Watch(leadership.holder, leadership.fence(), WriterMeters(meters.registry))
    store = connect_store(place, watch)
    sessions = Sessions(clock, settings.silent_after_s)
    directory = FleetDirectory(sessions.is_live)
    names = FormerNames(lambda name: directory.node(name) is not None)
    mode = settings.mode if "mode" in settings.model_fields_set else None
    policy = load_policy(settings.policy_file, mode)
    board = HealthBoard(clock)
    board.add_probe("database", lambda: _database_trouble(store))
    return Foundation(
        settings=settings,
        clock=clock,
        store=store,
        meters=meters,
        board=board,
        ring=make_ring(store.state, clock, meters.registry),
        state=GuardedState(FleetState()),
        sessions=sessions,
        names=names,
        refusals=RefusalBook(clock),
        directory=directory,
        placements=Placements(directory, policy),
        history=make_history(settings, store.history, names, clock, board, meters.registry),
        stopping=asyncio.Event(),
        leadership=leadership,
    )


def _database_trouble(store: Store) -> str | None:
    """Why the database cannot be written, by trying."""
    if not (store.state.writer.alive and store.history.writer.alive):
        return "a writer thread has ended"
    try:
        store.state.writer.call(beat, timeout_s=PROBE_TIMEOUT_S)
    except TimeoutError:
        return f"{store.state.name} took no write within {PROBE_TIMEOUT_S:g} s"
    except WriteFailed as error:
        return f"{store.state.name} cannot be written: {error}"
    return None


def _ingest(
    base: Foundation,
    book: SchemaBook,
    meters: IngestMeters,
    sink: EventSink,
    verdicts: VerdictSource,
) -> IngestService:
    return IngestService(
        IngestParts(
            database=base.store.state,
            state=base.state,
            sessions=base.sessions,
            names=base.names,
            refusals=base.refusals,
            book=book,
            directory=base.directory,
            sink=sink,
            keeper=base.history,
            verdicts=verdicts,
            clock=base.clock,
            meters=meters,
            future_tolerance_s=base.settings.future_tolerance_s,
        )
    )


@dataclass(frozen=True, slots=True)
class _VerdictSide:
    """What judges and acts.

    Attributes:
        judging: The judge.
        hub: Readers of the exclusion feed.
        streams: Readers of incidents and states.
        notifications: Who is told of facts.
        learning: The learnt score.
    """

    judging: Judging
    hub: FeedHub
    streams: FactStreams
    notifications: Notifications
    learning: Learning


def _verdict_side(base: Foundation) -> _VerdictSide:
    settings, registry, placements = base.settings, base.meters.registry, base.placements
    base.ring.follow_pools(lambda node_id: placements.pool(node_id).name)
    places = node_labels(placements)
    notifications = make_notifications(settings, base.store.state, base.clock, registry, places)
    stream_meters = StreamMeters(registry)
    hub = FeedHub(stream_meters)
    streams = make_streams(base.store.state, stream_meters, base.stopping)
    learning = Learning(settings, base.store.state, placements, base.clock, registry)
    judging = Judging(
        JudgingParts(
            state=base.store.state,
            guarded=base.state,
            directory=base.directory,
            presences=base.sessions,
            refusals=base.refusals,
            clock=base.clock,
            placements=placements,
            hub=hub,
            moved=streams.wake,
            risks=learning.scorer,
            facts=notifications.outbox,
            registry=registry,
            sweep_interval_s=settings.sweep_interval_s,
            patience=Patience(settings.silent_after_s, settings.gone_after_s),
            stopping=base.stopping,
        )
    )
    notifications.follow_sweeps(judging.sweep_age_s)
    maintenance = notifications.maintenance
    judging.facts.follow_maintenance(maintenance.any_now, maintenance.of)
    base.board.add_probe("judge", judging.probe)
    base.history.watch(judging.board.nodes_with_incidents)
    learning.follow_incidents(judging.board)
    base.board.add_note("model", lambda: learning.scorer.trouble or None)
    base.board.add_probe("notifications", notifications.probe)
    base.board.add_note("notifications", notifications.trouble)
    return _VerdictSide(judging, hub, streams, notifications, learning)


def _routers(base: Foundation, side: _VerdictSide) -> Iterable[APIRouter]:
    """One line a feature."""
    state, judging = base.store.state, side.judging
    yield health_router(base.board, base.meters)
    yield access_router(base.ring, state, base.clock)
    yield enrolment_router(EnrolmentDesk(base.ring, state, base.clock))
    yield incidents_router(state, judging)
    yield decisions_router(state, judging)
    yield exclusions_router(judging.board)
    yield repair_router(base.directory, judging)
    yield inventory_router(InventoryParts(base.placements, base.directory, state, base.clock))
    sources = ReadSources(
        state=state,
        guarded=base.state,
        directory=base.directory,
        board=judging.board,
        facts=judging.facts,
        troubles=judging.troubles,
        placements=base.placements,
        scorer=side.learning.scorer,
        clock=base.clock,
        history=base.history,
        thresholds=judging.thresholds,
        scene=judging.feature_scene,
    )
    yield notifications_router(side.notifications, state, base.clock)
    yield silences_router(state, base.clock, side.notifications.silences_changed)
    yield from side.learning.routers()
    install_fleet_meters(sources, base.meters.registry)
    yield from api_routers(sources)
    yield console_router()
    yield routes_router()


def _assemble(
    base: Foundation,
    routers: Iterable[APIRouter],
    succession: Succession,
) -> FastAPI:
    app = FastAPI(
        title="gpuwarden",
        version=__version__,
        # Swagger UI and ReDoc load their scripts from a CDN: blank pages where there is none.
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan(succession),
        dependencies=[Depends(Gate(base.ring, nodes_of(base.store.state, base.directory)))],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.base = base
    routes = [*routes_of(app.routes), *((route.method, route.path) for route in RAW_ROUTES)]
    for router in routers:
        routes += routes_of(router.routes)
        app.include_router(router)
    require_complete(routes)
    install_problem_handlers(app)
    install_storage_handlers(app, base.meters.registry)
    return app


def _lifespan(
    succession: Succession,
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await succession.start()
        try:
            yield
        finally:
            await succession.stop()

    return lifespan


def run_server(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        Exit code: 0 after a clean end, 1 where the app failed to start, 2 where settings or files
        do not allow a start (the reason and the mend stand on stderr).
    """
    configure_logging(settings.log_form, settings.log_level)
    tune_process()
    with ExitStack() as opened:
        try:
            listener = opened.enter_context(bind_socket(settings))
            return serve(lambda: _checked_app(settings), settings, listener)
        except StartError as error:
            _log.error("cannot_start", reason=str(error))
            return 2


def _checked_app(settings: Settings) -> FastAPI:
    app = create_app(settings)
    if settings.database_url is None:
        check_folder_free(settings.state_folder)  # a clear word before the app starts
    return app


def run_migration(settings: Settings) -> int:
    """Bring older database files to this version; the server must not run.

    Returns:
        Exit code: 0 done, 2 where a file cannot be migrated (the reason stands on stderr).
    """
    configure_logging(settings.log_form, settings.log_level)
    try:
        migrate_store(settings.store_place)
    except StartError as error:
        _log.error("cannot_migrate", reason=str(error))
        return 2
    return 0

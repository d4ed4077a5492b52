"""Composition root: every part is made and joined here, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from fastapi import APIRouter, Depends, FastAPI

from gpuwarden_server.access.authorisation import Gate, require_complete, routes_of
from gpuwarden_server.access.endpoints import access_router
from gpuwarden_server.access.enrolment_endpoints import enrolment_router
from gpuwarden_server.access.tokens import EnrolmentDesk
from gpuwarden_server.actuators.endpoints import actuators_router
from gpuwarden_server.actuators.feature import Actuators, make_actuators
from gpuwarden_server.actuators.remedy_desk import RemedyDesk
from gpuwarden_server.api.meters import install_fleet_meters
from gpuwarden_server.api.reach import nodes_of
from gpuwarden_server.api.renaming import renaming_router
from gpuwarden_server.api.routers import api_routers
from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.checkpoints.feature import Checkpoints
from gpuwarden_server.config import Settings
from gpuwarden_server.console.approval import approval_router
from gpuwarden_server.console.page import console_router
from gpuwarden_server.console.routes import routes_router
from gpuwarden_server.core.clock import Clock, SystemClock
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.core.health import health_router
from gpuwarden_server.core.logs import configure_logging
from gpuwarden_server.core.problems import install_problem_handlers
from gpuwarden_server.decisions.endpoints import (
    decisions_router,
    exclusions_router,
    holds_router,
    repair_router,
)
from gpuwarden_server.decisions.hub import FeedHub
from gpuwarden_server.decisions.links import ApprovalLinks
from gpuwarden_server.decisions.pins.endpoints import pins_router
from gpuwarden_server.diagnosis.desk import DiagnosisParts
from gpuwarden_server.diagnosis.feature import Diagnoses
from gpuwarden_server.doors.feature import make_doors, make_progress_router
from gpuwarden_server.foundation import Foundation, StorePart, make_foundation
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
from gpuwarden_server.incidents.endpoints import incidents_router
from gpuwarden_server.ingest.checkpoint import Checkpointer
from gpuwarden_server.ingest.endpoints import IngestHandler
from gpuwarden_server.ingest.meters import CheckpointMeters, IngestMeters
from gpuwarden_server.ingest.ports import EventSink, VerdictSource
from gpuwarden_server.ingest.schemas import SchemaBook
from gpuwarden_server.ingest.service import IngestParts, IngestService
from gpuwarden_server.inventory.endpoints import InventoryParts, inventory_router
from gpuwarden_server.judging.feature import Judging, JudgingParts
from gpuwarden_server.judging.streams import make_streams, stream_handlers
from gpuwarden_server.learning.feature import Learning
from gpuwarden_server.notifications.endpoints import notifications_router
from gpuwarden_server.notifications.feature import Notifications, make_notifications
from gpuwarden_server.notifications.http import poster_maker
from gpuwarden_server.notifications.places import node_labels
from gpuwarden_server.notifications.quiet.endpoints import silences_router
from gpuwarden_server.notifications.settings import load_networks
from gpuwarden_server.policies.feature import Policies
from gpuwarden_server.retention.feature import Retention
from gpuwarden_server.retention.repository import Kept
from gpuwarden_server.savings.desk import SavingsDesk
from gpuwarden_server.savings.endpoints import ledger_router
from gpuwarden_server.savings.feature import make_savings
from gpuwarden_server.serving import Restart, bind_socket, serve, tune_process
from gpuwarden_server.standby.endpoints import standby_router
from gpuwarden_server.store.folder import check_folder_free
from gpuwarden_server.store.problems import install_storage_handlers
from gpuwarden_server.store.versions import migrate_store
from gpuwarden_server.streams.feature import FactStreams
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_server.succession import Part, Succession
from gpuwarden_server.web.feature import Web
from gpuwarden_verdict.engine.facts import Patience
from gpuwarden_wire.version import __version__

_log = structlog.get_logger(__name__)


def create_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    """The whole server as one ASGI app; its threads run between lifespan start and end.

    Raises:
        StartError: Settings or files that it cannot work with; names the mend.
    """
    base = make_foundation(settings, clock or SystemClock())
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
    progress = make_progress_router(base, service, side.diagnoses.progress)
    handlers: dict[RawRoute, RawHandler] = {
        INGEST: IngestHandler(base.ring, service, meters),
        **stream_handlers(base.ring, side.hub, side.streams, base.placements),
        REMOTE_WRITE: doors.remote_write,
    }
    web = Web(base.ring, base.store.state, base.clock, base.meters.registry)
    parts: list[Part] = [
        StorePart(base, book),
        checkpointer,
        base.history,
        side.policies,
        side.learning,
        side.judging,
        side.actuators,
        *(side.diagnoses, side.checkpoints),
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
    renamed = (checkpointer.rename, doors.rename, side.diagnoses.rename)
    renaming = renaming_router(base, service, side.judging, renamed, restart.ask)
    app = _assemble(base, [*_routers(base, side), doors.router, progress, renaming], succession)
    app.state.restart, app.state.judging = restart, side.judging
    app.state.approval_links = side.links
    app.state.diagnoses, app.state.checkpoints = side.diagnoses, side.checkpoints
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
        Kept.ACTUATIONS: settings.retention_incidents_days,
        Kept.STANDBY_LEASES: settings.retention_incidents_days,
        Kept.SNAPSHOTS: settings.retention_snapshots_days,
        Kept.DIAGNOSES: settings.retention_diagnoses_days,
        Kept.JOB_PROGRESS: settings.retention_progress_days,
        Kept.JOB_CHECKPOINTS: settings.retention_checkpoints_days,
    }
    return Retention(base.store.state, days, base.clock, base.meters.registry)


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
        actuators: Who carries exclusions elsewhere.
        links: By which people approve advice.
        savings: What decisions cost.
        policies: Policies by version, and decisions judged again.
        diagnoses: Where jobs are slow.
        checkpoints: What jobs saved, and what that took.
    """

    judging: Judging
    hub: FeedHub
    streams: FactStreams
    notifications: Notifications
    learning: Learning
    actuators: Actuators
    links: ApprovalLinks
    savings: SavingsDesk
    policies: Policies
    diagnoses: Diagnoses
    checkpoints: Checkpoints


def _verdict_side(base: Foundation) -> _VerdictSide:
    settings, registry, placements = base.settings, base.meters.registry, base.placements
    base.ring.follow_pools(lambda node_id: placements.pool(node_id).name)
    places = node_labels(placements)
    links = ApprovalLinks(base.store.state, base.clock, settings.approval_link_s)
    notifications = make_notifications(
        settings, base.store.state, base.clock, registry, places, links.path
    )
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
            windows=notifications.maintenance,
            registry=registry,
            sweep_interval_s=settings.sweep_interval_s,
            patience=Patience(settings.silent_after_s, settings.gone_after_s),
            stopping=base.stopping,
            cloud_lead_s=settings.cloud_lead_s,
        )
    )
    notifications.follow_sweeps(judging.sweep_age_s)
    maintenance = notifications.maintenance
    judging.facts.follow_maintenance(maintenance.any_now, maintenance.of)
    base.board.add_probe("judge", judging.probe)
    base.history.watch(judging.board.nodes_with_incidents)
    learning.follow_incidents(judging.board)
    learning.follow_verdicts(judging.take_word)
    base.board.add_note("model", lambda: learning.scorer.trouble or None)
    base.board.add_probe("notifications", notifications.probe)
    base.board.add_note("notifications", notifications.trouble)
    posters = poster_maker(load_networks(settings.notify_private_networks))
    actuators = make_actuators(
        settings, base.store.state, base.clock, judging.board, base.leadership, registry, posters
    )
    hub.follow(actuators.wake)
    base.board.add_note("actuators", actuators.trouble)
    savings = make_savings(
        *(settings.savings_file, base.store.state, base.directory, base.history.reader, base.clock)
    )
    policies = Policies(base.store.state, base.policy, placements, base.directory, base.clock)
    return _VerdictSide(
        *(judging, hub, streams, notifications, learning, actuators, links, savings, policies),
        *_diagnosis(base, judging),
    )


def _diagnosis(base: Foundation, judging: Judging) -> tuple[Diagnoses, Checkpoints]:
    parts = DiagnosisParts(
        base.store.state, base.history, base.directory, base.placements, base.clock
    )
    unasked = base.settings.diagnosis_unasked
    diagnoses = Diagnoses(parts, base.state, judging, base.meters.registry, unasked)
    judging.facts.follow_diagnosed(diagnoses.trigger.hit)
    return diagnoses, Checkpoints(parts, base.settings.job_checkpoints_every_s)


def _routers(base: Foundation, side: _VerdictSide) -> Iterable[APIRouter]:
    """One line a feature."""
    state, judging = base.store.state, side.judging
    yield health_router(base.board, base.meters)
    yield access_router(base.ring, state, base.clock)
    yield enrolment_router(EnrolmentDesk(base.ring, state, base.clock))
    yield incidents_router(state, judging)
    yield decisions_router(state, judging, side.savings.tell)
    yield ledger_router(side.savings, judging.spares, base.placements)
    yield holds_router(state, judging, base.clock)
    yield exclusions_router(judging.board)
    yield from side.policies.routers()
    remedies = RemedyDesk(side.actuators, state, base.clock, judging.board, judging)
    yield actuators_router(side.actuators, state, remedies)
    yield repair_router(base.directory, judging)
    yield standby_router(judging.spares, judging, base.directory, state)
    changed = side.notifications.silences_changed
    yield pins_router(base.directory, judging.board, judging, base.clock, changed)
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
        ledger=judging.parts_on_record,
        standby=lambda node_id: judging.spares.shelf().sentence(node_id),
        costs=side.savings.tell,
    )
    yield notifications_router(side.notifications, state, base.clock)
    yield silences_router(state, base.clock, side.notifications.silences_changed)
    yield from side.learning.routers()
    yield from side.diagnoses.routers()
    yield from side.checkpoints.routers()
    install_fleet_meters(sources, base.meters.registry)
    yield from api_routers(sources)
    yield console_router()
    yield approval_router(side.links, state, judging)
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

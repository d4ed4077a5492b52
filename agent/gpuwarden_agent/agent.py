"""The composition root of `gpuwarden-agent run`."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwarden_agent.collection import Collection
from gpuwarden_agent.collector_loop import CollectorLoop
from gpuwarden_agent.collectors import COLLECTOR_GROUPS, COLLECTORS, FOLLOWERS, TOGETHER
from gpuwarden_agent.collectors.context import CollectorContext, nvml_settings
from gpuwarden_agent.collectors.contract import Collector, EventFollower, PositionStore
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.config import AgentSettings, ConfigError
from gpuwarden_agent.identity import read_boot_id, read_booted_at
from gpuwarden_agent.inventory import InventoryKeeper
from gpuwarden_agent.latest import LatestReadings
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.maintenance import Health, MaintenanceKeeper, RunFolder
from gpuwarden_agent.outbox import Outbox
from gpuwarden_agent.precedence import Precedence, SourceOrder
from gpuwarden_agent.scheduler import FollowerLoop, Scheduler
from gpuwarden_agent.sealing import Sealer
from gpuwarden_agent.service.config import NotifySocket
from gpuwarden_agent.service.notify import ServiceNotifier
from gpuwarden_agent.sources.nvml import NvmlProbe
from gpuwarden_agent.sources.nvml_process import NvmlProbeProcess
from gpuwarden_agent.spool.entry import Origin
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.transport.key import KeySource
from gpuwarden_agent.transport.refusal_watch import RefusalWatch
from gpuwarden_agent.transport.rejected import RejectedFolder
from gpuwarden_agent.transport.sender import Sender, SenderSettings
from gpuwarden_agent.transport.tls import TlsSource, TlsUnusable
from gpuwarden_agent.verdict_file import VerdictFile
from gpuwarden_wire.batches import Stream, Table
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.schema import Schema
from gpuwarden_wire.version import __version__

if TYPE_CHECKING:
    from gpuwarden_agent.own_metrics import MetricsServer

_log = get_logger("agent")

_LOOPS_PATIENCE_S = 1.5
_SENDER_PATIENCE_S = 1.5


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that collects on this node.

    Attributes:
        collectors: As the settings name them.
        followers: Likewise.
        nvml_probe: What the NVML collector and follower share; None where NVML is off.
    """

    collectors: tuple[Collector, ...]
    followers: tuple[EventFollower, ...]
    nvml_probe: NvmlProbe | None


def make_context(
    settings: AgentSettings,
    boot_id: str,
    started_at: float,
    positions: PositionStore,
    *,
    keeps_state: bool = True,
) -> CollectorContext:
    """The surroundings of collectors; nothing runs yet.

    Args:
        settings: Settings.
        boot_id: Present boot.
        started_at: Epoch seconds of the agent's start.
        positions: Where followers keep how far they have read.
        keeps_state: False where nothing may be remembered, as in a single look.
    """
    probe = NvmlProbeProcess(nvml_settings(settings, boot_id)) if settings.nvml else None
    return CollectorContext(settings, boot_id, started_at, positions, probe, keeps_state)


def build_sources(context: CollectorContext) -> Sources:
    """The collectors and followers that the settings name.

    Raises:
        ConfigError: A name in the settings is unknown, or a plug-in check cannot be used.
    """
    settings, probe = context.settings, context.nvml_probe
    collectors = [one for make in COLLECTORS if (one := make(context)) is not None]
    collectors += [one for make_all in COLLECTOR_GROUPS for one in make_all(context)]
    followers = [follower for found in FOLLOWERS if (follower := found(context)) is not None]
    names = [one.name for one in collectors] + [one.name for one in followers]
    if unknown := sorted(set(settings.collectors) - set(names)):
        raise ConfigError(
            f"GPUWARDEN_AGENT_COLLECTORS: no collector {', '.join(unknown)}; "
            f"there are {', '.join(names)}."
        )
    wanted = set(settings.collectors or names)
    return Sources(
        tuple(one for one in collectors if one.name in wanted),
        tuple(one for one in followers if one.name in wanted),
        probe,
    )


class Agent:
    """A whole agent: start it, let it run, stop it."""

    def __init__(self, settings: AgentSettings, notify: NotifySocket | None = None) -> None:
        """Build every part; nothing runs yet.

        Raises:
            ConfigError: Settings do not fit together.
            SpoolUnusable: The spool folder cannot be used.
        """
        self._settings = settings
        self._notifier = ServiceNotifier(notify or NotifySocket())
        started_at = time.time()
        self.boot_id = read_boot_id(settings.proc_root)
        sender_settings = _sender_settings(settings)
        origin = Origin(settings.own_node_id, self.boot_id, __version__, settings.interval_s)
        self.spool = Spool(settings.spool_folder, origin, settings.spool_cap_bytes)
        self.verdict_file = VerdictFile(settings.verdict_file)
        self.sender = Sender(
            self.spool,
            sender_settings,
            KeySource(settings.key, settings.key_file),
            RejectedFolder(settings.spool_folder / "rejected"),
            self.verdict_file.note,
        )
        self.outbox = Outbox(self.spool, self.sender.wake)
        self.board = ConditionBoard(
            self.outbox.emit,
            self.boot_id,
            remember=lambda names: self.spool.remember("troubles", names),
        )
        self._refusals = RefusalWatch(self.sender.tally, self.board, settings.spool_folder)
        context = replace(
            make_context(settings, self.boot_id, started_at, self.outbox),
            gpus=lambda: self.inventory.present.gpus,
            conditions=self.board,
            verdict=lambda: self.verdict_file.verdict,
            known_xids=self.outbox.xids,
        )
        try:
            sources = build_sources(context)
        except ConfigError:
            self.spool.close()
            raise
        self.sources = sources
        self._build_collection(sources)
        self._metrics: MetricsServer | None = None

    def _build_collection(self, sources: Sources) -> None:
        # Only these are waited for: a slow one has nothing new at most ticks.
        self._intervals = {one.name: one.interval_s for one in sources.collectors}
        prompt = [n for n, each_s in self._intervals.items() if each_s <= self._settings.interval_s]
        self.latest = LatestReadings()
        self.inventory = InventoryKeeper(
            prompt,
            self.boot_id,
            self.outbox.emit,
            self.spool.fact,
            self.spool.remember,
            also=self._intervals,
        )
        self.sealer = Sealer(prompt, self._settings.interval_s, self._seal)
        self._order = SourceOrder(self._intervals, self._settings.exporter_first)
        collection = Collection(
            self.latest,
            self.sealer,
            self.inventory,
            self.outbox.emit,
            Precedence(self._order, self._intervals),
        )
        self.scheduler = Scheduler(
            [CollectorLoop(one, collection, self.board) for one in sources.collectors],
            [FollowerLoop(one, self.outbox.emit, self.board) for one in sources.followers],
            TOGETHER,
            self.sealer,
        )

        if sources.nvml_probe is not None:
            sources.nvml_probe.on_change(lambda: self.scheduler.hurry("nvml"))
        if self._settings.fast_interval_s:
            self.scheduler.look_between(self._settings.fast_interval_s)
        self.maintenance = MaintenanceKeeper(
            RunFolder(self._settings.run_folder),
            self.boot_id,
            self.scheduler,
            self.board,
            self._health,
        )

    def _health(self) -> Health:
        troubles = sorted((name, one.reason) for name, one in self.board.troubles().items())
        troubles += [("delivery", why) for why in [self.sender.away_because] if why]
        probe = self.sources.nvml_probe
        stuck_call = probe.stuck_call() if probe is not None else ""
        return Health(tuple(troubles), f"{stuck_call} hangs" if stuck_call else "")

    def _seal(self, tables: Sequence[Table], schemas: Iterable[Schema]) -> None:
        self.spool.append_telemetry(tables, schemas)
        self.sender.wake(Stream.TELEMETRY)

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set, then end cleanly within seconds.

        Raises:
            OSError: The address of /metrics is taken.
        """
        try:
            self._start()
            self.scheduler.supervise(stop, self._look_after)
        finally:
            self._end()

    @property
    def metrics_port(self) -> int:
        """Where /metrics listens, 0 where it is off."""
        return self._metrics.port if self._metrics else 0

    def _start(self) -> None:
        settings = self._settings
        _log.info(
            "agent_starts",
            version=__version__,
            node=settings.own_node_id,
            boot=self.boot_id,
            spool=self.spool.spool_id,
            server=settings.server_url,
        )
        if self.spool.set_aside is not None:
            _log.error("spool_was_unreadable", moved_to=str(self.spool.set_aside))
        if settings.metrics_port:
            self._metrics = self._serve_metrics()
        self._announce_boot()
        self.board.end_former(self.spool.fact("troubles"))
        self.sender.start()
        self.maintenance.look()  # an order that stands: nothing is opened in the first place
        self.scheduler.start()
        # What is there by now stays for good: the collector of cycles need not go through it again.
        gc.collect()
        gc.freeze()
        self._notifier.ready()

    def _serve_metrics(self) -> MetricsServer:
        from gpuwarden_agent.own_metrics import AgentParts, serve_metrics

        parts = AgentParts(
            node_id=self._settings.own_node_id,
            boot_id=self.boot_id,
            interval_s=self._settings.interval_s,
            intervals=self._intervals,
            order=self._order,
            latest=self.latest,
            board=self.board,
            outbox=self.outbox,
            inventory=self.inventory,
            spool=self.spool,
            tally=self.sender.tally,
        )
        return serve_metrics(parts, self._settings.metrics_host, self._settings.metrics_port)

    def _announce_boot(self) -> None:
        if self.spool.fact("boot_id") == self.boot_id:
            return
        now = time.time()
        event = Event(
            id=f"{EventKind.NODE_BOOT}:{self.boot_id}",
            kind=EventKind.NODE_BOOT,
            observed_at=now,
            text="first contact in this boot",
            attributes={"booted_at": read_booted_at(self._settings.proc_root, now)},
        )
        self.outbox.emit([event])
        self.spool.remember("boot_id", self.boot_id)

    def _look_after(self) -> None:
        self.maintenance.look()
        self._refusals.look()
        self._look_after_spool()
        self._notifier.alive()

    def _look_after_spool(self) -> None:
        self.spool.retry_disk()
        if self.spool.trouble is None:
            self.board.fine("spool")
        else:
            self.board.trouble(
                "spool",
                self.spool.trouble,
                f"Free space on the disk of {self._settings.spool_folder}; "
                "until then batches are kept in memory.",
            )

    def _end(self) -> None:
        self._notifier.stopping()
        stuck = self.scheduler.stop(_LOOPS_PATIENCE_S)
        self.sealer.finish()
        self.sender.stop(_SENDER_PATIENCE_S)
        if self._metrics is not None:
            self._metrics.close()
        self.maintenance.close()
        lost = self.spool.close()
        _log.info("agent_ends", stuck=",".join(stuck), batches_lost=lost)


def _sender_settings(settings: AgentSettings) -> SenderSettings:
    if not settings.server_url:
        raise ConfigError(
            "GPUWARDEN_AGENT_SERVER_URL is not set: give the server's address, such as "
            "https://gpuwarden.example:8750. `gpuwarden-agent once` needs none."
        )
    tls = None
    try:
        if settings.server_url.startswith("https:") or settings.ca_file:
            tls = TlsSource(settings.ca_file, settings.client_cert_file, settings.client_key_file)
    except TlsUnusable as error:
        raise ConfigError(str(error)) from error
    return SenderSettings(
        server_url=settings.server_url,
        request_timeout_s=settings.request_timeout_s,
        backoff_max_s=settings.backoff_max_s,
        tls=tls,
    )

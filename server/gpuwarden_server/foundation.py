"""What every feature is built on, and the part that opens the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gpuwarden_server.access.feature import make_ring
from gpuwarden_server.access.keys import KeyRing, ensure_admin_key
from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.health import HealthBoard
from gpuwarden_server.core.memory import release_free
from gpuwarden_server.core.meters import Meters, make_meters
from gpuwarden_server.decisions.policy import LoadedPolicy, load_policy
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.history.feature import History, make_history
from gpuwarden_server.ingest.checkpoint import restore
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.ingest.refusals import RefusalBook
from gpuwarden_server.ingest.schemas import SchemaBook
from gpuwarden_server.ingest.sessions import Sessions
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.store.database import Store, Watch, connect_store
from gpuwarden_server.store.heartbeat import beat
from gpuwarden_server.store.leadership import Leadership, make_leadership
from gpuwarden_server.store.meters import WriterMeters
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.windows import FleetState

# How long /readyz waits for a write; a healthy disk takes milliseconds.
PROBE_TIMEOUT_S = 2.0


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
        policy: That policy, with the text that it was read from.
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
    policy: LoadedPolicy
    history: History
    stopping: asyncio.Event
    leadership: Leadership


class StorePart:
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


def make_foundation(settings: Settings, clock: Clock) -> Foundation:
    """Make it; nothing runs yet, and no row is read.

    Raises:
        StartError: Settings or files that it cannot work with; names the mend.
    """
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
        placements=Placements(directory, policy.document),
        policy=policy,
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

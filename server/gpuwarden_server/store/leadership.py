"""Whether this server leads: by the folder's lock (SQLite), or by the lease (PostgreSQL)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from enum import StrEnum
from threading import Event, Lock, Thread
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from sqlalchemy import URL, Connection
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.store import lease
from gpuwarden_server.store.folder import FolderLock
from gpuwarden_server.store.lease import Holder, LeaseLost
from gpuwarden_server.store.places import Place
from gpuwarden_server.store.postgres import lease_engine
from gpuwarden_server.store.words import driver_words
from gpuwarden_server.store.writer import NO_FENCE, Fence

RENEWALS_A_LEASE = 4
_log = structlog.get_logger(__name__)


class Post(StrEnum):
    """Where a server stands among those of one database."""

    STAND_BY = "stand_by"
    LEADING = "leading"
    LAPSED = "lapsed"  # it led, and could not renew its lease in time; nobody has taken it yet
    DEPOSED = "deposed"


class Leadership(Protocol):
    """Whether this server may write.

    Attributes:
        holder: Random id of this process; its sessions in the database bear it.
    """

    holder: str

    @property
    def post(self) -> Post:
        """Where this server stands now."""
        ...

    @property
    def leader_url(self) -> str | None:
        """Where the leader was last known to be reached; None unknown, or this server itself."""
        ...

    def fence(self) -> Fence:
        """What guards the writers."""
        ...

    def try_lead(self) -> bool:
        """Take the lead where nobody has it.

        Raises:
            StoreError: Nobody can take it while the other server runs.
        """
        ...

    def follow_end(self, on_deposed: Callable[[], None]) -> None:
        """Call `on_deposed` once, from any thread, as soon as another server leads."""
        ...

    def resign(self) -> None:
        """Give the lead up: nothing of this server writes from now on."""
        ...


class SoleLeadership:
    """The one server of a state folder."""

    def __init__(self, lock: FolderLock) -> None:
        self.holder = secrets.token_hex(6)
        self._lock = lock

    @property
    def post(self) -> Post:
        """It always leads."""
        return Post.LEADING

    @property
    def leader_url(self) -> str | None:
        """Itself."""
        return None

    def fence(self) -> Fence:
        """None is needed: nobody else can open the folder."""
        return NO_FENCE

    def try_lead(self) -> bool:
        """Take the folder's lock.

        Raises:
            StoreError: Another server works on the folder.
        """
        self._lock.acquire()
        return True

    def follow_end(self, on_deposed: Callable[[], None]) -> None:
        """It never ends."""

    def resign(self) -> None:
        """Give the folder free."""
        self._lock.release()


class LeaseMeters:
    """What /metrics says of the lease."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leading = Gauge(
            "gpuwarden_leading", "1 while this server leads, 0 on stand-by.", registry=registry
        )
        self.token = Gauge(
            "gpuwarden_lease_token",
            "Fencing token of the lease as last seen; rises by one with every new leader.",
            registry=registry,
        )
        self.renewals = Counter(
            "gpuwarden_lease_renewals_total",
            "Renewals of the lease: done, or failed since the database gave no answer.",
            ["outcome"],
            registry=registry,
        )


class LeasedLeadership:
    """One of several servers of a PostgreSQL database."""

    def __init__(
        self, url: URL, lease_s: float, advertised: str | None, meters: LeaseMeters
    ) -> None:
        """Make one on stand-by.

        Args:
            url: The database.
            lease_s: How long a lease lasts without renewal.
            advertised: Where this server is reached, None not told.
            meters: Figures.
        """
        self.holder = secrets.token_hex(6)
        self._engine = lease_engine(url, f"{self.holder} lease")
        self._lease_s = lease_s
        self._advertised = advertised
        self._meters = meters
        self._lock = Lock()
        self._token: int | None = None
        self._seen: Holder | None = None
        self._valid_until = 0.0
        self._deposed = False
        self._on_deposed: Callable[[], None] = _nothing
        self._ended = Event()
        self._failing = False
        self._renewer = Thread(target=self._keep_renewing, name="lease", daemon=True)

    @property
    def post(self) -> Post:
        """Where this server stands now, by a clock that a stopped process cannot stop."""
        if self._deposed:
            return Post.DEPOSED
        if self._token is None:
            return Post.STAND_BY
        return Post.LEADING if time.monotonic() < self._valid_until else Post.LAPSED

    @property
    def leader_url(self) -> str | None:
        """Where the leader is reached, as it said; None while nobody leads."""
        seen = self._seen
        return None if seen is None or seen.remaining_s <= 0 else seen.url

    def fence(self) -> Fence:
        """The fence of the lease that this server has taken, or takes later."""
        return self

    def enter(self, connection: Connection) -> str:
        """See `Fence`; before the first lease nothing gets in."""
        if self._token is None:
            raise LeaseLost("this server is on stand-by: another one leads")
        try:
            return lease.check_token(connection, self._token)
        except LeaseLost:
            self._depose()
            raise

    def was_committed(self, mark: str) -> bool | None:
        """See `Fence`."""
        try:
            with self._engine.connect() as connection:
                return lease.was_committed(connection, mark)
        except SQLAlchemyError:
            return None

    def try_lead(self) -> bool:
        """Take the lease where it has ended; else note who leads."""
        asked_at = time.monotonic()
        try:
            with self._engine.begin() as connection:
                token, self._seen = self._take_if_free(connection)
        except SQLAlchemyError as error:
            self._note_failure("lease_not_asked_for", error)
            return False
        self._note_recovery()
        self._meters.token.set(self._seen.token)
        if token is None:
            return False
        self._valid_until = asked_at + self._lease_s
        self._token = token
        self._meters.leading.set(1)
        _log.info("leads", token=token)
        self._renewer.start()
        return True

    def _take_if_free(self, connection: Connection) -> tuple[int | None, Holder]:
        """Look first: a lease that holds is not to be locked by everybody who waits for it."""
        seen = lease.read_holder(connection)
        if seen.remaining_s > 0:
            return None, seen
        token = lease.take(connection, self.holder, self._advertised, self._lease_s)
        return token, lease.read_holder(connection)

    def follow_end(self, on_deposed: Callable[[], None]) -> None:
        """Call `on_deposed` once, from any thread, as soon as another server leads."""
        self._on_deposed = on_deposed

    def resign(self) -> None:
        """End the lease now, so that another server need not wait for it."""
        self._ended.set()
        if self._renewer.ident is not None:
            self._renewer.join()
        if self._token is not None and not self._deposed:
            try:
                with self._engine.begin() as connection:
                    lease.renew(connection, self._token, 0.0)
            except SQLAlchemyError as error:
                _log.warning("lease_not_given_up", reason=driver_words(error))
        self._engine.dispose()

    def _keep_renewing(self) -> None:
        while not self._ended.wait(self._lease_s / RENEWALS_A_LEASE):
            self._renew()

    def _renew(self) -> None:
        asked_at, token = time.monotonic(), self._token
        if token is None or self._deposed:
            return
        try:
            with self._engine.begin() as connection:
                renewed = lease.renew(connection, token, self._lease_s)
                if not renewed:
                    self._seen = lease.read_holder(connection)
        except SQLAlchemyError as error:
            self._meters.renewals.labels("failed").inc()
            self._note_failure("lease_not_renewed", error)
            return
        self._note_recovery()
        if not renewed:
            self._depose()
            return
        self._meters.renewals.labels("done").inc()
        self._valid_until = asked_at + self._lease_s

    def _depose(self) -> None:
        with self._lock:
            if self._deposed:
                return
            self._deposed = True
        self._meters.leading.set(0)
        _log.error("deposed", reason="another server has taken the lease")
        self._on_deposed()

    def _note_failure(self, event: str, error: SQLAlchemyError) -> None:
        if not self._failing:
            _log.error(event, reason=driver_words(error))
        self._failing = True

    def _note_recovery(self) -> None:
        if self._failing:
            _log.info("lease_answers_again")
        self._failing = False


def make_leadership(
    place: Place, lease_s: float, advertised: str | None, registry: CollectorRegistry
) -> Leadership:
    """The leadership of a store.

    Args:
        place: Where it lies.
        lease_s: How long a lease lasts without renewal; PostgreSQL only.
        advertised: Where this server is reached; PostgreSQL only.
        registry: Metrics.
    """
    if isinstance(place, URL):
        return LeasedLeadership(place, lease_s, advertised, LeaseMeters(registry))
    return SoleLeadership(FolderLock(place))


def _nothing() -> None:
    """Nobody follows the end."""

"""One lane: its queue, its thread, its pauses. What fails here delays nobody else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.notifications.document import (
    KINDS_OF_CASES,
    LEVEL_KINDS,
    Endpoint,
    EndpointKind,
)
from gpuwarden_server.notifications.domain import (
    DISABLE_AFTER_S,
    KEEP_TRYING_S,
    Attempt,
    Delivery,
    LaneRecord,
    Message,
    MessagePhase,
    pause_s,
    retry_wait_s,
)
from gpuwarden_server.notifications.meters import NotifyMeters
from gpuwarden_server.notifications.planning import repository as case_rows
from gpuwarden_server.notifications.planning.cases import CaseView, Member, Standing
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_server.notifications.sending.channels.contract import Channel, Dispatch
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

T = TypeVar("T", bound=Delivery | None)

BATCH = 20
IDLE_WAIT_S = 30.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LaneParts:
    """What a lane works with.

    Attributes:
        endpoint: Whose lane.
        name: The lane's own.
        channel: How it tells.
        state: state.db.
        clock: Time.
        meters: Figures.
        scoring: Whether the fleet is judged at present.
    """

    endpoint: Endpoint
    name: str
    channel: Channel
    state: Database
    clock: Clock
    meters: NotifyMeters
    scoring: Callable[[], bool]


class Lane:
    """The delivery loop; `wake` after a commit that queued messages."""

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts
        self.endpoint = parts.endpoint
        self.name = parts.name
        self._labels = (parts.name, parts.endpoint.kind.value)
        self._jitter = random.Random()
        self._wake = Event()
        self._stopping = False
        self._failures = 0
        self._failing = False
        self._queue_trouble = False
        self._paused_until = float("-inf")
        self._beat_at = float("-inf")
        self._thread = Thread(target=self._run, name=f"notify-{parts.name}", daemon=True)

    def start(self) -> None:
        """Start delivering; what an earlier process left goes first."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now; callable from any thread."""
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the attempt under way; what waits is delivered by the next process."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._parts.channel.close()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def record(self) -> LaneRecord:
        """What is kept of it."""
        with self._parts.state.read() as connection:
            return queue.lane_record(connection, self.name)

    def test(self) -> Attempt:
        """Send a test, now and once; callable from any thread."""
        at, began = self._parts.clock.now(), self._parts.clock.monotonic()
        delivery = self._guarded(lambda: self._parts.channel.test(at))
        return Attempt(at, self._parts.clock.monotonic() - began, delivery)

    def enable(self, connection: Connection) -> None:
        """Begin anew with attempts, in a transaction; `wake` after it."""
        queue.save_lane(
            connection, self.name, disabled_at=None, disabled_why="", failing_since=None
        )

    def resume(self) -> None:
        """Wait no longer: a person says that the receiver is back."""
        self._paused_until = float("-inf")
        self._failures = 0
        self.wake()

    def run_once(self) -> float:
        """Deliver what is due, oldest first; seconds until something is due again."""
        record = self.record()
        self._parts.meters.disabled.labels(*self._labels).set(record.disabled_at is not None)
        if record.disabled_at is not None:
            return self._wait_disabled()
        wait_s = self._beat_if_due()
        while not self._stopping:
            now = self._parts.clock.now()
            if now < self._paused_until:
                self._measure()
                return min(wait_s, self._paused_until - now)
            with self._parts.state.read() as connection:
                due = queue.due_messages(connection, self.name, now, BATCH)
            if not due:
                return min(wait_s, self._measure())
            if not self._deliver_all(due):
                return 0.0
        return 0.0

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            wait_s = IDLE_WAIT_S
            try:
                wait_s = self.run_once()
                self._note_queue("")
            except (WriteFailed, SQLAlchemyError, TimeoutError) as error:
                # An attempt whose record is lost is made again: receivers drop repeats by id.
                self._note_queue(str(error))
                wait_s = 1.0
            except Exception as error:
                self._parts.meters.attempts.labels(*self._labels, "broken").inc()
                _log.error(
                    "notify_lane_failed",
                    worker=f"notify-{self.name}",
                    endpoint=self.name,
                    exc_info=error,
                )
                wait_s = 5.0
            if not self._stopping:
                self._wake.wait(min(wait_s, IDLE_WAIT_S))

    def _note_queue(self, trouble: str) -> None:
        """Say once that the queue cannot be used, and once that it can again."""
        if trouble and not self._queue_trouble:
            _log.error("notify_queue_unavailable", endpoint=self.name, error=trouble[:300])
        elif self._queue_trouble and not trouble:
            _log.info("notify_queue_recovered", endpoint=self.name)
        self._queue_trouble = bool(trouble)

    def _deliver_all(self, due: list[Message]) -> bool:
        """Whether the lane goes on; it does not where the next messages would fail too."""
        for message in due:
            if self._stopping:
                return False
            attempt = self._attempt(message)
            if not self._settle(message, attempt):
                return False
        return True

    def _attempt(self, message: Message) -> Attempt:
        at, began = self._parts.clock.now(), self._parts.clock.monotonic()
        dispatch = self._dispatch(message, at)
        delivery = self._guarded(lambda: self._parts.channel.deliver(dispatch))
        if delivery.external is not None and dispatch.view is not None:
            case, external = dispatch.view.case, delivery.external
            self._parts.state.writer.call(
                lambda writes: case_rows.write_external(writes, case, external)
            )
        return Attempt(at, self._parts.clock.monotonic() - began, delivery)

    def _guarded(self, tell: Callable[[], T]) -> T | Delivery:
        """What a channel says; one that fails by itself must not hold up what comes behind."""
        try:
            return tell()
        except Exception as error:
            _log.error(
                "notify_channel_failed",
                worker=f"notify-{self.name}",
                endpoint=self.name,
                exc_info=error,
            )
            return Delivery(f"it could not be written: {type(error).__name__}")

    def _dispatch(self, message: Message, now: float) -> Dispatch:
        endpoint = self.endpoint
        with self._parts.state.read() as connection:
            if endpoint.kind in KINDS_OF_CASES:
                case = case_rows.case(connection, endpoint.name, message.subject)
                members = case_rows.members_of(connection, endpoint.name, message.subject)
                view = CaseView(case, tuple(members)) if case is not None and members else None
                return Dispatch(message, now, view=view)
            if endpoint.kind is EndpointKind.ALERTMANAGER:
                member = case_rows.member(connection, endpoint.name, message.subject)
                return Dispatch(message, now, member=member)
        return Dispatch(message, now)

    def _settle(self, message: Message, attempt: Attempt) -> bool:
        """Record an attempt, and whether the lane goes on."""
        delivery = attempt.delivery
        self._count(delivery, attempt.duration_s)
        phase, wait_s = self._phase_after(message, attempt)
        goes_on = delivery.delivered or delivery.hopeless or not delivery.lane_down
        if not goes_on:
            self._paused_until = attempt.at + wait_s
        disabled = self._disabled_by(attempt)

        def write(connection: Connection) -> None:
            queue.record_attempt(connection, message, attempt, phase, attempt.at + wait_s)
            self._write_standing(connection, attempt, disabled)

        self._parts.state.writer.call(write)
        if delivery.delivered:
            delay_s = max(0.0, self._parts.clock.now() - message.created_at)
            self._parts.meters.delay.labels(*self._labels).observe(delay_s)
        if phase is MessagePhase.GIVEN_UP:
            _log.error(
                "notify_given_up",
                endpoint=self.name,
                message=message.message_id,
                error=delivery.error,
            )
        if disabled:
            _log.error("notify_disabled", endpoint=self.name, why=disabled)
        return goes_on and not disabled

    def _phase_after(self, message: Message, attempt: Attempt) -> tuple[MessagePhase, float]:
        delivery = attempt.delivery
        if delivery.delivered:
            self._failures = 0
            return MessagePhase.DELIVERED, 0.0
        if delivery.hopeless or attempt.at - message.since > KEEP_TRYING_S:
            return MessagePhase.GIVEN_UP, self._pause(delivery) if delivery.lane_down else 0.0
        if delivery.lane_down:
            return MessagePhase.WAITING, self._pause(delivery)
        wait_s = retry_wait_s(message.refusals + 1, self._jitter, self.endpoint.retry_scale)
        return MessagePhase.WAITING, max(wait_s, delivery.retry_after_s or 0.0)

    def _pause(self, delivery: Delivery) -> float:
        self._failures += 1
        wait_s = pause_s(self._failures, self._jitter, self.endpoint.retry_scale)
        return max(wait_s, delivery.retry_after_s or 0.0)

    def _disabled_by(self, attempt: Attempt) -> str:
        """Why the endpoint gets no more attempts, "" where it does."""
        delivery = attempt.delivery
        if delivery.delivered or self.endpoint.kind in LEVEL_KINDS:
            return ""
        if delivery.gone:
            return "it answered 410 Gone"
        since = self.record().failing_since
        if since is not None and attempt.at - since > DISABLE_AFTER_S:
            days = (attempt.at - since) / 86400
            return f"it took nothing for {days:.0f} days, last: {delivery.error}"
        return ""

    def _write_standing(self, connection: Connection, attempt: Attempt, disabled: str) -> None:
        record = queue.lane_record(connection, self.name)
        failed = not attempt.delivery.delivered
        if failed and record.failing_since is None:
            queue.save_lane(connection, self.name, failing_since=attempt.at)
        elif not failed and record.failing_since is not None:
            queue.save_lane(connection, self.name, failing_since=None)
        if disabled:
            queue.save_lane(connection, self.name, disabled_at=attempt.at, disabled_why=disabled)

    def _count(self, delivery: Delivery, duration_s: float) -> None:
        meters = self._parts.meters
        outcome = "delivered" if delivery.delivered else "failed"
        meters.attempts.labels(*self._labels, outcome).inc()
        meters.attempt_duration.labels(*self._labels).observe(duration_s)
        if not delivery.delivered and not self._failing:
            _log.warning("notify_failing", endpoint=self.name, error=delivery.error)
        elif delivery.delivered and self._failing:
            _log.info("notify_recovered", endpoint=self.name)
        self._failing = not delivery.delivered

    def _beat_if_due(self) -> float:
        """Say again what stands, where the kind has such; seconds until the next time."""
        if self.endpoint.kind not in LEVEL_KINDS:
            return IDLE_WAIT_S
        clock = self._parts.clock
        wait_s = self._beat_at - clock.monotonic()
        if wait_s > 0:
            return wait_s
        began = clock.monotonic()
        members, scoring = self._told_members(), self._parts.scoring()
        delivery = self._guarded(
            lambda: self._parts.channel.beat(clock.now(), members, scoring=scoring)
        )
        wait_s = self.endpoint.repeat_s
        if delivery is None:
            wait_s = min(1.0, wait_s)  # nothing to say yet: the first sweep may come any moment
        else:
            self._count(delivery, clock.monotonic() - began)
            if not delivery.delivered:
                wait_s = min(wait_s, self._pause(delivery))
            else:
                self._failures = 0
                self._paused_until = float("-inf")
        self._beat_at = clock.monotonic() + wait_s
        return wait_s

    def _told_members(self) -> list[Member]:
        if self.endpoint.kind is not EndpointKind.ALERTMANAGER:
            return []
        with self._parts.state.read() as connection:
            return case_rows.members_standing(connection, self.endpoint.name, [Standing.TOLD])

    def _measure(self) -> float:
        """Set the gauges; seconds until the next message is due."""
        with self._parts.state.read() as connection:
            backlog = queue.backlog(connection, self.name)
        self._parts.meters.waiting.labels(*self._labels).set(backlog.waiting)
        self._parts.meters.given_up.labels(*self._labels).set(backlog.given_up)
        if backlog.first_due is None:
            return IDLE_WAIT_S
        return max(0.0, backlog.first_due - self._parts.clock.now())

    def _wait_disabled(self) -> float:
        """What waits for a disabled endpoint is given up after its day, and can be replayed."""
        before = self._parts.clock.now() - KEEP_TRYING_S
        with self._parts.state.read() as connection:
            waits = queue.backlog(connection, self.name).waiting
        if waits:
            self._parts.state.writer.call(
                lambda writes: queue.give_up_older(
                    writes, self.name, before, "the endpoint is disabled"
                )
            )
        self._measure()
        return IDLE_WAIT_S

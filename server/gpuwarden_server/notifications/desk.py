"""What people do with endpoints: look, test, enable, replay; each write is audited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.feature import Notifications
from gpuwarden_server.notifications.schemas import (
    AttemptView,
    EndpointView,
    LaneView,
    ReplayBody,
    attempt_view,
)
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_server.notifications.sending.lane import Lane
from gpuwarden_server.store.database import Database


class NotifyDesk:
    """Endpoints as people see them."""

    def __init__(self, told: Notifications, state: Database, clock: Clock) -> None:
        self._told = told
        self._state = state
        self._clock = clock

    def endpoints(self) -> list[EndpointView]:
        """All endpoints, in the order of the file."""
        with self._state.read() as connection:
            return [
                _endpoint_view(connection, endpoint, self._told.lanes[endpoint.name])
                for endpoint in self._told.document.endpoints
            ]

    def test(self, name: str, caller: Principal) -> list[AttemptView]:
        """Send a test through each lane of an endpoint, now."""
        attempts = [(lane, lane.test()) for lane in self._lanes_of(name)]
        outcomes = {lane.name: one.delivery.error for lane, one in attempts}
        entry = self._entry(caller, "test_endpoint", name, after=outcomes)
        self._state.writer.call(lambda connection: record_audit(connection, entry))
        return [attempt_view(lane.name, one) for lane, one in attempts]

    def enable(self, name: str, reason: str, caller: Principal) -> EndpointView:
        """Send again to an endpoint that was disabled."""
        lanes = self._lanes_of(name)
        before = {lane.name: lane.record().disabled_why for lane in lanes}
        entry = self._entry(caller, "enable_endpoint", name, reason, before)

        def write(connection: Connection) -> None:
            for lane in lanes:
                lane.enable(connection)
            record_audit(connection, entry)

        self._state.writer.call(write)
        for lane in lanes:
            lane.resume()
        with self._state.read() as connection:
            return _endpoint_view(connection, lanes[0].endpoint, lanes)

    def replay(self, name: str, body: ReplayBody, caller: Principal) -> int:
        """Let what was given up wait anew; how many messages."""
        lanes = self._lanes_of(name)
        now = self._clock.now()

        def write(connection: Connection) -> int:
            count = sum(queue.replay(connection, lane.name, body.message_id, now) for lane in lanes)
            after = {"message_id": body.message_id, "replayed": count}
            entry = self._entry(caller, "replay_messages", name, body.reason, after=after)
            record_audit(connection, entry)
            return count

        count = self._state.writer.call(write)
        if body.message_id is not None and count == 0:
            raise ProblemError(
                404,
                "not_found",
                f"endpoint {name!r} gave up no message {body.message_id!r}",
                "See GET /v1/notifications/messages?phase=given_up.",
            )
        for lane in lanes:
            lane.resume()
        return count

    def lane_names(self, name: str | None) -> list[str]:
        """Lanes of one endpoint, of all without a name."""
        if name is not None:
            return [lane.name for lane in self._lanes_of(name)]
        return [lane.name for lanes in self._told.lanes.values() for lane in lanes]

    def _lanes_of(self, name: str) -> Sequence[Lane]:
        every = [lane for lanes in self._told.lanes.values() for lane in lanes]
        # By the name of one address too: metrics, log and /readyz call them so.
        found = self._told.lanes.get(name) or [lane for lane in every if lane.name == name]
        if not found:
            raise ProblemError(
                404,
                "not_found",
                f"no notification endpoint {name!r}",
                "See GET /v1/notifications/endpoints; GPUWARDEN_NOTIFY_FILE names them.",
            )
        return found

    def _entry(
        self,
        caller: Principal,
        action: str,
        target: str,
        reason: str = "",
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> AuditEntry:
        now = self._clock.now()
        return AuditEntry(now, caller.name, caller.key_id, action, target, reason, before, after)


def _endpoint_view(
    connection: Connection, endpoint: Endpoint, lanes: Sequence[Lane]
) -> EndpointView:
    return EndpointView(
        name=endpoint.name,
        kind=endpoint.kind.value,
        severity=endpoint.route.severity.value,
        pools=list(endpoint.route.pools),
        labels=dict(endpoint.route.labels),
        lanes=[_lane_view(connection, lane.name) for lane in lanes],
    )


def _lane_view(connection: Connection, lane: str) -> LaneView:
    record = queue.lane_record(connection, lane)
    backlog = queue.backlog(connection, lane)
    return LaneView(
        lane=lane,
        waiting=backlog.waiting,
        given_up=backlog.given_up,
        failing_since=record.failing_since,
        disabled_at=record.disabled_at,
        disabled_why=record.disabled_why,
    )

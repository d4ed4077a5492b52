"""What people do with silences; each write is audited."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.notifications.quiet import repository
from gpuwarden_server.notifications.quiet.domain import Matcher, Silence, parse_matcher
from gpuwarden_server.notifications.schemas import SilenceBody, SilenceView, silence_view
from gpuwarden_server.store.database import Database

MOST_ACTIVE = 1000


class SilenceDesk:
    """Makes, lists and ends silences."""

    def __init__(self, state: Database, clock: Clock, changed: Callable[[], None]) -> None:
        """Make a desk.

        Args:
            state: state.db.
            clock: Time.
            changed: Called after each change: what is told may differ.
        """
        self._state = state
        self._clock = clock
        self._changed = changed

    def listed(self, limit: int, *, active: bool) -> list[SilenceView]:
        """Silences, those that end last first; `active`: only those that hold or will."""
        now = self._clock.now()
        with self._state.read() as connection:
            if active:
                found = repository.not_ended(connection, now)[:limit]
            else:
                found = repository.newest(connection, limit)
        return [silence_view(one, now) for one in found]

    def create(self, body: SilenceBody, caller: Principal) -> SilenceView:
        """Make a silence."""
        now = self._clock.now()
        starts_at = max(now, body.starts_at) if body.starts_at is not None else now
        silence = Silence(
            id=new_id("sil"),
            kind=body.kind,
            matchers=tuple(_matcher(text) for text in body.matchers),
            starts_at=starts_at,
            ends_at=starts_at + body.duration_s,
            reason=body.reason,
            author=caller.name,
            created_at=now,
        )
        view = silence_view(silence, now)
        entry = _entry(caller, now, "create_silence", silence.id, body.reason, None, view)

        def write(connection: Connection) -> None:
            if len(repository.not_ended(connection, now)) >= MOST_ACTIVE:
                raise ProblemError(
                    409,
                    "too_many_silences",
                    f"{MOST_ACTIVE} silences hold already",
                    "Expire some, or match more with one.",
                )
            repository.add(connection, silence)
            record_audit(connection, entry)

        self._state.writer.call(write)
        self._changed()
        return view

    def expire(self, silence_id: str, reason: str, caller: Principal) -> SilenceView:
        """End a silence now."""
        now = self._clock.now()

        def write(connection: Connection) -> SilenceView:
            before = repository.find(connection, silence_id)
            if before is None:
                raise ProblemError(
                    404, "not_found", f"no silence {silence_id!r}", "See GET /v1/silences."
                )
            if before.expired_at is not None or before.ends_at <= now:
                raise ProblemError(
                    409, "not_live", f"silence {silence_id!r} has ended", "See GET /v1/silences."
                )
            repository.expire(connection, silence_id, now, caller.name)
            view = silence_view(repository.find(connection, silence_id) or before, now)
            was = silence_view(before, now)
            record_audit(
                connection,
                _entry(caller, now, "expire_silence", silence_id, reason, was, view),
            )
            return view

        view = self._state.writer.call(write)
        self._changed()
        return view


def _entry(
    caller: Principal,
    now: float,
    action: str,
    target: str,
    reason: str,
    before: SilenceView | None,
    after: SilenceView,
) -> AuditEntry:
    was = before.model_dump(mode="json") if before is not None else None
    is_now = after.model_dump(mode="json")
    return AuditEntry(now, caller.name, caller.key_id, action, target, reason, was, is_now)


def _matcher(text: str) -> Matcher:
    try:
        return parse_matcher(text)
    except ValueError as error:
        raise ProblemError(
            422,
            "invalid_value",
            f"body.matchers: {error}",
            "Such as node=gpu-0*, rack=r12, pool!=test.",
        ) from error

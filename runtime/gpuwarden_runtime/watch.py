"""Follows the exclusion feed: server-sent events with resume, and a fresh start when in doubt.

Fail-open: while the server is away the last set stays, however long that lasts.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import msgspec
from httpx_sse import EventSource, ServerSentEvent

from gpuwarden_runtime.cache import SetCache
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.errors import GpuwardenError, ServerUnreachable
from gpuwarden_runtime.feed import (
    FeedState,
    FeedStep,
    Floor,
    Outcome,
    apply_change,
    apply_position,
    apply_set,
    as_set,
)
from gpuwarden_runtime.records import ExclusionChange

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_STOP_WAIT_S = 3.0

Listener = Callable[[FeedState], None]


class ExclusionWatch:
    """Keeps one exclusion set up to date in a thread of its own.

    Args:
        client: Connection to the server.
        on_change: Called in the watch's thread with every new set, the first included.
        say: Called with one sentence when the connection is lost, comes back, or a set is refused.
        cache: Where the last set is kept, None for nowhere.
        floor: What a resync may not take from us.
        held: What is already known.
    """

    def __init__(
        self,
        client: Client,
        on_change: Listener,
        say: Callable[[str], None],
        cache: SetCache | None = None,
        floor: Floor | None = None,
        held: FeedState | None = None,
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._say = say
        self._cache = cache
        self._floor = floor or Floor()
        self._state = held
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="exclusions", daemon=True)
        self._socket: socket.socket | None = None
        self._failures = 0
        self._confirmed = False  # the server's last word agrees with what is held
        self._told: dict[str, str] = {}

    @property
    def state(self) -> FeedState | None:
        """The set held now, None before the first."""
        return self._state

    def __enter__(self) -> Self:
        """Begin to follow."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End following."""
        self.stop()

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> bool:
        """End following.

        Returns:
            True where the thread has ended, False where it still hangs in a connection attempt.
        """
        self._stopping.set()
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread from its read
        if self._thread.is_alive():
            self._thread.join(timeout=_STOP_WAIT_S)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_once()
                trouble: GpuwardenError | None = None
            except GpuwardenError as error:
                trouble = error
            if self._stopping.is_set():
                return
            if trouble is not None:
                self._note_failure(trouble)
            self._stopping.wait(self._wait_s(trouble))

    def _follow_once(self) -> None:
        if self._state is None:
            self._fetch()
        event_id = self._state.event_id if self._state else None
        with self._client.exclusion_stream(event_id) as source:
            self._socket = _socket_of(source)
            self._note_contact()
            try:
                self._take_all(source)
            finally:
                self._socket = None
                self._keep()  # confirmed until the connection ended

    def _take_all(self, source: EventSource) -> None:
        if self._stopping.is_set():
            return
        for event in source.iter_sse():
            self._take(event)
            if self._stopping.is_set():
                return
        raise ServerUnreachable(f"{self._client.url} ended the feed")

    def _take(self, event: ServerSentEvent) -> None:
        if event.event not in ("state", "exclusions"):
            return  # a kind of a later version
        try:
            change = msgspec.json.decode(event.data, type=ExclusionChange)
        except msgspec.DecodeError as error:
            self._tell("unreadable", f"the feed sent something unreadable: {error}")
            self._fetch()
            return
        if event.event == "state":
            self._apply(apply_position(self._state, change))
        else:
            self._apply(apply_change(self._state, change))

    def _fetch(self) -> None:
        self._apply(apply_set(self._state, self._client.exclusions(), self._floor))

    def _apply(self, step: FeedStep) -> None:
        match step.outcome:
            case Outcome.APPLIED:
                self._state = step.state
                self._settle()
                if step.state is not None:
                    self._on_change(step.state)
            case Outcome.UNCHANGED:
                self._settle()
            case Outcome.NEEDS_SET:
                self._fetch()
            case Outcome.INVALID | Outcome.BELOW_FLOOR:
                self._confirmed = False
                self._tell("set", f"exclusion set not taken over: {step.note}; keeping the last")
            case Outcome.IGNORED:
                pass

    def _settle(self) -> None:
        self._confirmed = True
        self._told.pop("set", None)
        self._keep()

    def _keep(self) -> None:
        if self._cache is None or self._state is None or not self._confirmed:
            return
        trouble = self._cache.save(as_set(self._state), time.time())
        if trouble:
            self._tell("cache", f"the exclusion set cannot be cached: {trouble}")
        else:
            self._told.pop("cache", None)

    def _tell(self, subject: str, sentence: str) -> None:
        """Say it once, until the subject is well again or the sentence changes."""
        if self._told.get(subject) != sentence:
            self._told[subject] = sentence
            self._say(sentence)

    def _note_failure(self, trouble: GpuwardenError) -> None:
        self._failures += 1
        if self._failures == 1:
            self._say(f"exclusion feed lost: {trouble}; keeping the last set and trying again")

    def _note_contact(self) -> None:
        if self._failures:
            self._say("exclusion feed is back")
        self._failures = 0

    def _wait_s(self, trouble: GpuwardenError | None) -> float:
        """Exponential with full jitter, so that a thousand launchers do not return together."""
        if trouble is not None and not trouble.retryable:
            return random.uniform(_LONGEST_WAIT_S / 2, _LONGEST_WAIT_S)
        ceiling = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._failures, 10))
        return random.uniform(0.1, ceiling)


def _socket_of(source: EventSource) -> socket.socket | None:
    """The connection below an event stream (httpx's `network_stream` extension), for `stop`."""
    stream: Any = source.response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    return found if isinstance(found, socket.socket) else None

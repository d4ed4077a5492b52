"""Follows the exclusion feed in a thread; `async_watch.py` does in a task."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from httpx_sse import EventSource

from gpuwarden_runtime import calls
from gpuwarden_runtime.cache import SetCache
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.errors import GpuwardenError, ServerUnreachable
from gpuwarden_runtime.exchange import ONCE
from gpuwarden_runtime.feed import FeedState, Floor
from gpuwarden_runtime.following import Follower, Listener, Say

_STOP_WAIT_S = 3.0


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
        say: Say,
        cache: SetCache | None = None,
        floor: Floor | None = None,
        held: FeedState | None = None,
    ) -> None:
        self._client = client
        self._follower = Follower(on_change, say, cache, floor, held)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="exclusions", daemon=True)
        self._socket: socket.socket | None = None

    @property
    def state(self) -> FeedState | None:
        """The set held now, None before the first."""
        return self._follower.state

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
            except GpuwardenError as trouble:
                if not self._stopping.is_set():
                    self._stopping.wait(self._follower.note_failure(trouble))

    def _follow_once(self) -> None:
        """Follow until the connection ends, or the watch is stopped.

        Raises:
            GpuwardenError: The connection did not come about, or ended.
        """
        if self._follower.state is None:
            self._fetch()
        with self._client.exclusion_stream(self._follower.event_id) as source:
            self._socket = _socket_of(source)
            self._follower.note_contact()
            try:
                self._take_all(source)
            finally:
                self._socket = None
                self._follower.keep()  # confirmed until the connection ended

    def _take_all(self, source: EventSource) -> None:
        if self._stopping.is_set():
            return
        for event in source.iter_sse():
            if self._follower.take_event(event.event, event.data):
                self._fetch()
            if self._stopping.is_set():
                return
        raise ServerUnreachable(f"{self._client.url} ended the feed")

    def _fetch(self) -> None:
        # Once: the watch tries again by itself, and must end when it is told.
        self._follower.take_set(self._client.send(calls.exclusions(), ONCE))


def _socket_of(source: EventSource) -> socket.socket | None:
    """The connection below an event stream (httpx's `network_stream` extension), for `stop`."""
    stream: Any = source.response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    return found if isinstance(found, socket.socket) else None

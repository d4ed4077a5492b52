"""An HTTP server on this machine whose sockets and threads all end with it.

`http.server` leaves both behind where a client goes away: an answer that cannot be flushed skips
the closing of the socket, and threads of keep-alive connections live on. The garbage collector
then finds the socket during some later test, which fails for it.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOIN_S = 20.0


class LoopbackHandler(BaseHTTPRequestHandler):
    """Handles one connection and closes all of it, also where its client went away."""

    wbufsize = 1 << 16  # one packet an answer, else Nagle's algorithm waits for the other side

    def finish(self) -> None:
        """Close both files of the connection."""
        try:
            super().finish()
        finally:
            self.rfile.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server
        """Say nothing."""


class LoopbackServer(ThreadingHTTPServer):
    """Serves on a port of this machine between `start` and `stop`.

    Attributes:
        url: Address, "http://127.0.0.1:PORT"; https where it has a certificate.
    """

    daemon_threads = True  # one that never ends fails `stop`, and does not hold up the whole run

    def __init__(
        self,
        handler: type[LoopbackHandler],
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", port), handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection, and wait for the end of every thread.

        Raises:
            AssertionError: A handler does not come to its end.
        """
        self.shutdown()
        self._thread.join()
        self.server_close()
        deadline = time.monotonic() + JOIN_S
        for thread in self.hang_up():
            thread.join(max(deadline - time.monotonic(), 0.0))
            assert not thread.is_alive(), "a handler of a fake server does not end"

    def hang_up(self) -> list[threading.Thread]:
        """End every connection, as a server that restarts does; returns their threads."""
        with self._lock:
            connections = dict(self._connections)
        for connection in connections.values():
            with suppress(OSError):  # closed meanwhile
                # Not SSLSocket.shutdown, which takes the session from a thread that reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        return list(connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread that `stop` knows."""
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        with self._lock:
            self._connections[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle it to its end and forget it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._connections[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless it is only that the client went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def serving_on_loopback(
    handler: type[LoopbackHandler],
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    let_go: Callable[[], object] = lambda: None,
) -> Iterator[LoopbackServer]:
    """A running server.

    Args:
        handler: Made for each connection.
        port: 0 for a free one.
        tls: Certificate to show.
        let_go: Called before the stop: ends what handlers wait for.
    """
    server = LoopbackServer(handler, port, tls)
    server.start()
    try:
        yield server
    finally:
        let_go()
        server.stop()

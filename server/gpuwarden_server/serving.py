"""Serving an ASGI app until a signal: one socket, one uvicorn, a bounded shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from gpuwarden_server.certificates import LOOK_S, CertificateWatch, check_tls, make_context
from gpuwarden_server.config import Settings
from gpuwarden_server.core.errors import ProblemError, StartError
from gpuwarden_server.core.memory import tune_allocator
from gpuwarden_server.core.problems import PROBLEM_TYPE
from gpuwarden_server.direct import DirectProtocol
from gpuwarden_server.front import ABORT
from gpuwarden_wire.codec import encode_json

# Agents of a big fleet connect at once after a restart; the kernel caps this at somaxconn.
BACKLOG = 4096
_GC_OBJECTS, _GC_GENERATION = 50_000, 20
_SWITCH_S = 0.00025
# Between an app that asked for a restart and the next: one that asks at once must not spin.
RESTART_PAUSE_S = 0.5

_log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """uvicorn that tells long-lived streams to end as soon as it is told itself.

    Without that, open event streams hold the shutdown until its timeout. It can also go on
    listening with other certificates.
    """

    def __init__(
        self, config: uvicorn.Config, on_stop: Callable[[], None], former_end_s: float
    ) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._former_end_s = former_end_s
        self._kept: list[socket.socket] = []  # a server closes the sockets that it was given

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        self._kept = [one.dup() for one in sockets or []]
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin the shutdown."""
        for kept in self._kept:
            kept.close()
        self._on_stop()
        await super().shutdown(sockets)

    async def renew(self, context: ssl.SSLContext, end_former: bool) -> None:
        """Make connections with another context from now on.

        A context that serves already cannot forget an authority, and resumes sessions that its
        former clients began: so another takes its place, behind a listener of its own.

        Args:
            context: What connections are made with.
            end_former: Whether those of the former context end: idle ones now, others after what
                they are answered, streams after `former_end_s`.

        Raises:
            OSError: No further listener can be had; all is as before.
        """
        fresh = await self._listen(context)
        for server in self.servers:
            server.close()
        self.servers = fresh
        self.config.ssl = context
        if end_former:
            for connection in list(self.server_state.connections):
                connection.shutdown()
            loop = asyncio.get_running_loop()
            loop.call_later(self._former_end_s, self._abort_former)

    async def _listen(self, context: ssl.SSLContext) -> list[asyncio.Server]:
        """Listen with this context too, on all sockets or on none."""
        loop = asyncio.get_running_loop()
        fresh = []
        with contextlib.ExitStack() as undo:
            for kept in self._kept:
                own = kept.dup()
                undo.callback(own.close)
                server = await loop.create_server(
                    self._protocol, sock=own, ssl=context, backlog=self.config.backlog
                )
                undo.callback(server.close)
                fresh.append(server)
            undo.pop_all()  # from here on they end with the server
        return fresh

    def _protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        state, kept = self.server_state, self.lifespan.state
        return make(config=self.config, server_state=state, app_state=kept)

    def _abort_former(self) -> None:
        """End what is still open with a context of before, handshakes of that time included."""
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport.get_extra_info("sslcontext") is not self.config.ssl:
                transport.abort()


class _Protocol(DirectProtocol):
    """uvicorn's protocol, which tells what it cannot parse like every other refusal.

    Handlers may drop a connection whose peer does not read.
    """

    def on_message_begin(self) -> None:
        """Make the scope of a request."""
        super().on_message_begin()
        # Not in ASGI: a response that is left without its end is closed politely, which waits for
        # the peer to read what lies in the buffer.
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]  # ours

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or a request line beyond 64 KiB, and close."""
        problem = ProblemError(
            400,
            "not_http",
            msg,
            "Send HTTP/1.1 with a path and query below 64 KiB; POST takes long lists.",
        )
        body = encode_json(problem.problem())
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (PROBLEM_TYPE.encode(), len(body), body)
        )
        self.transport.close()


def bind_socket(settings: Settings) -> socket.socket:
    """The listening socket.

    Raises:
        StartError: The address cannot be had, or a file of TLS cannot be used; names it.
    """
    check_tls(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            "Stop what uses the port, or set GPUWARDEN_HOST and GPUWARDEN_PORT.",
        ) from error
    listener.set_inheritable(True)
    return listener


class Restart:
    """Ends the server that serves an app, so that a fresh one takes its place."""

    def __init__(self, stopping: asyncio.Event) -> None:
        """Make one.

        Args:
            stopping: Set as the shutdown begins.
        """
        self._stopping = stopping
        self._server: uvicorn.Server | None = None
        self.asked = False

    def follow(self, server: uvicorn.Server) -> None:
        """End this server when asked."""
        self._server = server

    def ask(self) -> None:
        """Ask for it; callable from any thread."""
        self.asked = True
        if self._server is not None:
            self._server.should_exit = True


def make_server(app: FastAPI, settings: Settings, on_stop: Callable[[], None]) -> uvicorn.Server:
    """The uvicorn server of `app`; `app.state.door`, where there is one, gets its requests raw.

    Args:
        app: What to serve.
        settings: Timeouts.
        on_stop: Called on the event loop when the shutdown begins.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=type("_ProtocolWithDoor", (_Protocol,), {"door": getattr(app.state, "door", None)}),
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        # uvicorn's default of 5 s closes connections under agents that report each 5 s.
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )
    server = _Server(config, on_stop, settings.shutdown_grace_s)
    context, trust = make_context(settings)
    if context is not None:
        config.load()
        config.ssl = context
        config.callback_notify = CertificateWatch(settings, trust, server.renew).look
        config.timeout_notify = LOOK_S
    return server


def tune_process() -> None:
    """Set the interpreter up for one busy event loop beside threads that compute.

    Collecting garbage after every 700 objects would look through the objects of a batch again and
    again, none of which lie in circles; threads that compute give way after a quarter of a
    millisecond, since the loop needs the interpreter back after each call that lets it go.
    """
    tune_allocator()
    gc.set_threshold(_GC_OBJECTS, _GC_GENERATION, _GC_GENERATION)
    sys.setswitchinterval(_SWITCH_S)


def serve(make_app: Callable[[], FastAPI], settings: Settings, listener: socket.socket) -> int:
    """Serve until SIGTERM or SIGINT, or until the app fails to start.

    An app that asks for a restart is made anew on the same socket: what it knew is of no use.

    Args:
        make_app: Makes the app.
        settings: Timeouts.
        listener: Bound socket.

    Returns:
        Exit code: 0 after a clean end, 1 where the app failed to start.
    """
    signalled = _absorb_signals()
    while True:
        app = make_app()
        restart: Restart = app.state.restart
        server = make_server(app, settings, app.state.base.stopping.set)
        restart.follow(server)
        _log.info("listening", url=url_of(listener, settings))
        # uvicorn leaves by SystemExit where the app fails to start; it has logged why. It closes
        # the socket that it is given.
        with contextlib.suppress(SystemExit):
            server.run(sockets=[listener.dup()])
        if not restart.asked or signalled.is_set():
            return 0 if server.started else 1
        _log.info("starts_afresh")
        if signalled.wait(RESTART_PAUSE_S):
            return 0


def url_of(listener: socket.socket, settings: Settings | None = None) -> str:
    """Where a bound socket is reached; settings say whether by https."""
    scheme = "https" if settings is not None and settings.tls_cert else "http"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _absorb_signals() -> threading.Event:
    """Set the returned event at SIGTERM and SIGINT while no server runs.

    That also makes the signal end nothing that uvicorn raises again after its shutdown.

    uvicorn restores the former handlers and re-raises what it caught, so that the default would
    end the process with -15 although all went well. Only the main thread may set handlers.
    """
    signalled = threading.Event()

    def note(signum: int, frame: FrameType | None) -> None:
        signalled.set()

    if threading.current_thread() is threading.main_thread():
        for caught in (signal.SIGTERM, signal.SIGINT):
            signal.signal(caught, note)
    return signalled

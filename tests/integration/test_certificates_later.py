"""Files of TLS that find no file descriptor for their listeners are taken over later."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from gpuwarden_server.config import Settings
from gpuwarden_server.serving import bind_socket, make_server
from tests.builders.server import make_settings, wait_until
from tests.integration.test_door import TLS

LONG_S = 40.0
LISTENERS = 9
"""More than connections that may end meanwhile, and leave their descriptors."""


@contextmanager
def serving_all(settings: Settings) -> Iterator[tuple[threading.Thread, list[int]]]:
    """A server of nothing on LISTENERS: its thread, and their ports."""
    listeners = [bind_socket(settings) for _ in range(LISTENERS)]
    ports = [one.getsockname()[1] for one in listeners]
    server = make_server(FastAPI(), settings, lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": listeners}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "it started", LONG_S)
        yield thread, ports
    finally:
        server.should_exit = True
        thread.join(LONG_S)
    assert not thread.is_alive()


def open_numbers() -> set[int]:
    """File descriptors that are open now."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            os.fstat(int(entry.name))
        except OSError:  # the one that listed them
            continue
        found.add(int(entry.name))
    return found


@contextmanager
def few_descriptors(left: int) -> Iterator[None]:
    """This process may open no more than `left` files beside those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    highest = max(open_numbers())
    while not taken or taken[-1] < highest:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(*taken, highest) + 1 + left, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in taken:
            os.close(number)


@pytest.mark.serial
def test_certificates_whose_listeners_find_no_descriptor_hold_as_soon_as_there_are_some(
    tmp_path: Path,
) -> None:
    event = "tls_listeners_not_renewed"
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes((TLS / "server.pem").read_bytes())
    key.write_bytes((TLS / "server.key").read_bytes())
    renewed = (TLS / "client.pem").read_text()
    for name in ("client.pem", "client.key"):
        (tmp_path / name).write_bytes((TLS / name).read_bytes())
    settings = make_settings(tmp_path, tls_cert=cert, tls_key=key)
    with serving_all(settings) as (thread, ports), capture_logs() as told:

        def shown(port: int) -> str:
            return ssl.get_server_certificate(("127.0.0.1", port)).strip()

        assert shown(ports[0]) in cert.read_text()
        settled = open_numbers()
        with few_descriptors(1):
            (tmp_path / "client.key").replace(key)
            (tmp_path / "client.pem").replace(cert)
            wait_until(
                lambda: not thread.is_alive() or event in [one["event"] for one in told],
                "it cannot take them over",
                LONG_S,
            )
            assert thread.is_alive(), "the server goes on"
        wait_until(lambda: shown(ports[-1]) in renewed, "renewed", LONG_S)
        wait_until(lambda: len(open_numbers()) <= len(settled), "nothing stays open", LONG_S)
        events = [one["event"] for one in told]
        assert events.count(event) <= 2, "it may have seen the one file renewed before the other"
        assert events.count("tls_files_renewed") == 1
        with closing(socket.create_connection(("127.0.0.1", ports[0]), timeout=LONG_S)):
            assert thread.is_alive()

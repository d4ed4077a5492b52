from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_agent.service.config import NotifySocket, read_notify_socket
from gpuwarden_agent.service.notify import ServiceNotifier


class Manager:
    """The socket that systemd listens on."""

    def __init__(self, address: str | bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        words: list[str] = []
        while True:
            try:
                words.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return words

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.close()


def test_it_says_what_systemd_waits_for(tmp_path: Path, manager: Manager) -> None:
    clock = [100.0]
    notifier = ServiceNotifier(
        NotifySocket(str(tmp_path / "notify"), watchdog_s=30.0), lambda: clock[0]
    )
    notifier.ready()
    notifier.alive()
    clock[0] += 9.9
    notifier.alive()
    assert manager.heard() == ["READY=1", "WATCHDOG=1"]
    clock[0] += 0.2
    notifier.alive()
    notifier.stopping()
    assert manager.heard() == ["WATCHDOG=1", "STOPPING=1"]


def test_a_socket_in_the_abstract_name_space_is_reached() -> None:
    name = f"gpuwarden-test-{os.getpid()}"
    manager = Manager(b"\0" + name.encode())
    ServiceNotifier(NotifySocket(f"@{name}")).ready()
    assert manager.heard() == ["READY=1"]
    manager.close()


def test_without_a_watchdog_nothing_is_sent_for_it(tmp_path: Path, manager: Manager) -> None:
    notifier = ServiceNotifier(NotifySocket(str(tmp_path / "notify")))
    notifier.alive()
    assert manager.heard() == []


@pytest.mark.parametrize("address", ["", "/no/such/socket", "@nobody-listens-here"])
def test_nobody_listening_is_no_error(address: str) -> None:
    notifier = ServiceNotifier(NotifySocket(address, 1.0))
    notifier.ready()
    notifier.alive()
    notifier.stopping()


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, NotifySocket()),
        (
            {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "60000000"},
            NotifySocket("/run/notify", 60.0),
        ),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "soon"}, NotifySocket("@x")),
        ({"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "0"}, NotifySocket()),
        ({"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}, NotifySocket()),
    ],
)
def test_what_systemd_says_is_read(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: NotifySocket
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read_notify_socket() == found

"""Prometheus and Alertmanager over an exporter whose gauges flip, for bench/events.py."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast Prometheus and Alertmanager are set.

    Attributes:
        name: For the table.
        scrape_s: Between scrapes.
        evaluate_s: Between looks at the rules; they have no `for:`.
        group_wait_s: Before a group's first notification.
    """

    name: str
    scrape_s: int
    evaluate_s: int
    group_wait_s: int


USUAL = Pace("usual", 15, 15, 30)
TIGHTEST = Pace("tightest", 1, 1, 0)


@dataclass
class Arrivals:
    """When what was told first arrived, by what it is about.

    Attributes:
        at: Monotonic seconds.
    """

    at: dict[str, float] = field(default_factory=dict)

    def take(self, body: bytes) -> None:
        """Note an Alertmanager's notification, or one of our webhooks."""
        now = time.monotonic()
        told = json.loads(body)
        if "alerts" in told:
            for alert in told["alerts"]:
                self.at.setdefault(alert["labels"]["gpu"], now)
        elif told["type"] == "incident.opened":
            self.at.setdefault(told["data"]["entity"], now)


class Exporter:
    """A gauge a GPU, 0 until it is flipped."""

    def __init__(self, gpus: int) -> None:
        self._values = [0] * gpus

    def flip(self, number: int) -> None:
        """The fault begins."""
        self._values[number] = 1

    def text(self) -> bytes:
        """What a scrape gets."""
        lines = [f'gpu_fault{{gpu="{n}"}} {value}' for n, value in enumerate(self._values)]
        return ("# TYPE gpu_fault gauge\n" + "\n".join(lines) + "\n").encode()


@contextmanager
def serving(exporter: Exporter | None, arrivals: Arrivals | None) -> Iterator[int]:
    """The port of a server that is scraped, or told."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the name that http.server calls
            """A scrape."""
            body = exporter.text() if exporter else b""
            self._answer("text/plain; version=0.0.4", body)

        def do_POST(self) -> None:  # the name that http.server calls
            """A notification."""
            body = self.rfile.read(int(self.headers["content-length"]))
            if arrivals is not None:
                arrivals.take(body)
            self._answer("text/plain", b"")

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def peers(folder: Path, pace: Pace, exporter_port: int, told_port: int) -> Iterator[None]:
    """Prometheus and Alertmanager that run and scrape."""
    folder.mkdir(parents=True)
    prometheus, alertmanager = free_port(), free_port()
    _write_configs(folder, pace, exporter_port, told_port, alertmanager)
    commands = {
        alertmanager: [
            _program("prometheus-alertmanager", "alertmanager"),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{alertmanager}",
            "--cluster.listen-address=",
        ],
        prometheus: [
            _program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{prometheus}",
        ],
    }
    started = []
    with (folder / "log").open("wb") as log:
        try:
            for port, command in commands.items():
                started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
                wait_ready(f"http://127.0.0.1:{port}/-/ready")
            _wait_scraped(prometheus)
            yield
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(30)


def _write_configs(
    folder: Path, pace: Pace, exporter_port: int, told_port: int, alertmanager: int
) -> None:
    files: Mapping[str, object] = {
        "rules.yml": {
            "groups": [{"name": "gpu", "rules": [{"alert": "GpuFault", "expr": "gpu_fault > 0"}]}]
        },
        "prometheus.yml": {
            "global": {
                "scrape_interval": f"{pace.scrape_s}s",
                "scrape_timeout": f"{pace.scrape_s}s",
                "evaluation_interval": f"{pace.evaluate_s}s",
            },
            "rule_files": [str(folder / "rules.yml")],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
            },
            "scrape_configs": [
                {
                    "job_name": "gpus",
                    "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}],
                }
            ],
        },
        "alertmanager.yml": {
            "route": {
                "receiver": "told",
                "group_by": ["gpu"],
                "group_wait": f"{pace.group_wait_s}s",
            },
            "receivers": [
                {
                    "name": "told",
                    "webhook_configs": [{"url": f"http://127.0.0.1:{told_port}/"}],
                }
            ],
        },
    }
    for name, content in files.items():  # YAML takes JSON
        (folder / name).write_text(json.dumps(content))


def wait_ready(url: str) -> None:
    """Wait until a URL answers with 2xx."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit(f"{url} was not ready within {READY_S:g} s")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_scraped(prometheus: int) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        answer = httpx.get(
            f"http://127.0.0.1:{prometheus}/api/v1/query",
            params={"query": "count(gpu_fault)"},
            timeout=5,
        )
        if answer.json()["data"]["result"]:
            return
        time.sleep(0.1)
    raise SystemExit("Prometheus scraped nothing")


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise SystemExit(f"not on PATH: {names[0]} (Debian package prometheus, {names[0]})")

"""A real server, in process or as a process of its own, and what an agent would send to it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import SecretStr

from gpuwarden_server.access.credentials import new_key
from gpuwarden_server.app import create_app
from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.serving import bind_socket, make_server, url_of
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import CONTENT_TYPE, WIRE_VERSION, Batch, Stream, Table, pack_table
from gpuwarden_wire.codec import Encoding, compress, decode_acknowledgement, encode_batch
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading
from gpuwarden_wire.schema import Schema, schema_for
from tests.builders.stores import database_url_of

START_S = 60.0
GPU_METRICS = ("gpu_temperature_celsius", "gpu_power_watts", "gpu_energy_joules_total")


def make_settings(folder: Path, **overrides: Any) -> Settings:
    """Settings of a test server: a free port, its files under `folder`, a known admin key."""
    values: dict[str, Any] = {
        "port": 0,
        "state_folder": folder / "state",
        "database_url": database_url_of(folder / "state"),
        "lease_s": 2.0,
        "admin_key": new_key(),
        "checkpoint_pass_s": 0.2,
        "sweep_interval_s": 0.5,
        # Tests ask without a key, and with wrong ones, more often than anybody may.
        "address_rate_per_s": 0.0,
        "refused_rate_per_s": 0.0,
    }
    return Settings(**(values | overrides))


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers.

    Attributes:
        url: Where.
        admin: Client with the admin key.
        app: The app, None where it runs in another process.
    """

    url: str
    admin: httpx.Client
    app: FastAPI | None = None

    def mint(self, role: str, node: str | None = None, name: str = "") -> str:
        """A new key."""
        answer = self.admin.post("/v1/keys", json={"role": role, "node": node, "name": name})
        answer.raise_for_status()
        return str(answer.json()["key"])

    @contextmanager
    def client(self, key: str | None) -> Iterator[httpx.Client]:
        """A client with another key, or none."""
        with make_client(self.url, key) as client:
            yield client

    def figure(self, name: str, **labels: str) -> float:
        """One of the server's own metrics; 0 where it has not been counted yet."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in self.admin.get("/metrics").text.splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and wanted <= set((found[1] or "").split(",")):
                return float(found[2])
        return 0.0


def make_client(url: str, key: str | None) -> httpx.Client:
    """An HTTP client with a bearer key."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=url, headers=headers, timeout=20.0)


@contextmanager
def running_server(settings: Settings, clock: Clock | None = None) -> Iterator[Running]:
    """The real server in a thread, over real HTTP, shut down cleanly at the end."""
    listener = bind_socket(settings)
    app = create_app(settings, clock)
    server = make_server(app, settings, app.state.base.stopping.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    key = settings.admin_key.get_secret_value() if settings.admin_key else None
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the server started", START_S)
        assert server.started
        with make_client(url_of(listener), key) as admin:
            yield Running(url_of(listener), admin, app)
    finally:
        server.should_exit = True
        thread.join(START_S)
        listener.close()
    assert not thread.is_alive()


class ServerProcess:
    """The real server as a process of its own, which a test may kill."""

    def __init__(
        self, settings: Settings, program: Sequence[str] = ("-m", "gpuwarden_server")
    ) -> None:
        """Make one; `program` is what Python runs."""
        self._settings = settings
        self._program = tuple(program)
        self._log = settings.state_folder.parent / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._must_lead = True
        self.url = ""

    def start(self, *, must_lead: bool = True) -> Running:
        """Start it, and wait until it leads, or else only until it answers."""
        self._must_lead = must_lead
        before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program],
                env=os.environ | environment_of(self._settings),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: self._answers(before), "the server process answers", START_S)
        except BaseException:
            self.close()
            raise
        key = self._settings.admin_key
        return Running(self.url, make_client(self.url, key.get_secret_value() if key else None))

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it stands still, with all that it holds."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self, timeout_s: float = START_S) -> int:
        """SIGTERM; returns the exit code."""
        return self._signal(signal.SIGTERM, timeout_s)

    def wait(self) -> int:
        """Let it end by itself; returns the exit code, minus the signal where one ended it."""
        assert self._process is not None
        return self._process.wait(START_S)

    @property
    def pid(self) -> int:
        """Process id of the latest start."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """All that it wrote, over all its starts."""
        return self._log.read_text()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _signal(self, number: signal.Signals, timeout_s: float = START_S) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(timeout_s)

    def _answers(self, before: int) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.output
        found = re.search(r"url=\S*?(http://[\d.]+:\d+)", self.output[before:])
        if found is None:
            return False
        self.url = found[1]
        try:
            if not self._must_lead:
                return httpx.get(f"{self.url}/healthz", timeout=1.0).is_success
            # A leader that was killed holds its lease for a while.
            answer = httpx.get(f"{self.url}/readyz", timeout=5.0)
            return bool(answer.json()["state"] != "stand_by")
        except httpx.TransportError:
            return False


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment variables that make these settings."""
    values = settings.model_dump(exclude_defaults=True)
    values |= {n: v.get_secret_value() for n, v in values.items() if isinstance(v, SecretStr)}
    return {f"GPUWARDEN_{name.upper()}": str(value) for name, value in values.items()}


@dataclass
class Feeder:
    """Sends what one node's agent would send.

    Attributes:
        server: Where to.
        key: Agent's or admin's key.
        node_id: The node.
    """

    server: Running
    key: str
    node_id: str
    spool_id: str = field(default_factory=lambda: secrets.token_hex(16))
    boot_id: str = ""
    interval_s: float = 5.0
    encoding: Encoding = Encoding.IDENTITY
    seqs: dict[Stream, int] = field(default_factory=lambda: dict.fromkeys(Stream, 0))

    def __post_init__(self) -> None:
        """Open the connection."""
        self.boot_id = self.boot_id or f"boot-1-of-{self.node_id}"
        self.client = make_client(self.server.url, self.key)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def batch(self, stream: Stream, **fields: Any) -> Batch:
        """The next batch of a stream; any field may be given."""
        if "seq" not in fields:
            self.seqs[stream] += 1
        header: dict[str, Any] = {
            "version": WIRE_VERSION,
            "node_id": self.node_id,
            "spool_id": self.spool_id,
            "seq": self.seqs[stream],
            "boot_id": self.boot_id,
            "agent_version": "0.1.0",
            "sent_at": time.time(),
            "interval_s": self.interval_s,
        }
        return Batch(stream=stream, **(header | fields))

    def post(self, batch: Batch) -> httpx.Response:
        """Send a batch as it is."""
        return self.post_body(compress(encode_batch(batch), self.encoding))

    def post_body(self, body: bytes, **headers: str) -> httpx.Response:
        """Send bytes as a batch."""
        sent = {"Content-Type": CONTENT_TYPE, "Content-Encoding": str(self.encoding)} | headers
        return self.client.post("/v1/ingest", content=body, headers=sent)

    def send(self, batch: Batch) -> Acknowledgement:
        """Send a batch that must be taken."""
        answer = self.post(batch)
        assert answer.status_code == 200, answer.text
        return decode_acknowledgement(answer.content)

    def events(self, *events: Event, **fields: Any) -> Acknowledgement:
        """Send the next batch of events."""
        return self.send(self.batch(Stream.EVENTS, events=events, **fields))

    def telemetry(
        self, tables: Sequence[Table], schemas: Sequence[Schema] = (), **fields: Any
    ) -> Acknowledgement:
        """Send the next batch of telemetry."""
        return self.send(
            self.batch(Stream.TELEMETRY, tables=tuple(tables), schemas=tuple(schemas), **fields)
        )

    def introduce(self, gpus: Sequence[GpuIdentity] = (), **inventory: Any) -> Acknowledgement:
        """Send boot and inventory."""
        return self.events(self.boot(), self.inventory(gpus, **inventory))

    def boot(self) -> Event:
        """The boot's first event."""
        return make_event(f"boot:{self.boot_id}", kind=EventKind.NODE_BOOT)

    def inventory(self, gpus: Sequence[GpuIdentity], **fields: Any) -> Event:
        """What the node has."""
        content = Inventory(gpus=tuple(gpus), gpus_expected=len(gpus), **fields)
        return make_event(
            f"inventory:{self.boot_id}:{secrets.token_hex(4)}",
            kind=EventKind.INVENTORY,
            inventory=content,
        )


def make_event(event_id: str = "", **fields: Any) -> Event:
    """An event; a kernel line where the kind is not given."""
    values: dict[str, Any] = {
        "id": event_id or f"kmsg:{secrets.token_hex(8)}",
        "kind": EventKind.KERNEL_LOG,
        "observed_at": time.time(),
    }
    return Event(**(values | fields))


def make_gpu(number: int, node_id: str = "node-1", **fields: Any) -> GpuIdentity:
    """GPU `number` of a node, in a slot of its own."""
    values: dict[str, Any] = {
        "gpu_uuid": f"GPU-{node_id}-{number}",
        "pci_bus_id": f"0000:{0x10 + number:02x}:00.0",
        "serial": f"S-{node_id}-{number}",
        "index": number,
        "model": "NVIDIA H100 80GB HBM3",
    }
    return GpuIdentity(**(values | fields))


def gpu_table(
    rows: Mapping[str, Sequence[Reading]],
    observed_at: float | None = None,
    metrics: Sequence[str] = GPU_METRICS,
) -> tuple[Table, Schema]:
    """A table of GPU readings by uuid, and its schema."""
    schema = schema_for(EntityKind.GPU, metrics)
    return pack_table(schema, observed_at if observed_at is not None else time.time(), rows), schema


def wait_until(holds: Any, what: str, timeout_s: float = 30.0) -> None:
    """Wait until `holds()` is true; fails naming `what`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.01)

"""A reader of the exclusion stream, and stories that tests tell a server."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from gpuwarden_server.config import Settings
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import Event
from tests.builders.server import Running, make_event, make_settings, wait_until

QUICK_POLICY = """
[defaults]
mode = "{mode}"
settle_s = {settle_s}
dwell_s = {dwell_s}
cap = {{ max_nodes = {max_nodes}, max_percent = 100 }}
"""


def quick_settings(
    folder: Path,
    mode: Mode = Mode.ACT,
    *,
    settle_s: float = 0.4,
    dwell_s: float = 0.5,
    max_nodes: int = 50,
    **overrides: Any,
) -> Settings:
    """Settings of a server that judges fast: its policy file is written beside its state."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "policy.toml"
    file.write_text(
        QUICK_POLICY.format(mode=mode, settle_s=settle_s, dwell_s=dwell_s, max_nodes=max_nodes)
    )
    return make_settings(folder, policy_file=file, **({"sweep_interval_s": 0.1} | overrides))


def xid_event(xid: int, slot: str, **fields: Any) -> Event:
    """The kernel line of an XID on the GPU in a slot."""
    return make_event(
        xid=xid,
        family="xid",
        pci_bus_id=slot,
        text=f"NVRM: Xid (PCI:{slot[:-2]}): {xid}, pid=4711, name=python3, as the driver says",
        **fields,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """One server-sent event.

    Attributes:
        at: Monotonic time of its receipt.
        id: Its id.
        event: Its name.
        body: Its JSON.
    """

    at: float
    id: str
    event: str
    body: Mapping[str, Any]


@dataclass
class FeedReader:
    """What came over the stream so far, filled by a thread."""

    told: list[Told] = field(default_factory=list)
    heartbeats: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def changes(self) -> list[Told]:
        """Changes, in order."""
        return [one for one in self.told if one.event == "exclusions"]

    def added(self) -> list[str]:
        """Entities that were ever added, in order."""
        return [name for one in self.changes() for name in _entities(one.body["added"])]

    def wait_added(self, entity: str, timeout_s: float = 30.0) -> Told:
        """The change that added an entity."""
        wait_until(lambda: entity in self.added(), f"{entity} on the feed", timeout_s)
        return next(one for one in self.changes() if entity in _entities(one.body["added"]))

    def wait_removed(self, entity: str, timeout_s: float = 30.0) -> Told:
        """The change that removed an entity."""

        def find() -> list[Told]:
            return [
                one
                for one in self.changes()
                if entity in [e["entity"] for e in one.body["removed"]]
            ]

        wait_until(find, f"{entity} off the feed", timeout_s)
        return find()[0]

    def take(self, response: httpx.Response) -> None:
        """Read until the stream ends."""
        lines: dict[str, str] = {}
        try:
            for line in response.iter_lines():
                if line.startswith(":"):
                    self.heartbeats += 1
                elif line:
                    name, _, value = line.partition(": ")
                    lines[name] = value
                elif lines.keys() == {"id"}:
                    lines = {}  # a position alone is no event
                elif lines:
                    body = json.loads(lines["data"])
                    self.told.append(Told(time.monotonic(), lines["id"], lines["event"], body))
                    lines = {}
        except httpx.TransportError:
            pass  # the server was killed; what came before counts
        finally:
            self.ended.set()


@contextmanager
def reading_feed(
    server: Running,
    last_event_id: str = "",
    path: str = "/v1/exclusions/stream",
    key: str | None = None,
) -> Iterator[FeedReader]:
    """A reader that has been told where the feed stands, or what it missed."""
    reader = FeedReader()
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    with (
        server.client(key or server.mint("runtime")) as client,
        client.stream("GET", path, headers=headers, timeout=30.0) as response,
    ):
        assert response.status_code == 200, response.read()
        thread = threading.Thread(target=reader.take, args=(response,), daemon=True)
        thread.start()
        wait_until(lambda: reader.told or reader.heartbeats, "a first word on the stream")
        yield reader
        _shut(response)
        thread.join(5.0)
    assert not thread.is_alive()


def _shut(response: httpx.Response) -> None:
    # Closing from here while the thread reads is an error to httpx: the socket is shut instead.
    stream = response.extensions["network_stream"]
    raw = stream.get_extra_info("socket")
    with suppress(OSError):  # the server has closed it already
        raw.shutdown(socket.SHUT_RDWR)


def _entities(exclusions: list[dict[str, Any]]) -> list[str]:
    return [one["entity"] for one in exclusions]


def digest_of(exclusions: list[dict[str, Any]]) -> str:
    """The digest as the contract words it."""
    lines = sorted(f"{one['entity_kind']}:{one['entity']}" for one in exclusions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def exclusions_of(server: Running) -> dict[str, Any]:
    """GET /v1/exclusions."""
    answer = server.admin.get("/v1/exclusions")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def get(server: Running, path: str, **query: Any) -> Any:
    """GET with the admin key; must succeed."""
    answer = server.admin.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def sweeps(server: Running) -> float:
    """Sweeps done so far."""
    return server.figure("gpuwarden_sweep_duration_seconds_count")


def wait_sweeps(server: Running, count: int = 3) -> None:
    """Wait for some more sweeps: what they were to do, they have done."""
    until = sweeps(server) + count
    wait_until(lambda: sweeps(server) >= until, f"{count} more sweeps")

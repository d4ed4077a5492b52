"""Settings, events and whole agents for the agent's tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuwarden_agent.agent import Agent
from gpuwarden_agent.config import AgentSettings, load_settings
from gpuwarden_agent.spool.entry import Origin
from gpuwarden_wire.batches import Table, pack_table
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema, schema_for

BOOT = "0b00b00b-0000-4000-8000-000000000001"
XID_79 = (
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


def origin(boot_id: str = BOOT) -> Origin:
    return Origin("node-1", boot_id, "0.1.0", 5.0)


def event(number: int, **fields: Any) -> Event:
    return Event(
        id=f"kmsg:{BOOT}:{number}", kind=EventKind.KERNEL_LOG, observed_at=1000.0 + number, **fields
    )


def node_table(load: float, at: float = 1000.0) -> tuple[list[Table], list[Schema]]:
    """One row of telemetry whose content tells it from others."""
    schema = schema_for(EntityKind.NODE, ["node_load1"])
    return [pack_table(schema, at, {"": [load]})], [schema]


def agent_settings(folder: Path, **flags: object) -> AgentSettings:
    """Settings that keep an agent inside `folder`; procfs and sysfs are this machine's."""
    defaults = {
        "server_url": "http://127.0.0.1:9",
        "key": "gw_test",
        "node_id": "node-1",
        "interval_s": 0.2,
        "backoff_max_s": 0.3,
        "kmsg_path": folder / "kern.log",
        "spool_folder": folder / "spool",
        "verdict_file": folder / "run" / "verdict.json",
        "nvml": "off",
    }
    written = {name: str(value) for name, value in (defaults | flags).items()}
    return load_settings({}, written)


@contextmanager
def running(settings: AgentSettings) -> Iterator[Agent]:
    """A whole agent in this process, stopped in the end."""
    agent = Agent(settings)
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            agent.run(stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive(), "the agent does not stop"
        assert not failures, failures

"""Both clients follow what moves, over a server that stops and starts again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from gpuwarden_runtime.async_client import AsyncClient
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import Refused
from gpuwarden_runtime.moves import Told
from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import Feeder, ServerProcess, make_client, make_gpu

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])
HEARD_S = 60.0


class Following:
    """A client that follows in a thread, until `ended`."""

    def __init__(self, kind: str, settings: RuntimeSettings, what: str, **where: Any) -> None:
        self._told: SimpleQueue[Told[Any] | Exception] = SimpleQueue()
        self._settings, self._what, self._where = settings, what, where
        run = self._run if kind == "sync" else lambda: asyncio.run(self._run_async())
        threading.Thread(target=run, daemon=True).start()

    def next(self) -> Told[Any]:
        """What is told next."""
        told = self._told.get(timeout=HEARD_S)
        if isinstance(told, Exception):
            raise told
        return told

    def _run(self) -> None:
        try:
            with Client(self._settings) as client:
                for told in getattr(client, self._what)(**self._where):
                    self._told.put(told)
        except Exception as error:
            self._told.put(error)

    async def _run_async(self) -> None:
        try:
            async with AsyncClient(self._settings) as client:
                async for told in getattr(client, self._what)(**self._where):
                    self._told.put(told)
        except Exception as error:
            self._told.put(error)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(quick_settings(tmp_path_factory.mktemp("moves"), port=_free_port()))
    yield made
    made.close()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@KINDS
def test_moves_are_told_once_and_in_order_over_a_restart(process: ServerProcess, kind: str) -> None:
    server = process.start()
    name = f"node-{kind}"
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(number, name) for number in range(2)])
    settings = RuntimeSettings(url=server.url, key=server.mint("reader"))
    incidents = Following(kind, settings, "follow_incidents", nodes=[name])
    states = Following(kind, settings, "follow_states")
    assert (incidents.next().move, states.next().move) == (None, None)
    node.events(xid_event(79, "0000:10:00.0"))
    opened = incidents.next()
    assert opened.move is not None
    assert (opened.move.after, opened.move.node_id, opened.move.before) == ("open", name, None)
    told = states.next()
    assert told.move is not None
    assert (told.move.entity, told.move.after) == (f"GPU-{name}-0", "excluded")
    server.admin.close()
    node.client.close()
    assert process.terminate() == 0
    server = process.start()
    node.server, node.client = server, make_client(server.url, node.key)
    node.events(xid_event(79, "0000:11:00.0"))
    after = incidents.next()
    while after.move is not None and after.move.incident_id == opened.move.incident_id:
        after = incidents.next()  # the first one goes on
    assert after.move is not None
    assert (after.move.entity, after.move.after) == (f"GPU-{name}-1", "open")
    missed = Following(
        kind, settings, "follow_incidents", nodes=[name], last_event_id=opened.event_id
    )
    first = missed.next()
    assert first.move is not None
    assert first.move.row > opened.move.row
    server.admin.close()
    node.client.close()
    process.terminate()


@KINDS
def test_who_may_not_follow_is_told_so(process: ServerProcess, kind: str) -> None:
    server = process.start()
    settings = RuntimeSettings(url=server.url, key=server.mint("feeder"))
    with pytest.raises(Refused):
        Following(kind, settings, "follow_incidents").next()
    server.admin.close()
    process.terminate()

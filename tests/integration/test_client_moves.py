"""Both clients follow what moves, over a server that stops and starts again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from gpuwarden_runtime.async_client import AsyncClient
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import Refused
from gpuwarden_runtime.moves import Told
from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import Feeder, make_client, make_gpu, running_server
from tests.fakes.ports import free_port

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])
HEARD_S = 60.0
NODE = "node-1"


class Following:
    """A client that follows in a thread, until it hears something once `ends` is set."""

    def __init__(self, kind: str, settings: RuntimeSettings, what: str, **where: Any) -> None:
        self._told: SimpleQueue[Told[Any] | Exception] = SimpleQueue()
        self._settings, self._what, self._where = settings, what, where
        run = self._run if kind == "sync" else lambda: asyncio.run(self._run_async())
        self.ends = False
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def next(self) -> Told[Any]:
        """What is told next."""
        told = self._told.get(timeout=HEARD_S)
        if isinstance(told, Exception):
            raise told
        return told

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join(HEARD_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Client(self._settings) as client:
                for told in getattr(client, self._what)(**self._where):
                    self._told.put(told)
                    if self.ends:
                        return
        except Exception as error:
            self._told.put(error)

    async def _run_async(self) -> None:
        try:
            async with AsyncClient(self._settings) as client:
                async for told in getattr(client, self._what)(**self._where):
                    self._told.put(told)
                    if self.ends:
                        return
        except Exception as error:
            self._told.put(error)


@KINDS
def test_moves_are_told_once_and_in_order_over_a_restart(tmp_path: Path, kind: str) -> None:
    settings = quick_settings(tmp_path, port=free_port())
    with running_server(settings) as server:
        node = Feeder(server, server.mint("agent", NODE), NODE)
        node.introduce([make_gpu(number, NODE) for number in range(2)])
        reader = RuntimeSettings(url=server.url, key=server.mint("reader"))
        incidents = Following(kind, reader, "follow_incidents", nodes=[NODE])
        states = Following(kind, reader, "follow_states")
        assert (incidents.next().move, states.next().move) == (None, None)
        node.events(xid_event(79, "0000:10:00.0"))
        opened = incidents.next()
        assert opened.move is not None
        assert (opened.move.after, opened.move.node_id, opened.move.before) == ("open", NODE, None)
        told = states.next()
        assert told.move is not None
        assert (told.move.entity, told.move.after) == (f"GPU-{NODE}-0", "excluded")
        node.close()
    with running_server(settings) as server:
        node.server, node.client = server, make_client(server.url, node.key)
        states.ends = True  # each ends at the next that it hears
        node.events(xid_event(79, "0000:11:00.0"))
        after = incidents.next()
        while after.move is not None and after.move.incident_id == opened.move.incident_id:
            after = incidents.next()  # the first one goes on
        assert after.move is not None
        assert (after.move.entity, after.move.after) == (f"GPU-{NODE}-1", "open")
        missed = Following(kind, reader, "follow_incidents", last_event_id=opened.event_id)
        first = missed.next()
        assert first.move is not None
        assert first.move.row > opened.move.row
        node.close()
        incidents.ends = missed.ends = True
        server.admin.post(
            f"/v1/incidents/{after.move.incident_id}/acknowledge", json={"reason": "seen"}
        ).raise_for_status()
        for one in (incidents, states, missed):
            one.join()


@KINDS
def test_who_may_not_follow_is_told_so(tmp_path: Path, kind: str) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        reader = RuntimeSettings(url=server.url, key=server.mint("feeder"))
        with pytest.raises(Refused):
            Following(kind, reader, "follow_incidents").next()

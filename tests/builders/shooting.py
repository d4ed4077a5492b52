"""Agents that send events as fast as they are acknowledged, and count what was."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from gpuwarden_wire.batches import Batch, Stream
from gpuwarden_wire.codec import decode_problem
from tests.builders.server import Feeder, Running, make_client, make_event, wait_until

PAUSE_S = 0.05


@dataclass
class Shooter:
    """One node's agent: keeps a batch until it is acknowledged, and follows the leader.

    Attributes:
        feeder: What sends.
        urls: Where it may ask, the configured ones.
        acknowledged: Ids of events whose batch was acknowledged.
        followed: Leaders that it was sent to.
    refused: Answers 503 where there is but one server.
    """

    feeder: Feeder
    urls: Sequence[str]
    acknowledged: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    refused: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send until told to end; each batch until it is taken."""
        while not self._ended.is_set():
            events = tuple(make_event() for _ in range(3))
            batch = self.feeder.batch(Stream.EVENTS, events=events)
            if self._deliver(batch):
                self.acknowledged += [event.id for event in events]

    def end(self) -> None:
        """Send nothing after the batch under way."""
        self._ended.set()

    def _deliver(self, batch: Batch) -> bool:
        turn = 0
        while not self._ended.is_set():
            try:
                answer = self.feeder.post(batch)
            except httpx.TransportError:
                turn += 1
                self._turn_to(self.urls[turn % len(self.urls)])
                continue
            if answer.status_code == 200:
                return True
            assert answer.status_code == 503, answer.text
            problem = decode_problem(answer.content)
            leader = problem.leader if problem is not None else None
            if leader is not None:
                self.followed.append(leader)
                self._turn_to(leader)
            elif len(self.urls) > 1:
                turn += 1
                self._turn_to(self.urls[turn % len(self.urls)])
            else:
                self.refused += 1
                time.sleep(PAUSE_S)
        return False

    def _turn_to(self, url: str) -> None:
        self.feeder.close()
        time.sleep(PAUSE_S)
        self.feeder.client = make_client(url, self.feeder.key)


def wait_flow(shooters: Sequence[Shooter], events: int = 15) -> None:
    """Wait until every node has some more events acknowledged."""
    wanted = [len(one.acknowledged) + events for one in shooters]
    wait_until(
        lambda: all(len(one.acknowledged) >= n for one, n in zip(shooters, wanted, strict=True)),
        "events flow",
        60.0,
    )


def wait_refused(shooters: Sequence[Shooter]) -> None:
    """Wait until every node was refused once more."""
    before = [one.refused for one in shooters]
    wait_until(
        lambda: all(one.refused > n for one, n in zip(shooters, before, strict=True)),
        "all are refused",
        60.0,
    )


def acknowledged_of(shooters: Sequence[Shooter]) -> list[str]:
    """Ids of all events that were acknowledged."""
    return [event for one in shooters for event in one.acknowledged]


@contextmanager
def shooting(server: Running, urls: Sequence[str], nodes: int = 3) -> Iterator[list[Shooter]]:
    """Some nodes that shoot, each in a thread."""
    shooters = [
        Shooter(Feeder(server, server.mint("agent", f"s{n}"), f"s{n}"), urls) for n in range(nodes)
    ]
    threads = [threading.Thread(target=one.run, daemon=True) for one in shooters]
    for thread in threads:
        thread.start()
    try:
        yield shooters
    finally:
        for one in shooters:
            one.end()
        for thread in threads:
            thread.join(30.0)
        for one in shooters:
            one.feeder.close()
    assert not any(thread.is_alive() for thread in threads)

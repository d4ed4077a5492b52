"""The feed's fan-out, without a network: catching up, slow readers, heartbeat, end."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from gpuwarden_server.decisions.feed import FeedChange, FeedHead, frame_of
from gpuwarden_server.decisions.hub import HEARTBEAT_FRAME, READER_BUFFER_BYTES, FeedHub
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_wire.metrics import EntityKind

FEED = "f" * 32


def change(epoch: int, reason: str = "XID 79") -> FeedChange:
    exclusion = Exclusion(
        entity_kind=EntityKind.GPU,
        entity=f"GPU-{epoch}",
        node_id="node-1",
        gpu_uuid=f"GPU-{epoch}",
        pci_bus_id="0000:10:00.0",
        gpu_index=0,
        rung=Rung.EXCLUDE,
        since=1.0,
        reason=reason,
        decision_id=f"dec-{epoch}",
        decided_by="rule",
        expires_at=None,
    )
    return FeedChange(head(epoch), 1.0, (exclusion,), ())


def head(epoch: int) -> FeedHead:
    return FeedHead(feed_id=FEED, epoch=epoch, count=epoch, digest="d" * 64)


def started(epoch: int, known: range = range(0), heartbeat_s: float = 60.0) -> FeedHub:
    hub = FeedHub(CollectorRegistry(), heartbeat_s)
    hub.start(head(epoch), [frame_of(change(number)) for number in known])
    return hub


def epochs(chunk: bytes) -> list[int]:
    lines = [line for line in chunk.decode().splitlines() if line.startswith("id: ")]
    return [int(line.rpartition(":")[2]) for line in lines]


async def first_word(hub: FeedHub, last_event_id: str) -> bytes:
    reader = hub.join(last_event_id)
    chunk = await reader.take()
    hub.leave(reader)
    return chunk


def test_a_returning_reader_gets_exactly_what_it_missed() -> None:
    async def story() -> None:
        hub = started(5, range(3, 6))
        assert epochs(await first_word(hub, f"{FEED}:2")) == [3, 4, 5]
        assert epochs(await first_word(hub, f"{FEED}:4")) == [5]
        assert await first_word(hub, f"{FEED}:5") == HEARTBEAT_FRAME
        gap = await first_word(hub, f"{FEED}:1")
        assert b"event: state" in gap, "epoch 2 is not kept any more: read the whole set"
        hub.close()

    asyncio.run(story())


@pytest.mark.parametrize("last", ["", "x", f"{FEED}:", f"{FEED}:6", f"{FEED}:+5", "other:5"])
def test_an_unknown_position_gets_the_state(last: str) -> None:
    async def story() -> None:
        hub = started(5, range(1, 6))
        assert b"event: state" in await first_word(hub, last)
        hub.close()

    asyncio.run(story())


def test_changes_come_in_order_to_everybody() -> None:
    async def story() -> None:
        hub = started(0)
        readers = [hub.join("") for _ in range(3)]
        for reader in readers:
            await reader.take()
        for epoch in (1, 2, 3):
            hub.publish(change(epoch))
        await asyncio.sleep(0)
        assert [epochs(await reader.take()) for reader in readers] == [[1, 2, 3]] * 3
        hub.close()

    asyncio.run(story())


def test_a_reader_that_does_not_read_is_dropped_and_the_others_are_not() -> None:
    async def story() -> None:
        hub = started(0)
        slow_left = asyncio.Event()

        async def stall() -> None:
            reader = hub.join("")
            try:
                await asyncio.sleep(30)  # stands for a send that does not come back
            except asyncio.CancelledError:
                assert reader.closed
                slow_left.set()

        stalled = asyncio.create_task(stall())
        await asyncio.sleep(0)
        quick = hub.join("")
        long = "x" * (READER_BUFFER_BYTES // 4)
        for epoch in range(1, 7):
            hub.publish(change(epoch, long))
            await asyncio.sleep(0)
            assert (await quick.take()) != b""
        await asyncio.wait_for(slow_left.wait(), 2.0)
        await stalled
        assert hub.reader_count == 1
        assert epochs(await first_word(hub, f"{FEED}:3")) == [4, 5, 6], "it may come back"
        hub.close()

    asyncio.run(story())


def test_quiet_readers_get_a_heartbeat() -> None:
    async def story() -> None:
        hub = started(0, heartbeat_s=0.01)
        reader = hub.join("")
        await reader.take()
        assert await asyncio.wait_for(reader.take(), 2.0) == HEARTBEAT_FRAME
        assert await asyncio.wait_for(reader.take(), 2.0) == HEARTBEAT_FRAME
        hub.close()

    asyncio.run(story())


def test_the_end_of_the_server_ends_every_stream() -> None:
    async def story() -> None:
        hub = started(0)
        reader = hub.join("")
        await reader.take()
        hub.close()
        assert await asyncio.wait_for(reader.take(), 2.0) == b""
        late = hub.join("")
        await late.take()
        assert await asyncio.wait_for(late.take(), 2.0) == b""

    asyncio.run(story())

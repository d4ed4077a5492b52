"""A stream's fan-out, without a network: catching up, slow readers, heartbeat, end."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from gpuwarden_server.streams.frames import HEARTBEAT, Frame, Standing, event_frame
from gpuwarden_server.streams.hub import StreamHub
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_server.streams.reader import READER_BUFFER_BYTES

FEED = "f" * 32


def frame(position: int, text: str = "", node_id: str = "") -> Frame:
    body = event_frame(f"{FEED}:{position}", "change", b'"%b"' % text.encode())
    return Frame(position, body, node_id)


def standing(position: int) -> Standing:
    return Standing(FEED, position, event_frame(f"{FEED}:{position}", "state", b"{}"))


def started(position: int, known: range = range(0), heartbeat_s: float = 60.0) -> StreamHub:
    hub = StreamHub("test", StreamMeters(CollectorRegistry()), heartbeat_s)
    hub.start(standing(position), [frame(number) for number in known])
    return hub


def publish(hub: StreamHub, position: int, text: str = "", node_id: str = "") -> None:
    hub.publish([frame(position, text, node_id)], standing(position))


def positions(chunk: bytes) -> list[int]:
    lines = [line for line in chunk.decode().splitlines() if line.startswith("id: ")]
    return [int(line.rpartition(":")[2]) for line in lines]


async def first_word(hub: StreamHub, last_event_id: str) -> bytes:
    reader = hub.join(last_event_id)
    chunk = await reader.take()
    hub.leave(reader)
    return chunk


def test_a_returning_reader_gets_exactly_what_it_missed() -> None:
    async def story() -> None:
        hub = started(5, range(3, 6))
        assert positions(await first_word(hub, f"{FEED}:2")) == [3, 4, 5]
        assert positions(await first_word(hub, f"{FEED}:4")) == [5]
        assert await first_word(hub, f"{FEED}:5") == HEARTBEAT
        gap = await first_word(hub, f"{FEED}:1")
        assert b"event: state" in gap, "position 2 is not kept any more: read the whole set"
        hub.close()

    asyncio.run(story())


@pytest.mark.parametrize("last", ["", "x", f"{FEED}:", f"{FEED}:6", f"{FEED}:+5", "other:5"])
def test_an_unknown_position_gets_where_the_stream_stands(last: str) -> None:
    async def story() -> None:
        hub = started(5, range(1, 6))
        assert b"event: state" in await first_word(hub, last)
        hub.close()

    asyncio.run(story())


def test_events_come_in_order_to_everybody() -> None:
    async def story() -> None:
        hub = started(0)
        readers = [hub.join("") for _ in range(3)]
        for reader in readers:
            await reader.take()
        for position in (1, 2, 3):
            publish(hub, position)
        await asyncio.sleep(0)
        assert [positions(await reader.take()) for reader in readers] == [[1, 2, 3]] * 3
        hub.close()

    asyncio.run(story())


def test_a_reader_hears_of_the_nodes_that_it_wants() -> None:
    async def story() -> None:
        hub = started(0, heartbeat_s=0.01)
        reader = hub.join("", lambda node_id: node_id == "n1")
        await reader.take()
        publish(hub, 1, node_id="n1")
        publish(hub, 2, node_id="n2")
        publish(hub, 3)
        await asyncio.sleep(0)
        assert positions(await reader.take()) == [1, 3]
        publish(hub, 4, node_id="n2")
        beat = await asyncio.wait_for(reader.take(), 2.0)
        assert positions(beat) in ([3], [4]), "its place moves on, though nothing is for it"
        assert b"data" not in beat
        hub.leave(reader)
        back = hub.join(f"{FEED}:1", lambda node_id: node_id == "n1")
        assert positions(await back.take()) == [3]
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
                assert reader.evicted
                slow_left.set()

        stalled = asyncio.create_task(stall())
        await asyncio.sleep(0)
        quick = hub.join("")
        long = "x" * (READER_BUFFER_BYTES // 4)
        for position in range(1, 7):
            publish(hub, position, long)
            await asyncio.sleep(0)
            assert (await quick.take()) != b""
        await asyncio.wait_for(slow_left.wait(), 2.0)
        await stalled
        assert hub.reader_count == 1
        assert positions(await first_word(hub, f"{FEED}:3")) == [4, 5, 6], "it may come back"
        hub.close()

    asyncio.run(story())


def test_quiet_readers_get_a_heartbeat() -> None:
    async def story() -> None:
        hub = started(0, heartbeat_s=0.01)
        reader = hub.join("")
        await reader.take()
        assert await asyncio.wait_for(reader.take(), 2.0) == HEARTBEAT
        assert await asyncio.wait_for(reader.take(), 2.0) == HEARTBEAT
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

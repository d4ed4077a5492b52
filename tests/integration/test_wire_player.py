"""The wire player against a small server that answers as the ingest contract says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_models.simulator.wire_player import WirePlayer
from gpuwarden_wire.acknowledgement import Acknowledgement, Problem
from gpuwarden_wire.batches import CONTENT_TYPE, Batch, Stream
from gpuwarden_wire.codec import decode_batch, encode_json
from tests.fakes.loopback import LoopbackHandler, serving_on_loopback
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for

Place = tuple[str, str, Stream]


class FakeIngest:
    """Applies batches in order; may forget what was applied but not durable, as a crash would."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.schemas: set[str] = set()
        self.applied: dict[Place, dict[int, Batch]] = {}
        self.durable: dict[Place, int] = {}
        self.keys: set[str] = set()
        self.wanted_schemas = 0
        self.refuse_node = ""

    def answer(self, batch: Batch, key: str) -> tuple[int, bytes]:
        with self.lock:
            self.keys.add(key)
            if batch.node_id == self.refuse_node:
                return 403, self.problem("forbidden", 403)
            self.schemas.update(schema.hash for schema in batch.schemas)
            if any(table.schema not in self.schemas for table in batch.tables):
                self.wanted_schemas += 1
                return 428, self.problem("schema_required", 428)
            return 200, encode_json(self.apply(batch))

    def apply(self, batch: Batch) -> Acknowledgement:
        place = (batch.node_id, batch.spool_id, batch.stream)
        seen = self.applied.setdefault(place, {})
        replayed = batch.seq in seen
        assert replayed or batch.seq == max(seen, default=0) + 1, "a gap or a step back"
        seen[batch.seq] = batch
        behind = 0 if batch.stream is Stream.EVENTS else 2
        self.durable[place] = max(seen) - behind
        return Acknowledgement(
            stream=batch.stream,
            applied_seq=max(seen),
            durable_seq=self.durable.get(place, 0),
            replayed=replayed,
        )

    def crash(self) -> None:
        """Back to what is durable."""
        with self.lock:
            self.schemas.clear()
            for place, seen in self.applied.items():
                for seq in [seq for seq in seen if seq > self.durable.get(place, 0)]:
                    del seen[seq]

    def telemetry(self, node: str) -> list[int]:
        with self.lock:
            return [
                seq
                for (name, _, stream), seen in self.applied.items()
                if name == node and stream is Stream.TELEMETRY
                for seq in seen
            ]

    def event_ids(self) -> list[str]:
        with self.lock:
            return [
                event.id
                for seen in self.applied.values()
                for batch in seen.values()
                for event in batch.events
            ]

    @staticmethod
    def problem(code: str, status: int) -> bytes:
        kind = f"urn:gpuwarden:problem:{code}"
        return encode_json(Problem(type=kind, title=code, status=status, code=code))


@contextmanager
def serving(ingest: FakeIngest, port: int = 0) -> Iterator[int]:
    """The fake on a loopback port; once left it answers nothing more, as after a crash."""

    class Handler(LoopbackHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/ingest"
            assert self.headers["Content-Type"] == CONTENT_TYPE
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code, answer = ingest.answer(decode_batch(body), self.headers["Authorization"])
            self.send_response(code)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with serving_on_loopback(Handler, port) as server:
        yield server.server_port


def play(port: int) -> tuple[WirePlayer, Simulation]:
    simulation = Simulation(Setting(nodes=3, gpus_per_node=2, seed=5, interval_s=1.0, salt="x"))
    url = f"http://127.0.0.1:{port}"
    player = WirePlayer(simulation, url, lambda node: f"key-of-{node}", 1.0, paced=False)
    return player, simulation


def wait_for_frames(player: WirePlayer, frames: int) -> None:
    wait_for(lambda: player.counters().frames >= frames, what=f"{frames} frames")


def test_every_node_plays_its_own_spool_with_its_own_key() -> None:
    ingest = FakeIngest()
    with serving(ingest) as port:
        player, simulation = play(port)
        gpu = simulation.topology.gpus[3].gpu_uuid
        player.inject(ScriptedFault(FaultName.GPU_OFF_BUS, gpu, at_s=2.0))
        player.start()
        wait_for_frames(player, 10)
        assert player.stop(drain_s=10.0)
    counters = player.counters()
    assert counters.rejected == counters.waiting == counters.reconnects == 0
    assert ingest.keys == {f"Bearer key-of-{node}" for node in simulation.topology.nodes}
    assert len({spool for _, spool, _ in ingest.applied}) == 3
    assert sorted(ingest.event_ids()) == sorted(player.event_ids())
    assert player.acknowledged_event_ids() == frozenset(player.event_ids())
    lost = [seen for seen in ingest.event_ids() if seen.startswith("gpu_lost")]
    assert len(lost) == 1


def test_a_server_that_dies_and_forgets_gets_everything_again() -> None:
    ingest, port = FakeIngest(), free_port()
    player, simulation = play(port)
    nodes = simulation.topology.nodes
    with serving(ingest, port):
        player.start()
        # The fourth is sent once the answer to the third was read, by which the first is durable:
        # so no node sends its first again, which carries the schemas that the crash loses.
        wait_for(lambda: all(max(ingest.telemetry(node), default=0) > 3 for node in nodes))
    ingest.crash()
    with serving(ingest, port):
        wait_for(lambda: ingest.wanted_schemas > 0, what="schemas asked for")
        assert player.stop(drain_s=20.0), player.counters()
    counters = player.counters()
    assert counters.reconnects > 0
    ids = ingest.event_ids()
    assert len(ids) == len(set(ids)) == counters.events_sealed
    for node in nodes:
        sequences = sorted(ingest.telemetry(node))
        assert sequences == list(range(1, len(sequences) + 1))


def test_a_node_that_is_refused_does_not_hold_up_the_others() -> None:
    ingest = FakeIngest()
    ingest.refuse_node = "gpu-0002"
    with serving(ingest) as port:
        player, _ = play(port)
        player.start()
        wait_for_frames(player, 6)
        assert not player.stop(drain_s=0.3)
    assert ingest.telemetry("gpu-0001") and ingest.telemetry("gpu-0003")
    assert "forbidden" in player.counters().trouble
    assert player.counters().waiting > 0


def test_one_that_never_started_can_be_stopped() -> None:
    """A signal may come between making it and starting it."""
    with serving(FakeIngest()) as port:
        player, _ = play(port)
        assert player.stop(drain_s=0.0)

"""What a worker does where a consumer fails: over a real store, with a consumer in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gpuwarden_server.actuators import repository
from gpuwarden_server.actuators.document import CommandTarget, Common
from gpuwarden_server.actuators.domain import Actuation, Phase
from gpuwarden_server.actuators.meters import ActuatorMeters
from gpuwarden_server.actuators.ports import ActuatorError
from gpuwarden_server.actuators.programs import run_program
from gpuwarden_server.actuators.worker import ActuatorWorker, WorkerParts
from gpuwarden_server.core.clock import SystemClock
from gpuwarden_server.store.database import Store, connect_store
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_verdict.actuation import Act, Hold
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stores import place_in
from tests.fakes.consumer import FakeConsumer
from tests.fakes.waiting import wait_for

BOTH_STORES = True


def exclusion(node: str, decision: str = "dec-1") -> Exclusion:
    return Exclusion(
        EntityKind.NODE,
        node,
        node,
        None,
        None,
        None,
        Rung.EVICT,
        1.0,
        "row remap failed",
        decision,
        "rule",
        None,
    )


@dataclass
class Stage:
    """A store, a consumer, and workers over them one after the other, as after restarts."""

    store: Store
    consumer: FakeConsumer = field(default_factory=FakeConsumer)
    feed: list[Exclusion] = field(default_factory=list)
    workers: list[ActuatorWorker] = field(default_factory=list)

    def start(self, nodes: tuple[str, ...] = ("*",), *, dry_run: bool = False) -> ActuatorWorker:
        common = Common("c", nodes, dry_run, every_s=0.05)
        parts = WorkerParts(
            target=CommandTarget(common, ("x",), "", Rung.EVICT),
            actuator=self.consumer,
            state=self.store.state,
            clock=SystemClock(),
            feed=lambda: tuple(self.feed),
            may_act=lambda: True,
            meters=ActuatorMeters(CollectorRegistry()),
        )
        self.workers.append(ActuatorWorker(parts))
        self.workers[-1].start()
        return self.workers[-1]

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop(10.0)
        self.workers.clear()

    def rows(self) -> list[Actuation]:
        with self.store.state.read() as connection:
            return repository.read_page(connection, None, 1000)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    place = place_in(tmp_path)
    prepare_store(place)
    store = connect_store(place)
    store.start()
    made = Stage(store)
    yield made
    made.stop()
    store.close()


def looks(worker: ActuatorWorker, times: int = 3) -> None:
    """Wait until it has looked so often again."""
    for _ in range(times):
        before = worker.look.looked_at or 0.0
        wait_for(lambda before=before: (worker.look.looked_at or 0.0) > before)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def standing(worker: ActuatorWorker, node: str) -> str:
    return next((step.standing.value for step in worker.look.steps if step.node_id == node), "")


def test_jobs_stay_where_the_node_could_not_be_excluded(stage: Stage) -> None:
    stage.consumer.refuse.add("exclude")
    stage.consumer.jobs["n1"] = ("7",)
    stage.feed.append(exclusion("n1"))
    worker = stage.start()
    wait_for(lambda: "exclude n1" in worker.trouble, what="said")
    looks(worker, 5)
    assert ("move", "n1") not in stage.consumer.calls
    stage.consumer.refuse.clear()
    wait_for(lambda: ("move", "n1") in stage.consumer.calls, what="then moved")
    wait_for(lambda: worker.trouble == "", what="well again")


def test_jobs_stay_where_a_person_was_faster(stage: Stage) -> None:
    stage.consumer.jobs["n1"] = ("7",)
    stage.consumer.theirs["n1"] = "bad dimm"
    stage.feed.append(exclusion("n1"))
    worker = stage.start()
    wait_for(lambda: standing(worker, "n1") == "already_out")
    assert stage.consumer.calls == []


def test_what_took_effect_unseen_is_released_all_the_same(stage: Stage) -> None:
    stage.consumer.refuse_reads = 1
    stage.feed.append(exclusion("n1"))
    worker = stage.start()
    wait_for(lambda: standing(worker, "n1") == "in_place", what="in place with a record")
    assert {row.phase for row in stage.rows()} == {Phase.FAILED, Phase.DONE}
    stage.feed.clear()
    worker.wake()
    wait_for(lambda: not stage.consumer.held, what="released")


def test_a_move_left_open_holds_nobody_else_up(stage: Stage) -> None:
    stage.consumer.held["n1"] = "gpuwarden: dec-1 row remap failed"
    stage.consumer.jobs["n1"] = ("7",)
    stage.consumer.refuse.add("move")
    stage.feed += [exclusion("n1"), exclusion("n2", "dec-2")]
    left = Actuation(
        0,
        "c",
        "n1",
        Act.MOVE,
        Phase.BEGUN,
        ("dec-1",),
        ("7",),
        "why",
        Hold.OURS,
        None,
        "",
        time.time(),
        None,
    )
    stage.store.state.writer.call(lambda writes: repository.begin(writes, left))
    worker = stage.start()
    wait_for(lambda: "n2" in stage.consumer.held, what="the other is excluded")
    wait_for(lambda: all(row.phase is not Phase.BEGUN for row in stage.rows()), what="ended")
    wait_for(lambda: "move n1" in worker.trouble, what="said")


def test_a_step_that_keeps_failing_is_tried_less_and_less_often(stage: Stage) -> None:
    stage.consumer.refuse.add("exclude")
    stage.feed.append(exclusion("n1"))
    worker = stage.start()
    wait_for(lambda: worker.trouble, what="said")
    looks(worker, 10)
    assert len(stage.consumer.calls) <= 2


def test_a_dry_run_is_written_once_and_asks_for_nothing(stage: Stage) -> None:
    stage.consumer.jobs["n1"] = ("7",)
    stage.feed.append(exclusion("n1"))
    worker = stage.start(dry_run=True)
    wait_for(lambda: len(stage.rows()) == 2, what="both steps told")
    looks(worker, 5)
    assert {(row.act, row.phase) for row in stage.rows()} == {
        (Act.EXCLUDE, Phase.DRY_RUN),
        (Act.MOVE, Phase.DRY_RUN),
    }
    assert len(stage.rows()) == 2
    assert stage.consumer.calls == []


def test_a_node_that_is_no_longer_ours_to_act_on_is_shown_and_left(stage: Stage) -> None:
    stage.feed.append(exclusion("n1"))
    first = stage.start()
    wait_for(lambda: standing(first, "n1") == "in_place")
    stage.stop()
    second = stage.start(nodes=("m*",))
    wait_for(lambda: standing(second, "n1") == "orphan")
    assert "n1" in stage.consumer.held


@pytest.mark.parametrize("command", ["sleep 60", "setsid sleep 60 & exit 3"])
def test_a_program_holds_nobody_longer_than_its_limit(command: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ActuatorError, match=r"longer than 1 s|ended with 3"):
        run_program(("/bin/sh", "-c", command), 1.0, variables={"PATH": "/usr/bin:/bin"}, mend="m")
    assert time.monotonic() - begun < 40.0


def told(run: Callable[[], object]) -> str:
    with pytest.raises(ActuatorError) as refused:
        run()
    return str(refused.value)


def test_errors_of_programs_name_no_arguments() -> None:
    def ask() -> object:
        secret = ("/bin/sh", "-c", "exit 4", "--token=s3cret")
        return run_program(secret, 5.0, variables={}, mend="m")

    assert "s3cret" not in told(ask)

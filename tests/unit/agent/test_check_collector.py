"""Plug-in checks from run to reading and event."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwarden_agent.checks.definitions import CheckDefinition, Output
from gpuwarden_agent.checks.orders import OrderFolder
from gpuwarden_agent.checks.runner import AT_ONCE, CheckRunner
from gpuwarden_agent.collectors.checks import CheckCollector
from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_kernel_log.vocabulary import FaultClass
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable
from gpuwarden_wire.events import Event, EventKind, GpuIdentity
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Stale, Unavailable
from tests.builders.agent import BOOT
from tests.builders.plug_ins import definition, program
from tests.fakes.waiting import wait_for

GPU = GpuIdentity(gpu_uuid="GPU-1", pci_bus_id="0000:3b:00.0")


class Rig:
    """A collector over real processes; time moves by hand."""

    def __init__(
        self,
        *checks: CheckDefinition,
        gpus: tuple[GpuIdentity, ...] = (GPU,),
        run_folder: Path = Path("/nonexistent"),
    ) -> None:
        self.now = 1000.0
        self.troubles: list[Event] = []
        self.events: list[Event] = []
        self.verdict: NodeVerdict | None = None
        self.idle: bool | None = None
        self.board = ConditionBoard(self.troubles.extend, BOOT)
        self.runner = CheckRunner(checks, clock=lambda: self.now, monotonic=lambda: self.now)
        self.collector = CheckCollector(
            checks,
            5.0,
            BOOT,
            gpus=lambda: gpus,
            conditions=self.board,
            verdict=lambda: self.verdict,
            orders=OrderFolder(run_folder, BOOT),
            idle=lambda: self.idle,
            runner=self.runner,
            monotonic=lambda: self.now,
        )
        self.rows: dict[tuple[EntityKind, str], dict[str, Reading]] = {}

    def collect(self) -> Harvest:
        harvest = self.collector.collect(self.now)
        self.events += harvest.events
        self.rows = {
            (kind, entity): dict(row)
            for kind, entities in harvest.rows.items()
            for entity, row in entities.items()
        }
        return harvest

    def run_all(self) -> list[Event]:
        """Every check runs once, due or not; the events that this makes."""
        before = len(self.events)
        self.now += 10_000.0
        self.collect()
        while self.runner.busy:
            time.sleep(0.005)
            self.collect()
        self.collect()
        return self.events[before:]

    def node(self, metric: str) -> Reading | None:
        return self.rows.get((EntityKind.NODE, ""), {}).get(metric)


@pytest.fixture
def answer(tmp_path: Path) -> Callable[[str, int], None]:
    """Sets what the program `check` in the test's folder prints and how it exits."""

    def change(output: str, code: int) -> None:
        (tmp_path / "output").write_text(output)
        (tmp_path / "code").write_text(str(code))

    change("OK", 0)
    program(tmp_path / "check", f"cat {tmp_path}/output; exit $(cat {tmp_path}/code)", shell=True)
    return change


Answer = Callable[[str, int], None]


def test_a_result_is_a_reading_and_each_change_an_event(tmp_path: Path, answer: Answer) -> None:
    rig = Rig(
        definition(
            "disk", tmp_path / "check", readings={"used": "/"}, fault_class=FaultClass.STORAGE
        )
    )
    answer("DISK OK | /=5", 0)
    (first,) = rig.run_all()
    assert rig.node("check_disk") == 0.0
    assert rig.node("check_disk_used") == 5.0
    assert first.kind is EventKind.CHECK_PASSED  # first result of this run of the agent
    assert rig.run_all() == []
    answer("DISK CRITICAL | /=99", 2)
    (failed,) = rig.run_all()
    assert rig.node("check_disk") == 2.0
    assert (failed.kind, failed.severity, failed.text) == (
        EventKind.CHECK_FAILED, "error", "DISK CRITICAL",
    )  # fmt: skip
    assert failed.attributes["check"] == "disk"
    assert failed.attributes["before"] == "ok"
    assert failed.attributes["plug_in"] is True
    assert failed.attributes["fault_class"] == "storage"
    assert failed.attributes["figures"] == "/=99"
    assert rig.run_all() == []
    answer("DISK WARNING", 1)
    assert [event.attributes["state"] for event in rig.run_all()] == ["warning"]
    answer("DISK OK", 0)
    (passed,) = rig.run_all()
    assert passed.kind is EventKind.CHECK_PASSED
    assert len({event.id for event in rig.events}) == 4
    assert rig.troubles == []


def test_a_gpu_is_named_by_uuid_or_by_its_address(tmp_path: Path, answer: Answer) -> None:
    rig = Rig(definition("gemm", tmp_path / "check", output=Output.JSON, readings={"flops": "f"}))
    answer('{"gpu_uuid": "GPU-1", "state": "critical", "readings": {"f": 7}}', 0)
    (event,) = rig.run_all()
    assert (event.entity_kind, event.entity) == (EntityKind.GPU, "GPU-1")
    assert event.pci_bus_id == GPU.pci_bus_id
    assert rig.rows == {(EntityKind.GPU, "GPU-1"): {"check_gemm": 2.0, "check_gemm_flops": 7.0}}
    answer('{"pci_bus_id": "00000000:3B:00.0", "state": "ok"}', 0)
    (event,) = rig.run_all()
    assert (event.kind, event.entity) == (EventKind.CHECK_PASSED, "GPU-1")


def test_before_any_gpu_is_known_its_event_goes_out_by_address(
    tmp_path: Path, answer: Answer
) -> None:
    rig = Rig(definition("gemm", tmp_path / "check", output=Output.JSON), gpus=())
    answer('{"pci_bus_id": "0000:3b:00.0", "state": "critical"}', 0)
    (event,) = rig.run_all()
    assert (event.entity_kind, event.entity, event.pci_bus_id) == (
        EntityKind.GPU, "", "0000:3b:00.0",
    )  # fmt: skip
    assert rig.rows == {}


def test_a_gpu_that_is_not_the_nodes_makes_the_check_unknown(
    tmp_path: Path, answer: Answer
) -> None:
    rig = Rig(definition("gemm", tmp_path / "check", output=Output.JSON))
    answer('{"gpu_uuid": "GPU-other", "state": "critical"}', 0)
    assert rig.run_all() == []
    assert rig.rows == {(EntityKind.NODE, ""): {"check_gemm": Unavailable("no_such_gpu")}}
    assert [trouble.attributes["source"] for trouble in rig.troubles] == ["check:gemm"]


def test_an_unknown_result_fails_and_passes_nothing(tmp_path: Path, answer: Answer) -> None:
    rig = Rig(definition("disk", tmp_path / "check", readings={"used": "/"}))
    answer("CRITICAL | /=9", 2)
    rig.run_all()
    answer("cannot say", 3)
    assert rig.run_all() == []
    assert rig.node("check_disk") == Unavailable("check_says_unknown")
    assert rig.node("check_disk_used") == Unavailable("check_says_unknown")
    (trouble,) = rig.troubles
    assert trouble.kind is EventKind.COLLECTOR_TROUBLE
    assert "cannot say" in trouble.text
    answer("what", 9)
    assert rig.run_all() == []
    answer("CRITICAL | /=9", 2)
    assert rig.run_all() == []  # it said critical before, and nothing else since
    assert [(event.kind, event.attributes.get("reason")) for event in rig.troubles] == [
        (EventKind.COLLECTOR_TROUBLE, "check_says_unknown"),
        (EventKind.COLLECTOR_TROUBLE, "exit_code_9"),
        (EventKind.COLLECTOR_RECOVERED, None),
    ]


BROKEN: dict[str, tuple[str, str]] = {
    "missing": ("no_such_file", "command"),
    "plain": ("not_executable", "chmod +x"),
    "hangs": ("deadline_exceeded", "deadline_s"),
    "segfault": ("ended_by_signal_11", "by hand"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_check_is_own_trouble_with_a_mend(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_text("")
    program(tmp_path / "hangs", "sleep 600", shell=True)
    program(tmp_path / "segfault", "kill -SEGV $$", shell=True)
    rig = Rig(definition("broken", tmp_path / name, deadline_s=0.5))
    assert rig.run_all() == []
    reason, mend = BROKEN[name]
    assert rig.node("check_broken") == Unavailable(reason)
    (trouble,) = rig.troubles
    assert trouble.attributes["reason"] == reason
    assert mend in str(trouble.attributes["mend"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused what others may write")
def test_as_root_a_program_that_others_may_write_is_not_run(tmp_path: Path, answer: Answer) -> None:
    (tmp_path / "check").chmod(0o777)
    rig = Rig(definition("disk", tmp_path / "check"))
    assert rig.run_all() == []
    assert rig.node("check_disk") == Unavailable("refused")
    (trouble,) = rig.troubles
    assert "chmod go-w" in str(trouble.attributes["mend"])
    (tmp_path / "check").chmod(0o755)
    assert [event.kind for event in rig.run_all()] == [EventKind.CHECK_PASSED]


def test_entities_that_are_no_longer_spoken_of_are_unknown(tmp_path: Path, answer: Answer) -> None:
    rig = Rig(definition("gemm", tmp_path / "check", output=Output.JSON))
    answer('{"gpu_uuid": "GPU-1", "state": "ok"}\n{"state": "ok"}', 0)
    rig.run_all()
    answer('{"state": "ok"}', 0)
    rig.run_all()
    assert rig.rows[EntityKind.GPU, "GPU-1"] == {"check_gemm": Unavailable("not_reported")}
    assert rig.node("check_gemm") == 0.0
    (tmp_path / "check").unlink()
    rig.run_all()
    assert rig.rows[EntityKind.GPU, "GPU-1"] == {"check_gemm": Unavailable("no_such_file")}
    assert rig.node("check_gemm") == Unavailable("no_such_file")


def test_a_result_grows_old_when_no_further_run_ends(tmp_path: Path, answer: Answer) -> None:
    rig = Rig(definition("disk", tmp_path / "check", readings={"used": "/"}))
    answer("OK | /=5", 0)
    rig.run_all()
    program(tmp_path / "check", "sleep 600", shell=True)
    rig.now += 100.0
    rig.collect()
    assert rig.node("check_disk") == Stale(100.0)
    assert rig.node("check_disk_used") == Stale(100.0)
    rig.collector.close()


def verdict(node: str, gpu: str) -> NodeVerdict:
    def entity(kind: str, name: str, state: str) -> EntityVerdict:
        return EntityVerdict(entity_kind=kind, entity=name, usable=Usable.YES, state=state)

    return NodeVerdict(
        node_id="node-1",
        node=entity("node", "node-1", node),
        gpus=(entity("gpu", "GPU-1", gpu),),
        feed_id="f",
        epoch=1,
        issued_at=1.0,
    )


@pytest.mark.parametrize(
    ("output", "proves", "node", "gpu", "told"),
    [
        ('{"state": "ok"}', True, "in_repair", "healthy", True),
        ('{"state": "ok"}', True, "healthy", "in_repair", True),
        ('{"state": "ok"}', True, "healthy", "excluded", False),
        ('{"state": "ok"}', False, "in_repair", "in_repair", False),
        ('{"gpu_uuid": "GPU-1", "state": "ok"}', True, "healthy", "in_repair", True),
        ('{"gpu_uuid": "GPU-1", "state": "ok"}', True, "in_repair", "healthy", False),
        ('{"state": "warning"}', True, "in_repair", "in_repair", False),
    ],
)
def test_a_pass_that_proves_a_repair_is_told_while_in_repair(
    tmp_path: Path, answer: Answer, output: str, proves: bool, node: str, gpu: str, told: bool
) -> None:
    check = definition("gemm", tmp_path / "check", output=Output.JSON, proves_repair=proves)
    rig = Rig(check)
    answer(output, 0)
    rig.run_all()
    rig.verdict = verdict(node, gpu)
    began = rig.now
    events = rig.run_all()
    assert [event.kind for event in events] == ([EventKind.CHECK_PASSED] if told else [])
    assert all(event.observed_at > began for event in events)


def test_few_run_at_once_and_none_twice(tmp_path: Path) -> None:
    program(tmp_path / "slow", f"echo $$ >> {tmp_path}/starts; sleep 600", shell=True)
    rig = Rig(*(definition(f"slow{n}", tmp_path / "slow", deadline_s=60.0) for n in range(6)))
    for _ in range(4):
        rig.collect()
        rig.now += 100.0
    assert rig.runner.busy == AT_ONCE
    starts = tmp_path / "starts"
    wait_for(lambda: starts.exists() and len(starts.read_text().split()) == AT_ONCE)
    rig.collector.close()
    rig.collect()
    assert rig.troubles == []  # that we ended them says nothing about them


def test_closed_it_runs_nothing_and_starts_anew_when_asked(tmp_path: Path, answer: Answer) -> None:
    rig = Rig(definition("disk", tmp_path / "check"))
    rig.run_all()
    rig.collector.close()
    answer("CRITICAL", 2)
    rig.collect()  # at once, not an interval later: what was maintained is looked at
    wait_for(lambda: rig.collect().events)
    assert rig.node("check_disk") == 2.0

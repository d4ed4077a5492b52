"""One plug-in check run by order: what may start, what is answered, what is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuwarden_agent.checks.definitions import When
from gpuwarden_agent.checks.orders import OrderFolder, RunAnswer, RunOrder, Stage
from gpuwarden_agent.run_files import uptime_s
from gpuwarden_wire.events import EventKind
from tests.builders.agent import BOOT
from tests.builders.plug_ins import definition, program
from tests.fakes.waiting import wait_for
from tests.unit.agent.test_check_collector import Rig


@dataclass
class Desk:
    """A collector that takes orders, and the folder where they are given."""

    rig: Rig
    orders: OrderFolder

    def order(self, order_id: str, check: str = "gemm", **more: object) -> None:
        terms: dict[str, object] = {"boot_id": BOOT, "until_s": uptime_s() + 60.0}
        self.orders.give(RunOrder(id=order_id, check=check, **(terms | more)))  # type: ignore[arg-type]  # its fields

    def stage(self, order_id: str) -> tuple[Stage, str] | None:
        self.rig.collect()
        answer = self.orders.answer(order_id)
        return None if answer is None else (answer.stage, answer.reason)

    def await_end(self, order_id: str) -> RunAnswer:
        wait_for(lambda: self.stage(order_id) == (Stage.ENDED, ""))
        answer = self.orders.answer(order_id)
        assert answer is not None
        return answer


def desk(folder: Path, body: str = "echo fine", **keys: object) -> Desk:
    """One check, `gemm`, whose scheduled runs are a week apart; the first of them is over."""
    path = program(folder / "check", body, shell=True)
    check = definition("gemm", path, **({"interval_s": 604_800.0} | keys))
    rig = Rig(check, run_folder=folder / "run")
    return Desk(rig, OrderFolder(folder / "run", BOOT))


def test_an_order_runs_the_check_at_once_and_tells_its_outcome_again(tmp_path: Path) -> None:
    found = desk(tmp_path)
    found.rig.run_all()
    found.rig.now += 60.0
    found.rig.collect()
    assert not found.rig.runner.busy
    found.order("one")
    answer = found.await_end("one")
    assert [(one.entity, one.state, one.text) for one in answer.said] == [("", "ok", "fine")]
    kinds = [event.kind for event in found.rig.events]
    assert kinds == [EventKind.CHECK_PASSED] * 2  # the second though nothing changed
    assert found.orders.orders() == []
    found.rig.collect()
    assert not found.rig.runner.busy  # once


def test_a_busy_node_is_said_and_only_the_order_may_overrule_it(tmp_path: Path) -> None:
    found = desk(tmp_path, when=When.IDLE)
    found.rig.idle = False
    found.order("polite")
    assert found.stage("polite") == (Stage.WAITS, "not_idle")
    found.rig.idle = None
    assert found.stage("polite") == (Stage.WAITS, "idle_unknown")
    found.orders.take_back("polite")
    found.rig.collect()
    found.rig.idle = False
    found.rig.collect()
    assert not found.rig.runner.busy  # a taken back order wants nothing
    found.order("now", even_if_busy=True)
    assert found.await_end("now").said[0].state == "ok"


def test_a_run_that_began_before_the_order_does_not_answer_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    found = desk(tmp_path, f"while [ ! -e {gate} ]; do sleep 0.01; done; cat {gate}")
    found.rig.collect()  # the scheduled run begins
    found.order("later")
    assert found.stage("later") == (Stage.WAITS, "runs_already")
    gate.write_text("mended")
    assert found.await_end("later").said[0].text == "mended"
    assert len(found.rig.events) == 2


def test_what_cannot_be_run_is_refused_and_what_is_foreign_not_obeyed(tmp_path: Path) -> None:
    found = desk(tmp_path)
    found.rig.run_all()
    found.order("typo", "gem")
    assert found.stage("typo") == (Stage.REFUSED, "no_such_check")
    found.order("old", until_s=uptime_s() - 1.0)
    found.order("other-boot", boot_id="0")
    assert found.stage("old") is None
    assert found.stage("other-boot") is None
    assert not list((tmp_path / "run").glob("check-run-*"))
    writable = tmp_path / "run" / "check-run-foreign.json"
    found.order("foreign")
    writable.chmod(0o666)
    (tmp_path / "run" / "check-run-garbage.json").write_text("{")
    assert found.stage("foreign") is None
    assert not found.rig.runner.busy


def test_an_unknown_result_is_answered_with_its_mend_and_told_to_nobody(tmp_path: Path) -> None:
    found = desk(tmp_path, "kill -9 $$")
    found.order("one")
    answer = found.await_end("one")
    assert [(one.state, one.reason) for one in answer.said] == [("unknown", "ended_by_signal_9")]
    assert answer.mend
    assert found.rig.events == []

"""Checks that wait for an idle node, and those that a repair hurries."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_agent.checks.definitions import When, parse_checks
from gpuwarden_agent.checks.idle import IDLE_FOR_S, IdleWatch
from gpuwarden_agent.config import ConfigError
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable
from gpuwarden_wire.events import GpuIdentity
from tests.builders.plug_ins import definition, program
from tests.unit.agent.test_check_collector import Rig

GPUS = [GpuIdentity(gpu_uuid=f"GPU-{n}", pci_bus_id=f"0000:0{n}:00.0") for n in (1, 2)]


class Watched:
    """A node's processes, and an idle watch over them; time moves by hand."""

    def __init__(self, jobs: Path | None = None) -> None:
        self.now = 0.0
        self.table: dict[str, tuple[int, ...] | None] | None = {"GPU-1": (), "GPU-2": ()}
        self.watch = IdleWatch(lambda: self.table, lambda: GPUS, jobs, lambda: self.now)

    def after(self, seconds: float) -> bool | None:
        self.now += seconds
        return self.watch.look()


def test_a_node_is_idle_once_nothing_ran_on_any_gpu_for_a_while() -> None:
    node = Watched()
    assert (node.after(0.0), node.after(IDLE_FOR_S - 1), node.after(1.0)) == (False, False, True)
    node.table = {"GPU-1": (), "GPU-2": (4711,)}
    assert node.after(1.0) is False
    node.table = {"GPU-1": (), "GPU-2": ()}
    assert (node.after(1.0), node.after(IDLE_FOR_S)) == (False, True)


def test_unknown_is_not_idle() -> None:
    node = Watched()
    node.after(0.0)
    tables: tuple[dict[str, tuple[int, ...] | None] | None, ...]
    tables = (None, {}, {"GPU-1": (), "GPU-2": None})
    for table in tables:
        node.table = table
        assert node.after(IDLE_FOR_S) is None
    node.table = {"GPU-1": (7,), "GPU-2": None}
    assert node.after(1.0) is False, "one that is known to be busy is"
    assert IdleWatch(None, lambda: GPUS, None).look() is None


def test_a_job_without_a_process_is_a_job(tmp_path: Path) -> None:
    node = Watched(tmp_path)
    node.after(0.0)
    (tmp_path / "0").write_text("4711\n")
    assert node.after(IDLE_FOR_S) is False
    (tmp_path / "0").write_text("")
    assert (node.after(1.0), node.after(IDLE_FOR_S)) == (False, True)


def test_a_check_for_idle_nodes_waits_and_says_where_it_cannot_know(tmp_path: Path) -> None:
    program(tmp_path / "check", "echo OK", shell=True)
    rig = Rig(definition("dcgm", tmp_path / "check", when=When.IDLE))
    assert rig.run_all() == []
    assert [one.attributes["reason"] for one in rig.troubles] == ["idle_unknown"]
    rig.idle = False
    assert rig.run_all() == [], "it stays due"
    assert len(rig.troubles) == 2, "that it is known again is told"
    rig.idle = True
    assert [one.attributes["check"] for one in rig.run_all()] == ["dcgm"]


def test_a_repair_makes_checks_due_that_may_end_it(tmp_path: Path) -> None:
    program(tmp_path / "check", "echo OK", shell=True)
    rig = Rig(
        definition("gemm", tmp_path / "check", interval_s=1e6, proves_repair=True),
        definition("disk", tmp_path / "check", interval_s=1e6),
    )
    rig.run_all()
    rig.verdict = _verdict("in_repair")
    rig.now -= 9_000.0  # nothing is due by its interval
    assert [one.attributes["check"] for one in rig.run_all()] == ["gemm"]
    assert rig.run_all() == [], "once a repair"


def test_when_is_one_of_two_words(tmp_path: Path) -> None:
    text = '[[checks]]\nname = "a"\ncommand = ["/x"]\nwhen = "{}"\n'
    (check,) = parse_checks(text.format("idle"), tmp_path / "c.toml")
    assert check.when is When.IDLE
    with pytest.raises(ConfigError, match="give always or idle"):
        parse_checks(text.format("night"), tmp_path / "c.toml")


def _verdict(state: str) -> NodeVerdict:
    node = EntityVerdict(entity_kind="node", entity="n1", usable=Usable.NO, state=state)
    return NodeVerdict(node_id="n1", node=node, gpus=(), feed_id="f", epoch=1, issued_at=1.0)

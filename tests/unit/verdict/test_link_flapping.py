"""Ports that fall and come back between two looks."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.detectors import detect_clears
from gpuwarden_verdict.detectors.link_down import TOGETHER_NODES, TOGETHER_S
from gpuwarden_verdict.detectors.link_flapping import PORT_FLAPPING, QUIET_S
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet


def port(node: int) -> EntityRef:
    return EntityRef(EntityKind.NIC, f"n{node}/mlx5_0/1", f"n{node}")


def read(fleet: Fleet, node: int, *falls: float, first_at: float = START) -> float:
    """The port is up at each look, 60 s apart, and shows these falls; when the last look was."""
    for number, value in enumerate(falls):
        at = first_at + 60.0 * number
        fleet.tell([port(node)], at=at, nic_port_state=4.0, nic_link_downed_total=value)
    return first_at + 60.0 * (len(falls) - 1)


def told(fleet: Fleet, now: float) -> list[Signal]:
    return PORT_FLAPPING.detect(fleet.state, fleet.fleet_context(), now)


def test_three_falls_that_no_look_saw_are_advice() -> None:
    fleet = Fleet()
    now = read(fleet, 0, 7.0, 8.0, 9.0, 10.0)
    (signal,) = told(fleet, now)
    assert (signal.entity, signal.fault_class) == (port(0), FaultClass.NIC)
    assert (signal.max_rung, signal.acts_alone) == (Rung.SUSPECT, False)
    assert "3.0 falls" in signal.sentence


@pytest.mark.parametrize(
    "falls",
    [(7.0, 7.0, 7.0), (7.0, 8.0, 9.0), (900.0, 900.0), (900.0, 0.0, 1.0), (900.0,)],
    ids=["none", "a switch's reboot", "many, long ago", "driver loaded anew", "first sight"],
)
def test_these_are_none(falls: tuple[float, ...]) -> None:
    fleet = Fleet()
    assert told(fleet, read(fleet, 0, *falls)) == []


def test_links_that_train_after_a_boot_do_not_flap() -> None:
    fleet = Fleet()
    fleet.booted_at["n0"] = START - 30.0
    node = EntityRef(EntityKind.NODE, "n0", "n0")
    now = read(fleet, 0, 0.0, 1.0, 2.0, 3.0)
    fleet.tell([node], at=now, node_uptime_seconds=210.0)
    assert told(fleet, now) == []
    later = read(fleet, 0, *[3.0] * 6, first_at=now + 60.0)
    fleet.tell([node], at=later, node_uptime_seconds=570.0)
    assert told(fleet, later) == []


def test_ports_of_many_nodes_that_flap_blame_what_they_share() -> None:
    fleet = Fleet(nodes=TOGETHER_NODES)
    for node in range(TOGETHER_NODES):
        now = read(fleet, node, 7.0, 8.0, 9.0, 10.0)
    assert {signal.fault_class for signal in told(fleet, now)} == {FaultClass.FABRIC}


def test_ports_that_flap_at_other_times_share_nothing() -> None:
    fleet = Fleet(nodes=TOGETHER_NODES)
    latest = START + 900.0
    for node in range(TOGETHER_NODES):
        begun = START + node * (TOGETHER_S + 10.0)
        fell = read(fleet, node, 7.0, 8.0, 9.0, 10.0, first_at=begun)
        assert fell < latest
        read(fleet, node, 10.0, first_at=latest)
    classes = [signal.fault_class for signal in told(fleet, latest)]
    assert classes == [FaultClass.NIC] * TOGETHER_NODES


def test_a_port_that_is_down_by_design_does_not_flap() -> None:
    fleet = Fleet()
    for number in range(6):
        at = START + 60.0 * number
        fleet.tell([port(0)], at=at, nic_port_state=1.0, nic_link_downed_total=float(number))
    assert told(fleet, START + 300.0) == []


def test_an_hour_of_quiet_ends_it() -> None:
    fleet = Fleet()
    fleet.now = read(fleet, 0, 7.0, 8.0, 9.0, 10.0)
    fleet.sweep()
    (incident,) = fleet.open()
    assert detect_clears(fleet.state, fleet.fleet_context(), [incident], fleet.now) == []
    fleet.now = read(fleet, 0, 10.0, first_at=fleet.now + QUIET_S)
    (recovery,) = detect_clears(fleet.state, fleet.fleet_context(), [incident], fleet.now)
    assert recovery.detectors == {PORT_FLAPPING.name}
    assert fleet.decisions == {}

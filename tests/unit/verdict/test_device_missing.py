"""Which GPU is missing, who says so, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_verdict.context import FleetContext, Shortfall
from gpuwarden_verdict.detectors import detect_clears, detect_sweep
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet, gpu_ref, node_ref

NODE, GPU = node_ref(0), gpu_ref(0, 3)
FORGOTTEN = Shortfall(absent=(GPU.key,))


def counting(visible: float, on_pci: float, told: float = 8.0, readings: int = 2) -> Fleet:
    fleet = Fleet(nodes=1)
    count(fleet, visible, on_pci, told, readings)
    return fleet


def count(
    fleet: Fleet, visible: float, on_pci: float, told: float = 8.0, readings: int = 2
) -> None:
    for _ in range(readings):
        fleet.now += 5.0
        fleet.tell(
            [NODE], node_gpus_visible=visible, node_gpus_on_pci=on_pci, node_gpus_expected=told
        )


def context(fleet: Fleet, remembered: int = 8, **shortfall: object) -> FleetContext:
    known = Shortfall(**shortfall)  # type: ignore[arg-type]  # its fields by name
    return replace(
        fleet.fleet_context(), gpus_expected={"n0": remembered}, shortfalls={"n0": known}
    )


def told(fleet: Fleet, seen: FleetContext) -> dict[EntityRef, Signal]:
    return {signal.entity: signal for signal in detect_sweep(fleet.state, seen, fleet.now)}


def test_the_servers_memory_holds_where_the_agent_forgot_and_names_the_gpu() -> None:
    fleet = counting(7, 7, told=7)
    seen = context(fleet, absent=(GPU.key,))
    found = told(fleet, seen)
    assert found.keys() == {NODE, GPU}
    assert (found[GPU].max_rung, found[GPU].fault_class) == (Rung.EXCLUDE, FaultClass.BUS)
    assert GPU.key in found[GPU].sentence
    assert found[NODE].max_rung is Rung.SUSPECT, "the other seven can be used"


def test_one_reading_is_none() -> None:
    fleet = counting(7, 7, told=7, readings=1)
    assert told(fleet, context(fleet, absent=(GPU.key,))) == {}


def test_a_gpu_that_is_on_the_bus_and_not_started_is_the_drivers() -> None:
    fleet = counting(7, 8)
    assert told(fleet, context(fleet, absent=(GPU.key,)))[GPU].fault_class is FaultClass.DRIVER


def test_when_most_are_gone_the_node_is_the_cause() -> None:
    fleet = counting(2, 8)
    names = tuple(gpu_ref(0, number).key for number in range(6))
    found = told(fleet, context(fleet, absent=names))
    assert found.keys() == {NODE}
    assert found[NODE].max_rung is Rung.EXCLUDE


@pytest.mark.parametrize(
    ("told_by_agent", "remembered", "shortfall"),
    [
        (8.0, 8, {"left": 1}),  # seen in another node since
        (7.0, 7, {"absent": (GPU.key,)}),  # the operator's number, or an exchanged board
        (7.0, 7, {}),
    ],
)
def test_what_left_for_good_is_not_missed(
    told_by_agent: float, remembered: int, shortfall: dict[str, object]
) -> None:
    fleet = counting(7, 7, told=told_by_agent)
    assert told(fleet, context(fleet, remembered, **shortfall)) == {}


def test_what_left_explains_no_gpu_that_is_still_on_the_bus() -> None:
    fleet = counting(7, 8)
    assert told(fleet, context(fleet, left=1)).keys() == {NODE}


def test_an_operators_number_is_not_explained_away_and_not_outbid() -> None:
    fleet = counting(7, 7)
    is_set = replace(context(fleet, left=1), gpus_expected_set=frozenset({"n0"}))
    assert told(fleet, is_set).keys() == {NODE}
    fleet = counting(7, 7, told=7)
    is_set = replace(context(fleet, absent=(GPU.key,)), gpus_expected_set=frozenset({"n0"}))
    assert told(fleet, is_set) == {}


def test_the_next_loss_is_named_though_an_exchanged_board_is_absent_too() -> None:
    fleet = counting(7, 7)
    found = told(fleet, context(fleet, absent=(GPU.key, "GPU-exchanged-last-year")))
    assert found.keys() == {NODE, GPU}


def test_a_gpu_that_is_told_lost_is_not_missed_once_more() -> None:
    fleet = counting(7, 8)
    fleet.tell([GPU], gpu_present=0.0)
    found = told(fleet, context(fleet))
    assert found.keys() == {NODE}
    assert found[NODE].max_rung is Rung.SUSPECT


def missing(fleet: Fleet) -> FleetContext:
    seen = context(fleet, absent=(GPU.key,))
    fleet.judge(detect_sweep(fleet.state, seen, fleet.now), [])
    return seen


def cleared(fleet: Fleet, seen: FleetContext) -> set[EntityRef]:
    return {one.entity for one in detect_clears(fleet.state, seen, fleet.open(), fleet.now)}


def test_it_ends_when_the_gpu_is_read_present_twice() -> None:
    fleet = counting(7, 7)
    fleet.tell([GPU], at=START - 200, gpu_present=0.0)
    seen = missing(fleet)
    assert cleared(fleet, seen) == set()
    back = context(fleet)
    count(fleet, 8, 8, readings=1)
    fleet.tell([GPU], gpu_present=1.0)
    assert GPU not in cleared(fleet, back), "one probe"
    count(fleet, 8, 8, readings=1)
    fleet.tell([GPU], gpu_present=1.0)
    assert cleared(fleet, back) == {NODE, GPU}


def test_readings_from_just_before_it_went_do_not_end_it() -> None:
    """As after a quick restart: each sweep would else clear it and raise it anew, unsettled."""
    fleet = Fleet(nodes=1)
    for _ in range(2):
        fleet.now += 5.0
        fleet.tell([GPU], gpu_present=1.0)
    count(fleet, 7, 7)
    seen = missing(fleet)
    assert [one.entity for one in fleet.open()].count(GPU) == 1
    assert cleared(fleet, seen) == set()


def test_it_ends_when_another_board_makes_the_node_whole() -> None:
    fleet = counting(7, 7)
    seen = missing(fleet)
    count(fleet, 8, 8, readings=1)
    assert GPU not in cleared(fleet, seen), "one probe"
    count(fleet, 8, 8, readings=1)
    assert cleared(fleet, seen) == {NODE, GPU}


def test_what_cannot_be_counted_ends_nothing() -> None:
    fleet = counting(7, 7)
    seen = missing(fleet)
    fleet.now += 500.0
    fleet.tell([NODE], node_uptime_seconds=1e6)
    assert cleared(fleet, seen) == set()
    silent = replace(seen, silent_nodes=frozenset({"n0"}))
    count(fleet, 8, 8)
    assert cleared(fleet, silent) == set()


def lose(fleet: Fleet) -> None:
    fleet.event(
        0,
        EventKind.GPU_LOST,
        entity_kind=EntityKind.GPU,
        entity=GPU.key,
        attributes={"probes": 2},
    )


def read(fleet: Fleet, present: float, times: int = 2) -> None:
    for _ in range(times):
        fleet.now += 5.0
        fleet.tell([GPU], gpu_present=present)


def test_a_loss_ends_by_readings_where_the_agent_never_takes_it_back() -> None:
    fleet = Fleet(nodes=1)
    read(fleet, 1.0)
    lose(fleet)
    assert cleared(fleet, fleet.fleet_context()) == set(), "read before the loss"
    read(fleet, 0.0)
    assert cleared(fleet, fleet.fleet_context()) == set()
    read(fleet, 1.0, times=1)
    assert cleared(fleet, fleet.fleet_context()) == set(), "one probe may meet a reset"
    read(fleet, 1.0, times=1)
    assert cleared(fleet, fleet.fleet_context()) == {GPU}


def test_a_loss_ends_by_readings_of_a_newer_boot_though_no_absence_was_read() -> None:
    fleet = Fleet(nodes=1)
    read(fleet, 1.0)
    lose(fleet)
    read(fleet, 1.0)
    assert cleared(fleet, fleet.fleet_context()) == set(), "a reading that waited, for all we know"
    fleet.reboot(0)
    read(fleet, 1.0)
    assert cleared(fleet, fleet.fleet_context()) == {GPU}


def test_a_clock_that_runs_ahead_does_not_make_a_reading_from_before_the_loss_later() -> None:
    fleet = Fleet(nodes=1)
    ahead = 50.0
    fleet.tell([GPU], at=fleet.now - 60 + ahead, gpu_present=0.0)
    for at in (-50.0, 0.0):
        fleet.tell([GPU], at=fleet.now + at + ahead, gpu_present=1.0)
    lose(fleet)  # its time was set back to that of its receipt
    assert cleared(fleet, fleet.fleet_context()) == set()

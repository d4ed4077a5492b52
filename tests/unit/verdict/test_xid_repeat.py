"""XIDs that come again: counts, windows and places as data, and who they must never blame."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gpuwarden_kernel_log import xid_codes, xid_entry
from gpuwarden_verdict.context import CHAIN_S, REPEAT_S, forget, remember
from gpuwarden_verdict.detectors.buckets import ACTION_OF_INVESTIGATION, investigated
from gpuwarden_verdict.detectors.xid_repeat import XidRepeatDetector
from gpuwarden_verdict.detectors.xid_rules import BURST_S, XID_RULES, RepeatRule, Same
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.policy.judgement import SUSPECT_CONFIDENCE
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet, gpu_ref, node_ref, xid_line

HOUR = 3600.0
LINK = "pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link {}({}, 0x0, 0x0, 0x0)"
CLUSTER = "pid=812, name=trainer, Graphics SM Warp Exception on (GPC {}, TPC {}, SM 0): Misaligned"


class Teller:
    """A node whose lines are heard one after the other; keeps what the detector said."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        self.fleet = fleet or Fleet()
        self.said: list[Signal] = []

    def tell(
        self, code: int, at: float, gpu: int = 0, rest: str = "pid=812, name=trainer, something"
    ) -> list[Signal]:
        self.fleet.now = START + at
        context = self.fleet.context(0)
        event = self.fleet.line(0, xid_line(code, gpu, rest))
        said = XidRepeatDetector().detect_event(event, gpu_ref(0, gpu), context)
        self.said += said
        return said


def names(teller: Teller) -> list[str]:
    return [signal.detector for signal in teller.said]


def test_the_second_contained_memory_error_of_a_day_asks_for_the_reset() -> None:
    teller = Teller()
    assert teller.tell(94, 0) == []
    (signal,) = teller.tell(94, 3 * HOUR)
    assert (signal.detector, signal.fault_class) == ("xid_repeat:94", FaultClass.MEMORY)
    assert (signal.action, signal.max_rung) == ("reset_gpu", Rung.EXCLUDE)
    assert "2 times within 3.0 h" in signal.sentence
    teller.fleet.sweep(60.0)
    assert teller.fleet.excluded_names() == ["GPU-0-0"]


@pytest.mark.parametrize(
    ("code", "at", "gpu"), [(94, 25 * HOUR, 0), (94, 3 * HOUR, 1), (95, 3 * HOUR, 0)]
)
def test_a_day_apart_another_gpu_or_another_code_is_no_repeat(
    code: int, at: float, gpu: int
) -> None:
    teller = Teller()
    teller.tell(94, 0)
    assert teller.tell(code, at, gpu) == []


def test_the_lines_of_one_burst_are_one_occurrence_and_a_burst_that_goes_on_is_several() -> None:
    teller = Teller()
    for second in range(0, int(BURST_S), 10):
        assert teller.tell(94, second) == []
    (signal,) = teller.tell(94, BURST_S + 1)
    assert "2 times" in signal.sentence
    assert teller.tell(94, BURST_S + 5) == []  # told with the first line of an occurrence


def test_a_storm_of_echoes_does_not_push_out_what_may_repeat() -> None:
    teller = Teller()
    teller.tell(94, 0)
    for number in range(400):
        teller.tell(45, HOUR + number * 0.01, gpu=number % 8)
        teller.tell(31, HOUR + number * 0.01, gpu=number % 8)
    assert names(teller) == []
    assert [s.detector for s in teller.tell(94, 2 * HOUR)] == ["xid_repeat:94"]


@pytest.mark.parametrize("code", [43, 45, 171, 172])
def test_echoes_never_escalate(code: int) -> None:
    """NVSentinel#1710: repeats of 45 made 672 fatal events in three hours."""
    assert not any(code in rule.codes for rule in XID_RULES)
    teller = Teller()
    for number in range(200):
        teller.tell(code, number * 60.0)
    assert names(teller) == []
    teller.fleet.sweep(60.0)
    assert teller.fleet.decisions == {}


@pytest.mark.parametrize("code", [119, 120, 48, 62, 79])
def test_a_fatal_code_again_asks_for_the_investigatory_action(code: int) -> None:
    teller = Teller()
    teller.tell(code, 0)
    (signal,) = teller.tell(code, 2 * HOUR)
    assert signal.detector == f"xid_repeat:{code}"
    assert (signal.score, signal.severity) == (0.93, Severity.CRITICAL)
    assert signal.action is RecommendedAction.INVESTIGATE


def test_nvml_and_the_kernel_tell_one_occurrence() -> None:
    fleet = Fleet()
    node = fleet.context(0)
    told = Event(
        id="nvml:1",
        kind=EventKind.NVML_XID,
        observed_at=START,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-0",
        xid=94,
    )
    recent = remember((), told, gpu_ref(0, 0))
    fleet.now = START + 2
    line = fleet.line(0, xid_line(94))
    said = XidRepeatDetector().detect_event(line, gpu_ref(0, 0), replace(node, recent=recent))
    assert said == []


def test_what_anybody_may_have_written_neither_counts_nor_speaks() -> None:
    fleet = Fleet()
    node, ref = fleet.context(0), gpu_ref(0, 0)
    first = fleet.line(0, xid_line(94))
    second = msgspec.structs.replace(first, id="2", observed_at=START + HOUR)
    forged = msgspec.structs.replace(second, id="3", attributes={"unproven": True})
    detector = XidRepeatDetector()
    with_past = replace(node, recent=remember((), first, ref))
    assert len(detector.detect_event(second, ref, with_past)) == 1
    assert detector.detect_event(forged, ref, with_past) == []
    old = msgspec.structs.replace(forged, observed_at=START - HOUR)
    assert detector.detect_event(first, ref, replace(node, recent=remember((), old, ref))) == []


def test_a_passed_check_starts_the_count_anew() -> None:
    fleet = Fleet()
    first = fleet.line(0, xid_line(94))
    recent = remember(remember((), first, gpu_ref(0, 0)), first, gpu_ref(0, 1))
    kept = forget(recent, gpu_ref(0, 0), START + 1)
    assert [past.ref for past in kept] == [gpu_ref(0, 1)]
    assert forget(recent, node_ref(0), START + 1) == ()
    assert forget(recent, gpu_ref(0, 0), START - 1) == recent


# --- where on the chip, on which GPU


def test_13_in_the_same_cluster_again_is_a_hint_at_the_chip() -> None:
    teller = Teller()
    assert teller.tell(13, 0, rest=CLUSTER.format(7, 3)) == []
    (signal,) = teller.tell(13, HOUR, rest=CLUSTER.format(7, 3))
    assert signal.detector == "xid_repeat:13:cluster"
    assert (signal.max_rung, signal.application_possible) == (Rung.SUSPECT, True)
    assert "GPC 7, TPC 3" in signal.sentence
    teller.fleet.sweep(60.0)
    assert teller.fleet.excluded_names() == []


def test_13_in_other_clusters_or_without_a_place_is_the_applications() -> None:
    teller = Teller()
    for number in range(12):
        teller.tell(13, number * HOUR / 4, rest=CLUSTER.format(number % 7, number % 9))
        teller.tell(13, number * HOUR / 4, rest="Graphics Exception: ESR 0x504648=0x1000e")
    assert names(teller) == []


def test_13_on_several_gpus_of_a_node_is_the_applications() -> None:
    teller = Teller()
    for gpu in range(8):
        teller.tell(13, gpu * 0.1, gpu=gpu, rest=CLUSTER.format(0, 1))
    for gpu in range(8):
        teller.tell(13, HOUR + gpu * 0.1, gpu=gpu, rest=CLUSTER.format(0, 1))
    assert names(teller) == []


def test_31_again_and_again_on_one_gpu_alone_is_told_and_on_several_is_not() -> None:
    alone, several = Teller(), Teller()
    for number in range(3):
        alone.tell(31, number * HOUR)
        several.tell(31, number * HOUR, gpu=0)
        several.tell(31, number * HOUR + 400, gpu=1)
    assert names(alone) == ["xid_repeat:31:same_gpu"]
    assert alone.said[0].max_rung is Rung.SUSPECT
    assert names(several) == []


def test_other_codes_of_programs_count_only_within_an_hour() -> None:
    near, far = Teller(), Teller()
    for number in range(4):
        near.tell(69, number * 600.0)
        far.tell(69, number * 2000.0)
    assert names(near) == ["xid_repeat:69", "xid_repeat:69"]
    assert names(far) == []
    assert near.said[0].application_possible


# --- NVLink


def test_74_more_than_twice_on_the_same_link_points_at_its_connections() -> None:
    teller = Teller()
    for number in range(3):
        teller.tell(74, number * HOUR, rest=LINK.format(6, "0x10000"))
    teller.tell(74, 4 * HOUR, rest=LINK.format(7, "0x10000"))
    assert names(teller) == ["xid_repeat:74:link"]
    signal = teller.said[0]
    assert (signal.action, signal.max_rung) == ("check_cable", Rung.SUSPECT)
    assert "on link 6" in signal.sentence


def test_74_whose_registers_can_be_ignored_does_not_count() -> None:
    teller = Teller()
    for number in range(5):
        teller.tell(74, number * HOUR, rest=LINK.format(6, "0x40000000"))
    assert names(teller) == []


def test_an_nvlink5_error_is_reported_from_the_second_of_a_day_on() -> None:
    down = "NETIR_LINK_EVT Fatal XC0 i0 Link 10 (0x002001c6 0x0 0x0 0x0 0x0 0x0)"
    noise = "NETIR_BER_EVENT Nonfatal XC0 i0 Link 10 (0x00000226 0x1 0x0 0x0 0x0 0x0)"
    teller = Teller()
    for number in range(2):
        teller.tell(149, number * HOUR, rest=down)
        teller.tell(149, number * HOUR + 400, gpu=1, rest=noise)
    assert names(teller) == ["xid_repeat:149"]


# --- storms


def test_a_driver_that_fails_twice_on_most_gpus_is_the_nodes_both_times() -> None:
    fleet = Fleet()
    for hours in (0, 2):
        fleet.now = START + hours * HOUR
        for gpu in range(8):
            fleet.line(0, xid_line(119, gpu))
        fleet.sweep(60.0)
        assert fleet.excluded_names() == []


def test_one_users_program_on_many_nodes_excludes_nobody() -> None:
    """The same XID 31 on GPUs of four nodes, over and over: nobody is taken out."""
    fleet = Fleet()
    for run in range(6):
        fleet.now = START + run * 700.0
        for node in range(4):
            fleet.line(node, xid_line(31, run % 8))
            fleet.line(node, xid_line(13, run % 8, CLUSTER.format(node, run)))
        fleet.sweep(60.0)
        assert fleet.excluded_names() == []
        assert all(d.rung <= Rung.SUSPECT for d in fleet.decisions.values())


def test_62_is_seen_though_45_follows_it() -> None:
    """DCGM#235: the last-value gauge showed 45 and hid 62."""
    fleet = Fleet()
    fleet.line(0, xid_line(62))
    for _ in range(30):
        fleet.line(0, xid_line(45))
    fleet.sweep(40.0)
    assert fleet.excluded_names() == ["GPU-0-0"]
    (incident,) = fleet.open()
    assert {item.detector for item in incident.evidence} == {"xid:62", "xid:45"}
    assert incident.why.startswith("XID 62")


# --- the tables


def test_every_investigatory_bucket_resolves_to_an_action() -> None:
    """NVSentinel#1888: three action strings matched nothing."""
    entries = [entry for code in xid_codes() if (entry := xid_entry(code))]
    assert {entry.investigation for entry in entries} - {None} <= ACTION_OF_INVESTIGATION.keys()
    assert decode_investigations() <= ACTION_OF_INVESTIGATION.keys()
    assert all(investigated(code) is not RecommendedAction.NONE for code in xid_codes())


def decode_investigations() -> set[str]:
    from gpuwarden_kernel_log.catalog import read_table

    return {row["investigation"] for row in read_table("nvlink5_decode.csv")}


@pytest.mark.parametrize("rule", XID_RULES, ids=lambda rule: f"{rule.name}{sorted(rule.codes)[0]}")
def test_rules_are_sound(rule: RepeatRule) -> None:
    assert rule.count >= 2
    assert CHAIN_S < rule.window_s <= REPEAT_S
    assert rule.codes <= {*xid_codes()}
    for code in rule.codes:
        entry = xid_entry(code)
        assert entry is not None and not entry.echo
        if entry.application_possible:
            assert rule.weight.max_rung is Rung.SUSPECT
            assert rule.alone and rule.application_possible
    assert rule.weight.score >= SUSPECT_CONFIDENCE
    assert not rule.weight.acts_alone
    if rule.weight.max_rung is Rung.EXCLUDE:
        assert rule.weight.severity in (Severity.ERROR, Severity.CRITICAL)


def test_no_code_is_in_two_rules_for_the_same_place() -> None:
    seen = [(code, rule.same) for rule in XID_RULES for code in rule.codes]
    assert len(seen) == len(set(seen))


def test_an_operators_table_replaces_ours() -> None:
    own = replace(XID_RULES[1], codes=frozenset({92}), same=Same.GPU, count=2)
    detector = XidRepeatDetector([own])
    fleet = Fleet()
    first = fleet.line(0, xid_line(92))
    second = msgspec.structs.replace(first, id="2", observed_at=START + HOUR)
    node = replace(fleet.context(0), recent=remember((), first, gpu_ref(0, 0)))
    assert [s.detector for s in detector.detect_event(second, gpu_ref(0, 0), node)] == [
        "xid_repeat:92"
    ]
    assert XidRepeatDetector().detect_event(second, gpu_ref(0, 0), node) == []


def test_a_line_of_no_known_gpu_is_left_to_others() -> None:
    fleet = Fleet()
    event = fleet.line(0, xid_line(94, gpu=0x3A))
    node = EntityRef(EntityKind.NODE, "n0", "n0")
    recent = remember((), msgspec.structs.replace(event, observed_at=START - HOUR), node)
    context = replace(fleet.context(0), recent=recent)
    assert XidRepeatDetector().detect_event(event, node, context) == []

"""Common causes: places, jobs, and the node that took its job's other ranks down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from gpuwarden_verdict.context import FleetContext, NodePlace
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.kin import Kin, KinFinder
from gpuwarden_verdict.incidents.lifecycle import advance, find_storms
from gpuwarden_verdict.signals import Persistence
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import incident, item
from tests.builders.verdict import START, counter_of

NOW = START + 100.0
LEVEL = Persistence.LEVEL


def fleet(nodes: int = 8, **changes: object) -> FleetContext:
    """Nodes n0, n1 … by fours behind leaves l0, l1 … and by eights in racks and power domains."""
    places = {
        f"n{n}": NodePlace(f"r{n // 8}", f"l{n // 4}", f"p{n // 8}", ("/data",))
        for n in range(nodes)
    }
    made = FleetContext(places=places)
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of FleetContext by name


def fault(
    node: int,
    fault_class: FaultClass = FaultClass.NIC,
    kind: EntityKind = EntityKind.NIC,
    at: float = START,
    **changes: object,
) -> Incident:
    key = {
        EntityKind.NIC: f"n{node}/mlx5_0/1",
        EntityKind.NODE: f"n{node}",
        EntityKind.GPU: f"GPU-{node}",
        EntityKind.MOUNT: f"n{node}//data",
        EntityKind.DISK: f"n{node}/nvme0n1",
    }[kind]
    values: dict[str, object] = {
        "detector": "port_down",
        "fault_class": fault_class,
        "persistence": LEVEL,
        "acts_alone": False,
        "severity": Severity.ERROR,
        "received_at": at,
        "first_at": at,
        "event_ids": (),
    }
    made = item(**(values | changes))
    return incident(EntityRef(kind, key, f"n{node}"), made, fault_class=fault_class)


def find(incidents: Sequence[Incident], context: FleetContext, now: float = NOW) -> Kin:
    return KinFinder().find(incidents, context, now)


def blamed(kin: Kin) -> dict[str, FaultClass]:
    assert all(signal.max_rung is Rung.OBSERVE for signal in kin.signals)
    return {signal.entity.key: signal.fault_class for signal in kin.signals}


def members(kin: Kin) -> set[str]:
    return {id_.removeprefix("inc-").split("/")[0] for id_ in kin.members}


def opened(kin: Kin, now: float = NOW) -> list[Incident]:
    """The places' incidents, as the judge would open them."""
    moves = advance((), list(kin.signals), (), now, counter_of("inc-place"))
    return [move.incident for move in moves]


def test_links_behind_one_leaf_are_its_fault_and_no_bystander_is_taken_in() -> None:
    kin = find([fault(n, at=START + n) for n in (0, 1, 2, 5)], fleet())
    assert blamed(kin) == {"leaf:l0": FaultClass.FABRIC}
    assert members(kin) == {"n0", "n1", "n2"}
    (signal,) = kin.signals
    assert signal.sentence == (
        "3 of 4 nodes behind leaf switch l0 show links that failed at once: n0, n1, n2"
    )
    assert signal.entity.node_id == ""


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param((0,), id="one member"),
        pytest.param((0, 4), id="two behind different leaves"),
        pytest.param((0, 1), id="two of four"),
        pytest.param((), id="nobody"),
    ],
)
def test_few_blame_no_place(nodes: tuple[int, ...]) -> None:
    kin = find([fault(n) for n in nodes], fleet())
    assert not kin.signals and not kin.members


def test_all_behind_a_small_place_are_enough_and_a_whole_row_is_its_racks() -> None:
    small = fleet(2)
    assert blamed(find([fault(0), fault(1)], small)) == {"leaf:l0": FaultClass.FABRIC}
    both = find([fault(n) for n in range(8)], fleet())
    assert blamed(both) == {"rack:r0": FaultClass.FABRIC}, "one parent for both leaves"
    assert len(both.members) == 8


def test_what_was_so_before_or_is_gone_or_cannot_be_seen_does_not_count() -> None:
    old = [fault(0, at=START - 3600.0), fault(1), fault(2)]
    assert not find(old, fleet()).signals
    cleared = [fault(0, cleared_at=NOW), fault(1), fault(2)]
    assert not find(cleared, fleet()).signals
    three = [fault(n) for n in range(3)]
    assert not find(three, fleet(silent_nodes=frozenset({"n0"}))).signals
    assert not find(three, fleet(maintenance={"n0": "firmware"})).signals
    assert not find(three, fleet(places={})).signals


@pytest.mark.parametrize(
    "own",
    [
        {"acts_alone": True},
        {"persistence": Persistence.PART},
        {"persistence": Persistence.BOOT, "severity": Severity.CRITICAL},
        {"fault_class": FaultClass.BUS},
    ],
)
def test_a_member_with_evidence_of_its_own_is_judged_on_it(own: dict[str, object]) -> None:
    one = fault(0)
    extra = replace(one.evidence[0], detector="xid:79", **own)  # type: ignore[arg-type]
    beyond = replace(one, evidence=(*one.evidence, extra))
    kin = find([beyond, *(fault(n) for n in (1, 2, 3))], fleet())
    assert blamed(kin) == {"leaf:l0": FaultClass.FABRIC}
    assert members(kin) == {"n1", "n2", "n3"}


def test_a_stall_of_storage_takes_the_hosts_that_hang_along() -> None:
    stalled = [
        *(fault(n, FaultClass.STORAGE, EntityKind.MOUNT, START + 10 * n) for n in range(6)),
        fault(6, FaultClass.HOST, EntityKind.NODE, max_rung=Rung.SUSPECT),
        fault(7, FaultClass.STORAGE, EntityKind.DISK),
        fault(8, FaultClass.HOST, EntityKind.NODE, max_rung=Rung.EXCLUDE),  # its memory fails
    ]
    kin = find(stalled, fleet(16))
    assert blamed(kin) == {"mount:/data": FaultClass.STORAGE}
    assert members(kin) == {f"n{n}" for n in range(7)}, "a disk of its own is the node's"
    assert not find(stalled[:4], fleet(60)).signals, "absent at four"


def test_a_hot_aisle_is_the_racks_and_a_hot_gpu_its_own() -> None:
    hot = [
        fault(n, FaultClass.THERMAL, EntityKind.GPU, START + 300.0 * n, severity=Severity.WARNING)
        for n in range(6)
    ]
    kin = find(hot, fleet(), START + 1800.0)
    assert blamed(kin) == {"rack:r0": FaultClass.THERMAL}
    assert not find(hot[:2], fleet(), START + 1800.0).signals


def test_a_place_keeps_its_members_until_few_still_show_it() -> None:
    first = [fault(n) for n in range(4)]
    finder = KinFinder()
    (parent,) = opened(finder.find(first, fleet(), NOW))
    late = fault(5, at=NOW)
    before = fault(6, at=START - 3600.0)
    kin = finder.find([parent, *first[:2], late, before], fleet(), NOW + 60.0)
    assert blamed(kin) == {"leaf:l0": FaultClass.FABRIC}
    assert members(kin) == {"n0", "n1"}
    assert kin.signals[0].numbers["peak"] == 4.0
    over = finder.find([parent, first[0]], fleet(), NOW + 120.0)
    assert not over.signals
    assert [(r.entity.key, r.detectors) for r in over.recoveries] == [
        ("leaf:l0", frozenset({"behind_place:fabric"}))
    ]
    assert members(over) == {"n0"}, "it waits as long as the leaf's incident lives"


def vanish(nodes: Sequence[int], at: float = START) -> Mapping[str, float]:
    return {f"n{n}": at + n % 7 for n in nodes}


@pytest.mark.parametrize(
    ("nodes", "total", "place", "fault_class"),
    [
        (range(4, 8), 40, "leaf:l1", FaultClass.FABRIC),
        (range(8, 16), 40, "rack:r1", FaultClass.POWER),
        (range(40), 40, "fleet:all", FaultClass.UNKNOWN),
        (range(16), 40, "fleet:all", FaultClass.UNKNOWN),
    ],
)
def test_nodes_that_vanish_together_have_one_cause_and_no_fault(
    nodes: range, total: int, place: str, fault_class: FaultClass
) -> None:
    context = fleet(total, silent_since=vanish(nodes))
    kin = find([], context)
    assert blamed(kin) == {place: fault_class}
    assert not kin.members
    (parent,) = opened(kin)
    half = fleet(total, silent_since=vanish(nodes[: len(nodes) // 2]))
    assert blamed(find([parent], half)) == {place: fault_class}
    back = find([parent], fleet(total, silent_since=vanish(nodes[:1])))
    assert not back.signals
    assert [r.entity.key for r in back.recoveries] == [place]


def test_silence_of_few_or_at_different_times_or_by_plan_blames_nothing() -> None:
    assert not find([], fleet(40, silent_since=vanish([0, 9, 17]))).signals
    spread = {f"n{n}": START + 600.0 * n for n in range(8)}
    assert not find([], fleet(40, silent_since=spread)).signals
    planned = fleet(
        40,
        silent_since=vanish(range(8)),
        maintenance=dict.fromkeys([f"n{n}" for n in range(8)], "reboot"),
    )
    assert not find([], planned).signals


def code(node: int, xid: int = 31, job: str = "slurm:1", at: float = START) -> Incident:
    return fault(
        node,
        FaultClass.APPLICATION,
        EntityKind.GPU,
        at,
        detector=f"xid:{xid}",
        application_possible=True,
        persistence=Persistence.EVENT,
        last_at=at,
        event_ids=(f"e{node}",),
        severity=Severity.WARNING,
        job=job,
    )


def test_one_code_on_many_gpus_of_one_job_is_its_programs() -> None:
    storm = [code(n, at=START + n) for n in range(4)]
    kin = find(storm, fleet())
    assert blamed(kin) == {"job:slurm:1": FaultClass.APPLICATION}
    assert kin.signals[0].sentence == (
        "XID 31 on 4 GPUs of 4 nodes of job slurm:1 within 3 s: the program's, not the hardware's"
    )
    assert len(kin.members) == 4
    (parent,) = opened(kin)
    over = find([parent], fleet())
    assert [r.entity.key for r in over.recoveries] == ["job:slurm:1"]


def test_the_same_code_in_different_jobs_is_no_storm_and_without_jobs_nearness_decides() -> None:
    two_jobs = [code(0), code(1, job="slurm:2")]
    assert not find(two_jobs, fleet()).signals
    assert not find_storms(two_jobs)
    without = [code(0, job=""), code(1, job="")]
    assert not find(without, fleet()).signals, "nobody knows whose it is"
    assert find_storms(without) == {one.id for one in without}
    assert find_storms([code(0), code(1, job="")]) == {code(1).id}


def lost(node: int, at: float = START, job: str = "slurm:1") -> Incident:
    gone: EvidenceItem = item(job=job, first_at=at, last_at=at, received_at=at)
    return incident(EntityRef(EntityKind.GPU, f"GPU-{node}", f"n{node}"), gone)


def test_a_fault_on_one_node_makes_echoes_of_the_rest_of_its_job() -> None:
    cause = lost(0)
    rest = [code(n, 13, at=START + 600.0 + n) for n in range(1, 5)]
    other = code(5, 13, job="slurm:2", at=START + 600.0)
    kin = find([cause, *rest, other], fleet(), START + 620.0)
    assert kin.echoes == {one.id: cause.id for one in rest}
    assert not kin.signals, "the program did nothing"


def test_what_came_before_the_fault_or_long_after_is_no_echo_of_it() -> None:
    cause = lost(0, START + 3600.0)
    before = [code(n, 13) for n in (1, 2)]
    after = [code(n, 13, at=START + 9000.0) for n in (3, 4)]
    kin = find([cause, *before, *after], fleet(), START + 9000.0)
    assert not kin.echoes
    assert not find([lost(0, job=""), *before], fleet()).echoes


def behind_leaf(nodes: Sequence[int], parent: Incident) -> list[Incident]:
    return [replace(fault(n), parent_id=parent.id) for n in nodes]


def test_what_fails_weeks_later_is_not_the_places() -> None:
    (parent,) = opened(find([fault(n) for n in (0, 1, 2)], fleet()))
    later = START + 30 * 86_400.0
    left = [*behind_leaf((0, 1), parent), fault(3, at=later)]
    assert members(find([parent, *left], fleet(), later)) == {"n0", "n1"}
    broken = [*behind_leaf((0, 1, 2), parent), fault(3, at=later)]
    assert members(find([parent, *broken], fleet(), later)) == {"n0", "n1", "n2", "n3"}


def test_a_place_lingers_an_hour_under_what_it_takes_to_blame_it_and_no_longer() -> None:
    wide = replace(fleet(8), places={f"n{n}": NodePlace("r", "l0", "p", ()) for n in range(8)})
    (parent,) = opened(find([fault(n) for n in range(8)], wide))
    still = behind_leaf((0, 1), parent)
    for minutes in (1, 59):
        kin = find([parent, *still], wide, NOW + 60.0 * minutes)
        assert (blamed(kin), kin.recoveries) == ({"leaf:l0": FaultClass.FABRIC}, ())
        (parent,) = [
            move.incident
            for move in advance([parent], list(kin.signals), (), NOW + 60.0 * minutes, str)
        ] or [parent]
    kin = find([parent, *still], wide, NOW + 7200.0)
    assert (kin.signals, len(kin.recoveries)) == ((), 1)


def test_members_whose_nodes_are_not_heard_of_are_neither_well_nor_let_go() -> None:
    (parent,) = opened(find([fault(n) for n in (0, 1, 2)], fleet()))
    silent = frozenset({"n0", "n1", "n2"})
    kin = find([parent, *behind_leaf((0, 1, 2), parent)], fleet(silent_nodes=silent))
    assert (kin.signals, kin.recoveries) == ((), ())
    assert members(kin) == {"n0", "n1", "n2"}


def test_a_restart_of_ours_brings_no_rack_back() -> None:
    gone = {f"n{n}": START for n in range(8)}
    kin = find([], fleet(16, silent_since=gone, silent_nodes=frozenset(gone)))
    (parent,) = opened(kin)
    unheard = frozenset(f"n{n}" for n in range(16))
    assert find([parent], fleet(16, unheard=unheard)).recoveries == ()
    back = find([parent], fleet(16, unheard=unheard - gone.keys()))
    assert [one.entity for one in back.recoveries] == [parent.entity]

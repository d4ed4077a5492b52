from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.incidents.domain import (
    INCIDENT_MOVES,
    Incident,
    IncidentMove,
    IncidentPhase,
)
from gpuwarden_verdict.incidents.evidence import confidence_of, new_item
from gpuwarden_verdict.incidents.lifecycle import (
    ACQUITTAL_S,
    LifecycleError,
    acknowledge,
    acquit,
    acquit_all,
    acquittals_of,
    advance,
    find_storms,
    retire,
)
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, RecoveryKind, Signal
from tests.builders.verdict import START, counter_of, gpu_ref, node_ref

GPU = gpu_ref(0, 0)


def signal(detector: str = "xid:48", **changes: object) -> Signal:
    base = Signal(
        entity=GPU,
        fault_class=FaultClass.MEMORY,
        score=0.85,
        severity=Severity.CRITICAL,
        plane=Plane.EVENTS,
        sentence=f"{detector} happened",
        detector=detector,
        detector_version=1,
        observed_at=START,
        expires_at=START + 86400,
        persistence=Persistence.EVENT,
        action=RecommendedAction.RESET_GPU,
        event_ids=(f"id-{detector}",),
        boot_id="boot-1",
        source="kernel_log",
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of Signal by name


def level(**changes: object) -> Signal:
    base = signal(
        "level", persistence=Persistence.LEVEL, event_ids=(), source="sweep", plane=Plane.COUNTERS
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of Signal by name


def recovery(kind: RecoveryKind, **changes: object) -> Recovery:
    base = Recovery(GPU, kind, START + 10, "it is over", author="gpuwarden")
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of Recovery by name


class Book:
    """Open incidents of one fleet, moved on."""

    def __init__(self) -> None:
        self.incidents: dict[str, Incident] = {}
        self.new_id = counter_of("inc")

    def go(
        self, signals: list[Signal], recoveries: list[Recovery], now: float
    ) -> list[IncidentMove]:
        moves = advance(self.open(), signals, recoveries, now, self.new_id)
        for move in moves:
            self.incidents[move.incident.id] = move.incident
        return moves

    def open(self) -> list[Incident]:
        return [i for i in self.incidents.values() if i.phase is not IncidentPhase.RESOLVED]


def test_one_open_incident_an_entity_and_class_with_evidence_by_detector() -> None:
    book = Book()
    book.go([signal(), signal("xid:94", score=0.5, severity=Severity.ERROR)], [], START)
    (move,) = book.go([signal(observed_at=START + 60, event_ids=("x",))], [], START + 60)
    (incident,) = book.open()
    assert move.evidence_only
    assert "xid:48 again (2 in all)" in move.reason
    assert [(i.detector, i.count) for i in incident.evidence] == [("xid:48", 2), ("xid:94", 1)]
    assert incident.why == "xid:48 happened"
    assert incident.confidence == pytest.approx(0.85)


def test_the_same_event_twice_is_one() -> None:
    book = Book()
    book.go([signal()], [], START)
    assert book.go([signal()], [], START + 1) == []


def test_a_standing_level_is_stored_once_an_hour_and_on_change_only() -> None:
    book = Book()
    moves = 0
    for n in range(1000):
        moves += len(book.go([level(observed_at=START + 5 * n)], [], START + 5 * n))
    assert moves == 1 + 1  # opened, and its numbers stored anew after an hour
    weaker = level(observed_at=START + 5000, score=0.6)
    assert len(book.go([weaker], [], START + 5000)) == 1


def test_info_opens_nothing_and_an_echo_only_joins() -> None:
    book = Book()
    echo = signal("xid:45", echo=True, severity=Severity.INFO, fault_class=FaultClass.APPLICATION)
    assert book.go([signal(severity=Severity.INFO), echo], [], START) == []
    book.go([signal(), replace(echo, event_ids=("e2",))], [], START)
    (incident,) = book.open()
    assert [item.detector for item in incident.evidence] == ["xid:48", "xid:45"]
    assert incident.severity is Severity.CRITICAL
    assert incident.confidence == pytest.approx(0.85)


def test_a_later_cause_that_is_no_better_joins_without_relabelling() -> None:
    book = Book()
    book.go([signal("xid:79", fault_class=FaultClass.BUS, acts_alone=True)], [], START)
    late = signal("xid:119", fault_class=FaultClass.DRIVER, observed_at=START + 20)
    book.go([late], [], START + 20)
    (incident,) = book.open()
    assert incident.fault_class is FaultClass.BUS
    after_the_chain = replace(late, observed_at=START + 60, event_ids=("y",))
    book.go([after_the_chain], [], START + 60)
    assert {i.fault_class for i in book.open()} == {FaultClass.BUS, FaultClass.DRIVER}


def test_unrelated_trouble_of_a_node_does_not_chain() -> None:
    book = Book()
    node = node_ref(0)
    disk = signal("disk", entity=node, fault_class=FaultClass.STORAGE)
    host = signal("host", entity=node, fault_class=FaultClass.HOST, severity=Severity.CRITICAL)
    book.go([disk, host], [], START)
    assert len(book.open()) == 2


def test_an_application_incident_is_relabelled_by_a_real_cause() -> None:
    book = Book()
    app = signal(
        "xid:31",
        fault_class=FaultClass.APPLICATION,
        severity=Severity.WARNING,
        application_possible=True,
    )
    book.go([app], [], START)
    book.go([signal(observed_at=START + 10)], [], START + 10)
    (incident,) = book.open()
    assert (incident.fault_class, incident.why) == (
        FaultClass.MEMORY,
        "xid:48 happened; first sign: xid:31 happened",
    )


def test_why_leads_with_what_weighs_most_and_keeps_the_first_sign_for_context() -> None:
    book = Book()
    wear = signal("xid:63", score=0.3, severity=Severity.WARNING)
    book.go([wear], [], START)
    failed = level(detector="row_remap_failure", observed_at=START + 10, acts_alone=True)
    book.go([failed], [], START + 10)
    (incident,) = book.open()
    assert (incident.evidence[0].detector, incident.fault_class) == ("xid:63", FaultClass.MEMORY)
    assert incident.why == f"{failed.sentence}; first sign: xid:63 happened"
    cleared = recovery(
        RecoveryKind.READING_CLEAR, detectors=frozenset({"row_remap_failure"}), at=START + 20
    )
    book.go([], [cleared], START + 20)
    (incident,) = book.open()
    assert incident.why == "xid:63 happened", "what has cleared decides nothing any more"


@pytest.mark.parametrize(
    ("persistence", "kind", "ends"),
    [
        (Persistence.LEVEL, RecoveryKind.READING_CLEAR, True),
        (Persistence.BOOT, RecoveryKind.READING_CLEAR, False),
        (Persistence.PART, RecoveryKind.READING_CLEAR, False),
        (Persistence.LEVEL, RecoveryKind.NEW_BOOT, False),
        (Persistence.BOOT, RecoveryKind.NEW_BOOT, True),
        (Persistence.PART, RecoveryKind.NEW_BOOT, False),
        (Persistence.LEVEL, RecoveryKind.CHECK_PASSED, True),
        (Persistence.BOOT, RecoveryKind.CHECK_PASSED, True),
        (Persistence.EVENT, RecoveryKind.CHECK_PASSED, True),
        (Persistence.PART, RecoveryKind.CHECK_PASSED, False),
        (Persistence.PART, RecoveryKind.CHECK_AFTER_REPAIR, True),
    ],
)
def test_each_condition_ends_on_its_own_evidence_only(
    persistence: Persistence, kind: RecoveryKind, ends: bool
) -> None:
    book = Book()
    told = level(persistence=persistence)
    book.go([told], [], START)
    named = frozenset({"level"}) if kind is RecoveryKind.READING_CLEAR else frozenset()
    book.go([], [recovery(kind, boot_id="boot-2", detectors=named)], START + 10)
    book.go([], [], START + 10 + 600)
    assert (book.open() == []) is ends


def test_the_same_boot_and_an_older_check_end_nothing() -> None:
    book = Book()
    book.go([signal(persistence=Persistence.BOOT)], [], START)
    same = recovery(RecoveryKind.NEW_BOOT, boot_id="boot-1")
    older = recovery(RecoveryKind.CHECK_PASSED, at=START - 1)
    elsewhere = recovery(RecoveryKind.CHECK_PASSED, entity=gpu_ref(0, 1))
    other_node = recovery(RecoveryKind.CHECK_PASSED, entity=node_ref(1))
    unnamed = recovery(RecoveryKind.READING_CLEAR)
    assert book.go([], [same, older, elsewhere, other_node, unnamed], START + 9999) == []


def test_a_nodes_check_covers_its_gpus_but_a_nodes_reading_does_not() -> None:
    book = Book()
    book.go([level()], [], START)
    reading = recovery(
        RecoveryKind.READING_CLEAR, entity=node_ref(0), detectors=frozenset({"level"})
    )
    assert book.go([], [reading], START + 10) == []
    book.go([], [recovery(RecoveryKind.CHECK_PASSED, entity=node_ref(0))], START + 10)
    assert book.open() == []


def test_nothing_seen_for_years_ends_no_lasting_evidence_but_events_expire() -> None:
    book = Book()
    book.go([level(), signal("once", fault_class=FaultClass.BUS)], [], START)
    book.go([], [], START + 86399)
    assert len(book.open()) == 2
    book.go([], [], START + 86400)
    assert [i.fault_class for i in book.open()] == [FaultClass.MEMORY]
    book.go([], [], START + 1e9)
    assert len(book.open()) == 1


def test_each_flap_doubles_the_dwell_and_names_itself() -> None:
    book = Book()
    clear = frozenset({"level"})
    book.go([level()], [], START)
    now = START
    for n in range(1, 4):
        now += 100
        book.go([], [recovery(RecoveryKind.READING_CLEAR, detectors=clear)], now)
        assert book.open()[0].phase is IncidentPhase.MITIGATED
        now += 100
        (move,) = book.go([level(observed_at=now)], [], now)
        assert move.incident.phase is IncidentPhase.OPEN
        assert f"({n} times)" in move.reason
    book.go([], [recovery(RecoveryKind.READING_CLEAR, detectors=clear)], now)
    book.go([], [], now + 8 * 600 - 1)
    assert len(book.open()) == 1
    book.go([], [], now + 8 * 600)
    assert book.open() == []


def test_peoples_moves_carry_author_and_reason_and_refuse_what_is_over() -> None:
    book = Book()
    (opened,) = book.go([signal()], [], START)
    seen = acknowledge(opened.incident, "ann", "looking", START + 1)
    assert (seen.author, seen.reason, seen.before) == ("ann", "looking", IncidentPhase.OPEN)
    with pytest.raises(LifecycleError, match="acknowledged"):
        acknowledge(seen.incident, "bob", "too", START + 2)
    gone = retire(seen.incident, "ann", "node sold", START + 3)
    assert gone.incident.resolved_at == START + 3
    with pytest.raises(LifecycleError):
        retire(gone.incident, "ann", "again", START + 4)
    assert acquit_all([gone.incident], "ann", "x", START) == []


def test_an_acquittal_keeps_the_class_and_severity_of_its_moment() -> None:
    book = Book()
    (opened,) = book.go([signal()], [], START)
    move = acquit(opened.incident, "ann", "sound", START)
    assert move.evidence_only
    (held,) = acquittals_of([move.incident], START + ACQUITTAL_S - 1)
    assert (held.fault_class, held.severity) == (FaultClass.MEMORY, Severity.CRITICAL)
    assert acquittals_of([move.incident], START + ACQUITTAL_S) == ()


@pytest.mark.parametrize(
    ("later", "opens"),
    [
        ({"fault_class": FaultClass.MEMORY, "severity": Severity.WARNING}, True),
        ({"fault_class": FaultClass.DRIVER, "severity": Severity.CRITICAL}, True),
        ({"fault_class": FaultClass.DRIVER, "severity": Severity.ERROR}, False),
        ({"fault_class": FaultClass.BUS, "severity": Severity.CRITICAL}, False),
        ({"fault_class": FaultClass.MEMORY, "echo": True}, False),
    ],
)
def test_what_a_revoke_has_not_seen_opens_an_incident_of_its_own(
    later: dict[str, object], opens: bool
) -> None:
    """Another class, or a higher severity of it, within the chain of what was acquitted."""
    book = Book()
    first = signal("xid:79", fault_class=FaultClass.BUS, acts_alone=True)
    beside = signal("xid:13", fault_class=FaultClass.DRIVER, severity=Severity.ERROR)
    book.go([first, beside], [], START)
    (seen,) = book.open()
    acquitted = acquit(seen, "ann", "reseated", START + 5).incident
    book.incidents[seen.id] = acquitted
    late = signal("xid:95", observed_at=START + 10, event_ids=("late",), **later)
    book.go([late], [], START + 10)
    assert len(book.open()) == 1 + opens
    after = book.incidents[seen.id]
    assert after.fault_class is FaultClass.BUS
    assert ("xid:95" in {item.detector for item in after.evidence}) is not opens


def test_a_weaker_word_does_not_speak_for_the_one_that_decided() -> None:
    book = Book()
    twice = signal("gpu_lost", sentence="at 2 probes in a row", acts_alone=True, event_ids=("a",))
    once = replace(
        twice,
        sentence="at one probe",
        acts_alone=False,
        score=0.5,
        severity=Severity.ERROR,
        observed_at=START + 9,
        event_ids=("b",),
    )
    book.go([twice], [], START)
    (move,) = book.go([once], [], START + 9)
    assert move.incident.why == "at 2 probes in a row"


def test_when_an_acquittal_is_over_its_incident_takes_its_chain_in_again() -> None:
    book = Book()
    (opened,) = book.go([signal("xid:79", fault_class=FaultClass.BUS)], [], START)
    book.incidents["inc-1"] = acquit(opened.incident, "ann", "x", START - ACQUITTAL_S).incident
    book.go([signal("xid:95", observed_at=START + 10)], [], START + 10)
    assert len(book.open()) == 1


def test_confidence_takes_planes_as_independent_and_pieces_of_one_plane_as_one() -> None:
    def item(plane: Plane, score: float, rung: Rung = Rung.EXCLUDE) -> object:
        return new_item(signal(plane=plane, score=score, max_rung=rung), START)

    def sure(*items: object, rung: Rung = Rung.EXCLUDE) -> float:
        return confidence_of(list(items), rung)  # type: ignore[arg-type]  # made by item()

    assert sure(item(Plane.EVENTS, 0.5), item(Plane.EVENTS, 0.5)) == pytest.approx(0.5)
    assert sure(item(Plane.EVENTS, 0.5), item(Plane.COUNTERS, 0.5)) == pytest.approx(0.75)
    weak = item(Plane.HOST, 0.9, Rung.SUSPECT)
    assert sure(weak) == 0.0
    assert sure(weak, item(Plane.EVENTS, 0.5)) == pytest.approx(0.95)
    assert sure(item(Plane.EVENTS, 0.9, Rung.SUSPECT), item(Plane.EVENTS, 0.5)) == pytest.approx(
        0.5
    )


def test_a_storm_needs_two_gpus_at_about_the_same_time_and_nothing_else() -> None:
    def app(gpu: int, at: float) -> Signal:
        return signal(
            "xid:31",
            entity=gpu_ref(0, gpu),
            fault_class=FaultClass.APPLICATION,
            severity=Severity.WARNING,
            application_possible=True,
            observed_at=at,
            expires_at=at + 86400,
            event_ids=(f"{gpu}-{at}",),
        )

    book = Book()
    book.go([app(0, START), app(1, START + 50), app(2, START + 500)], [], START + 500)
    assert find_storms(book.open()) == {"inc-1", "inc-2"}
    book.go([signal(entity=gpu_ref(0, 1), observed_at=START + 55)], [], START + 500)
    assert find_storms(book.open()) == {"inc-1"}


kinds = st.sampled_from(list(RecoveryKind))
steps = st.lists(
    st.tuples(
        st.sampled_from(["event", "level", "boot", "part", "echo", "unknown", "none"]),
        st.one_of(st.none(), kinds),
        st.floats(0.0, 2000.0),
    ),
    max_size=25,
)


@settings(max_examples=80)
@given(steps)
def test_moves_follow_the_table_and_keys_stay_unique(
    story: list[tuple[str, RecoveryKind | None, float]],
) -> None:
    book, now, boots = Book(), START, 1
    for n, (what, kind, wait) in enumerate(story):
        now += wait
        boots += 1
        made = {
            "event": [signal(f"xid:{n % 3}", observed_at=now, event_ids=(f"e{n}",))],
            "level": [level(observed_at=now)],
            "boot": [
                signal("b", persistence=Persistence.BOOT, observed_at=now, event_ids=(f"e{n}",))
            ],
            "part": [level(detector="part", persistence=Persistence.PART, observed_at=now)],
            "echo": [signal("xid:45", echo=True, observed_at=now, event_ids=(f"e{n}",))],
            "unknown": [
                signal(
                    "xid:154", fault_class=FaultClass.UNKNOWN, observed_at=now, event_ids=(f"e{n}",)
                )
            ],
            "none": [],
        }[what]
        named = frozenset({"level"})
        recoveries = [recovery(kind, at=now, boot_id=f"b{boots}", detectors=named)] if kind else []
        before = {i.id: i.phase for i in book.open()}
        for move in book.go(made, recoveries, now):
            assert move.before is before.get(move.incident.id)
            if move.before is not None and not move.evidence_only:
                assert move.incident.phase in INCIDENT_MOVES[move.before]
            assert move.reason and move.author
        keys = [(i.entity, i.fault_class) for i in book.open()]
        assert len(keys) == len(set(keys))

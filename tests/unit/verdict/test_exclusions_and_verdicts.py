from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_verdict.entities import Contact, EntityRef, EntityState, FaultClass, Rung
from gpuwarden_verdict.exclusions import (
    GpuPlace,
    Scope,
    difference,
    digest,
    exclusion_set,
    host_lines,
    slurm_line,
    would_exclude,
)
from gpuwarden_verdict.policy.document import Decision, DecisionPhase, Mode
from gpuwarden_verdict.verdicts import FeedPosition, Standing, node_verdict
from gpuwarden_wire.acknowledgement import Usable
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import gpu_ref, node_ref

FEED = FeedPosition("feed", 7)


def nowhere(gpu_uuid: str) -> GpuPlace | None:
    return None


def decision(
    entity: EntityRef,
    phase: DecisionPhase = DecisionPhase.IN_FORCE,
    rung: Rung = Rung.EXCLUDE,
    name: str = "",
    at: float = 100.0,
) -> Decision:
    return Decision(
        id=name or f"dec-{entity.key}",
        entity=entity,
        rung=rung,
        phase=phase,
        mode=Mode.ACT,
        fault_class=FaultClass.BUS,
        reasons=("XID 79", "more"),
        confidence=0.95,
        decided_by="rule",
        incident_id="inc-1",
        policy_version="p",
        model_version="",
        decided_at=at,
        expires_at=None,
    )


def test_the_set_holds_what_is_in_force_once_each_with_its_place() -> None:
    decisions = [
        decision(node_ref(2)),
        decision(gpu_ref(1, 0)),
        decision(gpu_ref(1, 0), rung=Rung.DRAIN, name="dec-higher"),
        decision(gpu_ref(1, 1), DecisionPhase.PROPOSED),
        decision(gpu_ref(1, 2), DecisionPhase.REVOKED),
        decision(gpu_ref(1, 3), rung=Rung.SUSPECT),
    ]
    in_force = exclusion_set(decisions, {"GPU-1-0": GpuPlace("0000:01:00.0", 3)}.get)
    assert [(e.entity, e.decision_id) for e in in_force] == [
        ("GPU-1-0", "dec-higher"),
        ("n2", "dec-n2"),
    ]
    assert (in_force[0].pci_bus_id, in_force[0].gpu_index, in_force[0].reason) == (
        "0000:01:00.0",
        3,
        "XID 79",
    )
    assert [e.entity for e in would_exclude(decisions, nowhere)] == ["GPU-1-1"]


def test_digest_is_over_sorted_names_and_of_the_empty_set_too() -> None:
    some = exclusion_set([decision(node_ref(2)), decision(gpu_ref(1, 0))], nowhere)
    expected = hashlib.sha256(b"gpu:GPU-1-0\nnode:n2").hexdigest()
    assert digest(some) == digest(reversed(some)) == expected
    assert digest(()) == hashlib.sha256(b"").hexdigest()


def test_plain_forms_name_each_node_once() -> None:
    some = exclusion_set(
        [decision(gpu_ref(9, 0)), decision(gpu_ref(9, 1)), decision(node_ref(2))], nowhere
    )
    assert host_lines(some) == "n2\nn9\n"
    assert slurm_line(some) == "n2,n9\n"
    assert host_lines(some, Scope.NODE) == "n2\n"
    assert (host_lines(()), slurm_line(())) == ("", "\n")


names = st.sets(st.integers(0, 20))


@given(names, names)
def test_a_difference_turns_the_old_set_into_the_new(before: set[int], after: set[int]) -> None:
    old = exclusion_set([decision(gpu_ref(n, 0)) for n in before], nowhere)
    new = exclusion_set([decision(gpu_ref(n, 0)) for n in after], nowhere)
    change = difference(old, new)
    assert (set(old) - set(change.removed)) | set(change.added) == set(new)
    assert difference(new, new).added == difference(new, new).removed == ()


def test_changed_terms_are_both_removed_and_added() -> None:
    old = exclusion_set([decision(node_ref(1))], nowhere)
    new = exclusion_set([replace(decision(node_ref(1)), rung=Rung.DRAIN)], nowhere)
    change = difference(old, new)
    assert [e.rung for e in change.removed] == [Rung.EXCLUDE]
    assert [e.rung for e in change.added] == [Rung.DRAIN]


@pytest.mark.parametrize("contact", list(Contact))
def test_usable_is_no_exactly_when_an_exclusion_in_force_covers(contact: Contact) -> None:
    gpus = [
        Standing(gpu_ref(1, 0), EntityState.EXCLUDED, 100.0, (decision(gpu_ref(1, 0)),)),
        Standing(gpu_ref(1, 1), EntityState.HEALTHY, 50.0),
    ]
    verdict = node_verdict(Standing(node_ref(1)), gpus, contact, FEED, 200.0)
    free = Usable.YES if contact is Contact.LIVE else Usable.UNKNOWN
    assert [gpu.usable for gpu in verdict.gpus] == [Usable.NO, free]
    assert verdict.node.usable is Usable.NO
    assert "GPU-1-0 is excluded" in verdict.node.why
    assert verdict.node.decision_id == "dec-GPU-1-0"
    assert (verdict.epoch, verdict.feed_id, verdict.issued_at) == (7, "feed", 200.0)
    alone = node_verdict(Standing(node_ref(1)), gpus[1:], contact, FEED, 200.0)
    assert alone.node.usable is free


def test_an_excluded_node_covers_all_of_its_gpus() -> None:
    node = Standing(node_ref(1), EntityState.EXCLUDED, 100.0, (decision(node_ref(1)),))
    verdict = node_verdict(node, [Standing(gpu_ref(1, 0))], Contact.LIVE, FEED, 200.0)
    assert verdict.gpus[0].usable is Usable.NO
    assert verdict.gpus[0].since == 100.0


def test_a_proposal_only_says_what_it_would_do() -> None:
    proposed = decision(gpu_ref(1, 0), DecisionPhase.PROPOSED, Rung.DRAIN)
    gpu = Standing(gpu_ref(1, 0), EntityState.SUSPECT, 100.0, (proposed,))
    verdict = node_verdict(Standing(node_ref(1)), [gpu], Contact.LIVE, FEED, 200.0)
    assert (verdict.gpus[0].usable, verdict.gpus[0].would) == (Usable.YES, "drain")
    assert (verdict.node.usable, verdict.node.would) == (Usable.YES, "")
    assert verdict.gpus[0].decision_id is None


def test_what_was_never_seen_is_unknown_and_says_so() -> None:
    verdict = node_verdict(Standing(node_ref(1)), [], Contact.NEVER, FEED, 200.0)
    assert (verdict.node.usable, verdict.node.why, verdict.node.state) == (
        Usable.UNKNOWN,
        "never seen",
        "unknown",
    )


def test_an_unplaced_gpu_is_listed_all_the_same() -> None:
    (one,) = exclusion_set([decision(gpu_ref(1, 0))], nowhere)
    assert (one.entity_kind, one.pci_bus_id, one.gpu_uuid) == (EntityKind.GPU, None, "GPU-1-0")

"""What is due at a consumer: named cases, and what holds under any of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_verdict.actuation import (
    TAG,
    Act,
    Drift,
    Found,
    Held,
    Hold,
    Standing,
    Wanted,
    plan_steps,
    wanted_nodes,
)
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_wire.metrics import EntityKind

NODES = ("n1", "n2", "n3")


def want(node: str, *decisions: str, rung: Rung = Rung.DRAIN) -> Wanted:
    return Wanted(node, rung, decisions or ("dec-1",), ("GPU-1",), "row remap failed")


def ours(wanted: Wanted, *jobs: str) -> Found:
    return Found(Hold.OURS, wanted.text, "root", jobs)


HELD = Held(Act.EXCLUDE, ("dec-1",))
FREE = Found(Hold.FREE)
ANN = Found(Hold.THEIRS, "bad dimm", "ann")


@pytest.mark.parametrize(
    ("wanted", "found", "held", "drift", "standing", "acts"),
    [
        (want("n1"), FREE, None, Drift.SHOW, Standing.WAITING, (Act.EXCLUDE,)),
        (want("n1"), ours(want("n1")), HELD, Drift.SHOW, Standing.IN_PLACE, ()),
        (want("n1", "dec-2"), ours(want("n1")), HELD, Drift.SHOW, Standing.WAITING, (Act.EXCLUDE,)),
        (want("n1"), ANN, None, Drift.REPAIR, Standing.ALREADY_OUT, ()),
        (want("n1"), ANN, HELD, Drift.REPAIR, Standing.TAKEN_OVER, ()),
        (want("n1"), FREE, HELD, Drift.SHOW, Standing.UNDONE, ()),
        (want("n1"), FREE, HELD, Drift.REPAIR, Standing.WAITING, (Act.EXCLUDE,)),
        # A fault that was not known when somebody put it back in is news.
        (want("n1", "dec-2"), FREE, HELD, Drift.SHOW, Standing.WAITING, (Act.EXCLUDE,)),
        (want("n1"), FREE, Held(Act.RELEASE), Drift.SHOW, Standing.WAITING, (Act.EXCLUDE,)),
        (want("n1"), None, None, Drift.SHOW, Standing.ABSENT, ()),
        (None, ours(want("n1")), HELD, Drift.SHOW, Standing.WAITING, (Act.RELEASE,)),
        # It took effect, and nobody saw to it: the record must say so, else nobody releases it.
        (want("n1"), ours(want("n1")), None, Drift.SHOW, Standing.WAITING, (Act.EXCLUDE,)),
        (
            want("n1"),
            ours(want("n1")),
            Held(Act.RELEASE),
            Drift.SHOW,
            Standing.WAITING,
            (Act.EXCLUDE,),
        ),
        # A backup from before the second decision: what it says has ended is not what holds it.
        (None, ours(want("n1", "dec-2")), HELD, Drift.SHOW, Standing.ORPHAN, ()),
        # Not by this server's record: a new store must not put failing nodes back in.
        (None, ours(want("n1")), None, Drift.REPAIR, Standing.ORPHAN, ()),
    ],
)
def test_each_case(
    wanted: Wanted | None,
    found: Found | None,
    held: Held | None,
    drift: Drift,
    standing: Standing,
    acts: tuple[Act, ...],
) -> None:
    (step,) = plan_steps(
        {} if wanted is None else {"n1": wanted},
        {} if found is None else {"n1": found},
        {} if held is None else {"n1": held},
        drift,
    )
    assert (step.standing, step.acts) == (standing, acts)
    assert step.why


def test_what_nobody_wants_and_we_do_not_hold_is_left_out() -> None:
    assert plan_steps({}, {"n1": FREE, "n2": ANN}, {"n2": HELD}, Drift.REPAIR) == []


def test_a_renamed_node_stays_out_under_the_name_that_the_consumer_knows() -> None:
    wanted = {"new": want("new")}
    steps = plan_steps(wanted, {"old": ours(want("old"))}, {"old": HELD}, Drift.SHOW)
    assert [(one.node_id, one.standing, one.acts) for one in steps] == [
        ("new", Standing.ABSENT, ()),
        ("old", Standing.IN_PLACE, ()),
    ]
    known = {"old": ours(want("old")), "new": ours(want("new"))}
    held = {"old": HELD, "new": HELD}
    assert [one.acts for one in plan_steps(wanted, known, held, Drift.SHOW)] == [(), (Act.RELEASE,)]


def test_jobs_are_moved_once_a_decision_and_from_the_rung_on_that_asks_for_it() -> None:
    wanted = want("n1")
    running = {"n1": ours(wanted, "4711")}

    def acts(move_from: Rung | None, moved_for: tuple[str, ...] = ()) -> tuple[Act, ...]:
        held = {"n1": Held(Act.EXCLUDE, ("dec-1",), moved_for)}
        (step,) = plan_steps({"n1": wanted}, running, held, Drift.SHOW, move_from=move_from)
        return step.acts

    assert acts(None) == ()
    assert acts(Rung.EVICT) == ()
    assert acts(Rung.DRAIN) == (Act.MOVE,)
    assert acts(Rung.DRAIN, ("dec-1",)) == ()


def test_a_reason_is_one_plain_line_that_begins_with_the_tag() -> None:
    told = 'a "b"\n[c] | d\\e Comment=x ' + "x" * 500
    wanted = Wanted("n1", Rung.DRAIN, ("dec-1",), (), told)
    assert wanted.text.startswith(f"{TAG} dec-1 a 'b' (c) / d/e Comment:x xxx")
    assert len(wanted.text) == 240


def test_exclusions_of_gpus_take_the_node_out_and_say_so() -> None:
    def exclusion(entity: str, rung: Rung, decision: str, at: float) -> Exclusion:
        is_node = entity == "n1"
        return Exclusion(
            EntityKind.NODE if is_node else EntityKind.GPU,
            entity,
            "n1",
            None if is_node else entity,
            None,
            None,
            rung,
            at,
            f"why of {entity}",
            decision,
            "rule",
            None,
        )

    gpus = [
        exclusion("GPU-2", Rung.EXCLUDE, "dec-2", 1.0),
        exclusion("GPU-1", Rung.DRAIN, "dec-1", 9.0),
    ]
    one = wanted_nodes(gpus)["n1"]
    assert (one.rung, one.decisions, one.gpus) == (
        Rung.DRAIN,
        ("dec-1", "dec-2"),
        ("GPU-1", "GPU-2"),
    )
    assert one.reason == "why of GPU-1"
    assert "(whole node for 2 GPU)" in one.text
    whole = wanted_nodes([*gpus, exclusion("n1", Rung.EXCLUDE, "dec-3", 5.0)])["n1"]
    assert (whole.gpus, whole.reason, whole.rung) == ((), "why of n1", Rung.DRAIN)


@dataclass
class Consumer:
    """A scheduler as the plan sees it, with people at it."""

    found: dict[str, Found] = field(default_factory=lambda: dict.fromkeys(NODES, FREE))
    held: dict[str, Held] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    theirs: dict[str, Found] = field(default_factory=dict)

    def act(self, drift: Drift, steps: int) -> None:
        """Carry out at most `steps` acts: the server may be killed after any."""
        due = [
            (step, act)
            for step in plan_steps(self.wanted, self.found, self.held, drift)
            for act in step.acts
        ]
        for step, act in due[:steps]:
            node = step.node_id
            assert self.found[node].hold is not Hold.THEIRS, "a person's hand was written over"
            if act is Act.RELEASE:
                assert self.found[node].reason.startswith(TAG)
                self.found[node], self.held[node] = FREE, Held(Act.RELEASE)
            elif act is Act.EXCLUDE:
                assert step.wanted is not None
                self.found[node] = ours(step.wanted)
                self.held[node] = Held(Act.EXCLUDE, step.wanted.decisions)


moves = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(NODES), st.sampled_from(["dec-1", "dec-2"])),
    st.tuples(st.just("end"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("person drains"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("person resumes"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("act"), st.just(""), st.sampled_from(["0", "1", "9"])),
)


@given(st.lists(moves, max_size=25), st.sampled_from(Drift))
def test_under_any_story_people_are_left_alone_and_repeats_do_nothing(
    story: list[tuple[str, str, str]], drift: Drift
) -> None:
    world = Consumer()
    for what, node, more in story:
        if what == "want":
            world.wanted[node] = want(node, more)
        elif what == "end":
            world.wanted.pop(node, None)
        elif what == "person drains":
            world.found[node] = ANN
        elif what == "person resumes":
            world.found[node] = FREE
        else:
            world.act(drift, int(more))
    world.act(drift, 9)
    settled = dict(world.found)
    assert all(not step.acts for step in plan_steps(world.wanted, settled, world.held, drift))
    for node in NODES:
        if node not in world.wanted:
            assert settled[node].hold is not Hold.OURS, "our exclusion outlived its reason"
        if drift is Drift.REPAIR and node in world.wanted:
            assert settled[node].hold is not Hold.FREE

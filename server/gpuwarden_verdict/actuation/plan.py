"""The plan: what is due at each node, so that a consumer holds what is wanted and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import assert_never

from gpuwarden_verdict.actuation.domain import (
    TAG,
    Act,
    Drift,
    Found,
    Held,
    Hold,
    Standing,
    Step,
    Wanted,
)
from gpuwarden_verdict.entities import Rung

_ABSENT = Found(Hold.ABSENT)
# gpuwarden: dec-0a1b2c3d4e5f,dec-5f4e3d2c1b0a (whole node for 2 GPU) XID 64 …
_DECISIONS = re.compile(rf"{TAG} (dec-[^ ]+)")


def plan_steps(
    wanted: Mapping[str, Wanted],
    found: Mapping[str, Found],
    held: Mapping[str, Held],
    drift: Drift,
    *,
    move_from: Rung | None = None,
) -> list[Step]:
    """Steps by node, in order of the node's name; nodes that nobody wants or holds are left out.

    The same values give the same steps, and what is in place gets none: repeats are no-ops.
    What is not ours is never written over and never released.

    Args:
        wanted: Nodes that must be out.
        found: What the consumer says now; a node that it leaves out is one that it has not.
        held: What we did last, of nodes that we ever acted on.
        drift: What to do where somebody undid it.
        move_from: From which rung on what runs there is moved; None never.
    """
    ours = {node for node, one in found.items() if one.hold is Hold.OURS}
    missed = {
        decision
        for node, want in wanted.items()
        if found.get(node, _ABSENT).hold is Hold.ABSENT
        for decision in want.decisions
    }
    steps = []
    for node_id in sorted({*wanted, *ours}):
        here, last = found.get(node_id, _ABSENT), held.get(node_id)
        want = wanted.get(node_id)
        if want is None:
            steps.append(_unwanted(node_id, here, last, missed))
        else:
            steps.append(_step(want, here, last, drift, move_from))
    return steps


def _unwanted(node_id: str, here: Found, last: Held | None, missed: set[str]) -> Step:
    told = _DECISIONS.match(here.reason)
    named = set(told[1].split(",")) if told else set()
    if last is None or last.act is Act.RELEASE or not named <= set(last.decisions):
        # A new or restored store, or another gpuwarden: whoever put it there knows why.
        why = "it carries our tag, but not for what this server did: release it by hand"
        return Step(node_id, Standing.ORPHAN, (), None, here, why)
    if missed & set(last.decisions):
        why = "the consumer has no node of the new name that its decision speaks of: it stays out"
        return Step(node_id, Standing.IN_PLACE, (), None, here, why)
    why = "no exclusion in force asks for it any more"
    return Step(node_id, Standing.WAITING, (Act.RELEASE,), None, here, why)


def _step(
    want: Wanted, here: Found, last: Held | None, drift: Drift, move_from: Rung | None
) -> Step:
    match here.hold:
        case Hold.ABSENT:
            why = "the consumer has no node of this name"
            return Step(want.node_id, Standing.ABSENT, (), want, here, why)
        case Hold.THEIRS:
            return _others(want, here, last)
        case Hold.OURS:
            return _in_place(want, here, last, move_from)
        case Hold.FREE:
            return _free(want, here, last, drift, move_from)
        case _:
            assert_never(here.hold)


def _others(want: Wanted, here: Found, last: Held | None) -> Step:
    mine = last is not None and last.act is not Act.RELEASE
    standing = Standing.TAKEN_OVER if mine else Standing.ALREADY_OUT
    by = f" by {here.by}" if here.by else ""
    why = f"out already{by}: {here.reason or 'no reason given'}; nothing of it is ours to change"
    return Step(want.node_id, standing, (), want, here, why)


def _in_place(want: Wanted, here: Found, last: Held | None, move_from: Rung | None) -> Step:
    acts: list[Act] = []
    if last is None or last.act is Act.RELEASE or last.decisions != want.decisions:
        # A step that took effect and was not seen to, or other decisions: the record must say so,
        # else nobody releases it.
        acts.append(Act.EXCLUDE)
    if _must_move(want, here, last, move_from):
        acts.append(Act.MOVE)
    standing = Standing.WAITING if acts else Standing.IN_PLACE
    return Step(want.node_id, standing, tuple(acts), want, here, want.reason)


def _free(
    want: Wanted, here: Found, last: Held | None, drift: Drift, move_from: Rung | None
) -> Step:
    undone = last is not None and last.act is not Act.RELEASE
    known = undone and last is not None and set(want.decisions) <= set(last.decisions)
    if known and drift is Drift.SHOW:
        why = "somebody put it back in; revoke the decision, or exclude it there again"
        return Step(want.node_id, Standing.UNDONE, (), want, here, why)
    acts = [Act.EXCLUDE]
    if _must_move(want, here, last, move_from):
        acts.append(Act.MOVE)
    return Step(want.node_id, Standing.WAITING, tuple(acts), want, here, want.reason)


def _must_move(want: Wanted, here: Found, last: Held | None, move_from: Rung | None) -> bool:
    if move_from is None or want.rung < move_from or not here.jobs:
        return False
    return last is None or not set(want.decisions) <= set(last.moved_for)

"""One failure of a job is saved once, however many decisions would each have saved it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuwarden_verdict.savings.costing import Cost, Facts, Outcome

Entry = tuple[Facts, Cost]


def counted_once(entries: Sequence[Entry], window_s: float) -> list[Entry]:
    """The same decisions in the same order, of which each failure of a job has one that saved it.

    Eight GPUs of one node, nodes behind one switch, a part that flaps: their job fails once. So of
    decisions about one incident, and of those about one job that begin within `window_s` of the
    first, the greatest saving stands, of what was right before what is open; the others save 0 and
    say with whom they count. Where nobody knows of a job, all of a node are about one. What was in
    force and what would have been are counted apart; what wrong decisions lost adds up.

    Args:
        entries: Decisions with what each would save by itself.
        window_s: How long one failure of a job lasts, seconds.
    """
    costs = {facts.decision_id: cost for facts, cost in entries}
    first_of: dict[str, str] = {}
    for group in _groups((facts for facts, _ in entries), window_s):
        able = [(one, costs[one.decision_id]) for one in group if _may_save(one)]
        if len(able) > 1:
            best = min(able, key=_order)[0].decision_id
            first_of |= {one.decision_id: best for one, _ in able if one.decision_id != best}
    return [
        (facts, _beside(cost, first_of[facts.decision_id]))
        if facts.decision_id in first_of
        else (facts, cost)
        for facts, cost in entries
    ]


def _groups(found: Iterable[Facts], window_s: float) -> list[list[Facts]]:
    groups: list[list[Facts]] = []
    recent: list[list[Facts]] = []
    by_incident: dict[tuple[bool, str], list[Facts]] = {}
    for facts in sorted(found, key=lambda one: (one.begun_at, one.decision_id)):
        incident = (facts.acted, facts.incident_id)
        recent = [one for one in recent if facts.begun_at - one[0].begun_at <= window_s]
        group = by_incident.get(incident) or next(
            (one for one in recent if any(_is_shared(facts, other) for other in one)), None
        )
        if group is None:
            group = []
            groups.append(group)
            recent.append(group)
        group.append(facts)
        if facts.incident_id:
            by_incident[incident] = group
    return groups


def _is_shared(one: Facts, other: Facts) -> bool:
    if one.acted is not other.acted:
        return False
    if one.jobs and other.jobs:
        return not one.jobs.isdisjoint(other.jobs)
    return one.node_id == other.node_id


def _may_save(facts: Facts) -> bool:
    return facts.outcome is not Outcome.WRONG


def _order(entry: Entry) -> tuple[bool, float, float, str]:
    facts, cost = entry
    is_open = facts.outcome is not Outcome.RIGHT
    return is_open, -cost.if_right_gpu_hours, facts.begun_at, facts.decision_id


def _beside(cost: Cost, first: str) -> Cost:
    told = f"the same failure of its job counts with {first}, and is saved once"
    return replace(
        cost,
        saved_gpu_hours=0.0,
        saved_kwh=0.0,
        saved_money=0.0,
        if_right_gpu_hours=0.0,
        says=(*cost.says, told),
    )

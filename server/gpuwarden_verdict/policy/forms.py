"""JSON forms of what policies did, the same from the server and from a recording. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.policy.guards import guard_words
from gpuwarden_verdict.policy.replay import Effect, Stand
from gpuwarden_verdict.policy.tally import Difference, Spell, Tally, differences_of, tally_of

MOST_CASES = 500


def stand_form(stand: Stand) -> dict[str, Any]:
    """What a decision does; rungs as words, "" for none."""
    return {
        "effect": stand.effect.value,
        "rung": _rung(stand.rung),
        "guard": stand.guard,
        "guard_says": guard_words(stand.guard),
        "advised": _rung(stand.advised),
    }


def comparison_form(before: Iterable[Spell], after: Iterable[Spell]) -> dict[str, Any]:
    """What two policies did, by pool and class, and the cases that differ."""
    old, new = tuple(before), tuple(after)
    differing = differences_of(old, new)
    then, now = tally_of(old), tally_of(new)
    return {
        "by": [
            {
                "pool": key[0],
                "fault_class": key[1].value,
                "before": _effects(then, key),
                "after": _effects(now, key),
            }
            for key in sorted(then.keys() | now.keys())
        ],
        "differing": len(differing),
        "cases": [_case(one) for one in differing[:MOST_CASES]],
    }


def _effects(tally: Tally, key: tuple[str, FaultClass]) -> list[dict[str, Any]]:
    lines = tally.get(key, {})
    return [
        {"effect": one.value, "cases": lines[one].cases, "gpu_hours": lines[one].gpu_hours}
        for one in reversed(Effect)
        if one in lines and one is not Effect.NOTHING
    ]


def _case(one: Difference) -> dict[str, Any]:
    return {
        "entity_kind": one.entity.kind.value,
        "entity": one.entity.key,
        "node_id": one.entity.node_id,
        "fault_class": one.fault_class.value,
        "at": one.at,
        "before": stand_form(one.before[0]),
        "before_gpu_hours": one.before[1],
        "after": stand_form(one.after[0]),
        "after_gpu_hours": one.after[1],
        "reason": one.reason,
    }


def _rung(rung: Rung) -> str:
    return rung.name.lower() if rung is not Rung.OBSERVE else ""

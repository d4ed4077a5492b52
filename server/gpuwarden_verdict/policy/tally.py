"""What a policy did over a time: cases and GPU-hours by pool and class of fault. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.policy.document import DecisionMove
from gpuwarden_verdict.policy.guards import BY_PIN
from gpuwarden_verdict.policy.replay import EFFECT_RANK, Effect, Stand, stand_of

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Spell:
    """One decision from its first move to its end.

    Attributes:
        entity: Target.
        pool: Of its node.
        fault_class: As it was labelled last.
        at: Epoch seconds of the first move.
        stand: The most that it ever did.
        gpu_hours: GPUs times hours by effect.
        reason: What decided, in words.
    """

    entity: EntityRef
    pool: str
    fault_class: FaultClass
    at: float
    stand: Stand
    gpu_hours: Mapping[Effect, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """How often something was done, and for how many GPU-hours."""

    cases: int = 0
    gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """What two policies made of the same fault of an entity.

    Attributes:
        entity: Target.
        fault_class: Of the fault.
        at: Epoch seconds when the first of them spoke.
        before: The most that the one did, and for how long.
        after: The same of the other.
        reason: What decided, in words.
    """

    entity: EntityRef
    fault_class: FaultClass
    at: float
    before: tuple[Stand, float]
    after: tuple[Stand, float]
    reason: str


Tally = Mapping[tuple[str, FaultClass], Mapping[Effect, Line]]
"""By pool and class; only what happened."""


def spells_of(
    moves: Iterable[DecisionMove],
    pool_name: Callable[[str], str],
    gpus_in: Callable[[EntityRef], int],
    end: float,
) -> list[Spell]:
    """Spells of gpuwarden's own decisions.

    Args:
        moves: In order.
        pool_name: Pool of a node.
        gpus_in: GPUs that an entity stands for: 1, or those of the node.
        end: Until when what lives is counted, epoch seconds.
    """
    told: dict[str, list[DecisionMove]] = defaultdict(list)
    for move in moves:
        if move.decision.decided_by != BY_PIN:
            told[move.decision.id].append(move)
    return [_spell(mine, pool_name, gpus_in, end) for mine in told.values()]


def _spell(
    moves: Sequence[DecisionMove],
    pool_name: Callable[[str], str],
    gpus_in: Callable[[EntityRef], int],
    end: float,
) -> Spell:
    stands = [stand_of(move.decision) for move in moves]
    times = [*(move.at for move in moves), end]
    last = moves[-1].decision
    gpus, hours = gpus_in(last.entity), dict[Effect, float]()
    for number, stand in enumerate(stands):
        lasted_s = max(0.0, times[number + 1] - times[number])
        if stand.effect is not Effect.NOTHING:
            hours[stand.effect] = hours.get(stand.effect, 0.0) + gpus * lasted_s / _HOUR_S
    return Spell(
        entity=last.entity,
        pool=pool_name(last.entity.node_id),
        fault_class=last.fault_class,
        at=moves[0].at,
        stand=strongest(stands),
        gpu_hours=hours,
        reason=last.reasons[0] if last.reasons else "",
    )


def strongest(stands: Iterable[Stand]) -> Stand:
    """The one that does most; nothing where there is none."""
    return max(stands, key=_weight, default=Stand())


def tally_of(spells: Iterable[Spell]) -> Tally:
    """Cases by the most that was done, and GPU-hours by what was done then."""
    counted: dict[tuple[str, FaultClass], dict[Effect, Line]] = defaultdict(dict)
    for spell in spells:
        lines = counted[spell.pool, spell.fault_class]
        for effect in {spell.stand.effect, *spell.gpu_hours}:
            known = lines.get(effect, Line())
            more = spell.gpu_hours.get(effect, 0.0)
            cases = known.cases + (effect is spell.stand.effect)
            lines[effect] = Line(cases, known.gpu_hours + more)
    return {key: dict(lines) for key, lines in sorted(counted.items())}


def differences_of(before: Iterable[Spell], after: Iterable[Spell]) -> list[Difference]:
    """Faults of entities of which two policies made something else, earliest first."""
    old, new = _by_fault(before), _by_fault(after)
    found = []
    for key in old.keys() | new.keys():
        mine, theirs = old.get(key, []), new.get(key, [])
        then, now = _sum(mine), _sum(theirs)
        if then[0] != now[0]:
            first = min([*mine, *theirs], key=lambda one: one.at)
            why = max([*theirs, *mine], key=lambda one: _weight(one.stand)).reason
            found.append(Difference(first.entity, first.fault_class, first.at, then, now, why))
    return sorted(found, key=lambda one: (one.at, one.entity.key))


def _by_fault(spells: Iterable[Spell]) -> dict[tuple[str, str, FaultClass], list[Spell]]:
    found: dict[tuple[str, str, FaultClass], list[Spell]] = defaultdict(list)
    for spell in spells:
        found[spell.entity.kind.value, spell.entity.key, spell.fault_class].append(spell)
    return found


def _sum(spells: Sequence[Spell]) -> tuple[Stand, float]:
    stand = strongest(spell.stand for spell in spells)
    return stand, sum(spell.gpu_hours.get(stand.effect, 0.0) for spell in spells)


def _weight(stand: Stand) -> tuple[int, int, int]:
    return EFFECT_RANK[stand.effect], stand.rung, stand.advised

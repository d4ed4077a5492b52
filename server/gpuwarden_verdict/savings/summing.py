"""Sums, measured rates of false actions, and how much of it all falls on few nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwarden_verdict.savings.chances import exact_interval
from gpuwarden_verdict.savings.costing import Cost, Facts, Outcome

Entry = tuple[Facts, Cost]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over decisions; of energy and money only over those of which it is known.

    Attributes:
        decisions: How many.
        right: Of these.
        wrong: Of these.
        unsettled: Of these.
        saved_gpu_hours: By those that were right.
        lost_gpu_hours: By those that were wrong.
        saved_kwh: As far as it is known.
        lost_kwh: Likewise.
        kwh_unknown: Settled decisions whose energy is unknown.
        saved_money: As far as it is known.
        lost_money: Likewise.
        money_unknown: Settled decisions whose money is unknown.
        open_saved_gpu_hours: What the unsettled ones save if all of them are right.
        open_lost_gpu_hours: What they cost so far if all of them are wrong.
    """

    decisions: int
    right: int
    wrong: int
    unsettled: int
    saved_gpu_hours: float
    lost_gpu_hours: float
    saved_kwh: float
    lost_kwh: float
    kwh_unknown: int
    saved_money: float
    lost_money: float
    money_unknown: int
    open_saved_gpu_hours: float
    open_lost_gpu_hours: float


@dataclass(frozen=True, slots=True)
class FalseRate:
    """How often an exclusion in force turned out to be false, on this very fleet.

    Attributes:
        of: "fleet", "class" or "rung".
        name: Of the class or rung, "" for the fleet.
        wrong: Settled ones that were false.
        settled: Those that are settled.
        unsettled: Those that are not.
        share: Of the settled ones, None while there are none.
        low: Of its exact 95 % interval (Clopper and Pearson).
        high: Likewise.
        high_if_open_are_false: Upper bound where all unsettled ones count as false.
    """

    of: str
    name: str
    wrong: int
    settled: int
    unsettled: int
    share: float | None
    low: float
    high: float
    high_if_open_are_false: float


@dataclass(frozen=True, slots=True)
class Concentration:
    """How exclusions spread over nodes.

    Attributes:
        exclusions: In force at some time.
        nodes: Nodes of the fleet.
        nodes_excluded: Of these, those that were out at least once.
        top: (k, share of the exclusions on the k nodes with the most of them).
        gini: 0: all nodes alike; towards 1: all on one. None without an exclusion.
        worst: (node, exclusions) of those with the most, two or more.
    """

    exclusions: int
    nodes: int
    nodes_excluded: int
    top: tuple[tuple[int, float], ...]
    gini: float | None
    worst: tuple[tuple[str, int], ...]


TOP = (1, 3, 10)


def totals_of(entries: Iterable[Entry]) -> Totals:
    """Sums over decisions."""
    costs = [cost for _, cost in entries]
    outcomes = Counter(cost.outcome for cost in costs)
    settled = [cost for cost in costs if cost.outcome is not Outcome.UNSETTLED]
    still_open = [cost for cost in costs if cost.outcome is Outcome.UNSETTLED]
    return Totals(
        decisions=len(costs),
        right=outcomes[Outcome.RIGHT],
        wrong=outcomes[Outcome.WRONG],
        unsettled=outcomes[Outcome.UNSETTLED],
        saved_gpu_hours=sum(cost.saved_gpu_hours for cost in settled),
        lost_gpu_hours=sum(cost.lost_gpu_hours for cost in settled),
        saved_kwh=sum(cost.saved_kwh or 0.0 for cost in settled),
        lost_kwh=sum(cost.lost_kwh or 0.0 for cost in settled),
        kwh_unknown=sum(None in (cost.saved_kwh, cost.lost_kwh) for cost in settled),
        saved_money=sum(cost.saved_money or 0.0 for cost in settled),
        lost_money=sum(cost.lost_money or 0.0 for cost in settled),
        money_unknown=sum(None in (cost.saved_money, cost.lost_money) for cost in settled),
        open_saved_gpu_hours=sum(cost.if_right_gpu_hours for cost in still_open),
        open_lost_gpu_hours=sum(cost.if_wrong_gpu_hours for cost in still_open),
    )


def false_rates(acted: Sequence[Facts]) -> list[FalseRate]:
    """Measured rates of false actions: of the fleet, then by class of fault, then by rung."""
    found = [_rate("fleet", "", acted)]
    for of, name_of in (("class", _class_of), ("rung", _rung_of)):
        names = sorted({name_of(facts) for facts in acted})
        found += [_rate(of, n, [one for one in acted if name_of(one) == n]) for n in names]
    return found


def _class_of(facts: Facts) -> str:
    return facts.fault_class.value


def _rung_of(facts: Facts) -> str:
    return facts.rung.name.lower()


def concentration_of(node_ids: Sequence[str], fleet: Iterable[str]) -> Concentration:
    """How exclusions spread.

    Args:
        node_ids: The node of each exclusion.
        fleet: Nodes that could have been excluded; those that were and have left count too.
    """
    counts = Counter(node_ids)
    nodes = set(fleet) | set(counts)
    heaviest = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    total = len(node_ids)
    return Concentration(
        exclusions=total,
        nodes=len(nodes),
        nodes_excluded=len(counts),
        top=tuple((k, sum(n for _, n in heaviest[:k]) / total) for k in TOP) if total else (),
        gini=_gini([counts[node] for node in nodes]) if total else None,
        worst=tuple(one for one in heaviest[:10] if one[1] > 1),
    )


def _rate(of: str, name: str, acted: Sequence[Facts]) -> FalseRate:
    outcomes = Counter(facts.outcome for facts in acted)
    wrong, unsettled = outcomes[Outcome.WRONG], outcomes[Outcome.UNSETTLED]
    settled = wrong + outcomes[Outcome.RIGHT]
    low, high = exact_interval(wrong, settled)
    return FalseRate(
        *(of, name, wrong, settled, unsettled, wrong / settled if settled else None, low, high),
        exact_interval(wrong + unsettled, len(acted))[1],
    )


def _gini(counts: Sequence[int]) -> float:
    """Mean difference of all pairs, over twice the mean."""
    ordered, n = sorted(counts), len(counts)
    weighted = sum((2 * place - n - 1) * count for place, count in enumerate(ordered, 1))
    return weighted / (n * sum(ordered))

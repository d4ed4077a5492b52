"""Rules, trees and the slow rank side by side on both machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.evaluation.exclusion.captures import (
    SHARES,
    Caught,
    Ranked,
    caught,
    flag_count,
    flag_top,
    ranked,
)
from gpuwarden_models.evaluation.exclusion.lanl import LanlSystem, read_lanl
from gpuwarden_models.evaluation.exclusion.rankers import (
    boosted_scores,
    choose_half_life,
    choose_part_window,
    choose_windows,
    part_score,
    same_part,
    same_place,
    slow_rank_scores,
)
from gpuwarden_models.evaluation.exclusion.rows import (
    DAY_S,
    HISTORY_FEATURES,
    NEVER_DAYS,
    EventLog,
    Rows,
)
from gpuwarden_models.evaluation.exclusion.titan import AGE, PLACEMENT, Titan, read_titan
from gpuwarden_verdict.slow_rank import RankWindows

_FOREVER = RankWindows(part_s=NEVER_DAYS * DAY_S, place_s=NEVER_DAYS * DAY_S)
_AGE = AGE[:1]
_TREES: Mapping[str, tuple[str, ...]] = {
    "history counts (trees)": HISTORY_FEATURES,
    "placement (trees)": PLACEMENT,
    "age (trees)": _AGE,
    "placement + age (trees)": (*_AGE, *PLACEMENT),
    "everything (trees)": (*HISTORY_FEATURES, *AGE, *PLACEMENT),
}


@dataclass(frozen=True, slots=True)
class RankFigures:
    """One way of ranking.

    Attributes:
        name: How it is called.
        ranked: How well it orders all rows.
        at_shares: What it catches at each of SHARES.
    """

    name: str
    ranked: Ranked
    at_shares: tuple[Caught, ...]


@dataclass(frozen=True, slots=True)
class TitanFigures:
    """Titan.

    Attributes:
        cabinets: To tune on, to test on.
        rows: To tune on, to test on.
        positives: Rows of the test with an event.
        base_rate: Their share.
        part_window_days: Of the same-part rule, chosen on the tuning part.
        windows: Of the slow rank, likewise.
        rules: What each rule flags and catches, by name.
        rank_at_rule: The slow rank with as many flags as the same-part rule has.
        trees_at_rule: The trees on everything with as many.
        rankings: All ways of ranking.
    """

    cabinets: tuple[int, int]
    rows: tuple[int, int]
    positives: int
    base_rate: float
    part_window_days: float
    windows: RankWindows
    rules: Mapping[str, Caught]
    rank_at_rule: Caught
    trees_at_rule: Caught
    rankings: tuple[RankFigures, ...]


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """One LANL system that the others tuned for.

    Attributes:
        name: As LANL numbers it.
        nodes: Number of nodes.
        outages: In all its time.
        half_life_days: Of the slow rank, from the other systems.
        base_rate: Share of rows with an outage.
        rankings: All ways of ranking.
    """

    name: str
    nodes: int
    outages: int
    half_life_days: float
    base_rate: float
    rankings: tuple[RankFigures, ...]


@dataclass(frozen=True, slots=True)
class TreeFigures:
    """Trees on some of the features: AUC, and share of later events at 5 % flagged."""

    auc: float
    capture: float


@dataclass(frozen=True, slots=True)
class CheckFigures:
    """All cabinets at hand by time alone, as the figures in `reference` have it.

    Attributes:
        cabinets: Number of cabinets.
        tune_rows: Rows of the earlier time.
        base_rate: Share of rows of the later time with an event.
        rules: What each rule flags and catches, by name.
        trees: Trees, by name.
    """

    cabinets: int
    tune_rows: int
    base_rate: float
    rules: Mapping[str, Caught]
    trees: Mapping[str, TreeFigures]


@dataclass(frozen=True, slots=True)
class ExclusionFigures:
    """Both machines, the check, and how often trees were grown."""

    titan: TitanFigures
    check: CheckFigures
    lanl: tuple[SystemFigures, ...]
    seeds: int


def exclusion_benchmark(public: Path, seed: int, seeds: int = 3) -> ExclusionFigures:
    """Run all of it.

    Args:
        public: Folder that GPUWARDEN_PUBLIC_DATA names; read only.
        seed: Ties, draws and trees.
        seeds: Trees are grown so often and their scores averaged.

    Raises:
        PublicRecordsError: A file is missing or of another form; names it.
    """
    lanl, titan = read_lanl(public), read_titan(public)
    return ExclusionFigures(
        titan=_titan(titan, seed, seeds),
        check=_check(titan, seed, seeds),
        lanl=tuple(_system(one, lanl, seed, seeds) for one in lanl),
        seeds=seeds,
    )


def _titan(titan: Titan, seed: int, seeds: int) -> TitanFigures:
    tune, test = titan.tune_rows(), titan.test_rows()
    window, windows = choose_part_window(tune), choose_windows(tune)
    slow = slow_rank_scores(test, windows)
    trees = {name: _averaged(tune, test, columns, seed, seeds) for name, columns in _TREES.items()}
    scores = {
        "chance": np.zeros(slow.size),
        "same part, newest first": part_score(test, window),
        "slow rank": slow,
        **trees,
    }
    rule = same_part(test, window)
    flags = int(rule.sum())
    return TitanFigures(
        cabinets=titan.cabinets(),
        rows=(tune.snapshot.size, test.snapshot.size),
        positives=int(test.hit.sum()),
        base_rate=float(test.hit.mean()),
        part_window_days=window,
        windows=windows,
        rules={name: caught(test, one, seed) for name, one in _rules(test, window).items()},
        rank_at_rule=caught(test, flag_count(slow, flags), seed),
        trees_at_rule=caught(test, flag_count(trees["everything (trees)"], flags), seed),
        rankings=_rankings(test, scores, seed),
    )


def _check(titan: Titan, seed: int, seeds: int) -> CheckFigures:
    tune, test = titan.all_rows()
    scores = {name: _averaged(tune, test, columns, seed, seeds) for name, columns in _TREES.items()}
    rules = {
        "same part, event in the last 180 d": same_part(test, 180.0),
        "same part, any event before": same_part(test, NEVER_DAYS - 1.0),
        "place, event in the last 30 d": same_place(test, 30.0),
        "place, event in the last 180 d": same_place(test, 180.0),
        "place, 2 or more in 180 d": same_place(test, 180.0, 2),
    }
    return CheckFigures(
        cabinets=sum(titan.cabinets()),
        tune_rows=tune.snapshot.size,
        base_rate=float(test.hit.mean()),
        rules={name: caught(test, one, seed) for name, one in rules.items()},
        trees={
            name: TreeFigures(
                ranked(test, one).auc,
                caught(test, flag_top(test, one, 0.05, seed), seed, 0).capture,
            )
            for name, one in scores.items()
        },
    )


def _rules(test: Rows, window: float) -> dict[str, NDArray[np.bool_]]:
    return {
        f"same part, event in the last {window:g} d (window chosen on the tuning part)": same_part(
            test, window
        ),
        "same part, event in the last 30 d": same_part(test, 30.0),
        "same part, event in the last 90 d": same_part(test, 90.0),
        "same part, event in the last 365 d": same_part(test, 365.0),
        "same part, any event before": same_part(test, NEVER_DAYS - 1.0),
        "place, event in the last 30 d": same_place(test, 30.0),
        "place, event in the last 180 d": same_place(test, 180.0),
        "place, 2 or more in 180 d": same_place(test, 180.0, 2),
    }


def _system(
    system: LanlSystem, all_systems: Sequence[LanlSystem], seed: int, seeds: int
) -> SystemFigures:
    others = [one.all_rows() for one in all_systems if one.name != system.name]
    test = system.later_rows()
    windows = choose_half_life(others, _FOREVER)
    scores = {
        "chance": np.zeros(test.snapshot.size),
        "count of all past outages": test.column("part_events"),
        "newest outage first": -test.column("part_days_since"),
        "slow rank": slow_rank_scores(test, windows),
        "history counts (trees)": _averaged(
            _together(others), test, HISTORY_FEATURES[:3], seed, seeds
        ),
    }
    return SystemFigures(
        name=system.name,
        nodes=system.nodes,
        outages=int(system.log.at.size),
        half_life_days=windows.half_life_s / DAY_S,
        base_rate=float(test.hit.mean()),
        rankings=_rankings(test, scores, seed),
    )


def _rankings(
    test: Rows, scores: Mapping[str, NDArray[np.float64]], seed: int
) -> tuple[RankFigures, ...]:
    return tuple(
        RankFigures(
            name,
            ranked(test, score),
            tuple(caught(test, flag_top(test, score, share, seed), seed) for share in SHARES),
        )
        for name, score in scores.items()
    )


def _averaged(
    tune: Rows, test: Rows, columns: Sequence[str], seed: int, seeds: int
) -> NDArray[np.float64]:
    grown = [boosted_scores(tune, test, columns, seed + number) for number in range(seeds)]
    averaged: NDArray[np.float64] = np.mean(grown, axis=0)
    return averaged


def _together(rows: Sequence[Rows]) -> Rows:
    """Rows of several systems, to learn from; their parts and events are no longer told apart."""
    nothing = EventLog(*(np.empty(0, np.int64),) * 2, np.empty(0), (), ())
    return Rows(
        at=np.concatenate([one.at for one in rows]),
        snapshot=np.concatenate([one.snapshot for one in rows]),
        part=np.concatenate([one.part for one in rows]),
        place=np.concatenate([one.place for one in rows]),
        later=np.concatenate([one.later for one in rows]),
        columns=rows[0].columns,
        matrix=np.concatenate([one.matrix for one in rows]),
        log=nothing,
    )

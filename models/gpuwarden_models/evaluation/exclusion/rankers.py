"""Ways to rank seats by what is known of them; a higher score goes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from gpuwarden_models.evaluation.exclusion.captures import caught, flag_top
from gpuwarden_models.evaluation.exclusion.rows import DAY_S, NEVER_DAYS, Rows
from gpuwarden_verdict.slow_rank import RankWindows, rank_seats

WINDOW_DAYS = (30.0, 60.0, 90.0, 120.0, 180.0, 270.0, 365.0, 730.0)
HALF_LIFE_DAYS = (30.0, 90.0, 180.0, 365.0)

PART_PRECISION = 1 / 3
"""Of three seats that the same-part rule flags one at least should have an event."""
PLACE_LIFT = 2.0
"""Places that the second tier flags should have events twice as often as chance."""


def same_part(rows: Rows, window_days: float) -> NDArray[np.bool_]:
    """Seats whose very part had an event within the window."""
    found: NDArray[np.bool_] = rows.column("part_days_since") <= window_days
    return found


def same_place(rows: Rows, window_days: float, least: int = 1) -> NDArray[np.bool_]:
    """Seats whose place had so many events within the window, which is 30, 180 or all days."""
    found: NDArray[np.bool_]
    if least == 1:
        found = rows.column("place_days_since") <= window_days
    else:
        found = rows.column(f"place_events_{window_days:.0f}d") >= least
    return found


def slow_rank_scores(rows: Rows, windows: RankWindows) -> NDArray[np.float64]:
    """What `slow_rank` lists, snapshot by snapshot: 0 where a seat is not in the list."""
    scores = np.zeros(rows.snapshot.size)
    for number, at in enumerate(rows.at.tolist()):
        seats = rows.seats(number)
        weight = {
            one.seat: one.because + one.weight / (1.0 + one.weight)
            for one in rank_seats(seats, rows.log.until(at), at, windows)
        }
        scores[rows.snapshot == number] = [weight.get(seat, 0.0) for seat in seats]
    return scores


def part_score(rows: Rows, window_days: float) -> NDArray[np.float64]:
    """The same-part rule as a score: the newest event first."""
    days = rows.column("part_days_since")
    return np.where(days <= window_days, NEVER_DAYS - days, 0.0)


def boosted_scores(
    train: Rows, test: Rows, columns: Sequence[str], seed: int
) -> NDArray[np.float64]:
    """Gradient-boosted trees on some of the features."""
    own = [train.columns.index(name) for name in columns]
    model = HistGradientBoostingClassifier(max_iter=100, random_state=seed)
    model.fit(train.matrix[:, own], train.hit)
    scores: NDArray[np.float64] = model.predict_proba(test.matrix[:, own])[:, 1]
    return scores


def choose_part_window(tune: Rows) -> float:
    """The longest window at which the same-part rule is still precise; else the most precise."""
    precise = {days: _precision(tune, same_part(tune, days)) for days in WINDOW_DAYS}
    good = [days for days, share in precise.items() if share >= PART_PRECISION]
    return max(good) if good else max(precise, key=lambda days: (precise[days], days))


def choose_place_window(tune: Rows) -> float:
    """The longest window at which places are still worth a look; else the shortest."""
    base = float(tune.hit.mean())
    good = [
        days
        for days in WINDOW_DAYS
        if _precision(tune, same_place(tune, days)) >= PLACE_LIFT * base
    ]
    return max(good, default=min(WINDOW_DAYS))


def choose_windows(tune: Rows) -> RankWindows:
    """Windows of the slow rank, from the tuning part alone."""
    windows = RankWindows(
        part_s=choose_part_window(tune) * DAY_S, place_s=choose_place_window(tune) * DAY_S
    )
    return _best_half_life([tune], windows, 0.02)


def choose_half_life(tunes: Sequence[Rows], windows: RankWindows) -> RankWindows:
    """Where parts are never swapped only the half-life is to be chosen."""
    return _best_half_life(tunes, windows, 0.05)


def _best_half_life(tunes: Sequence[Rows], windows: RankWindows, share: float) -> RankWindows:
    def capture(days: float) -> float:
        tried = replace(windows, half_life_s=days * DAY_S)
        found = [
            caught(one, flag_top(one, slow_rank_scores(one, tried), share, 0), 0, rounds=0)
            for one in tunes
        ]
        return float(np.mean([one.capture for one in found]))

    best = max(HALF_LIFE_DAYS, key=capture)
    return replace(windows, half_life_s=best * DAY_S)


def _precision(rows: Rows, flags: NDArray[np.bool_]) -> float:
    return float(rows.hit[flags].mean()) if flags.any() else 0.0

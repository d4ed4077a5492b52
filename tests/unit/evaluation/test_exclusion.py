"""The exclusion benchmark on a small made-up machine, whose answer is known."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_models.evaluation.exclusion.captures import caught, flag_top, ranked
from gpuwarden_models.evaluation.exclusion.rankers import same_part, same_place, slow_rank_scores
from gpuwarden_models.evaluation.exclusion.rows import EventLog, Rows, Seating, make_rows
from gpuwarden_models.evaluation.exclusion.tables import PublicRecordsError
from gpuwarden_models.evaluation.exclusion.titan import read_titan
from gpuwarden_verdict.slow_rank import DEFAULT_WINDOWS

DAY = 86400.0


def rows_of_three() -> Rows:
    """Part 0 failed 10 days before the snapshot and fails again; part 1 sits where 2 failed."""
    log = EventLog(
        part=np.array([0, 2, 0]),
        place=np.array([0, 1, 0]),
        at=np.array([90 * DAY, 95 * DAY, 120 * DAY]),
        part_names=("a", "b", "c"),
        place_names=("p", "q", "r"),
    )
    nothing = np.empty((3, 0))
    seating = Seating(100 * DAY, np.array([0, 1, 2]), np.array([0, 1, 2]), nothing)
    return make_rows(log, [seating])


def test_features_know_the_past_alone_and_labels_the_time_after() -> None:
    rows = rows_of_three()
    assert rows.later.tolist() == [1, 0, 0]
    assert rows.column("part_days_since").tolist() == [10.0, 1e5, 5.0]
    assert rows.column("part_events").tolist() == [1, 0, 1]
    assert rows.column("place_events_30d").tolist() == [1, 1, 0]
    assert same_part(rows, 30).tolist() == [True, False, True]
    assert same_place(rows, 30).tolist() == [True, True, False]


def test_capture_precision_and_cost() -> None:
    rows = rows_of_three()
    found = caught(rows, same_part(rows, 30), seed=1)
    assert (found.flagged, found.hits, found.precision, found.capture) == (2, 1, 0.5, 1.0)
    assert found.lift == pytest.approx(1.5)
    assert found.lost_hours == 60 * 24
    top = flag_top(rows, slow_rank_scores(rows, DEFAULT_WINDOWS), 1 / 3, seed=1)
    assert top.sum() == 1


def test_a_score_that_knows_the_answer_is_called_a_leak() -> None:
    rows = rows_of_three()
    assert ranked(rows, rows.later.astype(float)).leak
    assert not ranked(rows, np.zeros(3)).leak


def write_table(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def test_titan_is_read_as_it_is_written(tmp_path: Path) -> None:
    stay = {"SN": "g1", "location": "c1-2c0s7n0", "insert": "2014-01-01 00:00:00"}
    stays = [
        {**stay, "remove": "2016-01-01 00:00:00", "event": "DBE"},
        {**stay, "insert": "", "remove": "2015-06-01 00:00:00", "event": "DBE"},
    ]
    write_table(tmp_path / "titan_gpu_life" / "gpu_location_lifetimes.csv.gz", stays)
    episode = {"SN": "g1", "location": "c1-2c0s7n0", "first": "2015-12-31 00:00:00"}
    write_table(tmp_path / "titan_gpu_life" / "event_episodes.csv.gz", [episode])
    titan = read_titan(tmp_path)
    tune, _ = titan.all_rows()
    assert tune.at.size == 14
    assert tune.snapshot.size == 7  # until it was taken out
    assert tune.later.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert tune.column("cage").tolist() == [0.0] * 7


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PublicRecordsError, match="gpu_location_lifetimes"):
        read_titan(tmp_path)
    write_table(tmp_path / "titan_gpu_life" / "gpu_location_lifetimes.csv.gz", [{"SN": "g1"}])
    with pytest.raises(PublicRecordsError, match="no column location"):
        read_titan(tmp_path)

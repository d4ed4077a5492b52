"""Checkpoints of a job by its history alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_models.diagnosis.plant import GPUS, Site, Work, sound
from gpuwarden_models.diagnosis.readings import play
from gpuwarden_verdict.diagnosis import Window
from gpuwarden_verdict.diagnosis.saves import WEEK_S, Save, find_saves, profile_of

NODES, SIZE = 8, 6e10
SAVE = Save("slurm:1", "/scratch", 0.0, 60.0, 4, 6e10, 0.02, 0.6, 0.3, 0.1, 50.0)


@pytest.fixture(scope="module")
def window() -> Window:
    """A job that saves 60 GB a node after each ten minutes of work."""
    gpus = NODES * GPUS
    work = Work(
        name="slurm:1",
        nodes=np.arange(NODES),
        compute_s=1.0,
        talk_bytes=2e10,
        copy_s=0.05,
        prepare_s=0.5,
        feed_bytes=1e6,
        cache_bytes=2e8,
        save_every_s=600.0,
        save_bytes=SIZE,
        pause_every_s=0.0,
        share=np.ones(gpus),
        presses=0.01,
        tells=False,
        watts=np.full(gpus, 620.0),
        next_save_s=600.0,
    )
    site = Site(NODES, np.zeros(NODES, dtype=np.int64), [work], server_bytes=4e9)
    return play(site, lambda _: sound(NODES), 45, 0, np.random.default_rng(2))


def test_each_checkpoint_is_found_with_its_size_its_layers_and_its_price(window: Window) -> None:
    saves = find_saves(window, window.jobs[0])

    assert len(saves) >= 2
    for one in saves:
        assert (one.job, one.mount, one.nodes) == ("slurm:1", "/scratch", NODES)
        assert one.size_bytes == pytest.approx(NODES * SIZE, rel=0.1)
        assert one.bytes_per_second == pytest.approx(4e9, rel=0.15)  # all that the server takes
        assert one.queue_share is not None and one.round_trip_share is not None
        assert one.rest_share is not None
        assert one.queue_share + one.round_trip_share + one.rest_share == pytest.approx(1.0)
        # The job waits for it; a step of a minute has work beside it.
        assert one.lost_s == pytest.approx(one.duration_s, abs=60.0)
    assert [one.begin for one in saves] == sorted(one.begin for one in saves)


def test_what_the_window_cuts_is_left_to_another(window: Window) -> None:
    whole = find_saves(window, window.jobs[0])
    second = whole[1]
    during = int(np.searchsorted(window.times, second.begin + 60.0))
    seen = find_saves(window.until(during), window.jobs[0])
    assert [(one.begin, one.size_bytes) for one in seen] == [(whole[0].begin, whole[0].size_bytes)]


def test_without_gpus_it_is_told_what_is_seen(window: Window) -> None:
    strips = {kind: strip for kind, strip in window.strips.items() if kind != "gpu"}
    assert find_saves(replace(window, strips=strips), window.jobs[0]) == ()


def test_a_profile_tells_the_best_the_latest_and_the_trend() -> None:
    # A tenth slower each week for three weeks, two a week, and one that was twice as slow.
    saves = [
        replace(SAVE, begin=at * WEEK_S, end=at * WEEK_S + 60.0 / 0.9**at)
        for at in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    ]
    saves[3] = replace(saves[3], end=saves[3].end + 80.0)

    profile = profile_of(saves)

    assert profile.count == 7
    assert profile.best_bytes_per_second == pytest.approx(1e9)
    assert profile.latest_of_best == pytest.approx(0.9**3, rel=1e-3)
    assert profile.trend_per_week == pytest.approx(-0.1, abs=0.01)
    assert profile.lost_s == 350.0
    assert (profile.queue_share, profile.round_trip_share) == (0.6, 0.3)


def test_few_checkpoints_have_no_trend() -> None:
    few = [replace(SAVE, begin=at * WEEK_S, end=at * WEEK_S + 60.0) for at in (0, 1, 2)]
    near = [replace(SAVE, begin=at * 600.0, end=at * 600.0 + 60.0) for at in range(9)]
    assert profile_of(few).trend_per_week is None
    assert profile_of(near).trend_per_week is None

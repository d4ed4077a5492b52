from __future__ import annotations

import pytest

from gpuwarden_verdict.standby.sizing import PRIOR_RATE, Seen, advise

DAY_S = 86_400.0


def test_a_pool_that_was_watched_for_long_is_sized_by_what_it_showed() -> None:
    advice = advise(Seen("train", 100, 1000.0, leaves=9, returns=9, out_s=9 * DAY_S))
    assert advice.rate == pytest.approx(10 / (1000 + 1 / PRIOR_RATE))
    assert advice.mean_out_s == pytest.approx(DAY_S)
    assert advice.share_out == pytest.approx(0.008592, abs=1e-6)
    assert advice.wanted == 4
    assert advice.rate_upper == pytest.approx(15.705 / 1000, rel=1e-3)
    assert advice.wanted_upper is not None and advice.wanted_upper >= advice.wanted


def test_a_pool_that_was_hardly_watched_is_sized_by_the_prior_and_says_so() -> None:
    advice = advise(Seen("new", 1024, 0.0, leaves=0, returns=0, out_s=0.0))
    assert advice.rate == pytest.approx(PRIOR_RATE)
    assert (advice.rate_upper, advice.wanted_upper) == (None, None)
    said = " ".join(advice.says)
    assert "the prior of 6.5 leaves in 1,000 node-days still weighs" in said
    assert "a stay of 24 h is assumed" in said
    assert advise(Seen("none", 0, 0.0, 0, 0, 0.0)).wanted == 0


def test_a_faster_repair_wants_fewer_spares() -> None:
    slow = advise(Seen("t", 608, 18_000.0, leaves=120, returns=120, out_s=120 * 20 * 3600.0))
    fast = advise(Seen("t", 608, 18_000.0, leaves=120, returns=120, out_s=120 * 300.0))
    assert fast.wanted < slow.wanted

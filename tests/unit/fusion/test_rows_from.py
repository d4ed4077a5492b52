from __future__ import annotations

import numpy as np

from gpuwarden_server.learning.models import load_model
from gpuwarden_verdict.fusion.predict import log_odds, logit, rows_from
from tests.builders.simulated import GPU_FEATURES


def test_leaving_out_what_is_dominated_changes_no_answer() -> None:
    model = load_model(None).model
    assert model is not None
    random = np.random.default_rng(3)
    matrix = np.zeros((20_000, len(GPU_FEATURES)), np.float32)
    matrix[:, :2] = random.normal(0, 1, (20_000, 2))
    matrix[:, 3] = random.normal(-0.98, 0.01, 20_000)  # -1 where none of the clock is missing
    matrix[random.random(matrix.shape) < 0.005] += 30.0
    matrix[random.random(20_000) < 0.2, 3] = np.nan
    matrix[random.random(20_000) < 0.1, 8] = np.nan
    shares = []
    for chance in (0.001, 0.02, 0.1, 0.5):
        expected = log_odds(model, matrix) >= logit(chance)
        shares.append(float(expected.mean()))
        assert np.array_equal(rows_from(model, matrix, logit(chance)), expected), chance
    assert any(0.0 < share < 0.5 for share in shares), shares

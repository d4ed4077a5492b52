"""A reading that a GPU lacks is no sign of a fault."""

from __future__ import annotations

import itertools

import numpy as np

from gpuwarden_verdict.fusion.predict import log_odds, probability
from tests.builders.simulated import GPU_FEATURES, shipped_model

# What a kind of GPU or an exporter lacks, it lacks as a whole.
GROUPS = (
    ("temperature_excess_celsius", "temperature_drift_celsius"),
    ("thermal_slowdown_excess_seconds_1h",),
    ("clock_deficit_ratio",),
    ("ecc_corrected_1h", "ecc_corrected_24h", "ecc_uncorrected_24h"),
    ("rows_remapped_24h", "row_remap_state"),
)


def test_a_healthy_gpu_that_lacks_readings_stays_unsuspected() -> None:
    lacking = [
        [name for group in chosen for name in group]
        for size in range(len(GROUPS) + 1)
        for chosen in itertools.combinations(GROUPS, size)
    ]
    matrix = np.zeros((len(lacking), len(GPU_FEATURES.names)), dtype=np.float32)
    for row, names in enumerate(lacking):
        matrix[row, [GPU_FEATURES.names.index(name) for name in names]] = np.nan
    risk = probability(log_odds(shipped_model(), matrix))
    worst = int(np.argmax(risk))
    assert risk[worst] < 0.2, f"{risk[worst]:.2f} without {sorted(lacking[worst])}"

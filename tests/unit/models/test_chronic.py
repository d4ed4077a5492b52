"""Corrected errors that a sound part has always had must not teach that every one is wear."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.fitting import CHRONIC, CHRONIC_SHARE, with_chronic
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_wire.metrics import EntityKind

GPU, NIC = FEATURE_SETS[EntityKind.GPU], FEATURE_SETS[EntityKind.NIC]


def test_some_healthy_rows_and_no_faulty_one_get_errors_that_go_on() -> None:
    needed = np.arange(20_000) % 4 == 0
    rows = np.zeros((needed.size, len(GPU)), np.float32)
    found = with_chronic(rows, needed, GPU)
    assert not rows.any(), "the rows themselves stay as they are"
    hour, day, rise = (found[:, GPU.names.index(name)] for name in CHRONIC)
    changed = np.asarray(found.any(axis=1))
    assert not changed[needed].any()
    assert 0.9 * CHRONIC_SHARE < changed[~needed].mean() < 1.1 * CHRONIC_SHARE
    assert (day >= hour).all() and (rise <= hour).all()
    others = [n for n, name in enumerate(GPU.names) if name not in CHRONIC]
    assert not found[:, others].any()
    assert np.array_equal(found, with_chronic(rows, needed, GPU)), "equal arguments, equal rows"


def test_kinds_without_such_a_memory_stay_as_they_are() -> None:
    rows = np.ones((5, len(NIC)), np.float32)
    assert with_chronic(rows, np.zeros(5, np.bool_), NIC) is rows

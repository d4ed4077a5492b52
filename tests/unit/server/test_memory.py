from __future__ import annotations

import ctypes

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gpuwarden_server.core.memory import MemoryCollector, allocator_sizes
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema

SCHEMA = Schema(
    EntityKind.NODE,
    (
        Column("level", Storage.F32, MetricKind.GAUGE, ""),
        Column("count", Storage.COUNTER, MetricKind.COUNTER, ""),
    ),
)


def test_the_size_of_series_grows_with_what_is_kept_of_them() -> None:
    state = FleetState()
    assert state.size == 0
    row = state.register(EntityRef(EntityKind.NODE, "n1", "n1"))
    state.apply_table(
        EntityKind.NODE,
        np.array([row]),
        SCHEMA,
        np.ones((1, 1), np.float32),
        np.ones((1, 1)),
        (),
        1.0,
    )
    one = state.size
    assert one >= 33 + 49  # bytes of a float32 series and of a counter, and the times of both
    for number in range(2, 1_500):
        state.register(EntityRef(EntityKind.NODE, f"n{number}", f"n{number}"))
    assert state.size > one


def test_metrics_say_what_memory_goes_to() -> None:
    registry = CollectorRegistry()
    registry.register(MemoryCollector((lambda: {"series": 33.0}, lambda: {"lookback": 0.0})))
    told = generate_latest(registry).decode()
    assert 'gpuwarden_memory_bytes{part="series"} 33.0' in told
    assert 'gpuwarden_memory_bytes{part="lookback"} 0.0' in told


def test_the_allocator_says_what_it_gave_out() -> None:
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("the C library is no glibc of 2.33 or later")
    before = allocator_sizes()["allocated"]
    kept = np.ones(1 << 21)
    assert allocator_sizes()["allocated"] >= before + kept.nbytes * 0.5

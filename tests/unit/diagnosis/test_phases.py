"""Phases from GPU load and storage throughput alone, and with told steps."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwarden_verdict.diagnosis.phases import Phase, job_phases
from gpuwarden_verdict.diagnosis.window import Floats, JobSpan, Strip, Window
from gpuwarden_wire.metrics import EntityKind

STEPS = 12
JOB = JobSpan("slurm:7", np.array([0, 1]), frozenset(), 0.0, None)
FULL = {"gpu_utilization_ratio": 0.98, "gpu_power_watts": 650.0, "gpu_memory_used_bytes": 6e10}
RESTS = {"gpu_utilization_ratio": 0.02, "gpu_power_watts": 130.0, "gpu_memory_used_bytes": 6e10}
SPINS = {"gpu_utilization_ratio": 1.0, "gpu_power_watts": 190.0, "gpu_memory_used_bytes": 6e10}
EMPTY = {"gpu_utilization_ratio": 0.0, "gpu_power_watts": 80.0, "gpu_memory_used_bytes": 4e8}


@pytest.mark.parametrize(
    ("gpus", "mount", "expected"),
    [
        (FULL, {}, Phase.COMPUTE),
        (FULL, {"mount_read_bytes_total": 3e8}, Phase.COMPUTE),  # it feeds
        (RESTS, {"mount_written_bytes_total": 6e8}, Phase.SAVE),
        (RESTS, {"mount_read_bytes_total": 6e8}, Phase.LOAD),
        (RESTS, {}, Phase.STALLED),
        (RESTS, {"mount_execute_seconds_total": 90.0}, Phase.STALLED),
        (SPINS, {}, Phase.STALLED),  # a collective that never ends
        (EMPTY, {}, Phase.IDLE),
    ],
)
def test_one_step_tells_its_phase(
    gpus: dict[str, float], mount: dict[str, float], expected: Phase
) -> None:
    window = made(gpus, mount)
    assert job_phases(window, JOB).phase[-1] is expected


def test_what_was_not_read_is_unknown_and_never_idle() -> None:
    window = made({name: float("nan") for name in FULL}, {})
    assert set(job_phases(window, JOB).phase[6:]) == {Phase.UNKNOWN}


def test_a_job_has_no_phase_before_it_began() -> None:
    late = JobSpan("slurm:7", np.array([0, 1]), frozenset(), 600.0, None)
    phases = job_phases(made(FULL, {}), late).phase
    assert phases[:10] == (Phase.UNKNOWN,) * 10
    assert phases[10] is Phase.COMPUTE


def test_told_steps_sharpen_the_pace() -> None:
    told = np.array([1.0] * 6 + [1.25] * 6)
    job = JobSpan("slurm:7", np.array([0, 1]), frozenset(), 0.0, None, told)
    phases = job_phases(made(FULL, {}, first=6), job)
    assert phases.measured
    assert np.allclose(phases.pace[6:], 0.8)
    run = phases.slow_run(6)
    assert run is not None
    assert run.first == 6
    assert phases.lost(run) == pytest.approx(0.2)


def test_a_job_that_stops_telling_steps_hangs_whatever_its_gpus_show() -> None:
    told = np.array([1.0] * 6 + [np.nan] * 6)
    job = JobSpan("slurm:7", np.array([0, 1]), frozenset(), 0.0, None, told)
    assert job_phases(made(FULL, {}), job).phase[-1] is Phase.STALLED


def made(gpus: dict[str, float], mount: dict[str, float], first: int = 0) -> Window:
    """Two nodes of two GPUs that compute for six steps, then show what is given."""
    node = np.array([0, 0, 1, 1])
    strips = {
        EntityKind.GPU: Strip(
            EntityKind.GPU,
            ("GPU-a", "GPU-b", "GPU-c", "GPU-d"),
            node,
            np.array([0, 1, 0, 1]),
            {name: _then(4, FULL[name], gpus[name]) for name in FULL},
        ),
        EntityKind.MOUNT: Strip(
            EntityKind.MOUNT,
            ("a//m", "b//m"),
            np.array([0, 1]),
            np.array([0, 0]),
            {name: _then(2, 0.0, value) for name, value in mount.items()},
        ),
    }
    times = np.arange(STEPS, dtype=np.float64) * 60.0
    return Window(times, 60.0, first, ("a", "b"), strips, {}, (JOB,))


def _then(entities: int, before: float, after: float) -> Floats:
    return np.tile(np.array([before] * 6 + [after] * 6), (entities, 1))

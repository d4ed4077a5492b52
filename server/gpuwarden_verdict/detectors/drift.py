"""A slow change away from an entity's own past, found as a change point.

What is usual for an entity is learnt from itself, load band by load band, so that a change of load
is no change: two hours give a first baseline, then it follows over days. The mean of the last
quarter of an hour is held against it; of readings that go with the load, less what the peers moved
by, since a new program moves all of its GPUs. Deviations of more than the entity's own scatter add
up (CUSUM, one-sided): a step or a creep passes, noise does not. Own past alone accuses far too many
where loads change; what it says is advice at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S
from gpuwarden_verdict.detectors.peer_deviation import job_phase, model_phase
from gpuwarden_verdict.detectors.scene import BANDS, Scene
from gpuwarden_verdict.detectors.statistic import Measured, StatisticDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_verdict.windows.planes import F32, I64
from gpuwarden_wire.metrics import EntityKind

CELSIUS_PER_WATT = 0.055
"""What a GPU's own draw explains of its temperature. Assumed: an H100 SXM at 650 W runs about 36 C
above its air; the remainder after this cut is compared between peers, so its exact size matters
little."""

SAMPLE_S = 60.0
"""How often a reading is taken: more often tells nothing about slow changes."""
LEARN_S = 2 * HOUR_S
"""A baseline is a plain mean for so long, in its load band; nothing is said before."""
BASELINE_S = 3 * DAY_S
"""Time constant with which it follows from then on: the seasons of a room are no fault."""
HELD_BACK = 0.1
"""While a change is under suspicion the baseline follows at this share of the pace."""
RECENT_S = 900.0
ALLOWED_SCATTERS = 1.0
"""Deviations within so many scatters of the entity add up to nothing."""
CHANGE_SUM = 30.0
"""Sum of deviations, in scatters and minutes, that makes a change: half an hour at twice the
scatter, ten minutes at four times."""
MOST_SUM = 60.0
LONGEST_STEP_S = 600.0
"""A hole in the readings counts for no more than this."""


@dataclass(frozen=True, slots=True)
class DriftRow:
    """What is followed.

    Attributes:
        name: Of the detector, whose planes they are.
        read: The reading of each entity, shape (N,), NaN for none.
        banded: Whether it goes with the load: then a baseline a load band.
        groups: Whose common movement is taken off, the narrowest first.
        least_scatter: No scatter is taken to be smaller, in the reading's unit.
    """

    name: str
    read: Callable[[Scene], F32]
    banded: bool
    groups: tuple[Callable[[Scene], Grouping], ...]
    least_scatter: float


def measure_drift(row: DriftRow, scene: Scene) -> Measured:
    """How far the recent mean is above the own baseline; where the sum has not passed, no more."""
    memory, view = scene.fleet.memory, scene.view
    own = row.read(scene)
    moved = memory.plane(view, row.name, "moved", np.nan)
    total = memory.plane(view, row.name, "sum")
    base = memory.plane(view, row.name, "usual", np.nan)
    clock = memory.table(row.name, "sampled", "", 1)
    since = scene.now - float(np.nan_to_num(clock[0]))
    if since >= SAMPLE_S:
        clock[0] = scene.now
        _sample(row, scene, own, min(since, LONGEST_STEP_S))
    value = np.where(np.isnan(own), np.float32(np.nan), moved)
    return Measured(value, {"own": own, "usual": base.copy()}, condition=total >= CHANGE_SUM)


def _sample(row: DriftRow, scene: Scene, own: F32, step: float) -> None:
    """Take one reading of each entity: baselines, recent means, sums."""
    memory, view = scene.fleet.memory, scene.view
    moved = memory.plane(view, row.name, "moved", np.nan)
    total = memory.plane(view, row.name, "sum")
    usual = memory.plane(view, row.name, "usual", np.nan)
    scatter = np.full(own.shape, np.nan, np.float32)
    moved[:] = np.nan
    bands = scene.bands() if row.banded else np.zeros(own.size, np.int64)
    for band in range(BANDS if row.banded else 1):
        rows = np.flatnonzero((bands == band) & ~np.isnan(own))
        _sample_band(row, scene, rows, own[rows], band, step)
        seen = memory.plane(view, row.name, f"seen_{band}")[rows]
        base = memory.plane(view, row.name, f"base_{band}", np.nan)[rows]
        recent = memory.plane(view, row.name, f"recent_{band}", np.nan)[rows]
        usual[rows] = base
        moved[rows] = np.where(seen >= LEARN_S, recent - base, np.float32(np.nan))
        scatter[rows] = memory.plane(view, row.name, f"scatter_{band}")[rows]
    moved -= _common(row, scene, moved)
    floor = np.float32(row.least_scatter)
    with np.errstate(invalid="ignore"):
        units = moved / np.maximum(np.float32(1.25) * scatter, floor) - ALLOWED_SCATTERS
    grown = total + np.float32(step / SAMPLE_S) * np.nan_to_num(units)
    np.clip(grown, 0.0, MOST_SUM, out=total)


def _sample_band(row: DriftRow, scene: Scene, rows: I64, own: F32, band: int, step: float) -> None:
    """The entities that are in one load band now."""
    memory, view = scene.fleet.memory, scene.view
    seen = memory.plane(view, row.name, f"seen_{band}")
    base = memory.plane(view, row.name, f"base_{band}", np.nan)
    recent = memory.plane(view, row.name, f"recent_{band}", np.nan)
    scatter = memory.plane(view, row.name, f"scatter_{band}")
    suspected = memory.plane(view, row.name, "sum")[rows] > CHANGE_SUM / 3.0
    before = seen[rows]
    # a plain mean first, then a slow one; while a change is under suspicion slower still
    weight = np.float32(step) / np.minimum(before + np.float32(step), np.float32(BASELINE_S))
    weight = np.where(suspected & (before >= LEARN_S), weight * np.float32(HELD_BACK), weight)
    first = before == 0.0
    former = np.where(first, own, base[rows])
    off = own - former
    base[rows] = former + weight * off
    scatter[rows] += weight * (np.abs(off) - scatter[rows])
    lately = np.where(np.isnan(recent[rows]), own, recent[rows])
    recent[rows] = lately + np.float32(-np.expm1(-step / RECENT_S)) * (own - lately)
    seen[rows] = before + np.float32(step)


def _common(row: DriftRow, scene: Scene, moved: F32) -> F32:
    """What each entity's peers moved by: 0 where it has none that are compared."""
    common = np.zeros(moved.shape, np.float32)
    placed = np.zeros(moved.shape, np.bool_)
    for group in row.groups:
        grouping = group(scene)
        middle = grouping.per_entity(grouping.medians(moved))
        better = ~placed & ~np.isnan(middle)
        common[better] = middle[better]
        placed |= better
    return common


def _heat(scene: Scene) -> F32:
    """Temperature less what the GPU's own draw explains of it: a cap cools, and its end heats.

    Of a GPU that never told its power, the temperature as it is.
    """
    celsius, watts = scene.mean(_TEMPERATURE), scene.mean(_POWER)
    untold = np.isnan(scene.view.ewma_fast(_POWER))
    own_draw = np.where(untold, np.float32(0.0), np.float32(CELSIUS_PER_WATT) * watts)
    return (celsius - own_draw).astype(np.float32)


def _mean_of(metric: str) -> Callable[[Scene], F32]:
    return lambda scene: scene.mean(metric)


def _growth_of(metric: str) -> Callable[[Scene], F32]:
    return lambda scene: scene.grown_1h(metric)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a drift means: see `StatisticDetector`."""

    fault_class: FaultClass
    score: float
    what: str
    says: str
    action: RecommendedAction = RecommendedAction.INVESTIGATE


def _detector(
    kind: EntityKind, metric: str, row: DriftRow, limits: LimitRule, means: _Meaning
) -> StatisticDetector:
    return StatisticDetector(
        name=row.name,
        version=1,
        kind=kind,
        what=means.what,
        needs=(metric,),
        measure=partial(measure_drift, row),
        limits=limits,
        fault_class=means.fault_class,
        plane=Plane.HISTORY,
        score=means.score,
        severity=Severity.WARNING,
        says=means.says,
        clear_says="{value:.3g} above its own past",
        action=means.action,
    )


_TEMPERATURE, _POWER = "gpu_temperature_celsius", "gpu_power_watts"
_PROBE = "gpu_probe_seconds"
_CORRECTED, _SYMBOLS = "gpu_ecc_corrected_volatile_total", "nic_symbol_errors_total"
_BY_PHASE = (job_phase, model_phase)

DRIFT_DETECTORS: tuple[StatisticDetector, ...] = (
    _detector(
        EntityKind.GPU,
        _TEMPERATURE,
        DriftRow("temperature_drift", _heat, True, _BY_PHASE, 1.0),
        LimitRule("celsius", 8.0, 5.0, 25.0, persist_s=600.0),
        _Meaning(
            FaultClass.THERMAL,
            0.3,
            "a GPU that runs hotter than it used to under the same load",
            "GPU {entity} runs {value:.0f} C hotter than it used to for what it draws, and its"
            " peers do not: its cooling gets worse",
        ),
    ),
    _detector(
        EntityKind.GPU,
        _PROBE,
        DriftRow("probe_drift", _mean_of(_PROBE), False, (), 0.02),
        LimitRule("seconds", 0.5, 0.1, 10.0, persist_s=600.0, heavy=True),
        _Meaning(
            FaultClass.DRIVER,
            0.3,
            "a GPU whose driver answers more slowly than it used to",
            "the driver takes {own:.2f} s to answer for GPU {entity}, {value:.2f} s more than it"
            " used to",
        ),
    ),
    _detector(
        EntityKind.GPU,
        _CORRECTED,
        DriftRow("ecc_corrected_drift", _growth_of(_CORRECTED), False, (), 2.0),
        LimitRule("errors an hour", 100.0, 10.0, 1e6, persist_s=600.0, heavy=True),
        _Meaning(
            FaultClass.MEMORY,
            0.2,
            "memory that corrects more errors than it used to",
            "the memory of GPU {entity} corrects {own:.0f} errors an hour, {value:.0f} more than"
            " it used to",
        ),
    ),
    _detector(
        EntityKind.NIC,
        _SYMBOLS,
        DriftRow("symbol_error_drift", _growth_of(_SYMBOLS), False, (), 1.0),
        LimitRule("errors an hour", 50.0, 5.0, 1e6, persist_s=600.0, heavy=True),
        _Meaning(
            FaultClass.NIC,
            0.3,
            "a port with more symbol errors than it used to have",
            "port {entity} has {own:.0f} symbol errors an hour, {value:.0f} more than it used to",
            RecommendedAction.CHECK_CABLE,
        ),
    ),
)

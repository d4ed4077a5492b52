"""A GPU or a port far from the others of its job in the same phase, else of its model and load.

Who is compared: entities of the same job, model and load band; where too few of those are, all of
the model in the load band. Median and median absolute deviation, so that the odd ones do not move
what is usual. When all are shifted together the median is shifted too, and where many of a group
are odd, what they share is the cause: nobody is blamed. What peers alone say is advice at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.reading import Bool, still_named
from gpuwarden_verdict.detectors.scene import (
    BANDS,
    BUSY,
    FEWEST_IN_FLEET,
    FEWEST_IN_JOB,
    LOAD,
    Scene,
    combined,
)
from gpuwarden_verdict.detectors.statistic import Measured, StatisticDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_verdict.windows.planes import F32, I64, AnyArray
from gpuwarden_wire.metrics import EntityKind

MOST_SIGMA = 6.0
"""Whatever the limit, a group's own spread is given this much room."""
ALL_BANDS = tuple(range(BANDS))
BUSY_BAND = (BANDS - 1,)
IDLE_BAND = 0
TEMPERATURE, SLOWDOWN_AT = "gpu_temperature_celsius", "gpu_slowdown_temperature_celsius"
NEAR_LIMIT_C = 10.0
"""A GPU that is merely warmer than its peers needs no action: only near its slowdown limit."""
LIMIT_WHERE_UNKNOWN_C = 90.0
LIMITERS, SOFTWARE_POWER_CAP = "gpu_clock_event_reasons", 0x4  # nvml.h: nvmlClocksEventReason
AT_LIMIT = 0.95
"""Power of at least this share of a GPU's own limit is what the limit allows."""


@dataclass(frozen=True, slots=True)
class PeerRow:
    """What is compared between peers.

    Attributes:
        metric: What is read; of a counter, its rate.
        odd: 1.0 where more than usual is odd, -1.0 where less is.
        groups: Who is compared with whom, the narrowest first.
        relative: Whether the statistic is a share of what is usual.
        usual_from: Least usual value at which a comparison means anything.
        bands: Load bands in which it does; () for whatever has no load.
        least_spread: No group's spread is believed to be smaller, in the metric's unit.
        condition: What must hold besides.
        over: Given what is usual, shape (N,), NaN unknown: where whatever was said is over though
            nothing can be compared.
    """

    metric: str
    odd: float
    groups: tuple[Callable[[Scene], Grouping], ...]
    relative: bool = False
    usual_from: float = 0.0
    bands: tuple[int, ...] = ALL_BANDS
    least_spread: float = 0.0
    condition: Callable[[Scene], AnyArray] | None = None
    over: Callable[[PeerRow, Scene, F32], Bool] | None = None


def job_phase(scene: Scene) -> Grouping:
    """GPUs of one job, model and load band."""
    return scene.grouping(
        "job_phase",
        FEWEST_IN_JOB,
        lambda: combined(scene.jobs(), scene.models(), scene.bands()),
    )


def model_phase(scene: Scene) -> Grouping:
    """GPUs of one model in one load band."""
    return scene.grouping(
        "model_phase", FEWEST_IN_FLEET, lambda: combined(scene.models(), scene.bands())
    )


def same_job(scene: Scene) -> Grouping:
    """GPUs of one job and model, however busy each is."""
    return scene.grouping("same_job", FEWEST_IN_JOB, lambda: combined(scene.jobs(), scene.models()))


def job_rail(scene: Scene) -> Grouping:
    """Ports of one name on the nodes of one job."""
    return scene.grouping("job_rail", FEWEST_IN_JOB, lambda: combined(scene.jobs(), rails(scene)))


def rails(scene: Scene) -> I64:
    """A port's name on its node: ports of one name are cabled alike."""
    return scene.fleet.memory.codes(scene.view, f"rails of {scene.kind}", _name_on_node)


def measure_peers(row: PeerRow, scene: Scene) -> Measured:
    """Distance from what is usual, in the direction that is odd; see `PeerRow`."""
    own = scene.mean(row.metric)
    if row.bands and row.bands != ALL_BANDS:
        wanted = np.zeros(BANDS + 1, np.bool_)  # NO_CODE is the last one's
        wanted[list(row.bands)] = True
        own = np.where(wanted[scene.bands()], own, np.float32(np.nan))
    usual, spread, crowd = usual_among(row.groups, scene, own)
    over = (row.over or idle)(row, scene, usual)
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = np.where(np.abs(usual) >= row.usual_from, usual, np.float32(np.nan))
        off = np.float32(row.odd) * (own - usual)
        roomy = off > MOST_SIGMA * np.maximum(spread, np.float32(row.least_spread))
        value = off / np.abs(usual) if row.relative else off
    if row.condition is not None and roomy.any():
        roomy &= row.condition(scene)
    resting = over & np.isnan(value) & scene.fresh(row.metric)
    value = value.astype(np.float32, copy=False)
    return Measured(value, {"own": own, "usual": usual}, crowd, roomy, resting)


def idle(row: PeerRow, scene: Scene, usual: F32) -> Bool:
    """GPUs that are known to be idle: what is odd under load shows no more."""
    resting: Bool = scene.bands() == IDLE_BAND
    return resting


def alone_or_idle(row: PeerRow, scene: Scene, usual: F32) -> Bool:
    """GPUs that are idle, or in no job that is large enough for a comparison."""
    return _alone(row, scene) | idle(row, scene, usual)


def without_busy_job(row: PeerRow, scene: Scene, usual: F32) -> Bool:
    """GPUs in no job that is large and busy enough: to be idle is what is odd in such a one."""
    with np.errstate(invalid="ignore"):
        calm: Bool = usual < row.usual_from
    return _alone(row, scene) | calm


def alone_or_idle_node(row: PeerRow, scene: Scene, usual: F32) -> Bool:
    """Ports of no job that is large enough, or of a node all of whose GPUs are known to be idle."""
    gpus = scene.of(EntityKind.GPU)
    at_rest = gpus.bands() == IDLE_BAND
    named, node_rows = still_named(scene.state, gpus.view), gpus.view.node_rows
    nodes = len(scene.state.view(EntityKind.NODE))
    some = np.bincount(node_rows[named & at_rest], minlength=nodes) > 0
    others = np.bincount(node_rows[named & ~at_rest], minlength=nodes) > 0
    resting: Bool = (some & ~others)[scene.view.node_rows]
    return _alone(row, scene) | resting


def _alone(row: PeerRow, scene: Scene) -> Bool:
    """Who is in no group that could say anything, whatever is read of it, shape (N,)."""
    alone = np.ones(len(scene.view), np.bool_)
    for group in row.groups:
        grouping = group(scene)
        alone &= grouping.group_of == grouping.count
    return alone


def usual_among(
    groups: tuple[Callable[[Scene], Grouping], ...], scene: Scene, own: F32
) -> tuple[F32, F32, Callable[[AnyArray], F32]]:
    """Median, spread and share beyond of each entity's narrowest group that says anything."""
    groupings = [group(scene) for group in groups]
    middle = groupings[0].middle(own)
    usual, spread = (groupings[0].per_entity(one) for one in (middle.median, middle.spread))
    open_rows = np.flatnonzero(np.isnan(usual))
    chosen = np.zeros(own.shape, np.int64)
    for number, grouping in enumerate(groupings[1:], 1):
        if not open_rows.size:
            break
        middle, group_of = grouping.middle(own), grouping.group_of[open_rows]
        usual[open_rows], spread[open_rows] = middle.median[group_of], middle.spread[group_of]
        chosen[open_rows] = number
        open_rows = open_rows[np.isnan(usual[open_rows])]
    chosen[open_rows] = NO_CODE

    def crowd(beyond: AnyArray) -> F32:
        share = np.zeros(own.shape, np.float32)
        for number, grouping in enumerate(groupings):
            mine = chosen == number
            share[mine] = grouping.share(beyond, ~np.isnan(own))[mine]
        return share

    return usual, spread, crowd


def medians_among(
    groups: tuple[Callable[[Scene], Grouping], ...],
    scene: Scene,
    own: F32,
    rows: I64 | slice = slice(None),
) -> F32:
    """The medians of `usual_among` alone, of some entities; all by default."""
    first, *others = (group(scene) for group in groups)
    usual: F32 = first.medians(own)[first.group_of[rows]]
    for grouping in others:
        open_places = np.flatnonzero(np.isnan(usual))
        if open_places.size:
            group_of = grouping.group_of[rows][open_places]
            usual[open_places] = grouping.medians(own)[group_of]
    return usual


def _near_slowdown(scene: Scene) -> AnyArray:
    limit = scene.view.last(SLOWDOWN_AT)
    limit = np.where(np.isnan(limit), np.float32(LIMIT_WHERE_UNKNOWN_C), limit)
    return scene.latest(TEMPERATURE) >= limit - NEAR_LIMIT_C


def not_power_capped(scene: Scene) -> AnyArray:
    """GPUs whose clock the power limit does not hold: that is normal under load, and by design."""

    def make() -> AnyArray:
        reasons = np.nan_to_num(scene.latest(LIMITERS)).astype(np.int64)
        free: AnyArray = (reasons & SOFTWARE_POWER_CAP) == 0
        return free

    return scene.once("not power capped", make)


def _below_power_limit(scene: Scene) -> AnyArray:
    """GPUs whose power is not what their own limit allows."""
    limit = scene.view.last("gpu_power_limit_watts")
    with np.errstate(invalid="ignore"):
        at_limit: AnyArray = scene.mean("gpu_power_watts") >= AT_LIMIT * limit
    return ~at_limit


def _board_at_work(scene: Scene) -> AnyArray:
    """Entities of nodes where most of a job's GPUs work, or are too few to tell.

    Where they all rest while the job works elsewhere, the node was drained or booted, or has lost
    its rank: no single GPU or port of it is odd.
    """
    gpus = scene.of(EntityKind.GPU)
    node_rows = gpus.view.node_rows
    boards = gpus.lasting_grouping(
        "job_on_board", FEWEST_IN_JOB, lambda: combined(gpus.jobs(), node_rows)
    )
    usual = boards.per_entity(boards.middle(gpus.mean(LOAD)).median)
    with np.errstate(invalid="ignore"):
        resting = usual < BUSY
    if scene.kind is EntityKind.GPU:
        return ~resting
    nodes = np.zeros(len(scene.state.view(EntityKind.NODE)), np.bool_)
    nodes[node_rows[resting]] = True
    return ~nodes[scene.view.node_rows]


def _name_on_node(key: str) -> str:
    return key.partition("/")[2]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a deviation means: see `StatisticDetector`."""

    fault_class: FaultClass
    score: float
    what: str
    says: str
    clear_says: str
    action: RecommendedAction = RecommendedAction.INVESTIGATE


def _detector(
    kind: EntityKind, name: str, version: int, row: PeerRow, limits: LimitRule, means: _Meaning
) -> StatisticDetector:
    return StatisticDetector(
        name=name,
        version=version,
        kind=kind,
        what=means.what,
        needs=(row.metric,),
        measure=partial(measure_peers, row),
        limits=limits,
        fault_class=means.fault_class,
        plane=Plane.PEERS,
        score=means.score,
        severity=Severity.WARNING,
        says=means.says,
        clear_says=means.clear_says,
        action=means.action,
    )


_of_gpus = partial(_detector, EntityKind.GPU)
_BY_PHASE = (job_phase, model_phase)
_WARM = "{own:.0f} C, its peers {usual:.0f} C"
_SLOW_LINK = "{own:.3g} bytes a second, its peers {usual:.3g}"

PEER_DETECTORS: tuple[StatisticDetector, ...] = (
    _of_gpus(
        "temperature_peers",
        2,
        # Positions on one board differ by several degrees by design (assumed); whole degrees and
        # tight groups give a deviation of 0.
        PeerRow(TEMPERATURE, 1.0, _BY_PHASE, least_spread=1.5, condition=_near_slowdown),
        LimitRule("celsius", 12.0, 8.0, 30.0, persist_s=120.0),
        _Meaning(
            FaultClass.THERMAL,
            0.5,
            "a GPU far hotter than its peers under the same load, and near its limit",
            "GPU {entity} is at {own:.0f} C near its slowdown limit; its peers under the same load"
            " are at {usual:.0f} C, {limit:.0f} C more would be odd",
            _WARM,
        ),
    ),
    _of_gpus(
        "memory_temperature_peers",
        1,
        PeerRow("gpu_memory_temperature_celsius", 1.0, _BY_PHASE, least_spread=1.5),
        LimitRule("celsius", 15.0, 10.0, 30.0, persist_s=300.0),
        _Meaning(
            FaultClass.THERMAL,
            0.3,
            "memory far hotter than at peers under the same load",
            "the memory of GPU {entity} is at {own:.0f} C; of its peers under the same load at"
            " {usual:.0f} C, {limit:.0f} C more would be odd",
            _WARM,
        ),
    ),
    _of_gpus(
        "power_peers",
        1,
        PeerRow(
            "gpu_power_watts",
            -1.0,
            _BY_PHASE,
            relative=True,
            usual_from=100.0,
            bands=BUSY_BAND,
            condition=_below_power_limit,
        ),
        LimitRule("ratio", 0.35, 0.15, 0.7, persist_s=300.0),
        _Meaning(
            FaultClass.POWER,
            0.3,
            "a GPU that draws far less power than its peers at the same utilisation",
            "GPU {entity} draws {own:.0f} W where its peers at the same utilisation draw"
            " {usual:.0f} W: it does less work (more than {limit:.0%} less would be odd)",
            "{own:.0f} W, its peers {usual:.0f} W",
        ),
    ),
    _of_gpus(
        "clock_peers",
        1,
        PeerRow(
            "gpu_sm_clock_hertz",
            -1.0,
            _BY_PHASE,
            relative=True,
            usual_from=1e8,
            bands=BUSY_BAND,
            least_spread=15e6,
            condition=not_power_capped,
        ),
        LimitRule("ratio", 0.15, 0.08, 0.6, persist_s=300.0),
        _Meaning(
            FaultClass.POWER,
            0.4,
            "a GPU whose clock is far below that of its peers under load",
            "GPU {entity} runs {value:.0%} below the clock of its peers under the same load"
            " (more than {limit:.0%} would be odd): a straggler slows its whole job",
            "{value:.0%} below its peers' clock",
        ),
    ),
    _of_gpus(
        "utilization_peers",
        2,
        PeerRow(
            LOAD,
            -1.0,
            (same_job,),
            usual_from=BUSY,
            least_spread=0.03,
            condition=_board_at_work,
            over=without_busy_job,
        ),
        LimitRule("ratio", 0.5, 0.3, 0.9, persist_s=300.0),
        _Meaning(
            FaultClass.UNKNOWN,
            0.3,
            "a GPU idle in a busy job",
            "GPU {entity} is {own:.0%} busy where the rest of its job is {usual:.0%} busy:"
            " its process is slow, hangs or has ended",
            "{own:.0%} busy, its job {usual:.0%}",
        ),
    ),
    _of_gpus(
        "nvlink_throughput_peers",
        1,
        PeerRow(
            "gpu_nvlink_transmitted_bytes_total",
            -1.0,
            (same_job,),
            relative=True,
            usual_from=1e9,
            over=alone_or_idle,
        ),
        LimitRule("ratio", 0.6, 0.4, 0.95, persist_s=300.0),
        _Meaning(
            FaultClass.NVLINK,
            0.3,
            "a GPU that sends far less over NVLink than the rest of its job",
            "GPU {entity} sends {value:.0%} less over NVLink than the rest of its job",
            _SLOW_LINK,
        ),
    ),
    _of_gpus(
        "pcie_throughput_peers",
        1,
        PeerRow(
            "gpu_pcie_received_bytes_total",
            -1.0,
            (same_job,),
            relative=True,
            usual_from=5e8,
            over=alone_or_idle,
        ),
        LimitRule("ratio", 0.7, 0.5, 0.95, persist_s=600.0),
        _Meaning(
            FaultClass.BUS,
            0.3,
            "a GPU that receives far less over PCIe than the rest of its job",
            "GPU {entity} receives {value:.0%} less over PCIe than the rest of its job",
            _SLOW_LINK,
        ),
    ),
    *(
        _detector(
            EntityKind.NIC,
            f"nic_{way}_peers",
            2,
            PeerRow(
                metric,
                -1.0,
                (job_rail,),
                relative=True,
                usual_from=1e8,
                bands=(),
                condition=_board_at_work,
                over=alone_or_idle_node,
            ),
            LimitRule("ratio", 0.6, 0.4, 0.95, persist_s=300.0),
            _Meaning(
                FaultClass.NIC,
                0.3,
                "a port that carries far less than the same port of the job's other nodes",
                f"port {{entity}} {way}s {{value:.0%}} less than the same port of its job's other"
                " nodes",
                _SLOW_LINK,
                RecommendedAction.CHECK_CABLE,
            ),
        )
        for way, metric in (
            ("receive", "nic_received_bytes_total"),
            ("transmit", "nic_transmitted_bytes_total"),
        )
    ),
)

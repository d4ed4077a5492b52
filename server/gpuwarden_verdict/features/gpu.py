"""Features of GPUs. Every one is monotone: a larger value never lowers the risk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.drift import CELSIUS_PER_WATT, DRIFT_DETECTORS
from gpuwarden_verdict.detectors.load import under_load
from gpuwarden_verdict.detectors.nvlink_down import ACTIVE, MIG, links_of_models
from gpuwarden_verdict.detectors.pcie_downtrained import (
    PCIE_GENERATION,
    PCIE_WIDTH,
    PcieDowntrainedDetector,
)
from gpuwarden_verdict.detectors.peer_deviation import (
    job_phase,
    medians_among,
    model_phase,
    not_power_capped,
)
from gpuwarden_verdict.detectors.scene import FEWEST_IN_FLEET, FEWEST_IN_JOB, Scene
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.making import (
    column,
    deviation,
    events_1h,
    events_24h,
    grown_1h,
    grown_24h,
    latest,
    mean,
    of_its_node,
    risen,
    settled,
    together,
    total,
)
from gpuwarden_verdict.features.scene import Column, Look, Make, made
from gpuwarden_verdict.features.standing import (
    FAILED_JOBS,
    calm_share,
    job_age_hours,
    jobs,
    leaves,
    ledger_columns,
    racks,
    record_columns,
)
from gpuwarden_verdict.features.trouble import (
    APPLICATION,
    BUS,
    DRIVER,
    OTHER,
    gpu_troubled,
    gpus_missing,
    node_troubled,
    silence,
)
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows.planes import F32

GPU_VERSION = 3

_FASTEST_PROBE_S = 0.01
QUIET_S = 7 * 86_400.0
"""Rows that were remapped long ago count for less, with this time constant."""

_TEMPERATURE, _WATTS = "gpu_temperature_celsius", "gpu_power_watts"
_REMAPPED = ("gpu_rows_remapped_correctable_total", "gpu_rows_remapped_uncorrectable_total")
_CORRECTED = "gpu_ecc_corrected_volatile_total"
_SRAM = (
    "gpu_sram_parity_uncorrected_aggregate_total",
    "gpu_sram_secded_uncorrected_aggregate_total",
)
_PCIE_CORRECTED = (
    "gpu_pcie_correctable_errors_total",
    "gpu_pcie_receiver_errors_total",
    "gpu_pcie_lcrc_errors_total",
    "gpu_aer_correctable_total",
)
_PCIE_LOST = (
    "gpu_pcie_nonfatal_errors_total",
    "gpu_pcie_fatal_errors_total",
    "gpu_aer_nonfatal_total",
    "gpu_aer_fatal_total",
)
_NVLINK = (
    "gpu_nvlink_errors_total",
    "gpu_nvlink_integrity_errors_total",
    "gpu_nvlink_receive_errors_total",
    "gpu_nvlink_crc_errors_total",
    "gpu_nvlink_symbol_errors_total",
)
_NVLINK_RECOVERIES = ("gpu_nvlink_recoveries_total", "gpu_nvlink_recovery_events_total")

_BY_PHASE = (job_phase, model_phase)


def _board(scene: Scene) -> Grouping:
    """GPUs of one node: a hot rack warms them all."""
    return scene.lasting_grouping("board", FEWEST_IN_JOB, lambda: scene.view.node_rows)


def _of_model(scene: Scene) -> Grouping:
    return scene.lasting_grouping("models", FEWEST_IN_FLEET, scene.models)


def _excess(make: Make) -> Make:
    """How far above what is usual among peers.

    Those of the same job in the same phase, else of the model under the same load, and the node's
    own GPUs; the smaller excess counts, so that a hot rack or a slow job accuses nobody.
    """

    def excess(look: Look) -> F32:
        of_all = look.everyone.of_all(("own", make.said), lambda all_: _made(make, all_))
        usual = medians_among(_BY_PHASE, look.everyone, of_all, look.places)
        own = look.of_all(("own", make.said), lambda all_: of_all)
        with np.errstate(invalid="ignore"):
            over_node = own - look.medians_of(_board(look.everyone), of_all)
            smaller: F32 = np.fmin(own - usual, over_node)
        return smaller

    return Make(
        excess,
        f"{make.said}, above its peers of the job or model under the same load and above its"
        " board's others: the smaller",
        "unread, or too few peers of either sort",
        alone=True,
    )


def _made(make: Make, look: Look) -> F32:
    return np.asarray(make(look), np.float32)


def _own_share(make: Make) -> Make:
    """A deficit less what its board's others share: a cap of the whole node accuses no GPU."""

    def own(look: Look) -> F32:
        of_all = look.everyone.of_all(("own", make.said), lambda all_: _made(make, all_))
        deficit = look.of_all(("own", make.said), lambda all_: of_all)
        common = np.nan_to_num(look.medians_of(_board(look.everyone), of_all))
        return deficit - np.maximum(common, np.float32(0.0))

    return Make(own, f"{make.said}, less what its board's others share", make.missing, alone=True)


@made("temperature less what its own draw explains")
def _heat(look: Look) -> F32:
    """Temperature less what the GPU's own draw explains of it, C."""
    own_draw = np.float32(CELSIUS_PER_WATT) * look.mean(_WATTS)
    return look.mean(_TEMPERATURE) - own_draw


@made("temperature less what its own draw explains, above its mean of an hour")
def _heat_rise(look: Look) -> F32:
    """The same, less its mean of the last hour."""
    view = look.view
    past = view.ewma_slow(_TEMPERATURE) - np.float32(CELSIUS_PER_WATT) * view.ewma_slow(_WATTS)
    return _heat(look) - past


def _drift(detector: str) -> Make:
    """What a drift detector of the sweep found above the entity's own baseline of days.

    NaN where it has not learnt one, and outside of sweeps.
    """

    def make(look: Look) -> F32:
        return np.asarray(look.fleet.memory.plane(look.view, detector, "moved", np.nan), np.float32)

    assert detector in {one.name for one in DRIFT_DETECTORS}
    return Make(
        make,
        f"above its own baseline of days in this load band, as detector `{detector}` has learnt it",
        "no baseline yet: two hours of sweeps in the load band",
    )


_CLOCK = deviation("clock_peers", "share by which the clock is below its peers'")


@made(
    "share by which the clock is below its peers', 0 where the power limit holds it down",
    "unread, not at work, or too few peers",
)
def _clock_deficit(look: Look) -> F32:
    """Share by which the clock is below the peers', 0 where the power limit holds it down."""
    deficit, free = _CLOCK(look), not_power_capped(look)
    if free.all():
        return deficit
    return np.where(free | np.isnan(deficit), deficit, np.fmin(deficit, np.float32(0.0)))


@made("utilisation less the share of the power limit that is drawn", alone=True)
def _busy_without_power(look: Look) -> F32:
    """Utilisation less the share of the power limit that is drawn: a hung kernel is busy."""
    limit = look.view.last("gpu_power_limit_watts")
    with np.errstate(invalid="ignore", divide="ignore"):
        return look.mean("gpu_utilization_ratio") - look.mean(_WATTS) / limit


def _to_limit(metric: str, limit: str) -> Make:
    """Degrees above the limit: below 0 while there is room."""
    return Make(
        lambda look: look.latest(metric) - look.view.last(limit),
        f"`{metric}` less `{limit}`",
        alone=True,
    )


@made("time that the driver takes to answer, in times of what is usual for the model", alone=True)
def _probe_times(look: Look) -> F32:
    """How many times as long as at GPUs of its model the driver takes to answer."""
    own, usual = look.mean("gpu_probe_seconds"), look.of_groups("usual probe", _usual_probe)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = own / np.maximum(usual, _FASTEST_PROBE_S)
    return times.astype(np.float32)


def _usual_probe(look: Look) -> tuple[Grouping, F32]:
    models = _of_model(look)
    return models, models.medians(look.mean("gpu_probe_seconds"))


@made("rows remapped for life, decayed over seven days since the last one", alone=True)
def _remapped_lately(look: Look) -> F32:
    """Rows remapped for life, weighed by how lately the last one was."""
    view = look.view
    quiet_s = np.fmin(view.steady_s(_REMAPPED[0]), view.steady_s(_REMAPPED[1]))
    return total(*_REMAPPED)(look) * np.exp(-quiet_s / np.float32(QUIET_S))


def _remap_state() -> Make:
    """1 a remap waits for a reset, 2 one failed, 3 both."""

    def state_by(read: Callable[[str], F32]) -> F32:
        return read("gpu_row_remap_pending") + np.float32(2.0) * read("gpu_row_remap_failure")

    return Make(
        lambda look: state_by(look.latest),
        "1 a row remap waits for a reset, 2 one failed, 3 both",
        alone=True,
        bound=lambda look: state_by(look.view.last),
    )


@made("memory banks with few spare rows or none", alone=True)
def _banks_short(look: Look) -> F32:
    """Memory banks with few spare rows or none."""
    return together(
        [look.latest("gpu_row_remap_banks_low"), look.latest("gpu_row_remap_banks_none")]
    )


def _pcie_deficit(detector: PcieDowntrainedDetector) -> Make:
    """Share of lanes or speed that a link under load lacks, of what is usual for the model."""

    def make(look: Look) -> F32:
        usual = look.of_groups(
            ("usual", detector.name), lambda whole: detector.usual(whole.view, whole.fleet)
        )
        most = np.fmin(look.latest(detector.most), usual)
        with np.errstate(invalid="ignore", divide="ignore"):
            lacks = 1.0 - look.latest(detector.metric) / most
        return np.where(under_load(look.view), np.maximum(lacks, 0.0), np.nan).astype(np.float32)

    said = f"share of what is usual that `{detector.metric}` lacks under load"
    return settled(Make(make, said, "unread, or not under load", alone=True))


@made(
    "NVLinks that it had, or that most GPUs of the model have, and that are not active",
    "unread, or cut into MIG devices",
    alone=True,
)
def _links_down(look: Look) -> F32:
    """NVLinks that were active, or are at most GPUs of the model, and are not; NaN under MIG."""
    of_model = look.of_groups(
        "links", lambda whole: links_of_models(whole.state, whole.view, whole.fleet)
    )
    usual = np.fmax(look.view.highest(ACTIVE), of_model).astype(np.float32)
    down = usual - look.latest(ACTIVE)
    return np.where(look.view.last(MIG) == 1.0, np.float32(np.nan), down)


@made("share of its readings that it gave and gives no more", alone=True)
def _readings_lost(look: Look) -> F32:
    """Share of the readings that the GPU gave and gives no more."""
    lost, read = look.latest("gpu_readings_lost"), look.latest("gpu_readings")
    with np.errstate(invalid="ignore", divide="ignore"):
        return lost / (lost + read)


_thermal = partial(column, fault=FaultClass.THERMAL)
_memory = partial(column, plane=Plane.COUNTERS, fault=FaultClass.MEMORY)
_bus = partial(column, plane=Plane.COUNTERS, fault=FaultClass.BUS)
_nvlink = partial(column, plane=Plane.COUNTERS, fault=FaultClass.NVLINK)
_event = partial(column, plane=Plane.EVENTS)
_peer = partial(column, plane=Plane.PEERS)
_structure = partial(column, plane=Plane.STRUCTURE)
_power = partial(column, fault=FaultClass.POWER)

GPU_COLUMNS: tuple[Column, ...] = (
    _thermal("temperature_excess_celsius", Plane.PEERS, make=_excess(_heat), cheap=True),
    _thermal("temperature_rise_celsius", Plane.PEERS, make=_excess(_heat_rise)),
    _thermal("temperature_drift_celsius", Plane.PEERS, make=_drift("temperature_drift")),
    _thermal(
        "temperature_over_limit_celsius",
        Plane.COUNTERS,
        make=_to_limit(_TEMPERATURE, "gpu_slowdown_temperature_celsius"),
    ),
    _thermal(
        "memory_temperature_excess_celsius",
        Plane.PEERS,
        make=deviation("memory_temperature_peers", "memory temperature above its peers'"),
    ),
    _thermal(
        "thermal_slowdown_excess_seconds_1h",
        Plane.COUNTERS,
        make=_excess(grown_1h("gpu_thermal_slowdown_seconds_total")),
    ),
    _power(
        "power_brake_seconds_1h",
        Plane.COUNTERS,
        make=grown_1h("gpu_power_brake_seconds_total"),
        cheap=True,
    ),
    _power(
        "power_deficit_ratio",
        Plane.PEERS,
        make=_own_share(
            deviation("power_peers", "share by which it draws less than its peers at work")
        ),
    ),
    _power("clock_deficit_ratio", Plane.PEERS, make=_own_share(_clock_deficit), cheap=True),
    _power("busy_without_power_ratio", Plane.COUNTERS, make=_busy_without_power, cheap=True),
    _peer(
        "utilization_deficit_ratio",
        fault=FaultClass.UNKNOWN,
        make=deviation("utilization_peers", "utilisation below that of its busy job"),
        cheap=True,
    ),
    _peer(
        "nvlink_deficit_ratio",
        fault=FaultClass.NVLINK,
        make=deviation(
            "nvlink_throughput_peers", "share by which it sends less over NVLink than its job"
        ),
    ),
    _peer(
        "pcie_deficit_ratio",
        fault=FaultClass.BUS,
        make=deviation(
            "pcie_throughput_peers", "share by which it receives less over PCIe than its job"
        ),
    ),
    _memory("ecc_corrected_1h", make=grown_1h(_CORRECTED), cheap=True),
    _memory("ecc_corrected_24h", make=grown_24h(_CORRECTED), cheap=True),
    _memory("ecc_corrected_rise_1h", make=risen(_CORRECTED)),
    _memory(
        "ecc_uncorrected_24h", make=grown_24h("gpu_ecc_uncorrected_volatile_total"), cheap=True
    ),
    _memory("ecc_uncorrected_lifetime", make=latest("gpu_ecc_uncorrected_aggregate_total")),
    _memory("sram_uncorrected_24h", make=grown_24h(*_SRAM)),
    _memory("sram_threshold_exceeded", make=latest("gpu_sram_threshold_exceeded")),
    _memory("rows_remapped_24h", make=grown_24h(*_REMAPPED), cheap=True),
    _memory("rows_remapped_lifetime", make=total(*_REMAPPED)),
    _memory("rows_remapped_uncorrectable_lifetime", make=latest(_REMAPPED[1])),
    _memory("rows_remapped_decayed_7d", make=_remapped_lately),
    _memory("row_remap_state", make=_remap_state(), cheap=True),
    _memory("row_remap_banks_short", make=_banks_short),
    _bus("pcie_replays_1h", make=grown_1h("gpu_pcie_replay_total"), cheap=True),
    _bus("pcie_corrected_1h", make=grown_1h(*_PCIE_CORRECTED), cheap=True),
    _bus("pcie_uncorrected_24h", make=grown_24h(*_PCIE_LOST)),
    _structure("pcie_width_deficit_ratio", fault=FaultClass.BUS, make=_pcie_deficit(PCIE_WIDTH)),
    _structure(
        "pcie_generation_deficit_ratio", fault=FaultClass.BUS, make=_pcie_deficit(PCIE_GENERATION)
    ),
    _nvlink("nvlink_errors_1h", make=grown_1h(*_NVLINK), cheap=True),
    _nvlink("nvlink_errors_rise_1h", make=risen(*_NVLINK)),
    _nvlink("nvlink_recoveries_24h", make=grown_24h(*_NVLINK_RECOVERIES)),
    _structure("nvlinks_down", fault=FaultClass.NVLINK, make=settled(_links_down)),
    column(
        "recovery_action",
        Plane.COUNTERS,
        FaultClass.DRIVER,
        latest("gpu_recovery_action"),
        cheap=True,
    ),
    _structure("probe_seconds", fault=FaultClass.DRIVER, make=mean("gpu_probe_seconds")),
    _structure("probe_to_usual_ratio", fault=FaultClass.DRIVER, make=_probe_times),
    _structure("readings_lost_ratio", fault=FaultClass.BUS, make=_readings_lost),
    _structure("silence_seconds", fault=FaultClass.BUS, make=silence, cheap=True),
    _structure("node_gpus_missing", fault=FaultClass.BUS, make=of_its_node(settled(gpus_missing))),
    _event("memory_events_1h", fault=FaultClass.MEMORY, make=events_1h(EventGroup.XID_MEMORY)),
    _event(
        "memory_events_24h",
        fault=FaultClass.MEMORY,
        make=events_24h(EventGroup.XID_MEMORY),
        cheap=True,
    ),
    _event("bus_events_1h", fault=FaultClass.BUS, make=events_1h(*BUS)),
    _event("bus_events_24h", fault=FaultClass.BUS, make=events_24h(*BUS), cheap=True),
    _event(
        "nvlink_events_24h",
        fault=FaultClass.NVLINK,
        make=events_24h(EventGroup.XID_NVLINK),
        cheap=True,
    ),
    _event("driver_events_24h", fault=FaultClass.DRIVER, make=events_24h(*DRIVER), cheap=True),
    _event("other_events_24h", fault=FaultClass.UNKNOWN, make=events_24h(*OTHER), cheap=True),
    _event("application_events_1h", fault=FaultClass.APPLICATION, make=events_1h(*APPLICATION)),
    _event("application_events_24h", fault=FaultClass.APPLICATION, make=events_24h(*APPLICATION)),
    _peer(
        "job_gpus_calm_ratio",
        fault=FaultClass.UNKNOWN,
        make=calm_share(jobs, gpu_troubled, "the job's other GPUs"),
    ),
    _peer(
        "rack_calm_ratio",
        fault=FaultClass.UNKNOWN,
        make=of_its_node(calm_share(racks, node_troubled, "the rack's other nodes")),
    ),
    _peer(
        "leaf_calm_ratio",
        fault=FaultClass.UNKNOWN,
        make=of_its_node(calm_share(leaves, node_troubled, "the leaf switch's other nodes")),
    ),
    column("job_age_hours", Plane.HISTORY, FaultClass.UNKNOWN, job_age_hours),
    FAILED_JOBS,
    *ledger_columns(FaultClass.UNKNOWN),
    *record_columns(),
)
"""How each is made, in the order of the matrix."""

"""Features of nodes: the host's own planes, its storage, whether its devices are there."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.host_planes import INTERRUPTS, PAGES_OUT, RUNNING, USUAL_FROM
from gpuwarden_verdict.detectors.measures import (
    Operations,
    change_to_usual,
    seconds_each,
    share_of_time,
)
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.making import (
    column,
    events_1h,
    events_24h,
    grown_1h,
    grown_24h,
    latest,
    mean,
    measured,
    rise_over_peers,
    settled,
    sum_of,
    worst_of,
)
from gpuwarden_verdict.features.scene import Column, Look, Make, made
from gpuwarden_verdict.features.standing import (
    FAILED_JOBS,
    HALF_YEAR_S,
    calm_share,
    job_age_hours,
    jobs,
    leaves,
    ledger_columns,
    on_record,
    racks,
    record_columns,
)
from gpuwarden_verdict.features.trouble import (
    DRIVER,
    HARDWARE,
    gpus_missing,
    node_troubled,
    silence,
)
from gpuwarden_verdict.ledger import Mark
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

NODE_VERSION = 2

_FEWEST_RUNNING = 4.0
_AT_REST = "unread, or few requests"
_OPERATIONS = Operations("mount_operations_total", "mount_backlog_requests", 10.0)
_DISK_OPERATIONS = ("disk_reads_completed_total", "disk_writes_completed_total")
_DISK_SECONDS = ("disk_read_seconds_total", "disk_write_seconds_total")


def _stopped(metric: str) -> Make:
    """1 where something that should run does not, 0 where it does."""
    return Make(lambda look: np.float32(1.0) - look.latest(metric), f"1 less `{metric}`")


@made("GPUs that should show and that the PCI bus does not list")
def _gpus_off_pci(look: Look) -> F32:
    """GPUs that the driver should show and that the PCI bus does not even list."""
    return look.latest("node_gpus_expected") - look.latest("node_gpus_on_pci")


@made("1 for a GPU that is silent while others of its node are read")
def _gpus_silent(look: Look) -> F32:
    quiet = silence(look)
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(quiet), np.nan, quiet > 0).astype(np.float32)


@made("network mounts that were there since the first reading and are not")
def _mounts_lost(look: Look) -> F32:
    """Network mounts that were there since the first reading and are not."""
    return look.view.highest("node_nfs_mounts") - look.latest("node_nfs_mounts")


@made("share by which interrupts are below their last hour, and below the peers' change")
def _interrupts_deficit(look: Look) -> F32:
    """Share by which interrupts are below their own last hour, and below the peers' change."""
    own, peers = change_to_usual(look, INTERRUPTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        usual = np.fmin(np.where(np.isnan(peers), 1.0, peers), 1.0)
        deficit = 1.0 - own / np.maximum(usual, 0.05)
    return deficit.astype(np.float32)


@made(
    "share by which runnable processes are below their last hour",
    "unread, or four processes usually run at most",
)
def _running_deficit(look: Look) -> F32:
    """Share by which runnable processes are below their own last hour."""
    usual = look.view.ewma_slow(RUNNING)
    with np.errstate(divide="ignore", invalid="ignore"):
        deficit = np.float32(1.0) - look.mean(RUNNING) / usual
        return np.where(usual >= _FEWEST_RUNNING, deficit, np.float32(np.nan))


@made("share of the memory that is not available")
def _memory_used(look: Look) -> F32:
    with np.errstate(divide="ignore", invalid="ignore"):
        free = look.latest("node_memory_available_bytes") / look.latest("node_memory_total_bytes")
    return np.float32(1.0) - free


@made("mean time of an operation", "unread, or less than one operation a second")
def _disk_wait(look: Look) -> F32:
    """Of disks: mean time of an operation, seconds; NaN where fewer than one a second is done."""
    done = look.mean(_DISK_OPERATIONS[0]) + look.mean(_DISK_OPERATIONS[1])
    took = look.mean(_DISK_SECONDS[0]) + look.mean(_DISK_SECONDS[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(done >= 1.0, took / done, np.nan).astype(np.float32)


_of_mounts, _of_disks = partial(worst_of, EntityKind.MOUNT), partial(worst_of, EntityKind.DISK)
_of_gpus = partial(worst_of, EntityKind.GPU)
_host = partial(column, plane=Plane.HOST, fault=FaultClass.HOST)
_storage = partial(column, plane=Plane.HOST, fault=FaultClass.STORAGE)
_disk = partial(column, plane=Plane.COUNTERS, fault=FaultClass.STORAGE)
_memory = partial(column, plane=Plane.COUNTERS, fault=FaultClass.HOST)
_structure = partial(column, plane=Plane.STRUCTURE)
_event = partial(column, plane=Plane.EVENTS)
_near = partial(column, plane=Plane.PEERS, fault=FaultClass.UNKNOWN)
_record = partial(column, plane=Plane.HISTORY, fault=FaultClass.UNKNOWN)

NODE_COLUMNS: tuple[Column, ...] = (
    _structure("gpus_missing", fault=FaultClass.BUS, make=settled(gpus_missing), cheap=True),
    _structure("gpus_off_pci", fault=FaultClass.BUS, make=settled(_gpus_off_pci)),
    _structure(
        "gpus_silent",
        fault=FaultClass.BUS,
        make=sum_of(EntityKind.GPU, _gpus_silent),
        cheap=True,
    ),
    _structure(
        "nvml_call_age_seconds",
        fault=FaultClass.DRIVER,
        make=latest("node_nvml_call_age_seconds"),
        cheap=True,
    ),
    _structure("nvml_poll_seconds", fault=FaultClass.DRIVER, make=mean("node_nvml_poll_seconds")),
    _structure(
        "nvml_poll_gap_seconds",
        fault=FaultClass.DRIVER,
        make=settled(latest("node_nvml_poll_gap_seconds")),
    ),
    _structure(
        "collection_gap_seconds",
        fault=FaultClass.HOST,
        make=settled(latest("node_collection_gap_seconds")),
    ),
    _structure(
        "probe_worst_seconds", fault=FaultClass.DRIVER, make=_of_gpus(mean("gpu_probe_seconds"))
    ),
    _structure(
        "driver_not_loaded",
        fault=FaultClass.DRIVER,
        make=settled(_stopped("node_driver_loaded")),
        cheap=True,
    ),
    _structure(
        "fabric_manager_stopped",
        fault=FaultClass.FABRIC,
        make=settled(_stopped("node_fabric_manager_running")),
    ),
    _structure(
        "nvme_controllers_down",
        fault=FaultClass.STORAGE,
        make=latest("node_nvme_controllers_down"),
        cheap=True,
    ),
    _structure(
        "md_arrays_degraded", fault=FaultClass.STORAGE, make=latest("node_md_arrays_degraded")
    ),
    _structure("mounts_lost", fault=FaultClass.STORAGE, make=settled(_mounts_lost)),
    _host("interrupts_deficit_ratio", make=settled(_interrupts_deficit)),
    _host("running_deficit_ratio", make=settled(_running_deficit)),
    _host("load_rise_ratio", make=settled(rise_over_peers("node_load1", 8.0))),
    _host("page_out_rise_ratio", make=settled(rise_over_peers(PAGES_OUT, USUAL_FROM))),
    _host("pressure_cpu_ratio", make=mean("node_pressure_cpu_seconds_total")),
    _host("pressure_memory_full_ratio", make=mean("node_pressure_memory_full_seconds_total")),
    _host("memory_used_ratio", make=_memory_used),
    _host("hung_tasks_24h", make=grown_24h("node_hung_tasks_total"), cheap=True),
    _storage("processes_blocked", make=mean("node_processes_blocked"), cheap=True),
    _storage(
        "pressure_io_full_ratio", make=mean("node_pressure_io_full_seconds_total"), cheap=True
    ),
    _storage(
        "mount_queue_ratio",
        make=_of_mounts(
            measured(
                share_of_time(
                    "mount_queue_seconds_total", "mount_execute_seconds_total", _OPERATIONS
                ),
                "share of the time of requests that they wait on the client",
                _AT_REST,
            )
        ),
    ),
    _storage(
        "mount_request_seconds",
        make=_of_mounts(
            measured(
                seconds_each("mount_execute_seconds_total", _OPERATIONS),
                "time of a request",
                _AT_REST,
            )
        ),
    ),
    _storage("mount_retransmits_1h", make=_of_mounts(grown_1h("mount_retransmits_total"))),
    _storage("mount_timeouts_24h", make=_of_mounts(grown_24h("mount_major_timeouts_total"))),
    _disk("disk_media_errors_24h", make=_of_disks(grown_24h("disk_media_errors_total"))),
    _disk("disk_operation_seconds", make=_of_disks(_disk_wait)),
    _disk("disk_busy_ratio", make=_of_disks(mean("disk_io_seconds_total"))),
    _disk("disk_critical_warning", make=_of_disks(latest("disk_critical_warning"))),
    _disk("disk_endurance_used_ratio", make=_of_disks(latest("disk_endurance_used_ratio"))),
    _memory("memory_corrected_1h", make=grown_1h("node_memory_corrected_errors_total")),
    _memory(
        "memory_corrected_24h", make=grown_24h("node_memory_corrected_errors_total"), cheap=True
    ),
    _memory(
        "memory_uncorrected_24h",
        make=grown_24h("node_memory_uncorrected_errors_total"),
        cheap=True,
    ),
    _event(
        "memory_events_24h",
        fault=FaultClass.HOST,
        make=events_24h(EventGroup.HOST_MEMORY),
        cheap=True,
    ),
    _event("stall_events_1h", fault=FaultClass.HOST, make=events_1h(EventGroup.HOST_STALL)),
    _event(
        "stall_events_24h",
        fault=FaultClass.HOST,
        make=events_24h(EventGroup.HOST_STALL),
        cheap=True,
    ),
    _event(
        "storage_events_24h",
        fault=FaultClass.STORAGE,
        make=events_24h(EventGroup.STORAGE),
        cheap=True,
    ),
    _event("driver_events_24h", fault=FaultClass.DRIVER, make=events_24h(*DRIVER), cheap=True),
    _event(
        "gpu_events_24h",
        fault=FaultClass.UNKNOWN,
        make=sum_of(EntityKind.GPU, events_24h(*HARDWARE)),
        cheap=True,
    ),
    _near("job_nodes_calm_ratio", make=calm_share(jobs, node_troubled, "the job's other nodes")),
    _near("rack_calm_ratio", make=calm_share(racks, node_troubled, "the rack's other nodes")),
    _near(
        "leaf_calm_ratio", make=calm_share(leaves, node_troubled, "the leaf switch's other nodes")
    ),
    _record("job_age_hours", make=job_age_hours),
    FAILED_JOBS,
    *ledger_columns(FaultClass.HOST),
    _record("ledger_gpu_events_180d", make=on_record((Mark.GPU,), HALF_YEAR_S)),
    _record("ledger_replacements_180d", make=on_record((Mark.REPLACEMENT,), HALF_YEAR_S)),
    *record_columns(),
)
"""How each is made, in the order of the matrix."""

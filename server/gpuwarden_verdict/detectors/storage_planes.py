"""Disks and mounts: wear, media, controllers, arrays; queues and timeouts of file servers.

A file server's trouble is told of the mount and is never a GPU's fault. A checkpoint that all nodes
write at once fills queues too, for minutes: only what outlasts it is told.
"""

from __future__ import annotations

from functools import partial

from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S
from gpuwarden_verdict.detectors.measures import (
    Operations,
    reading,
    reading_while,
    seconds_each,
    share_of_time,
)
from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.detectors.statistic import StatisticDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_wire.metrics import EntityKind

_state = partial(
    StateDetector,
    version=1,
    fault_class=FaultClass.STORAGE,
    max_rung=Rung.SUSPECT,
    after_boot=False,
)

DISK_PLANES: tuple[StateDetector | GrowthDetector | StatisticDetector, ...] = (
    _state(
        name="disk_critical_warning",
        metric="disk_critical_warning",
        score=0.5,
        severity=Severity.ERROR,
        says="the drive itself warns",
        action=RecommendedAction.REPAIR,
        kind=EntityKind.DISK,
    ),
    _state(
        name="disk_spare_low",
        metric="disk_available_spare_ratio",
        limit=0.1,
        below=True,
        score=0.4,
        severity=Severity.WARNING,
        says="few spare blocks are left",
        action=RecommendedAction.REPAIR,
        kind=EntityKind.DISK,
    ),
    StatisticDetector(
        name="disk_worn",
        version=1,
        kind=EntityKind.DISK,
        what="a drive near the end of its rated life",
        needs=("disk_endurance_used_ratio",),
        measure=reading("disk_endurance_used_ratio"),
        limits=LimitRule("ratio", 0.95, 0.5, 2.0, persist_s=0.0, budget=None),
        fault_class=FaultClass.STORAGE,
        plane=Plane.COUNTERS,
        score=0.2,
        severity=Severity.WARNING,
        says="drive {entity} has used {value:.0%} of its rated life",
        clear_says="{value:.0%} used",
        action=RecommendedAction.REPAIR,
    ),
    GrowthDetector(
        name="disk_media_errors",
        version=1,
        metrics=("disk_media_errors_total",),
        limit=0.5,
        window_s=DAY_S,
        fault_class=FaultClass.STORAGE,
        score=0.4,
        severity=Severity.ERROR,
        says="blocks cannot be read",
        action=RecommendedAction.REPAIR,
        kind=EntityKind.DISK,
    ),
    _state(
        name="nvme_controller_down",
        metric="node_nvme_controllers_down",
        score=0.5,
        severity=Severity.ERROR,
        says="an NVMe controller is not live",
        held_s=60.0,
        kind=EntityKind.NODE,
        plane=Plane.STRUCTURE,
    ),
    _state(
        name="md_array_degraded",
        metric="node_md_arrays_degraded",
        score=0.4,
        severity=Severity.WARNING,
        says="an array is short of a disk",
        held_s=60.0,
        kind=EntityKind.NODE,
        plane=Plane.STRUCTURE,
        action=RecommendedAction.REPAIR,
    ),
)

_mount = partial(
    StatisticDetector,
    version=1,
    kind=EntityKind.MOUNT,
    fault_class=FaultClass.STORAGE,
    plane=Plane.HOST,
    score=0.2,
    severity=Severity.WARNING,
    action=RecommendedAction.NONE,
)
_OPERATIONS = Operations("mount_operations_total", "mount_backlog_requests", 10.0)

MOUNT_PLANES: tuple[GrowthDetector | StatisticDetector, ...] = (
    GrowthDetector(
        name="mount_timeouts",
        version=2,
        metrics=("mount_major_timeouts_total",),
        limit=0.5,
        window_s=HOUR_S,
        fault_class=FaultClass.STORAGE,
        score=0.2,
        severity=Severity.WARNING,
        says="the file server let requests time out",
        unit="major timeouts",
        action=RecommendedAction.NONE,
        quiet_s=900.0,
        kind=EntityKind.MOUNT,
        plane=Plane.HOST,
    ),
    _mount(
        name="mount_queue",
        what="requests wait on the client for most of their time",
        needs=("mount_queue_seconds_total",),
        measure=share_of_time(
            "mount_queue_seconds_total", "mount_execute_seconds_total", _OPERATIONS
        ),
        limits=LimitRule("ratio", 0.9, 0.5, 0.98, persist_s=900.0),
        says="{entity}: requests spend {value:.0%} of their time in this client's queue",
        clear_says="{value:.0%} of the time in the queue",
    ),
    _mount(
        name="mount_slow",
        what="requests take long",
        needs=("mount_execute_seconds_total",),
        measure=seconds_each("mount_execute_seconds_total", _OPERATIONS),
        limits=LimitRule("seconds", 0.1, 0.03, 30.0, persist_s=900.0, heavy=True),
        says="{entity}: a request takes {value:.3g} s ({limit:.3g} would be odd)",
        clear_says="{value:.3g} s a request",
    ),
    _mount(
        name="mount_backlog",
        what="all slots of a mount are taken and requests wait for one",
        needs=("mount_backlog_requests",),
        measure=reading_while("mount_backlog_requests", "mount_slots_in_use_ratio", 0.9),
        limits=LimitRule("requests", 16.0, 4.0, 1e5, persist_s=900.0, heavy=True),
        says="{entity}: {value:.0f} requests wait for one of the slots, {other:.0%} of them taken",
        clear_says="{value:.0f} requests wait",
    ),
)

"""One file a subsystem; the tuples here say which there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuwarden_agent.collectors import (
    checks,
    ethtool,
    hardware_errors,
    host,
    jobs,
    kernel_log,
    mounts,
    net,
    rdma,
    smart,
    storage,
    structure,
)
from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, EventFollower
from gpuwarden_agent.collectors.nvml import NvmlCollector, NvmlXidFollower

CollectorFactory = Callable[[CollectorContext], Collector | None]
CollectorsFactory = Callable[[CollectorContext], Sequence[Collector]]
FollowerFactory = Callable[[CollectorContext], EventFollower | None]


def _nvml(context: CollectorContext) -> Collector | None:
    if context.nvml_probe is None:
        return None
    return NvmlCollector(context.nvml_probe, context.nvml_settings)


def _nvml_xid(context: CollectorContext) -> EventFollower | None:
    if context.nvml_probe is None:
        return None
    return NvmlXidFollower(context.nvml_probe, context.nvml_settings)


# Readers of exporters and clouds are loaded where they are wanted: with what they import, an HTTP
# client among it, those of exporters weigh more than a MiB.


def _nvidia_smi(context: CollectorContext) -> Collector | None:
    if not context.settings.nvidia_smi:
        return None
    from gpuwarden_agent.collectors import nvidia_smi

    return nvidia_smi.build(context)


def _cloud_events(context: CollectorContext) -> Collector | None:
    if context.settings.cloud_events is None:
        return None
    from gpuwarden_agent.collectors import cloud_events

    return cloud_events.build(context)


def _exporters(context: CollectorContext) -> Sequence[Collector]:
    if not context.settings.exporters:
        return ()
    from gpuwarden_agent.collectors.exporter import build_exporters

    return build_exporters(context)


COLLECTORS: tuple[CollectorFactory, ...] = (
    host.build,
    storage.build,
    mounts.build,
    smart.build,
    rdma.build,
    net.build,
    ethtool.build,
    hardware_errors.build,
    structure.build,
    _nvml,
    _nvidia_smi,
    jobs.build,
    checks.build,
    _cloud_events,
)
"""Makers of collectors; None where the settings switch one off. A new collector adds its line."""

TOGETHER = (
    "host",
    "storage",
    "mounts",
    "jobs",
    "structure",
    "hardware_errors",
    "net",
    "rdma",
    "ethtool",
    "nvml",
)
"""Those that take turns on one thread, in this order: first who only reads what the kernel has at
hand, last who waits for a device."""

COLLECTOR_GROUPS: tuple[CollectorsFactory, ...] = (_exporters,)
"""Makers of as many collectors as the settings name."""

FOLLOWERS: tuple[FollowerFactory, ...] = (kernel_log.build, _nvml_xid)
"""Makers of followers, likewise."""

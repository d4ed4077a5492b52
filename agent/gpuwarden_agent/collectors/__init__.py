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
    nvidia_smi,
    rdma,
    smart,
    storage,
    structure,
)
from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, EventFollower
from gpuwarden_agent.collectors.exporter import build_exporters
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
    nvidia_smi.build,
    jobs.build,
    checks.build,
)
"""Makers of collectors; None where the settings switch one off. A new collector adds its line."""

TOGETHER = frozenset(
    {
        "host",
        "storage",
        "mounts",
        "jobs",
        "structure",
        "hardware_errors",
        "net",
        "rdma",
        "ethtool",
    }
)
"""Those that only read what the kernel has at hand: they take turns on one thread."""

COLLECTOR_GROUPS: tuple[CollectorsFactory, ...] = (build_exporters,)
"""Makers of as many collectors as the settings name."""

FOLLOWERS: tuple[FollowerFactory, ...] = (kernel_log.build, _nvml_xid)
"""Makers of followers, likewise."""

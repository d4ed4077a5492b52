"""What all planes showed, side by side over one axis of time, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np

from gpuwarden_verdict.diagnosis.domain import CulpritKind
from gpuwarden_verdict.diagnosis.robust import middle, over, quantile, total
from gpuwarden_verdict.diagnosis.window import Floats, JobSpan, Window
from gpuwarden_wire.metrics import EntityKind

_LOSSES = (
    "nic_symbol_errors_total",
    "nic_receive_errors_total",
    "nic_transmit_discards_total",
    "nic_out_of_sequence_total",
    "nic_packet_sequence_errors_total",
    "nic_local_ack_timeouts_total",
    "nic_adaptive_retransmits_total",
)
_ASKED = 1.0
"""Requests a second from which the time of one means something."""


class Plane(StrEnum):
    """Whose readings."""

    GPU = "gpu"
    NIC = "nic"
    NFS = "nfs"
    HOST = "host"


@dataclass(frozen=True, slots=True, eq=False)
class PlaneStrip:
    """One figure of one plane.

    Attributes:
        plane: Whose.
        name: In words.
        unit: Base unit, "" for counts and shares.
        values: Shape (steps,), NaN where nothing was read.
    """

    plane: Plane
    name: str
    unit: str
    values: Floats


def plane_of(kind: CulpritKind) -> Plane | None:
    """The plane on which a culprit stands; None for what is no part of the plant."""
    match kind:
        case CulpritKind.GPU:
            return Plane.GPU
        case CulpritKind.NIC | CulpritKind.FABRIC:
            return Plane.NIC
        case CulpritKind.STORAGE | CulpritKind.MOUNT_CLIENT:
            return Plane.NFS
        case CulpritKind.HOST | CulpritKind.DISK:
            return Plane.HOST
        case CulpritKind.INPUT | CulpritKind.IMBALANCE | CulpritKind.NOTHING:
            return None
        case _:
            assert_never(kind)


def plane_strips(window: Window, job: JobSpan | None) -> tuple[PlaneStrip, ...]:
    """All strips of which anything was read, plane by plane.

    Args:
        window: All readings.
        job: Whose parts; None takes all nodes.
    """
    look = _Look(window, job)
    strips = (*_gpus(look), *_nics(look), *_mounts(look), *_hosts(look))
    return tuple(one for one in strips if np.isfinite(one.values).any())


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    window: Window
    job: JobSpan | None

    def read(self, kind: EntityKind, metric: str) -> Floats:
        rows = self.window.rows_of(kind, self.job)
        return self.window.metric(kind, metric)[rows]


def _gpus(look: _Look) -> tuple[PlaneStrip, ...]:
    used, watts, clock = (
        look.read(EntityKind.GPU, name)
        for name in ("gpu_utilization_ratio", "gpu_power_watts", "gpu_sm_clock_hertz")
    )
    return (
        PlaneStrip(Plane.GPU, "utilisation, median", "ratio", middle(used, 0)),
        PlaneStrip(Plane.GPU, "power, all", "watts", total(watts)),
        PlaneStrip(Plane.GPU, "clock, slowest", "hertz", quantile(clock, 0.0, 0)),
    )


def _nics(look: _Look) -> tuple[PlaneStrip, ...]:
    sent, waits = (
        total(look.read(EntityKind.NIC, name))
        for name in ("nic_transmitted_bytes_total", "nic_transmit_wait_total")
    )
    lost = total(np.concatenate([look.read(EntityKind.NIC, name) for name in _LOSSES]))
    return (
        PlaneStrip(Plane.NIC, "sent, all", "bytes a second", sent),
        PlaneStrip(Plane.NIC, "waits to send", "ticks a second", waits),
        PlaneStrip(Plane.NIC, "errors and losses", "a second", lost),
    )


def _mounts(look: _Look) -> tuple[PlaneStrip, ...]:
    asked, read, written, spent, queued, backlog = (
        look.read(EntityKind.MOUNT, f"mount_{name}")
        for name in (
            "operations_total",
            "read_bytes_total",
            "written_bytes_total",
            "execute_seconds_total",
            "queue_seconds_total",
            "backlog_requests",
        )
    )
    request = np.where(asked >= _ASKED, over(spent, asked), np.nan)
    # Of all that waits in a client, since the mean over clients would weigh those that hardly ask.
    waiting = over(total(queued), total(np.where(np.isfinite(queued), spent, np.nan)))
    return (
        PlaneStrip(Plane.NFS, "read", "bytes a second", total(read)),
        PlaneStrip(Plane.NFS, "written", "bytes a second", total(written)),
        PlaneStrip(Plane.NFS, "a request, median client", "seconds", middle(request, 0)),
        PlaneStrip(Plane.NFS, "share of it in the client's queue", "ratio", waiting),
        PlaneStrip(Plane.NFS, "requests that wait for a slot", "", total(backlog)),
    )


def _hosts(look: _Look) -> tuple[PlaneStrip, ...]:
    cpu, io = (
        quantile(look.read(EntityKind.NODE, f"node_pressure_{name}_seconds_total"), 0.9, 0)
        for name in ("cpu", "io")
    )
    queue = quantile(look.read(EntityKind.NODE, "node_processes_running"), 0.9, 0)
    read, written, busy = (
        look.read(EntityKind.DISK, f"disk_{name}_total")
        for name in ("read_bytes", "written_bytes", "io_seconds")
    )
    return (
        PlaneStrip(Plane.HOST, "I/O pressure, 90th of 100 nodes", "ratio", io),
        PlaneStrip(Plane.HOST, "CPU pressure, 90th of 100 nodes", "ratio", cpu),
        PlaneStrip(Plane.HOST, "programs that run, 90th of 100 nodes", "", queue),
        PlaneStrip(Plane.HOST, "local disks read", "bytes a second", total(read)),
        PlaneStrip(Plane.HOST, "local disks written", "bytes a second", total(written)),
        PlaneStrip(Plane.HOST, "a disk's request", "seconds", _await(look)),
        PlaneStrip(Plane.HOST, "busiest disk, time in use", "ratio", quantile(busy, 1.0, 0)),
    )


def _await(look: _Look) -> Floats:
    """What a request takes on all disks together, reads and writes."""
    parts = ("reads_completed", "writes_completed", "read_seconds", "write_seconds")
    reads, writes, reading, writing = (
        total(look.read(EntityKind.DISK, f"disk_{name}_total")) for name in parts
    )
    asked, spent = (np.nansum(pair, axis=0) for pair in ([reads, writes], [reading, writing]))
    return np.where(asked >= _ASKED, over(spent, asked), np.nan)

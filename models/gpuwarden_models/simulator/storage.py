"""NFS mounts: one server for all nodes, and what its clients show when it is asked too much."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.columns import Columns
from gpuwarden_models.simulator.effects import Effects
from gpuwarden_models.simulator.jobs import Load
from gpuwarden_models.simulator.measured import simulated_schema
from gpuwarden_models.simulator.parameters import StorageParameters
from gpuwarden_models.simulator.topology import EXPORTS, Topology
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

Floats: TypeAlias = NDArray[np.float64]

MOUNT_SCHEMA: Schema = simulated_schema(EntityKind.MOUNT)
_TIMED_OUT = 10.0
"""Times the server's capacity from which requests are sent again and time out."""


class Mounts:
    """State of every node's mounts, len(EXPORTS) a node.

    Attributes:
        values: Values in MOUNT_SCHEMA's columns.
        pressure: How many times the server's capacity was asked of it in the last step.
    """

    def __init__(
        self, topology: Topology, parameters: StorageParameters, rng: np.random.Generator
    ) -> None:
        """Mounts that have been there for a while."""
        self._parameters, self._rng = parameters, rng
        count = len(topology.nodes) * len(EXPORTS)
        self.values = Columns(MOUNT_SCHEMA, count)
        self.pressure = 0.0
        self.values["mount_age_seconds"][:] = rng.uniform(86_400.0, 40 * 86_400.0, count)

    def restart(self, nodes: NDArray[np.int64]) -> None:
        """Nodes booted: their mounts are new."""
        rows = (nodes[:, None] * len(EXPORTS) + np.arange(len(EXPORTS))).ravel()
        self.values.values[:, rows] = 0.0

    def step(self, load: Load, busy: Floats, effects: Effects, dt: float) -> None:
        """Advance by `dt` seconds; `busy` is each node's share of full load."""
        storage, up = self._parameters, ~effects.down
        feed: Floats = storage.feed_bytes_per_second * busy
        reads: Floats = feed + storage.load_bytes_per_second * load.reading.astype(np.float64)
        writes: Floats = storage.save_bytes_per_second * load.writing.astype(np.float64)
        asked = float((up * (reads + writes)).sum())
        bought = max(storage.server_bytes_per_second, busy.size * storage.bytes_per_second_a_node)
        capacity = bought * effects.storage_share
        self.pressure = min(asked / capacity, storage.most_waiting)
        given = min(1.0, 1.0 / max(self.pressure, 1e-9))
        asking = up & (reads + writes > 0)
        self._queue(asking, dt)
        self._count(up * reads * given * dt, up * writes * given * dt, dt)

    def _count(self, read: Floats, written: Floats, dt: float) -> None:
        mount, storage = self.values, self._parameters
        # A handful of requests look at attributes even when nobody reads or writes.
        idle = self._rng.poisson(0.5 * dt, read.size)
        operations = np.floor((read + written) / storage.operation_bytes) + idle
        # Little's law: with all slots taken a reply takes as long as the server needs for them, and
        # what waits for a slot as long as it needs for all before it.
        rate = operations / max(dt, 1e-9)
        full = (mount["mount_backlog_requests"] > 0) & (rate > 0)
        each = np.divide(1.0, rate, out=np.zeros_like(rate), where=full)
        round_trip = storage.round_trip_s + storage.slots * each
        queue = storage.queue_s + mount["mount_backlog_requests"] * each
        spread = self._rng.uniform(0.9, 1.1, read.size)
        mount["mount_read_bytes_total"] += np.floor(read)
        mount["mount_written_bytes_total"] += np.floor(written)
        mount["mount_operations_total"] += operations
        mount["mount_round_trip_seconds_total"] += operations * round_trip * spread
        mount["mount_queue_seconds_total"] += operations * queue * spread
        mount["mount_execute_seconds_total"] += operations * (round_trip + queue) * spread
        mount["mount_age_seconds"] += dt

    def _queue(self, asking: NDArray[np.bool_], dt: float) -> None:
        mount, storage = self.values, self._parameters
        over = max(self.pressure - 1.0, 0.0)
        full = 1.0 if over > 0 else 0.02 + 0.7 * self.pressure**4
        mount["mount_slots_in_use_ratio"][:] = np.where(asking, full, 0.02)
        mount["mount_backlog_requests"][:] = np.where(asking, storage.slots * over, 0.0)
        if self.pressure >= _TIMED_OUT:
            again = self._rng.poisson(0.1 * (self.pressure - _TIMED_OUT) * dt, asking.size)
            mount["mount_retransmits_total"] += again * asking
            mount["mount_major_timeouts_total"] += (again > 0) & asking

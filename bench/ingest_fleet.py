"""What simulated nodes send: 8 GPUs, 8 NIC ports, 4 disks, a mount and the node, 1,000 series.

A batch is encoded once; sequence, times and values are then patched into it in place, so that the
load generator costs little beside what it loads. Every series but constants changes in each batch,
counters only grow, and what would be a fault is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.codec import encode_batch
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind, Metric, MetricKind, Storage
from gpuwarden_wire.registry import METRIC_BY_NAME
from gpuwarden_wire.schema import Column, Schema, schema_for

SERIES = 1_000
GPUS, PORTS, DISKS = 8, 8, 4
VARIANTS = 64
FAULTY_EACH = 1_000
"""Of so many nodes one has a GPU with a failed row remap: incidents are on, and not for show."""
FIRST_SEQ = 1
_SEQ, _TIME = b"\xce\xde\xad\xbe\xef", struct.unpack(">d", b"\x41\xda\x12\x34\x56\x78\x9a\xbc")[0]
_MODEL = "NVIDIA H100 80GB HBM3"
_UP = {
    "gpu_present": 1,
    "node_clock_synchronised": 1,
    "nic_port_state": 4,
    "nic_carrier": 1,
    "node_driver_loaded": 1,
}
_COUNTS = dict.fromkeys(("node_gpus_visible", "node_gpus_on_pci", "node_gpus_expected"), GPUS)
_LEVELS: dict[str, tuple[float, float]] = {
    "gpu_temperature_celsius": (45, 55),
    "gpu_memory_temperature_celsius": (55, 65),
    "gpu_temperature_margin_celsius": (30, 40),
    "gpu_slowdown_temperature_celsius": (90, 90),
    "gpu_shutdown_temperature_celsius": (95, 95),
    "gpu_power_watts": (600, 690),
    "gpu_power_instant_watts": (600, 690),
    "gpu_power_limit_watts": (700, 700),
    "gpu_power_limit_default_watts": (700, 700),
    "gpu_power_smoothing_lifetime_ratio": (0.9, 0.9),
    "gpu_utilization_ratio": (0.9, 0.99),
    "gpu_memory_utilization_ratio": (0.3, 0.6),
    "gpu_sm_clock_hertz": (1.9e9, 1.98e9),
    "gpu_sm_clock_max_hertz": (1.98e9, 1.98e9),
    "gpu_memory_clock_hertz": (2.6e9, 2.6e9),
    "gpu_memory_clock_max_hertz": (2.6e9, 2.6e9),
    "gpu_memory_total_bytes": (8.5e10, 8.5e10),
    "gpu_memory_used_bytes": (6e10, 7e10),
    "gpu_memory_reserved_bytes": (6e8, 6e8),
    "gpu_probe_seconds": (0.01, 0.03),
    "gpu_row_remap_banks_max": (640, 640),
    "nic_rate_bytes_per_second": (5e10, 5e10),
    "disk_in_flight": (0, 20),
    "disk_endurance_used_ratio": (0.03, 0.03),
    "disk_available_spare_ratio": (1, 1),
    "disk_temperature_celsius": (38, 44),
    "mount_slots_in_use_ratio": (0.01, 0.3),
    "mount_backlog_requests": (0, 5),
    "mount_age_seconds": (1e5, 1e5),
    "node_uptime_seconds": (1e6, 1e6),
    "node_memory_available_bytes": (1.5e12, 1.6e12),
    "node_memory_total_bytes": (2e12, 2e12),
    "node_processes_running": (10, 90),
    "node_load1": (10, 90),
    "node_clock_offset_seconds": (1e-5, 1e-4),
    "node_clock_error_seconds": (1e-4, 1e-4),
    "node_nfs_mounts": (1, 1),
    "node_gpu_processes": (GPUS, GPUS),
    "node_collection_gap_seconds": (0, 0.01),
}
"""Of a sound machine under load; gauges of the registry that are not in here are 0."""
_GROWING = ("energy", "bytes", "seconds_total", "packets", "operations", "completed", "interrupts")
_QUIET = ("slowdown", "violation", "brake", "pressure", "cap_seconds", "limit_seconds", "pause")


@dataclass(frozen=True, slots=True)
class TableShape:
    """One table of the batch: who and what.

    Attributes:
        schema: Columns.
        entities: Keys; "{node}" stands for the node's name.
    """

    schema: Schema
    entities: tuple[str, ...]


def table_shapes(series: int = SERIES) -> tuple[TableShape, ...]:
    """The tables of a batch; what lacks to `series` are metrics outside the registry."""
    gpu = _pick(EntityKind.GPU, 45, 30)
    shapes = [
        TableShape(gpu, tuple(f"GPU-{{node}}-0000-4000-8000-{n:012d}" for n in range(GPUS))),
        TableShape(_pick(EntityKind.NIC, 8, 22), tuple(f"mlx5_{n}" for n in range(PORTS))),
        TableShape(_pick(EntityKind.DISK, 5, 10), tuple(f"nvme{n}n1" for n in range(DISKS))),
        TableShape(_pick(EntityKind.MOUNT, 3, 8), ("/data",)),
    ]
    rest = series - sum(len(shape.entities) * len(shape.schema.columns) for shape in shapes)
    node = _pick(EntityKind.NODE, 28, 12)
    odd = (
        Column(f"node_vendor_reading_{n}", Storage.F32, MetricKind.GAUGE, "")
        for n in range(rest - len(node.columns))
    )
    split = node.f32_count
    columns = (*node.columns[:split], *odd, *node.columns[split:])
    return (*shapes, TableShape(Schema(EntityKind.NODE, columns), ("",)))


def _pick(kind: EntityKind, narrow: int, counters: int) -> Schema:
    mine = [m for m in METRIC_BY_NAME.values() if m.entity_kind is kind]
    states = [m.name for m in mine if m.storage is Storage.F32]
    counted = [m.name for m in mine if m.storage is Storage.COUNTER]
    return schema_for(kind, [*states[:narrow], *counted[:counters]])


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Values of one table.

    Attributes:
        gauges: float32, shape (VARIANTS, f32 columns x rows), column after column.
        rates: Growth of each counter a batch, float64, shape (counter columns x rows,).
        phase: Share of one growth that a variant is ahead, shape (VARIANTS,).
    """

    gauges: npt.NDArray[np.float32]
    rates: npt.NDArray[np.float64]
    phase: npt.NDArray[np.float64]


def _blocks(shape: TableShape, seed: int) -> _Blocks:
    random = np.random.default_rng(seed)
    rows, columns = len(shape.entities), shape.schema.columns
    narrow = shape.schema.f32_count
    gauges = np.empty((VARIANTS, narrow, rows), np.float32)
    for index, column in enumerate(columns[:narrow]):
        low, high = _range(column)
        gauges[:, index] = random.uniform(low, high, (VARIANTS, rows))
    rates = [_rate(column) * random.uniform(0.5, 1.5, rows) for column in columns[narrow:]]
    return _Blocks(
        gauges.reshape(VARIANTS, -1), np.array(rates).ravel(), random.uniform(0, 0.9, VARIANTS)
    )


def _range(column: Column) -> tuple[float, float]:
    known: Metric | None = METRIC_BY_NAME.get(column.name)
    if column.name in _LEVELS:
        return _LEVELS[column.name]
    if known is None:
        return 10.0, 90.0
    value = float((_UP | _COUNTS).get(column.name, 0)) if known.kind is MetricKind.STATE else 0.0
    return value, value


def _rate(column: Column) -> float:
    grows = any(word in column.name for word in _GROWING)
    return 0.0 if not grows or any(word in column.name for word in _QUIET) else 1e6


class Template:
    """The batch of a node, to be patched; all names have one length, so all offsets fit.

    Attributes:
        shapes: Tables.
    """

    def __init__(self, interval_s: float, series: int = SERIES) -> None:
        """Encode it once.

        Args:
            interval_s: Cadence that the header says.
            series: Series a node.
        """
        self.shapes = table_shapes(series)
        self._interval_s = interval_s
        self._values = [_blocks(shape, seed) for seed, shape in enumerate(self.shapes)]
        body = bytes(self.body_of(0))
        self._seq_at = body.index(_SEQ) + 1
        stamp = struct.pack(">d", _TIME)
        self._times_at = [at for at in range(len(body)) if body.startswith(stamp, at)]
        self._narrow_at = self._places(body, "f32")
        self._wide_at = self._places(body, "f64")

    def body_of(self, node: int) -> bytearray:
        """A node's batch before its first patch."""
        header: dict[str, Any] = {
            "version": WIRE_VERSION,
            "node_id": node_name(node),
            "spool_id": spool_id(node),
            "stream": "telemetry",
            "seq": msgspec.Raw(_SEQ),
            "boot_id": boot_id(node),
            "agent_version": "0.1.0",
            "sent_at": _TIME,
            "interval_s": self._interval_s,
            "tables": [self._table(number, node) for number in range(len(self.shapes))],
        }
        return bytearray(msgspec.msgpack.encode(header))

    def _table(self, number: int, node: int) -> dict[str, Any]:
        shape, values = self.shapes[number], self._values[number]
        return {
            "schema": shape.schema.hash,
            "observed_at": _TIME,
            "entities": [key.format(node=node_name(node)) for key in shape.entities],
            "f32": values.gauges[0].astype("<f4").tobytes(),
            "f64": values.rates.astype("<f8").tobytes(),
        }

    def _places(self, body: bytes, name: str) -> list[int]:
        """Where the tables' blocks begin: behind key and a bin header of 2, 3 or 5 bytes."""
        places, at = [], 0
        for shape in self.shapes:
            narrow = name == "f32"
            columns = shape.schema.f32_count
            count = columns if narrow else len(shape.schema.columns) - columns
            size = count * len(shape.entities) * (4 if narrow else 8)
            at = body.index(msgspec.msgpack.encode(name), at) + len(name) + 1
            at += 2 if size < 256 else 3 if size < 65_536 else 5
            places.append(at)
        return places

    def patch(self, body: bytearray, node: int, seq: int, now: float) -> None:
        """Make a node's batch its batch number `seq` at `now` (epoch seconds)."""
        struct.pack_into(">I", body, self._seq_at, seq)
        for at in self._times_at:
            struct.pack_into(">d", body, at, now)
        variant = (node * 7 + seq * 13) % VARIANTS
        for values, narrow, wide in zip(self._values, self._narrow_at, self._wide_at, strict=True):
            gauges = values.gauges[variant].data.cast("B")
            body[narrow : narrow + len(gauges)] = gauges
            counters = np.floor(values.rates * (seq + values.phase[variant])).data.cast("B")
            body[wide : wide + len(counters)] = counters
        if node % FAULTY_EACH == FAULTY_EACH // 2:
            struct.pack_into("<f", body, self._narrow_at[0] + 4 * self._failed_cell(), 1.0)

    def _failed_cell(self) -> int:
        names = [column.name for column in self.shapes[0].schema.columns]
        return names.index("gpu_row_remap_failure") * len(self.shapes[0].entities)

    def introduction(self, node: int, now: float) -> bytes:
        """The first batch of events of a node: boot and inventory."""
        name = node_name(node)
        keys = [key.format(node=name) for key in self.shapes[0].entities]
        gpus = tuple(_gpu(key, number) for number, key in enumerate(keys))
        events = (
            Event(id=f"boot:{name}", kind=EventKind.NODE_BOOT, observed_at=now),
            Event(
                id=f"inventory:{name}",
                kind=EventKind.INVENTORY,
                observed_at=now,
                inventory=Inventory(gpus=gpus, gpus_expected=len(gpus)),
            ),
        )
        return encode_batch(self._batch(node, now, stream=Stream.EVENTS, seq=1, events=events))

    def schemas(self, node: int, now: float) -> bytes:
        """A batch of telemetry that announces the schemas and takes no sequence of the fleet's."""
        schemas = tuple(shape.schema for shape in self.shapes)
        return encode_batch(
            self._batch(node, now, stream=Stream.TELEMETRY, seq=FIRST_SEQ, schemas=schemas)
        )

    def _batch(self, node: int, now: float, **fields: Any) -> Batch:
        return Batch(
            version=WIRE_VERSION,
            node_id=node_name(node),
            spool_id=spool_id(node),
            boot_id=boot_id(node),
            agent_version="0.1.0",
            sent_at=now,
            interval_s=self._interval_s,
            **fields,
        )


def node_name(node: int) -> str:
    """Name of a node; all have one length."""
    return f"n{node:06d}"


def spool_id(node: int) -> str:
    """Spool of a node."""
    return f"{node:032x}"


def boot_id(node: int) -> str:
    """Boot of a node."""
    return f"boot-{node:06d}"


def _gpu(uuid: str, number: int) -> GpuIdentity:
    return GpuIdentity(
        gpu_uuid=uuid,
        pci_bus_id=f"0000:{0x10 + number:02x}:00.0",
        serial=f"S-{uuid[4:11]}-{number}",
        index=number,
        model=_MODEL,
    )


def key_of_node(node: int) -> str:
    """The node-bound agent key of a simulated node: of a key's form, and no secret."""
    return f"gw_simulated-{node:032d}"


def keys_of(nodes: int) -> Sequence[str]:
    """All nodes' keys."""
    return [key_of_node(node) for node in range(nodes)]

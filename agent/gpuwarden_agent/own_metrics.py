"""The agent's own /metrics: what it read last, and how it fares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gpuwarden_agent.collectors.contract import Rows
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.inventory import InventoryKeeper
from gpuwarden_agent.latest import CallRecord, LatestReadings
from gpuwarden_agent.outbox import Outbox
from gpuwarden_agent.precedence import SourceOrder, admit_all
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.tables import flatten
from gpuwarden_agent.transport.tally import DeliveryTally
from gpuwarden_wire.metrics import EntityKind, MetricKind
from gpuwarden_wire.registry import METRIC_BY_NAME
from gpuwarden_wire.version import __version__

_ENTITY_LABEL = {
    EntityKind.GPU: "gpu_uuid",
    EntityKind.NIC: "device",
    EntityKind.DISK: "device",
    EntityKind.MOUNT: "mount",
}
_STALE_INTERVALS = 3
"""Readings older than this many intervals are not served: a frozen value is worse than none."""


_Samples = list[tuple[list[str], float]]
_Valued = GaugeMetricFamily | CounterMetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """What /metrics looks at; `intervals` are those of the collectors by name, seconds.

    `order` tells of which source a reading is shown that several have.
    """

    node_id: str
    interval_s: float
    intervals: Mapping[str, float]
    order: SourceOrder
    latest: LatestReadings
    board: ConditionBoard
    outbox: Outbox
    inventory: InventoryKeeper
    spool: Spool
    tally: DeliveryTally


class AgentMetrics(Collector):
    """Makes every family anew for each scrape."""

    def __init__(self, parts: AgentParts, clock: Callable[[], float] = time.time) -> None:
        self._parts = parts
        self._clock = clock

    def collect(self) -> Iterator[Family]:
        """All families."""
        yield from self._readings()
        yield from self._gpus()
        yield from self._collectors()
        yield from self._events()
        yield from self._delivery()

    def _readings(self) -> Iterator[Family]:
        families: dict[str, _Valued] = {}
        intervals = self._parts.intervals
        current = {
            name: record.rows
            for name, record in self._parts.latest.records().items()
            if self._is_current(record, intervals.get(name, self._parts.interval_s))
        }
        for rows in admit_all(self._parts.order, current).values():
            self._add_rows(families, rows)
        yield from families.values()

    def _add_rows(self, families: dict[str, _Valued], rows: Mapping[EntityKind, Rows]) -> None:
        for kind, key, name, reading in flatten(rows):
            if not isinstance(reading, float | int):
                continue
            if name not in families:
                families[name] = _family(name, kind)
            families[name].add_metric(self._labels(kind, key), reading)

    def _is_current(self, record: CallRecord, interval_s: float) -> bool:
        age = self._clock() - record.read_at
        return record.current and age <= _STALE_INTERVALS * max(interval_s, 1.0)

    def _labels(self, kind: EntityKind, key: str) -> list[str]:
        node = self._parts.node_id
        return [node] if kind is EntityKind.NODE else [node, key]

    def _gpus(self) -> Iterator[Family]:
        labels = ["node", "gpu_uuid", "pci_bus_id", "index", "model", "serial", "driver_version"]
        family = GaugeMetricFamily(
            "gpuwarden_gpu_info", "Identity of a GPU; join on gpu_uuid", labels=labels
        )
        for gpu in self._parts.inventory.present.gpus:
            index = "" if gpu.index is None else str(gpu.index)
            facts = [gpu.gpu_uuid, gpu.pci_bus_id, index, gpu.model, gpu.serial, gpu.driver_version]
            family.add_metric([self._parts.node_id, *facts], 1)
        yield family
        yield _gauge(
            "gpuwarden_agent_info", "Version of the agent", ["version"], [([__version__], 1)]
        )

    def _collectors(self) -> Iterator[Family]:
        latest = self._parts.latest
        records = latest.records()
        by = ["collector"]
        yield _gauge(
            "gpuwarden_agent_collector_duration_seconds",
            "How long the last call lasted",
            by,
            [([name], record.took_s) for name, record in records.items()],
        )
        yield _gauge(
            "gpuwarden_agent_collector_success",
            "1 where the last call was good",
            by,
            [([name], float(record.current)) for name, record in records.items()],
        )
        yield _gauge(
            "gpuwarden_agent_collector_last_success_timestamp_seconds",
            "When the last good call began",
            by,
            [([name], record.read_at) for name, record in records.items() if record.read_at],
        )
        yield _counter(
            "gpuwarden_agent_collector_calls_total",
            "Calls by outcome: success, error, stuck",
            ["collector", "outcome"],
            [([*key], count) for key, count in latest.outcomes().items()],
        )
        yield _gauge(
            "gpuwarden_agent_trouble",
            "1 for each part of the agent that does not work now",
            ["source", "reason"],
            [([name, one.reason], 1) for name, one in self._parts.board.troubles().items()],
        )

    def _events(self) -> Iterator[Family]:
        outbox = self._parts.outbox
        yield _counter(
            "gpuwarden_agent_events_total",
            "Events by kind, merged repeats counted",
            ["kind"],
            [([kind], count) for kind, count in outbox.kinds().items()],
        )
        yield _counter(
            "gpuwarden_kernel_log_lines_total",
            "Recognised kernel lines by family",
            ["node", "family"],
            [([self._parts.node_id, name], count) for name, count in outbox.families().items()],
        )
        uuids = {gpu.pci_bus_id: gpu.gpu_uuid for gpu in self._parts.inventory.present.gpus}
        labels = ["node", "gpu_uuid", "pci_bus_id", "xid", "source"]
        counts = CounterMetricFamily("gpuwarden_xid_events", "XIDs", labels=labels)
        times = GaugeMetricFamily(
            "gpuwarden_xid_last_timestamp_seconds", "When an XID was last seen", labels=labels
        )
        for (entity, xid, source), (count, seen_at) in outbox.xids().items():
            pci = entity[4:] if entity.startswith("pci:") else ""
            uuid = uuids.get(pci, "") if pci or entity == "pci:" else entity
            row = [self._parts.node_id, uuid, pci, str(xid), source]
            counts.add_metric(row, count)
            times.add_metric(row, seen_at)
        yield counts
        yield times

    def _delivery(self) -> Iterator[Family]:
        spool, tally = self._parts.spool, self._parts.tally
        size = spool.size()
        yield _gauge(
            "gpuwarden_agent_spool_bytes",
            "Bytes of batches in the spool",
            [],
            [([], size.payload_bytes)],
        )
        yield _gauge(
            "gpuwarden_agent_spool_batches",
            "Batches in the spool",
            ["stream"],
            [(["events"], size.events), (["telemetry"], size.telemetry)],
        )
        yield _gauge(
            "gpuwarden_agent_spool_memory_batches",
            "Batches that the disk did not take",
            [],
            [([], size.in_memory)],
        )
        yield _counter(
            "gpuwarden_agent_shed_batches_total",
            "Batches dropped for want of room",
            ["stream"],
            [([stream], count) for stream, count in spool.shed.items()],
        )
        yield _counter(
            "gpuwarden_agent_batches_total",
            "Deliveries tried, by outcome",
            ["stream", "outcome"],
            [([*key], count) for key, count in tally.outcomes().items()],
        )
        yield _counter(
            "gpuwarden_agent_refused_batches_total",
            "Batches that the server refused for ever, by its code; they lie in rejected/",
            ["code"],
            [([code], one.count) for code, one in tally.refusals().items()],
        )
        if (at := tally.acknowledged_at) is not None:
            yield _gauge(
                "gpuwarden_agent_last_acknowledgement_timestamp_seconds",
                "When the server last acknowledged a batch",
                [],
                [([], at)],
            )


def _gauge(name: str, doc: str, labels: list[str], samples: _Samples) -> Family:
    family = GaugeMetricFamily(name, doc, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, doc: str, labels: list[str], samples: _Samples) -> Family:
    family = CounterMetricFamily(name, doc, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _family(name: str, kind: EntityKind) -> _Valued:
    metric = METRIC_BY_NAME.get(name)
    doc = metric.source if metric else name
    label = _ENTITY_LABEL.get(kind)
    labels = ["node", label] if label else ["node"]
    if metric is not None and metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(f"gpuwarden_{name}", doc, labels=labels)
    return GaugeMetricFamily(f"gpuwarden_{name}", doc, labels=labels)


@dataclass(frozen=True, slots=True)
class MetricsServer:
    """A running /metrics endpoint.

    Attributes:
        port: Where it listens.
    """

    server: WSGIServer
    thread: Thread

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server.server_port)

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(2.0)


def serve_metrics(parts: AgentParts, host: str, port: int) -> MetricsServer:
    """Serve /metrics in a thread.

    Raises:
        OSError: The address is taken or not ours.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AgentMetrics(parts))
    server, thread = start_http_server(port, addr=host, registry=registry)
    return MetricsServer(server, thread)

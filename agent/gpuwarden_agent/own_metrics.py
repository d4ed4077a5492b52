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

from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.inventory import InventoryKeeper
from gpuwarden_agent.latest import CallRecord, LatestReadings
from gpuwarden_agent.metric_budget import XIDS_A_GPU, Budget
from gpuwarden_agent.outbox import Outbox
from gpuwarden_agent.own_readings import reading_families, support_families
from gpuwarden_agent.precedence import SourceOrder, admit_all
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.transport.tally import DeliveryTally
from gpuwarden_wire.metrics import DEVICE_KINDS
from gpuwarden_wire.version import __version__

_STALE_INTERVALS = 3
"""Readings older than this many intervals are not served: a frozen value is worse than none."""


_Samples = list[tuple[list[str], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """What /metrics looks at; `intervals` are those of the collectors by name, seconds.

    `order` tells of which source a reading is shown that several have.
    """

    node_id: str
    boot_id: str
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
        intervals, node = self._parts.intervals, self._parts.node_id
        records = self._parts.latest.records()
        current = {
            name: record.rows
            for name, record in records.items()
            if self._is_current(record, intervals.get(name, self._parts.interval_s))
        }
        budget = Budget()
        yield from reading_families(node, admit_all(self._parts.order, current).values(), budget)
        yield from support_families(node, [record.rows for record in records.values()])
        yield _gauge(
            "gpuwarden_agent_series_left_out",
            "Series beyond the budget of a node, which are not shown",
            ["of"],
            [([kind], float(budget.left_out[kind])) for kind in DEVICE_KINDS],
        )

    def _is_current(self, record: CallRecord, interval_s: float) -> bool:
        age = self._clock() - record.read_at
        return record.current and age <= _STALE_INTERVALS * max(interval_s, 1.0)

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
        yield self._jobs()
        yield self._node()
        yield _gauge(
            "gpuwarden_agent_info", "Version of the agent", ["version"], [([__version__], 1)]
        )

    def _jobs(self) -> Family:
        jobs = self._parts.inventory.present.jobs
        return _gauge(
            "gpuwarden_gpu_job_info",
            "Which job runs on a GPU; join on gpu_uuid",
            ["node", "gpu_uuid", "kind", "job_id"],
            [([self._parts.node_id, job.gpu_uuid, job.kind, job.job_id], 1) for job in jobs],
        )

    def _node(self) -> Family:
        facts = self._parts.inventory.present.labels
        labels = ["kernel_release", "product_name", "product_vendor"]
        values = [facts.get(label, "") for label in labels]
        return _gauge(
            "gpuwarden_node_info",
            "Identity of a node; join on node",
            ["node", "boot_id", *labels],
            [([self._parts.node_id, self._parts.boot_id, *values], 1)],
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
            "Calls by outcome: success, error, stuck, paused",
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
        yield from self._xids()

    def _xids(self) -> Iterator[Family]:
        labels = ["node", "gpu_uuid", "pci_bus_id", "xid", "source"]
        counts = CounterMetricFamily(
            "gpuwarden_xid_events", "XIDs since the agent started", labels=labels
        )
        times = GaugeMetricFamily(
            "gpuwarden_xid_last_timestamp_seconds", "When an XID was last seen", labels=labels
        )
        by_gpu: dict[tuple[str, str], list[tuple[float, int, str, int]]] = {}
        for (gpu, xid, source), (count, seen_at) in self._xids_joined().items():
            by_gpu.setdefault(gpu, []).append((seen_at, xid, source, count))
        for gpu, seen in sorted(by_gpu.items()):
            for seen_at, xid, source, count in sorted(seen, reverse=True)[:XIDS_A_GPU]:
                row = [self._parts.node_id, *gpu, str(xid), source]
                counts.add_metric(row, count)
                times.add_metric(row, seen_at)
        yield counts
        yield times

    def _xids_joined(self) -> dict[tuple[tuple[str, str], int, str], tuple[int, float]]:
        """Count and last time by GPU, code and source; NVML names the uuid, a line the address."""
        gpus = self._parts.inventory.present.gpus
        uuids = {gpu.pci_bus_id: gpu.gpu_uuid for gpu in gpus}
        addresses = {gpu.gpu_uuid: gpu.pci_bus_id for gpu in gpus}
        joined: dict[tuple[tuple[str, str], int, str], tuple[int, float]] = {}
        for (entity, xid, source), (count, seen_at) in self._parts.outbox.xids().items():
            pci = entity.removeprefix("pci:") if entity.startswith("pci:") else None
            gpu = (entity, addresses.get(entity, "")) if pci is None else (uuids.get(pci, ""), pci)
            known, last = joined.get((gpu, xid, source), (0, 0.0))
            joined[gpu, xid, source] = (known + count, max(last, seen_at))
        return joined

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

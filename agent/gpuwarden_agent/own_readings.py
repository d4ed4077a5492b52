"""Families of /metrics that show readings: their values, which are supported, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from gpuwarden_agent.metric_budget import Budget, Row, by_registry
from gpuwarden_agent.precedence import Kinds
from gpuwarden_wire.metrics import EntityKind, MetricKind
from gpuwarden_wire.readings import NotSupported, Reading, Stale
from gpuwarden_wire.registry import METRIC_BY_NAME, METRICS

_ENTITY_LABEL = {
    EntityKind.GPU: "gpu_uuid",
    EntityKind.NIC: "device",
    EntityKind.DISK: "device",
    EntityKind.MOUNT: "mount",
}
_Valued = GaugeMetricFamily | CounterMetricFamily


def reading_families(node_id: str, sources: Iterable[Kinds], budget: Budget) -> Iterator[Family]:
    """Every number that is read now, one family a metric, in the registry's order."""
    families: dict[str, _Valued] = {}
    for kind, rows in sorted(merged(sources).items()):
        for key, row in budget.rows(kind, _numbers(rows)).items():
            labels = [node_id] if kind is EntityKind.NODE else [node_id, key]
            _add_row(families, kind, labels, row)
    yield from families.values()


def _add_row(families: dict[str, _Valued], kind: EntityKind, labels: list[str], row: Row) -> None:
    for name in by_registry(row):
        if name not in families:
            families[name] = _family(name, kind)
        families[name].add_metric(labels, row[name])  # type: ignore[arg-type]  # a number


def support_families(node_id: str, sources: Iterable[Kinds]) -> Iterator[Family]:
    """Which metrics this node has at all, and of how many entities one has no number and why.

    At most one series a metric, and three.
    """
    labels = ["node", "of", "metric"]
    supported = GaugeMetricFamily(
        "gpuwarden_metric_supported",
        "1 where any entity of the node has the metric, 0 where none has",
        labels=labels,
    )
    missing = GaugeMetricFamily(
        "gpuwarden_metric_missing_entities",
        "Entities without a number for a metric that the node has, by why: unavailable, stale, "
        "not_supported",
        labels=[*labels, "why"],
    )
    for kind, rows in sorted(merged(sources).items()):
        for name in _names(kind, rows):
            readings = [row.get(name, NotSupported()) for row in rows.values()]
            has = any(not isinstance(one, NotSupported) for one in readings)
            supported.add_metric([node_id, kind, name], float(has))
            for why, count in sorted(_whys(readings).items()) if has else ():
                missing.add_metric([node_id, kind, name, why], count)
    yield supported
    yield missing


def merged(sources: Iterable[Kinds]) -> dict[EntityKind, dict[str, dict[str, Reading]]]:
    """Rows of all sources in one table a kind; later sources add and do not replace numbers."""
    whole: dict[EntityKind, dict[str, dict[str, Reading]]] = {}
    for kinds in sources:
        for kind, rows in kinds.items():
            for key, row in rows.items():
                _join(whole.setdefault(kind, {}).setdefault(key, {}), row)
    return whole


def _join(known: dict[str, Reading], row: Row) -> None:
    for name, reading in row.items():
        if not isinstance(known.get(name), float | int):
            known[name] = reading


def _numbers(rows: Mapping[str, Row]) -> dict[str, Row]:
    found = {
        key: {name: value for name, value in row.items() if _is_number(value)}
        for key, row in rows.items()
    }
    return {key: row for key, row in found.items() if row}


def _is_number(reading: Reading) -> bool:
    return isinstance(reading, float | int) and isfinite(reading)


def _names(kind: EntityKind, rows: Mapping[str, Row]) -> list[str]:
    listed = {metric.name for metric in METRICS if metric.entity_kind is kind}
    return by_registry(listed.union(*rows.values()))


def _whys(readings: Iterable[Reading]) -> Counter[str]:
    found: Counter[str] = Counter()
    for reading in readings:
        if isinstance(reading, NotSupported):
            found["not_supported"] += 1
        elif isinstance(reading, Stale):
            found["stale"] += 1
        elif not _is_number(reading):
            found["unavailable"] += 1
    return found


def _family(name: str, kind: EntityKind) -> _Valued:
    metric = METRIC_BY_NAME.get(name)
    doc = metric.source if metric else name
    label = _ENTITY_LABEL.get(kind)
    labels = ["node", label] if label else ["node"]
    if metric is not None and metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(f"gpuwarden_{name}", doc, labels=labels)
    return GaugeMetricFamily(f"gpuwarden_{name}", doc, labels=labels)

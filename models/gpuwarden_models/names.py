"""Names of recordings, which are those of dcgm-exporter and node_exporter, against our metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpuwarden_exporters.dcgm_fields import FIELDS
from gpuwarden_exporters.mounts import MOUNT_RULES, MOUNTSTATS
from gpuwarden_exporters.node import NODE_COLLECTORS
from gpuwarden_exporters.rules import Rule, total
from gpuwarden_wire.metrics import EntityKind, Metric
from gpuwarden_wire.registry import METRICS

OWN = "gpuwarden_"
"""Before the name of a metric that neither exporter has."""


@dataclass(frozen=True, slots=True)
class RecordedName:
    """How a recording that we write names a metric, and in which unit.

    Attributes:
        metric: Our name.
        name: Name of the series.
        factor: Our number = recorded number x factor.
        split: One more label than its entity has, and its value; ("", "") where there is none.
    """

    metric: str
    name: str
    factor: float = 1.0
    split: tuple[str, str] = ("", "")

    @property
    def column(self) -> str:
        """Column of a Parquet file."""
        return f"{self.name}:{self.split[1]}" if self.split[1] else self.name


def _plain(rule: Rule) -> bool:
    """One series alone gives the metric, as a number."""
    return rule.combine is total and not (rule.part or rule.counts)


def _node_names() -> Iterator[tuple[str, RecordedName]]:
    # Ports before net interfaces, which share some metrics: a training fabric has ports.
    collectors = sorted(NODE_COLLECTORS.items(), key=lambda item: item[0] != "infiniband")
    for _, (prefix, rules) in collectors:
        for rest, rule in rules.items():
            if _plain(rule) and not rule.split_by:
                yield rule.metric, RecordedName(rule.metric, prefix + rest, rule.factor)
    for rest, found in MOUNT_RULES.items():
        for rule in found:
            if _plain(rule):
                # A fleet that trains writes: we tell a sum over operations as that of WRITE.
                split = ("operation", "WRITE") if rule.split_by else ("", "")
                yield rule.metric, RecordedName(rule.metric, MOUNTSTATS + rest, rule.factor, split)


def _recorded(metrics: Iterable[Metric]) -> Iterator[RecordedName]:
    node: dict[str, RecordedName] = {}
    for metric_name, recorded in _node_names():
        node.setdefault(metric_name, recorded)
    dcgm = {name: field.rule_of(name) for field in FIELDS for name in field.names}
    for metric in metrics:
        field = dcgm.get(metric.dcgm_name)
        if field is not None:
            yield RecordedName(metric.name, metric.dcgm_name, field.factor)
        else:  # what dcgm-exporter names and nobody reads of it yet included
            yield node.get(metric.name) or RecordedName(metric.name, OWN + metric.name)


RECORDED: Mapping[str, RecordedName] = MappingProxyType(
    {name.metric: name for name in _recorded(METRICS)}
)
"""Recorded name by our metric; `gpuwarden_` and our name where neither exporter has it."""

XID_GAUGE = "DCGM_FI_DEV_XID_ERRORS"
"""Last XID of a GPU, 0 before the first."""

KEY_COLUMNS: Mapping[EntityKind, tuple[str, ...]] = MappingProxyType(
    {
        EntityKind.GPU: ("node", "gpu_uuid"),
        EntityKind.NODE: ("node",),
        EntityKind.NIC: ("node", "device", "port"),
        EntityKind.DISK: ("node", "device"),
        EntityKind.MOUNT: ("node", "export", "mountpoint"),
    }
)
"""Columns that name the entity in each kind of Parquet file."""

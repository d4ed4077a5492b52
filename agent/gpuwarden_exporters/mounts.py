"""node_exporter's collector "mountstats": RPC statistics of NFS mounts.

Its series name the export, not the mount point; which goes with which is said by series of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpuwarden_exporters.rules import INCOMPLETE, NOTHING, Meaning, Parts, Rule, Target
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading

MOUNTSTATS = "node_mountstats_nfs_"
_OPERATION = ("operation",)
SENT, ASKED = "sent", "asked"


def transmitted_again(parts: Parts) -> Reading:
    """Transmissions beyond the first of each request, added up over operations.

    An operation that ended before it was sent is counted and never transmitted: one kind of
    operation gives at least 0.
    """
    again = 0.0
    found = False
    for name, sent in parts.items():
        kind, _, operation = name.partition("/")
        asked = parts.get(f"{ASKED}/{operation}")
        if kind == SENT and isinstance(sent, float | int) and isinstance(asked, float | int):
            found, again = True, again + max(0.0, sent - asked)
    return again if found else INCOMPLETE


def _operations(metric: str) -> Rule:
    return Rule(metric, split_by=_OPERATION)


# collector/mountstats_linux.go; "response time" is the kernel's RTT, "request time" its execute.
MOUNT_RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        "age_seconds_total": (Rule("mount_age_seconds"),),
        "total_read_bytes_total": (Rule("mount_read_bytes_total"),),
        "total_write_bytes_total": (Rule("mount_written_bytes_total"),),
        "operations_requests_total": (
            _operations("mount_operations_total"),
            Rule(
                "mount_retransmits_total",
                part=ASKED,
                split_by=_OPERATION,
                combine=transmitted_again,
            ),
        ),
        "operations_transmissions_total": (
            Rule(
                "mount_retransmits_total",
                part=SENT,
                split_by=_OPERATION,
                combine=transmitted_again,
            ),
        ),
        "operations_major_timeouts_total": (_operations("mount_major_timeouts_total"),),
        "operations_queue_time_seconds_total": (_operations("mount_queue_seconds_total"),),
        "operations_response_time_seconds_total": (_operations("mount_round_trip_seconds_total"),),
        "operations_request_time_seconds_total": (_operations("mount_execute_seconds_total"),),
    }
)


def mount_meaning(name: str, labels: Mapping[str, str]) -> Meaning:
    """What a series of the collector means to us; the entity is its mount point, else its export.

    Args:
        name: Of the series.
        labels: Of the series; `mountpoint` is what a recording may add.
    """
    rules = MOUNT_RULES.get(name.removeprefix(MOUNTSTATS), ())
    entity = labels.get("mountpoint") or labels.get("export") or ""
    if not rules or not entity:
        return NOTHING
    return Meaning(tuple(_target(rule, entity, labels) for rule in rules))


def _target(rule: Rule, entity: str, labels: Mapping[str, str]) -> Target:
    part = "/".join((rule.part, *(labels.get(label, "") for label in rule.split_by)))
    return Target(EntityKind.MOUNT, entity, rule, part, made_by="mountstats")


def mount_point(name: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """An export and where it is mounted, as some series say it; None for all others."""
    point = labels.get("mountpoint", "")
    if name == f"{MOUNTSTATS}mountpoint_info":
        export = labels.get("export", "")
    elif name.startswith("node_filesystem_") and labels.get("fstype", "").startswith("nfs"):
        export = labels.get("device", "")
    else:
        return None
    return (export, point) if export and point else None

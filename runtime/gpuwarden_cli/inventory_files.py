"""Inventories as files and programs have them: CSV, TOML, Slurm, Kubernetes. Pure.

Whatever the form, the outcome is what `PUT /v1/inventory` takes.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gpuwarden_runtime.host_names import read_hosts
from gpuwarden_runtime.records import EntryRecord


class InventorySource(StrEnum):
    """Under which name it is kept: the server takes a field from the first that has it."""

    FILE = "file"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class InventoryFault(Exception):
    """An inventory that cannot be read; the message names the place and what is wanted."""


_COLUMNS = ("node", "rack", "leaf", "pool", "mounts", "gpus")
_CSV_MEND = f"the first line names the columns: {', '.join(_COLUMNS)}; others become labels"

# What clouds and NVIDIA's operators call these, ours first.
_K8S_POOL = (
    "gpuwarden/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)
_K8S_RACK = ("gpuwarden/rack", "topology.kubernetes.io/rack")
_K8S_LEAF = ("gpuwarden/leaf", "network.topology.nvidia.com/leaf")
_K8S_GPUS = "nvidia.com/gpu.count"  # GPU feature discovery: what the machine has, healthy or not
_K8S_ZONE = "topology.kubernetes.io/zone"

_GRES = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")  # gpu:8, gpu:h100:8(S:0-1)


def read_inventory(text: str, name: str) -> tuple[InventorySource, list[EntryRecord]]:
    """Read an inventory by its form.

    Args:
        text: The file's text.
        name: Its name: .csv and .toml by their ends, the others by what they look like.

    Raises:
        InventoryFault: Names what is wrong.
    """
    start = text.lstrip()[:200]
    if name.endswith(".toml"):
        return InventorySource.FILE, read_toml(text)
    if start.startswith("{"):
        return InventorySource.KUBERNETES, read_kubernetes(text)
    if start.startswith("NodeName="):
        return InventorySource.SLURM, read_slurm(text)
    if name.endswith(".csv"):
        return InventorySource.FILE, read_csv(text)
    raise InventoryFault(
        f"{name}: neither .csv, .toml, `kubectl get nodes -o json` nor `scontrol show node -o`"
    )


def read_csv(text: str) -> list[EntryRecord]:
    """A table with a head; several mounts are separated by blanks or semicolons."""
    rows = csv.DictReader(io.StringIO(text.lstrip("\ufeff")), skipinitialspace=True)
    if rows.fieldnames is None or "node" not in rows.fieldnames:
        raise InventoryFault(f"no column `node`: {_CSV_MEND}")
    entries = []
    for row in rows:
        where = f"line {rows.line_num}"
        if None in row:
            raise InventoryFault(f"{where}: more fields than columns")
        cells = {key: (value or "").strip() for key, value in row.items()}
        if not any(cells.values()):
            continue
        entries.append(_entry(where, cells))
    return _once(entries)


def _entry(where: str, cells: Mapping[str, str]) -> EntryRecord:
    gpus = cells.get("gpus", "")
    if gpus and not gpus.isdecimal():
        raise InventoryFault(f"{where}: gpus {gpus!r} is no whole number")
    if not cells["node"]:
        raise InventoryFault(f"{where}: no node")
    return EntryRecord(
        node_id=cells["node"],
        rack=cells.get("rack", ""),
        leaf=cells.get("leaf", ""),
        pool=cells.get("pool", ""),
        mounts=tuple(re.split(r"[;\s]+", cells["mounts"])) if cells.get("mounts") else (),
        gpus_expected=int(gpus) if gpus else None,
        labels={key: text for key, text in cells.items() if text and key not in _COLUMNS},
    )


def read_toml(text: str) -> list[EntryRecord]:
    """[[nodes]] tables; `node` may be a range as Slurm writes it: gpu-[001-128]."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InventoryFault(f"not TOML: {error}") from error
    tables = tree.get("nodes")
    if tree.keys() - {"nodes"} or not isinstance(tables, list):
        raise InventoryFault("write each node, or range of nodes, as a [[nodes]] table")
    entries: list[EntryRecord] = []
    for number, table in enumerate(tables):
        entries += _of_table(f"nodes[{number}]", table)
    return _once(entries)


def _of_table(where: str, table: Any) -> list[EntryRecord]:
    wanted = {"node": str, "rack": str, "leaf": str, "pool": str, "mounts": list, "gpus": int}
    known = {**wanted, "labels": dict}
    if not isinstance(table, dict) or not isinstance(table.get("node"), str):
        raise InventoryFault(f"{where}.node: write a node's name or a range in quotes")
    for key, value in table.items():
        if key not in known or not isinstance(value, known[key]) or isinstance(value, bool):
            raise InventoryFault(f"{where}.{key} = {value!r}: known are {', '.join(known)}")
    one = EntryRecord(
        node_id="",
        rack=table.get("rack", ""),
        leaf=table.get("leaf", ""),
        pool=table.get("pool", ""),
        mounts=tuple(map(str, table.get("mounts", ()))),
        gpus_expected=table.get("gpus"),
        labels={key: str(value) for key, value in table.get("labels", {}).items()},
    )
    return [msgspec.structs.replace(one, node_id=host.name) for host in read_hosts(table["node"])]


def read_slurm(text: str, topology: str = "") -> list[EntryRecord]:
    """`scontrol show node -o`, and where there is one, `scontrol show topology`.

    The pool is the first partition, all of them are a label; the leaf is the switch of level 0;
    expected GPUs are the Gres.
    """
    leaves = _leaves(topology)
    entries = []
    for line in text.splitlines():
        facts = dict(part.split("=", 1) for part in line.split() if "=" in part)
        node_id = facts.get("NodeName", "")
        if not node_id:
            continue
        gpus = sum(int(count) for count in _GRES.findall(facts.get("Gres", "")))
        partitions = [one for one in facts.get("Partitions", "").split(",") if one]
        features = facts.get("ActiveFeatures", "")
        labels = {
            "partitions": " ".join(partitions),
            "features": "" if features == "(null)" else features.replace(",", " "),
        }
        entries.append(
            EntryRecord(
                node_id=node_id,
                leaf=leaves.get(node_id, ""),
                pool=partitions[0] if partitions else "",
                gpus_expected=gpus or None,
                labels={key: value for key, value in labels.items() if value},
            )
        )
    return _once(entries)


def _leaves(topology: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in topology.splitlines():
        facts = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if facts.get("Level") == "0" and facts.get("Nodes"):
            found |= {host.name: facts["SwitchName"] for host in read_hosts(facts["Nodes"])}
    return found


def read_kubernetes(text: str) -> list[EntryRecord]:
    """`kubectl get nodes -o json`."""
    try:
        tree = json.loads(text)
        items = tree["items"] if tree["kind"].endswith("List") else [tree]
        nodes = [(one["metadata"]["name"], one["metadata"].get("labels") or {}) for one in items]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InventoryFault("not what `kubectl get nodes -o json` writes") from error
    return _once(_of_labels(str(name), labels) for name, labels in nodes)


def _of_labels(name: str, labels: Mapping[str, str]) -> EntryRecord:
    def first(names: Iterable[str]) -> str:
        return next((labels[one] for one in names if labels.get(one)), "")

    count, zone = labels.get(_K8S_GPUS, ""), labels.get(_K8S_ZONE, "")
    return EntryRecord(
        node_id=name,
        rack=first(_K8S_RACK),
        leaf=first(_K8S_LEAF),
        pool=first(_K8S_POOL),
        gpus_expected=int(count) if count.isdecimal() else None,
        labels={"zone": zone} if zone else {},
    )


def _once(entries: Iterable[EntryRecord]) -> list[EntryRecord]:
    found: dict[str, EntryRecord] = {}
    for entry in entries:
        if entry.node_id in found:
            raise InventoryFault(f"node {entry.node_id!r} comes twice")
        found[entry.node_id] = entry
    return list(found.values())

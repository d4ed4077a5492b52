"""Inventories in every form that is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_cli.inventory_files import (
    InventoryFault,
    InventorySource,
    read_csv,
    read_inventory,
    read_slurm,
    read_toml,
)
from gpuwarden_runtime.records import EntryRecord

FIXTURES = Path(__file__).parents[2] / "fixtures" / "inventory"
CSV = """node,rack,leaf,pool,mounts,gpus,owner
gpu-1, r1, leaf-1, train, /scratch;/home, 8, ana
gpu-2,r1,,,,,
"""
TOML = """
[[nodes]]
node = "gpu-[001-002]"
rack = "r1"
gpus = 8
mounts = ["/scratch"]
labels = { owner = "ana" }
[[nodes]]
node = "login"
"""


def test_a_csv_is_read() -> None:
    first, second = read_csv(CSV)
    assert first == EntryRecord(
        node_id="gpu-1",
        rack="r1",
        leaf="leaf-1",
        pool="train",
        mounts=("/scratch", "/home"),
        gpus_expected=8,
        labels={"owner": "ana"},
    )
    assert second == EntryRecord(node_id="gpu-2", rack="r1")


def test_a_toml_is_read_and_ranges_are_written_out() -> None:
    entries = read_toml(TOML)
    assert [entry.node_id for entry in entries] == ["gpu-001", "gpu-002", "login"]
    assert (entries[1].gpus_expected, entries[1].mounts) == (8, ("/scratch",))
    assert entries[0].labels == {"owner": "ana"} and entries[2].rack == ""


def test_slurms_nodes_and_topology_are_read() -> None:
    text = (FIXTURES / "scontrol_nodes.txt").read_text()
    entries = read_slurm(text, (FIXTURES / "scontrol_topology.txt").read_text())
    assert entries[0] == EntryRecord(
        node_id="n1",
        leaf="leaf1",
        pool="main",
        gpus_expected=8,
        labels={"partitions": "main debug", "features": "h100 ib"},
    )
    assert (entries[1].gpus_expected, entries[1].leaf) == (8, "leaf1")
    assert entries[2] == EntryRecord(node_id="login1")
    assert read_inventory(text, "nodes.txt")[0] is InventorySource.SLURM


def test_kubernetes_nodes_are_read() -> None:
    source, (gpu, cpu) = read_inventory((FIXTURES / "kubectl_nodes.json").read_text(), "nodes.json")
    assert source is InventorySource.KUBERNETES
    assert gpu == EntryRecord(
        node_id="gpu-a", rack="r7", pool="h100", gpus_expected=8, labels={"zone": "eu-1b"}
    )
    assert cpu == EntryRecord(node_id="cpu-a")


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("a,b\n1,2\n", "x.csv", "no column `node`"),
        ("node,gpus\nn1,eight\n", "x.csv", "line 2: gpus 'eight'"),
        ("node\nn1\nn1\n", "x.csv", "'n1' comes twice"),
        ("node\nn1,8\n", "x.csv", "line 2: more fields"),
        ("node,rack\n,r1\n", "x.csv", "line 2: no node"),
        ("[[nodes]]\nrack = 'r1'", "x.toml", "nodes[0].node"),
        ("[[nodes]]\nnode = 'a'\ngpus = '8'", "x.toml", "nodes[0].gpus"),
        ("[[nodes]]\nnode = 'a'\nrow = 'x'", "x.toml", "nodes[0].row"),
        ("nodes = 3", "x.toml", "[[nodes]]"),
        ("x = [", "x.toml", "not TOML"),
        ("{}", "x.json", "kubectl"),
        ("hello", "x.txt", "neither"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, name: str, says: str) -> None:
    with pytest.raises(InventoryFault) as error:
        read_inventory(text, name)
    assert says in str(error.value)

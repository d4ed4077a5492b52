"""What scontrol and squeue print."""

from __future__ import annotations

import pytest

from gpuwarden_server.actuators.slurm_text import parse_nodes
from gpuwarden_verdict.actuation import Hold

LINE = (
    "NodeName=n2 Arch=x86_64 CoresPerSocket=2  CPUAlloc=0 CPUTot=2 Gres=gpu:8 OS=Linux 6.1 #1 SMP"
    " RealMemory=1000 State={state} ThreadsPerCore=1 Partitions=main  BootTime=2026-03-01T02:55:48"
    " CfgTRES=cpu=2,mem=1000M,billing=2 ExtSensorsTemp=n/s {tail}"
)


@pytest.mark.parametrize(
    ("state", "tail", "hold", "reason", "by"),
    [
        ("IDLE", "", Hold.FREE, "", ""),
        ("IDLE*", "", Hold.FREE, "", ""),
        ("MIXED+PLANNED", "", Hold.FREE, "", ""),
        ("ALLOCATED", "Reason=old words [root@2026-03-01T10:00:00]", Hold.FREE, "", ""),
        (
            "ALLOCATED+DRAIN",
            "Reason=gpuwarden: dec-1 row remap failed [root@2026-03-01T10:00:00]",
            Hold.OURS,
            "gpuwarden: dec-1 row remap failed",
            "root",
        ),
        (
            "DOWN*+DRAIN",
            "Reason=bad dimm = slot 3 [ann@2026-03-01T10:00:00] Comment=asked twice",
            Hold.THEIRS,
            "bad dimm = slot 3",
            "ann",
        ),
        ("DOWN*", "Reason=Not responding [slurm@2026-03-01T10:00:00]", Hold.THEIRS, None, "slurm"),
        ("FAIL", "", Hold.THEIRS, "fail", ""),
        # Our drain has ended, and the node is down besides: not ours any more.
        ("DOWN*", "Reason=gpuwarden: dec-1 x [root@2026-03-01T10:00]", Hold.THEIRS, None, "root"),
        ("IDLE+DRAIN", "Reason=my gpuwarden: note [x@1]", Hold.THEIRS, None, "x"),
    ],
)
def test_a_node(state: str, tail: str, hold: Hold, reason: str | None, by: str) -> None:
    node = parse_nodes(LINE.format(state=state, tail=tail))["n2"]
    found = node.found(("7",))
    assert (found.hold, found.jobs) == (hold, ("7",))
    if hold is not Hold.FREE:
        assert found.by == by
        assert reason is None or found.reason == reason


def test_lines_that_name_no_node_are_passed_over() -> None:
    assert parse_nodes("No nodes in the system\n\nNodeName=n3\n") == {}

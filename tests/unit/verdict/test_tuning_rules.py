from __future__ import annotations

import pytest

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import DETECTOR_SETTINGS, detect_sweep
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.document import PolicyDocument
from gpuwarden_verdict.policy.parse import PolicyError, override_mode, parse_policy
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet, gpu_ref, xid_line

POOLS = """
[[pools]]
name = "lab"
nodes = ["lab-*"]
"""


def parsed(text: str) -> PolicyDocument:
    return parse_policy(POOLS + text, detectors=DETECTOR_SETTINGS)


def test_a_detector_is_off_in_all_pools_or_in_some_as_a_whole_or_by_code() -> None:
    tuning = parsed(
        """
        [detectors.oom]
        enabled = false
        [[detectors.clock_peers]]
        pools = ["la*"]
        enabled = false
        [[detectors.clock_peers]]
        limit = 3
        budget = 0.5
        [detectors."xid:13"]
        enabled = false
        """
    ).tuning
    assert tuning.is_off("oom", "default")
    assert tuning.is_off_everywhere("oom")
    assert tuning.is_off("clock_peers", "lab")
    assert not tuning.is_off_everywhere("clock_peers")
    rule = tuning.rule("clock_peers", "default")
    assert (rule.enabled, rule.limit, rule.budget) == (True, 3.0, 0.5)
    assert tuning.is_off("xid:13", "lab")
    assert not tuning.is_off("xid:79", "lab")


def test_what_a_policy_says_of_detectors_is_of_its_version() -> None:
    plain, off = parsed(""), parsed("[detectors.oom]\nenabled = false")
    assert plain.version != off.version
    assert override_mode(off, off.pools[-1].mode).tuning == off.tuning


@pytest.mark.parametrize(
    ("text", "key", "mend"),
    [
        ("[detectors.hot]\nenabled = false", "detectors.hot", "no detector has this name"),
        ("[detectors.oom]\nenable = false", "detectors.oom.enable", "known are enabled"),
        ("[detectors.oom]\nenabled = 0", "detectors.oom.enabled", "true or false"),
        ("[detectors.oom]\nlimit = 3", "detectors.oom.limit", "has none; known are enabled, pools"),
        (
            "[detectors.clock_peers]\nlimit = 'high'",
            "detectors.clock_peers.limit",
            "write a number",
        ),
        (
            "[detectors.clock_peers]\nbudget = -1",
            "detectors.clock_peers.budget",
            "of at least 0",
        ),
        ("[detectors.oom]\npools = ['train']", "detectors.oom.pools", "there are lab, default"),
        ("[detectors.oom]\npools = []", "detectors.oom.pools", "names of pools"),
        ("[detectors]\noom = 3", "detectors.oom", "write a table"),
    ],
)
def test_what_cannot_be_used_is_refused_by_key_with_the_mend(
    text: str, key: str, mend: str
) -> None:
    with pytest.raises(PolicyError, match=mend) as refused:
        parsed(text)
    assert refused.value.key == key


def test_a_detector_that_is_off_gives_no_signal() -> None:
    fleet = Fleet(policy=parsed("[detectors.row_remap_failure]\nenabled = false"))
    fleet.tell([gpu_ref(0, 0)], gpu_row_remap_failure=1.0)
    assert fleet.sweep() == []
    spoken = FleetContext(tuning=parsed("").tuning)
    assert [s.detector for s in detect_sweep(fleet.state, spoken, START)] == ["row_remap_failure"]


def test_an_event_detector_that_is_off_gives_no_signal() -> None:
    fleet = Fleet(policy=parsed('[detectors."xid:79"]\nenabled = false'))
    fleet.line(0, xid_line(79))
    assert [i.evidence[0].detector for i in fleet.open()] == []
    fleet.line(0, xid_line(95))
    assert fleet.open()


def test_a_fixed_limit_is_set_pool_by_pool_and_told_with_the_signal() -> None:
    text = "[detectors.disk_media_errors]\nlimit = 4\npools = ['default']"
    fleet = Fleet(nodes=2, gpus=0, policy=parsed(text))
    disks = [EntityRef(EntityKind.DISK, f"{n}/nvme0n1", n) for n in ("n0", "lab-1")]
    fleet.boots["lab-1"] = "boot-1"
    for total in (0.0, 1.0, 2.0):
        fleet.tell(disks, disk_media_errors_total=total)
        said = fleet.sweep(60.0)
    assert [(s.entity.node_id, s.thresholds) for s in said] == [
        ("lab-1", {"disk_media_errors_total": 0.5})
    ]
    fleet.tell(disks, disk_media_errors_total=9.0)
    shown = [(s.entity.node_id, s.thresholds) for s in fleet.sweep(60.0)]
    assert ("n0", {"disk_media_errors_total": 4.0}) in shown

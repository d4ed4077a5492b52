"""Story 2 (NVSentinel#911, NVIDIA buckets RESTART_APP)."""

from __future__ import annotations

from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(8, policy=EAGER)
    fleet.never_excluded()
    fleet.never_suspect()
    for round_ in range(6):
        nodes = fleet.nodes[:4] if round_ % 2 == 0 else fleet.nodes[4:]
        job = f"90{round_}"
        fleet.start_job(job, nodes)
        fleet.run(120, every_s=60)
        for number, node in enumerate(nodes):
            code = 31 if number % 2 else 13
            for gpu in range(8):
                fleet.xid(node, gpu, code, f"pid=7{gpu}1, name=train.py, Ch 00000008")
        fleet.end_job(job)
        fleet.run(60)
    fleet.run(1800, every_s=300)
    return fleet


STORY = Story(
    2,
    "XID 31 and 13 again and again by one user's program",
    "The same broken program fails on four nodes, is started again on four others, and so on.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

"""Story 19 (NVSentinel#1361, #1379)."""

from __future__ import annotations

from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_nodes import SOUND_PORT, Node
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(4, policy=EAGER, shaped=with_second_adapter)
    fleet.never_excluded()
    fleet.never_suspect()
    fleet.run(7200, every_s=120)
    return fleet


def with_second_adapter(node: Node) -> None:
    port = dict(SOUND_PORT, nic_port_state=1.0, nic_port_physical_state=3.0)
    node.readings[EntityKind.NIC]["mlx5_9/1"] = port | {"nic_rate_bytes_per_second": 1.25e9}


STORY = Story(
    19,
    "A NIC port that is down by design",
    "Each node has a second adapter without a cable: down, since the first sight of it.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

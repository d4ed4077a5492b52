"""Story 6 (NVSentinel#1642, #1423, #1034)."""

from __future__ import annotations

from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Unavailable
from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_nodes import Node, Rows
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(24, policy=EAGER)
    fleet.never_excluded()
    fleet.never_suspect()
    upgraded = fleet.nodes[:20]
    kept = {node.name: {k: dict(r) for k, r in gpus(node).items()} for node in upgraded}
    for node in upgraded:
        trouble = {"source": "nvml", "reason": "no answer within 10 s"}
        fleet.events(node, fleet.event(EventKind.COLLECTOR_TROUBLE, attributes=trouble))
        node.set_gpus(**dict.fromkeys(next(iter(gpus(node).values())), Unavailable("timeout")))
        node.set(
            EntityKind.NODE,
            "",
            node_gpus_visible=Unavailable("timeout"),
            node_driver_loaded=0.0,
            node_nvml_poll_seconds=Unavailable("timeout"),
        )
    fleet.run(600, every_s=60)
    for node in upgraded:
        fleet.events(
            node, fleet.event(EventKind.COLLECTOR_RECOVERED, attributes={"source": "nvml"})
        )
        node.readings[EntityKind.GPU] = kept[node.name]
        node.set(
            EntityKind.NODE,
            "",
            node_gpus_visible=8.0,
            node_driver_loaded=1.0,
            node_nvml_poll_seconds=0.11,
        )
    fleet.run(900, every_s=60)
    return fleet


def gpus(node: Node) -> Rows:
    return node.readings[EntityKind.GPU]


STORY = Story(
    6,
    "The driver times out on many nodes during an upgrade",
    "The driver of 20 of 24 nodes is replaced; for ten minutes their NVML answers nothing.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

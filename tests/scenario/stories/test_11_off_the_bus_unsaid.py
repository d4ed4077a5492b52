"""Story 11 (NVSentinel#155, gpud#1209, DataDog)."""

from __future__ import annotations

from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet
from tests.builders.story_nodes import Node
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(3)
    unsaid, unknown, sound = fleet.nodes
    fleet.never_suspect(sound.ref, *(sound.gpu(number) for number in range(8)))
    fleet.run(120)
    lose(fleet, unsaid, 5)
    kept = unknown.gpus.pop(6)
    del unknown.readings[EntityKind.GPU][kept.gpu_uuid]
    unknown.set(EntityKind.NODE, "", node_gpus_visible=7.0, node_gpus_on_pci=7.0)
    fleet.events(unknown, fleet.inventory(unknown))
    line = f"NVRM: Xid (PCI:{kept.pci_bus_id[:-2]}): 79, pid='<unknown>', name=<unknown>, "
    fleet.lines(unknown, line + "GPU has fallen off the bus.")
    fleet.run(300)
    return fleet


def lose(fleet: StoryFleet, node: Node, number: int) -> None:
    uuid = node.gpus.pop(number).gpu_uuid
    del node.readings[EntityKind.GPU][uuid]
    node.set(EntityKind.NODE, "", node_gpus_visible=7.0, node_gpus_on_pci=7.0)
    lost = {"entity_kind": EntityKind.GPU, "entity": uuid, "attributes": {"probes": 2}}
    fleet.events(node, fleet.event(EventKind.GPU_LOST, **lost), fleet.inventory(node))


STORY = Story(
    11,
    "Off the bus without XID text; XID 79 whose address no longer resolves",
    (
        "On one node a GPU is gone without a line; on another the line comes after the driver "
        "has forgotten the address."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.excluded() == ["GPU-n000-5", "GPU-n001-6"]
    assert_documented(STORY, fleet)

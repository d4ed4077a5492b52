"""Story 28 (design: place is the inventory's)."""

from __future__ import annotations

from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet, leaves_of
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(16, gpus=2, placed=leaves_of(8))
    fleet.never_excluded()
    carried = fleet.nodes[0]
    carried.sends = False
    fleet.run(600, every_s=60)
    fleet.engine.place(carried.name, leaves_of(8)(15))
    fleet.reboot(carried)
    fleet.run(900, every_s=60)
    fleet.never_suspect(carried.ref)
    behind = fleet.nodes[1:8]
    for node in behind:
        node.set(EntityKind.NIC, "mlx5_0/1", nic_port_state=1.0, nic_port_physical_state=2.0)
    fleet.run(300)
    assert [one.entity.key for one in fleet.open() if one.parent_id is None] == ["leaf:leaf-0"]
    for node in behind:
        node.set(EntityKind.NIC, "mlx5_0/1", nic_port_state=4.0, nic_port_physical_state=5.0)
    fleet.run(3600, every_s=120)
    return fleet


STORY = Story(
    28,
    "A node is moved between racks",
    (
        "A node is shut down, carried into another rack and onto another leaf, and started; "
        "later the leaf it came from reboots."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

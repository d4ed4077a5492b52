"""Story 3 (NVSentinel#1704)."""

from __future__ import annotations

from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_page import Story, assert_documented

NODES = 214


def tell() -> StoryFleet:
    fleet = StoryFleet(NODES, gpus=2, policy=EAGER)
    fleet.never_excluded()
    fleet.never_suspect()
    for node in fleet.nodes:
        node.sends = False
    fleet.run(180, every_s=90)
    for node in fleet.nodes:
        node.set_gpus(gpu_nvlinks_active=0.0, gpu_nvlinks_inactive=18.0)
        node.set(EntityKind.NIC, "mlx5_0/1", nic_port_state=1.0, nic_port_physical_state=2.0)
        fleet.reboot(node)
    fleet.run(240, every_s=60)
    for node in fleet.nodes:
        node.set_gpus(gpu_nvlinks_active=18.0, gpu_nvlinks_inactive=0.0)
        node.set(EntityKind.NIC, "mlx5_0/1", nic_port_state=4.0, nic_port_physical_state=5.0)
    fleet.run(600, every_s=120)
    return fleet


STORY = Story(
    3,
    "Nodes rebooted by plan, links training",
    ("214 nodes reboot; for four minutes after it, their NVLinks and ports are still training."),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

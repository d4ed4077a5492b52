"""Story 18 (NPD#1259, gpud#500)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState
from gpuwarden_wire.events import Backlog
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node = fleet.nodes[0]
    gpu = node.gpu(2)
    line = f"NVRM: Xid (PCI:{node.gpus[2].pci_bus_id[:-2]}): 79, pid=812, name=python3, "
    said = fleet.lines(node, line + "GPU has fallen off the bus.")
    fleet.run(60)
    assert fleet.excluded() == [gpu.key]
    fleet.engine.begin_repair(gpu, "ann", "reseated", fleet.now)
    fleet.check_passed(node, 2)
    fleet.run(3600, every_s=300)
    assert fleet.state(gpu) is EntityState.HEALTHY
    fleet.never_excluded()
    fleet.never_suspect()
    fleet.events(node, *said)
    fleet.lines(node, line + "GPU has fallen off the bus.", backlog=Backlog.OLDER_BOOT)
    fleet.run(600, every_s=60)
    return fleet


STORY = Story(
    18,
    "The old kernel ring is read again after a restart of the agent",
    (
        "A GPU was repaired after an XID 79; the agent starts with an empty memory and reads "
        "the whole ring of this boot, and lines of the boot before, once more."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

"""Story 27 (design: the part is the serial)."""

from __future__ import annotations

from gpuwarden_wire.acknowledgement import Usable
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet
from tests.builders.story_nodes import BUSY_GPU, make_gpu
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node = fleet.nodes[0]
    old = node.gpu(3)
    fleet.run(60)
    node.set_gpu(3, gpu_row_remap_failure=1.0)
    fleet.run(120)
    assert fleet.excluded() == [old.key]
    fleet.engine.begin_repair(old, "ann", "RMA", fleet.now)
    node.sends = False
    fleet.run(600, every_s=60)
    node.gpus[3] = make_gpu(node.name, 3, serial="1650924007777")
    rows = node.readings[EntityKind.GPU]
    del rows[old.key]
    rows[node.gpus[3].gpu_uuid] = dict(BUSY_GPU)
    fleet.reboot(node)
    fleet.check_passed(node)
    fleet.never_excluded(node.gpu(3))
    fleet.never_suspect(node.gpu(3))
    fleet.run(7200, every_s=300)
    return fleet


STORY = Story(
    27,
    "A GPU is replaced: a new serial in the same slot",
    "A remapping fails, the part is taken out and another put in; a check passes.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.excluded() == []
    assert fleet.usable(fleet.nodes[0]) is Usable.YES
    assert_documented(STORY, fleet)

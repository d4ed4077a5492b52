"""Story 14 (NVIDIA GPU memory error management)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState, FaultClass
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node = fleet.nodes[0]
    gpu = node.gpu(0)
    fleet.never_suspect(*(node.gpu(number) for number in range(1, 8)))
    fleet.run(120)
    node.set_gpu(0, gpu_row_remap_pending=1.0, gpu_rows_remapped_correctable_total=1.0)
    fleet.run(900, every_s=60)
    assert fleet.classes(gpu) == {FaultClass.MEMORY}
    node.set_gpu(0, gpu_row_remap_pending=0.0)
    fleet.run(7200, every_s=120)
    return fleet


STORY = Story(
    14,
    "Row remap pending, reset, clear",
    "A row waits for its remapping; the GPU is reset between jobs, and the flag is gone.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    gpu = fleet.nodes[0].gpu(0)
    assert fleet.open() == []
    assert fleet.state(gpu) is EntityState.HEALTHY
    assert_documented(STORY, fleet)

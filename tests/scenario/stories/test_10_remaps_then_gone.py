"""Story 10 (Lablup gpu124)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented

DAYS = 55


def tell() -> StoryFleet:
    fleet = StoryFleet(2, gpus=4, interval_s=14_400.0)
    node = fleet.nodes[0]
    gpu = node.gpu(1)
    fleet.never_suspect(*(node.gpu(number) for number in (0, 2, 3)))
    remapped = 0.0
    for half_day in range(2 * DAYS):
        remapped = 254.0 * ((half_day + 1) / (2 * DAYS)) ** 2
        node.set_gpu(1, gpu_rows_remapped_correctable_total=float(int(remapped)))
        fleet.run(43_200, every_s=14_400.0)
    assert fleet.state(gpu) is not EntityState.HEALTHY, "told before it vanished"
    del node.readings[EntityKind.GPU][gpu.key]
    node.set(EntityKind.NODE, "", node_gpus_visible=3.0, node_gpus_on_pci=3.0)
    lost = {"entity_kind": EntityKind.GPU, "entity": gpu.key, "attributes": {"probes": 2}}
    fleet.events(node, fleet.event(EventKind.GPU_LOST, **lost))
    del node.gpus[1]
    fleet.events(node, fleet.inventory(node))
    fleet.interval_s = 30.0
    fleet.run(300)
    return fleet


STORY = Story(
    10,
    "254 correctable remaps over weeks, no XID, then the GPU vanishes",
    ("Rows of one GPU are remapped one by one over 55 days, without any XID; then it is gone."),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.excluded() == ["GPU-n000-1"]
    assert_documented(STORY, fleet)

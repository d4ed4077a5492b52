"""Story 9 (NVSentinel#1748, DCGM#313)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState, FaultClass
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(4)
    node = fleet.nodes[0]
    gpus = [other.gpu(number) for other in fleet.nodes for number in range(8)]
    fleet.never_suspect(*(gpu for gpu in gpus if gpu != node.gpu(2)))
    fleet.run(3600, every_s=60)
    node.grow_gpu(2, gpu_ecc_corrected_volatile_total=17_700.0)
    for minute in range(30):
        node.set_gpu(2, gpu_probe_seconds=min(9.0, 0.012 * 1.3**minute))
        node.set(EntityKind.NODE, "", node_nvml_poll_seconds=min(9.5, 0.1 + 0.012 * 1.3**minute))
        fleet.run(60)
    return fleet


STORY = Story(
    9,
    "Corrected errors at 17,000 a second and stalling probes",
    (
        "One GPU corrects 17,700 errors a second and answers its probes ever later; there is no "
        "XID, and NVIDIA's own health check says healthy."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    gpu = fleet.nodes[0].gpu(2)
    assert fleet.state(gpu) is not EntityState.HEALTHY
    assert FaultClass.MEMORY in fleet.classes(gpu)
    assert_documented(STORY, fleet)

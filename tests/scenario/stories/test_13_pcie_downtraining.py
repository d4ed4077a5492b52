"""Story 13 (NVSentinel#890)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState, FaultClass
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(3)
    narrow, idle, sound = fleet.nodes
    idle.set_gpus(
        gpu_utilization_ratio=0.0,
        gpu_power_watts=72.0,
        gpu_sm_clock_hertz=3.45e8,
        gpu_temperature_celsius=31.0,
        gpu_memory_used_bytes=5.0e8,
        gpu_pcie_link_generation=1.0,
    )
    fleet.never_suspect(*(node.gpu(n) for node in (idle, sound) for n in range(8)))
    fleet.run(600, every_s=60)
    narrow.set_gpu(4, gpu_pcie_link_width=8.0)
    narrow.grow_gpu(4, gpu_pcie_replay_total=3.0)
    fleet.run(1800, every_s=60)
    return fleet


STORY = Story(
    13,
    "PCIe x16 to x8 under load; idle downtraining is normal",
    ("One busy GPU falls back to eight lanes; the idle ones of another node run at generation 1."),
    tell,
)


def test_story() -> None:
    fleet = tell()
    gpu = fleet.nodes[0].gpu(4)
    assert fleet.classes(gpu) == {FaultClass.BUS}
    assert fleet.state(gpu) is not EntityState.HEALTHY
    assert_documented(STORY, fleet)

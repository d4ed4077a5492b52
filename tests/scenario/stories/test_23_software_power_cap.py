"""Story 23 (NVML: SW power cap is the normal state under load)."""

from __future__ import annotations

from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_page import Story, assert_documented

SW_POWER_CAP = 4.0  # nvmlClocksEventReasonSwPowerCap


def tell() -> StoryFleet:
    fleet = StoryFleet(4, policy=EAGER)
    fleet.never_excluded()
    fleet.never_suspect()
    for node in fleet.nodes:
        node.set_gpus(gpu_power_cap_seconds_total=0.0, gpu_power_watts=699.0)
        for number in range(8):
            node.grow_gpu(number, gpu_power_cap_seconds_total=0.9)
    for sample in range(60):
        reason = 0.0 if sample % 10 == 0 else SW_POWER_CAP
        for node in fleet.nodes:
            node.set_gpus(gpu_clock_event_reasons=reason)
        fleet.run(60, every_s=60)
    return fleet


STORY = Story(
    23,
    "Software power cap in 90 % of the samples",
    "GPUs that train run into their power limit nearly all the time: as designed.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)

"""The reading of GPUs by the NVML child, in this process and over the stub."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Sequence

from gpuwarden_agent.sources.nvml_answers import AnswerReader
from gpuwarden_agent.sources.nvml_calls import Caller, Gpu
from gpuwarden_agent.sources.nvml_fast import FastLane
from gpuwarden_agent.sources.nvml_flight import FLIGHT_BYTES, FlightRecorder, Slot, Step
from gpuwarden_agent.sources.nvml_frames import GpuAnswer
from gpuwarden_agent.sources.nvml_roster import Roster
from tests.builders.nvml import NodeScenario, ScenarioFile

FAST_S = 1.0
"""Interval of the fast lane."""


class CountingRecorder(FlightRecorder):
    """Counts calls by name besides."""

    def __init__(self) -> None:
        super().__init__(mmap.mmap(-1, FLIGHT_BYTES), Slot.POLL)
        self.calls: Counter[str] = Counter()

    def run(self, steps: Sequence[Step]) -> bool:
        self.calls.update(step.call for step in steps)
        return super().run(steps)

    def begin(self, call: str, gpu_uuid: str = "", patience_s: float = 0.0) -> None:
        self.calls[call] += 1
        super().begin(call, gpu_uuid, patience_s)


class Rig:
    """The child's reader, its fast lane, and the scenario that the stub plays them.

    Attributes:
        scenario: What the stub shows.
        recorder: Calls that were made.
        now: The clock, moved by the test alone.
        roster: GPUs as the child knows them.
        lane: The fast lane.
    """

    def __init__(self, scenario: ScenarioFile) -> None:
        self.scenario = scenario
        self.recorder = CountingRecorder()
        self.now = 1000.0
        self.answers = AnswerReader()
        caller = Caller(self.recorder)
        self.roster = Roster(caller, clock=lambda: self.now, fast=True)
        self.lane = FastLane(caller, FAST_S, clock=lambda: self.now)

    def read(self, after_s: float = 5.0) -> GpuAnswer:
        """The first GPU's answer."""
        self.now += after_s
        self.recorder.calls.clear()
        return self.answers.read(self.roster.read(1, self.scenario.node.driver)).gpus[0]

    def look(self) -> tuple[str, ...]:
        """GPUs of which the fast lane says that something changed."""
        self.recorder.calls.clear()
        return self.lane.look(self.roster.answering())

    def look_when_due(self) -> tuple[str, ...]:
        """Likewise, as soon as the lane wants to look."""
        self.now += self.lane.wait_s() or 0.0
        return self.look()

    @property
    def gpu(self) -> Gpu:
        """The first GPU as the child knows it."""
        return next(iter(self.roster.gpus.values()))

    def change(self, **numbers: float) -> None:
        """Set numbers of the first GPU."""

        def edit(node: NodeScenario) -> None:
            for name, value in numbers.items():
                node.gpu(0).set(name, value)

        self.scenario.change(edit)

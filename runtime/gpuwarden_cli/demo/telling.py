"""Tells the story step by step: make it happen, look, and say whether it was as told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuwarden_cli.demo.sight import Sight, look
from gpuwarden_cli.demo.stage import Stage, Step
from gpuwarden_cli.demo.story import forbidden
from gpuwarden_runtime.errors import GpuwardenError

_LOOK_EVERY_S = 0.5


class Outcome(StrEnum):
    """How a step went."""

    WAITING = "waiting"
    RUNNING = "running"
    AS_TOLD = "as_told"
    NOT_AS_TOLD = "not_as_told"


@dataclass(frozen=True, slots=True)
class Told:
    """A step and how it went.

    Attributes:
        step: The step.
        outcome: How it went, so far.
        seen: What was seen, or why it was not as told.
        seconds: From its beginning to its end.
    """

    step: Step
    outcome: Outcome = Outcome.WAITING
    seen: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The story so far.

    Attributes:
        told: Every step.
        sight: Latest look, None before the first.
        forbidden: What was seen that must never be, each once.
        elapsed_s: Since the story began.
        trouble: Why the latest look failed, "" where it did not.
    """

    told: tuple[Told, ...]
    sight: Sight | None = None
    forbidden: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    trouble: str = ""

    @property
    def as_told(self) -> bool:
        """True where every step ended as told and nothing forbidden was seen."""
        ended = all(item.outcome is Outcome.AS_TOLD for item in self.told)
        return ended and not self.forbidden


Listener = Callable[[Progress], None]


class Teller:
    """Runs the steps one after another; a step that fails does not end the story.

    Args:
        stage: What steps act on.
        steps: The story.
        listener: Told of every change, at least twice a second.
    """

    def __init__(self, stage: Stage, steps: tuple[Step, ...], listener: Listener) -> None:
        self._stage = stage
        self._listener = listener
        self._began = time.monotonic()
        self.progress = Progress(tuple(Told(step) for step in steps))

    def tell(self) -> Progress:
        """Run the story to its end.

        Raises:
            CommandError: The server or the agent ended by itself.
        """
        for number, item in enumerate(self.progress.told):
            self._run(number, item.step)
            if number + 1 < len(self.progress.told):
                self.watch(self._stage.pace.pause_s)
        return self.progress

    def watch(self, seconds: float) -> None:
        """Look on for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look()
            time.sleep(min(_LOOK_EVERY_S, max(deadline - time.monotonic(), 0.0)))

    def _run(self, number: int, step: Step) -> None:
        began = time.monotonic()
        self._note(number, Told(step, Outcome.RUNNING))
        try:
            step.begin(self._stage)
        except GpuwardenError as error:
            self._end(number, step, Outcome.NOT_AS_TOLD, str(error), began)
            return
        seen_since = None
        while True:
            sight = self._look()
            now = time.monotonic()
            passed = now - began
            seen = self._seen(step, sight) if sight is not None and passed >= step.hold_s else ""
            seen_since = (seen_since or now) if seen else None
            if seen_since is not None and now - seen_since >= step.steady_s:
                self._end(number, step, Outcome.AS_TOLD, seen, began)
                return
            if passed > step.deadline_s:
                why = self.progress.trouble or f"not seen within {step.deadline_s:g} s"
                self._end(number, step, Outcome.NOT_AS_TOLD, why, began)
                return
            time.sleep(_LOOK_EVERY_S)

    def _seen(self, step: Step, sight: Sight) -> str:
        try:
            return step.seen(self._stage, sight)
        except GpuwardenError as error:
            self._change(trouble=str(error))
            return ""

    def _look(self) -> Sight | None:
        self._stage.installation.require_alive()
        try:
            sight = look(self._stage.client)
            found = forbidden(self._stage, sight)
        except GpuwardenError as error:
            self._change(trouble=str(error))
            return None
        known = dict.fromkeys((*self.progress.forbidden, *found))
        self._change(sight=sight, forbidden=tuple(known), trouble="")
        return sight

    def _end(self, number: int, step: Step, outcome: Outcome, seen: str, began: float) -> None:
        self._note(number, Told(step, outcome, seen, time.monotonic() - began))

    def _note(self, number: int, item: Told) -> None:
        told = list(self.progress.told)
        told[number] = item
        self._change(told=tuple(told))

    def _change(self, **changes: object) -> None:
        elapsed_s = time.monotonic() - self._began
        # dataclasses.replace checks the names at run time; the values are of the fields' types.
        self.progress = replace(self.progress, elapsed_s=elapsed_s, **changes)  # type: ignore[arg-type]
        self._listener(self.progress)

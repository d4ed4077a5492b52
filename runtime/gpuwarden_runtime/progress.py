"""One call in the training loop: which step has ended, and with which loss.

    from gpuwarden_runtime.progress import report

    for step, batch in enumerate(batches):
        loss = train(batch)
        report(step, loss)

It never waits, never raises, and sends at most once in ten seconds: of rank 0 always, of the other
ranks where a loss is not finite.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import JobPlace, RuntimeSettings, read_job_place, read_settings
from gpuwarden_runtime.diagnosis_calls import tell_progress
from gpuwarden_runtime.errors import GpuwardenError, SettingError
from gpuwarden_runtime.exchange import ONCE

EVERY_S = 10.0
AWAY_S = 60.0
"""Until a server that did not answer is asked again."""

Send = Callable[[int, float | None, float | None], None]
"""Given the step, the time of a step (s) and the loss; raises GpuwardenError."""


@dataclass(slots=True)
class _Latest:
    step: int
    loss: float | None
    at: float


class Progress:
    """Tells of one process' steps; `report` may be called from any thread.

    Args:
        place: The job, and this process in it.
        send: Sends one call.
        every_s: Shortest time between two calls, seconds.
        monotonic: Seconds that only rise.
    """

    def __init__(
        self,
        place: JobPlace,
        send: Send,
        every_s: float = EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._send = send
        self._every_s = every_s
        self._now = monotonic
        self._latest: _Latest | None = None
        self._sent: _Latest | None = None
        self._due = monotonic()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def report(self, step: int, loss: float | None = None) -> None:
        """A step has ended.

        Args:
            step: Its number, which rises; a smaller one is a return to a checkpoint.
            loss: Where it is at hand; a tensor on a GPU would have to be waited for.
        """
        value = None if loss is None else float(loss)
        odd = value is not None and not math.isfinite(value)
        if self._place.rank and not odd:
            return
        now = self._now()
        self._latest = _Latest(step, value, now)
        if now >= self._due:
            self._due = now + self._every_s
            self._start()
            self._wake.set()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="gpuwarden-progress", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            latest = self._latest
            if latest is None:
                continue
            try:
                self._send(latest.step, self._step_seconds(latest), latest.loss)
            except GpuwardenError:
                self._due = self._now() + AWAY_S  # a training must not suffer from it
            self._sent = latest

    def _step_seconds(self, latest: _Latest) -> float | None:
        before = self._sent
        if before is None or latest.step <= before.step or latest.at <= before.at:
            return None
        return (latest.at - before.at) / (latest.step - before.step)


def make_progress(settings: RuntimeSettings, place: JobPlace) -> Progress:
    """Tells the server of the settings."""
    client = Client(settings, retry=ONCE)

    def send(step: int, step_seconds: float | None, loss: float | None) -> None:
        client.send(
            tell_progress(
                place.job,
                step,
                step_seconds=step_seconds,
                loss=loss,
                rank=place.rank,
                node=place.node,
            )
        )

    return Progress(place, send)


@lru_cache(maxsize=1)
def _of_environment() -> Progress | None:
    try:
        place = read_job_place()
        return None if place is None else make_progress(read_settings(), place)
    except SettingError:
        return None  # `gpuwarden-run` says what is wrong; a training goes on


def report(step: int, loss: float | None = None) -> None:
    """A step has ended: tell of it by the environment's server, job and rank.

    The job is GPUWARDEN_JOB, else SLURM_JOB_ID or TORCHELASTIC_RUN_ID; without one it does nothing.

    Args:
        step: Its number.
        loss: Where it is at hand.
    """
    progress = _of_environment()
    if progress is not None:
        progress.report(step, loss)

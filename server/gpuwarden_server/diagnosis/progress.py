"""What running jobs tell of their steps: minutes in memory, kept in state.db."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from gpuwarden_server.diagnosis.repository import ToldMinute, read_minutes, write_minutes
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.diagnosis.window import Floats
from gpuwarden_verdict.job_loss import KEPT, JobLoss, odd_loss

MINUTE_S = 60.0
MOST_JOBS = 2_000
"""Jobs whose minutes are in memory; who told longest ago goes first, and stays in state.db."""
MINUTES_KEPT = 30
RANKS_KEPT = 64
"""Ranks of a job of which an odd loss is told within AGAIN_S: one that spreads is on all."""
AGAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Told:
    """One call of a training process.

    Attributes:
        job: "KIND:ID".
        step: Number of the step that ended.
        step_seconds: How long it took, None where it did not say.
        loss: Perhaps not finite; None where it did not say.
        rank: None where it did not say.
        at: Epoch seconds.
    """

    job: str
    step: int
    step_seconds: float | None
    loss: float | None
    rank: int | None
    at: float


@dataclass(slots=True)
class _Minute:
    told: int = 0
    last_step: int = 0
    seconds: float = 0.0
    counted: int = 0
    loss: float | None = None
    not_finite: int = 0
    changed: bool = True


@dataclass(slots=True)
class _Job:
    """What is remembered of a job.

    Attributes:
        minutes: The latest, by begin.
        losses: The latest finite ones.
        before: Step and time of each rank's last call: from two the time of a step follows.
        odd_at: When an odd loss of a rank was last told on.
        latest: When a step's time was last known, epoch seconds, and what it was.
    """

    minutes: OrderedDict[float, _Minute] = field(default_factory=OrderedDict)
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    before: dict[int | None, tuple[int, float]] = field(default_factory=dict)
    odd_at: dict[int | None, float] = field(default_factory=dict)
    latest: tuple[float, float] | None = None


class ProgressBook:
    """Steps of jobs; any thread."""

    def __init__(self, state: Database) -> None:
        """Keep minutes in `state`."""
        self._state = state
        self._lock = Lock()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def take(self, told: Told) -> JobLoss | None:
        """Note one call.

        Returns:
            What is odd about its loss; None where nothing is, or it was said a moment ago.
        """
        with self._lock:
            job = self._job(told.job)
            minute = _minute_of(job, told.at)
            seconds = told.step_seconds
            if seconds is None:
                seconds = _seconds_between(job, told)
            _keep_rank(job.before, told.rank, (told.step, told.at))
            minute.told += 1
            minute.last_step = max(minute.last_step, told.step)
            minute.changed = True
            if seconds is not None:
                job.latest = told.at, seconds
                minute.seconds += seconds
                minute.counted += 1
            return None if told.loss is None else _weigh(job, minute, told, told.loss)

    def minutes(self, job: str, begin: float, end: float) -> list[ToldMinute]:
        """Minutes of a job, oldest first.

        Args:
            job: "KIND:ID".
            begin: Epoch seconds.
            end: Epoch seconds.
        """
        with self._state.read() as connection:
            found = {one.at: one for one in read_minutes(connection, job, begin, end)}
        with self._lock:
            held = self._jobs.get(job)
            for at, minute in held.minutes.items() if held is not None else ():
                if begin <= at < end:
                    found[at] = _told(job, at, minute)
        return [found[at] for at in sorted(found)]

    def step_seconds(self, job: str, times: Floats, step_s: float) -> Floats | None:
        """What a step took, on a grid of times; None where the job never said.

        Args:
            job: "KIND:ID".
            times: Epoch seconds at which each step of the grid begins.
            step_s: Its length, seconds.
        """
        if not times.size:
            return None
        told = self.minutes(job, float(times[0]), float(times[-1]) + step_s)
        by_place: dict[int, list[float]] = {}
        for one in told:
            if one.step_seconds is not None:
                place = int((one.at - float(times[0])) // step_s)
                by_place.setdefault(place, []).append(one.step_seconds)
        if not by_place:
            return None
        series: Floats = np.full(times.size, np.nan)
        for place, values in by_place.items():
            if 0 <= place < times.size:
                series[place] = sum(values) / len(values)
        return series

    def lately(self, job: str, since: float) -> float | None:
        """What a step took by a job's latest word, seconds; None where it said none since then.

        Args:
            job: "KIND:ID".
            since: Epoch seconds.
        """
        with self._lock:
            held = self._jobs.get(job)
            latest = None if held is None else held.latest
        return latest[1] if latest is not None and latest[0] > since else None

    def save(self) -> int:
        """Store what changed since the last time; returns how many minutes that were.

        Raises:
            WriteFailed: They stay in memory and are stored the next time.
        """
        with self._lock:
            rows = [
                (minute, _told(name, at, minute))
                for name, job in self._jobs.items()
                for at, minute in job.minutes.items()
                if minute.changed
            ]
            for minute, _ in rows:
                minute.changed = False
        if not rows:
            return 0
        try:
            told = [row for _, row in rows]
            self._state.writer.call(lambda writes: write_minutes(writes, told), timeout_s=None)
        except BaseException:
            with self._lock:
                for minute, _ in rows:
                    minute.changed = True
            raise
        return len(rows)

    def _job(self, name: str) -> _Job:
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = _Job()
            while len(self._jobs) > MOST_JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(name)
        return job


def _minute_of(job: _Job, at: float) -> _Minute:
    begin = at // MINUTE_S * MINUTE_S
    minute = job.minutes.get(begin)
    if minute is None:
        minute = job.minutes[begin] = _Minute()
        while len(job.minutes) > MINUTES_KEPT:
            job.minutes.popitem(last=False)
    return minute


def _seconds_between(job: _Job, told: Told) -> float | None:
    """Time of a step by this rank's two calls; None after a return to an earlier step."""
    before = job.before.get(told.rank)
    if before is None or told.step <= before[0] or told.at <= before[1]:
        return None
    return (told.at - before[1]) / (told.step - before[0])


def _keep_rank(
    kept: dict[int | None, tuple[int, float]], rank: int | None, now: tuple[int, float]
) -> None:
    if rank in kept or len(kept) < RANKS_KEPT:
        kept[rank] = now


def _weigh(job: _Job, minute: _Minute, told: Told, loss: float) -> JobLoss | None:
    odd = odd_loss(job.losses, loss)
    if math.isfinite(loss):
        minute.loss = loss
        job.losses.append(loss)  # a jump too: where it stays there, that is usual soon
    else:
        minute.not_finite += 1
    if odd is None or not _is_news(job, told):
        return None
    fault, usual = odd
    return JobLoss(told.job, fault, told.step, told.rank, f"{loss:.6g}", usual, told.at)


def _is_news(job: _Job, told: Told) -> bool:
    for rank, at in list(job.odd_at.items()):
        if told.at - at >= AGAIN_S:
            del job.odd_at[rank]
    if told.rank in job.odd_at or len(job.odd_at) >= RANKS_KEPT:
        return False
    job.odd_at[told.rank] = told.at
    return True


def _told(job: str, at: float, minute: _Minute) -> ToldMinute:
    mean = minute.seconds / minute.counted if minute.counted else None
    return ToldMinute(job, at, minute.told, minute.last_step, mean, minute.loss, minute.not_finite)

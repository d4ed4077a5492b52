"""One job's pace against its own past, minute by minute: when to ask for a diagnosis. Pure.

It is cheap and coarse on purpose: it says that a job is slower than it was, for long enough, and
outside of what jobs do anyway (begin, load, save, rest, end). Why, and whether anything is wrong at
all, is for the diagnosis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from gpuwarden_verdict.diagnosis.phases import LOAD_BYTES_A_NODE, SAVE_BYTES_A_NODE

KEPT = 180
"""Looks that are remembered, one a minute."""
START_S = 600.0
"""A job's first minutes are no past: it loads, compiles and warms up."""
LEAST_PAST = 20
DWELL = 5
"""Looks over which a job must be slower without a break, and be well again."""
DROP_SHARE = 0.85
"""Of its usual pace, under which it is slower."""
BACK_SHARE = 0.93
SPREADS = 4.0
"""And so many of its usual spreads below: some jobs are unsteady."""
LONG_REST = 15
"""Looks a checkpoint or load may last where none was seen before; else three times the longest."""
SILENT_STEPS = 3.0
"""A job that tells its steps stands still where none came for so many times their length."""
_TELLS = 0.6
_RESTS = 0.5
"""Of the usual effort, under which GPUs rest while their job loads."""
LOADS = 1.5
"""Times what a job usually reads, from which it loads."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look saw of a job.

    Attributes:
        at: Epoch seconds.
        effort: Median over its GPUs of their share of full effort; NaN where too few were read.
        read_bytes: Bytes a second and node that it reads of mounts and disks.
        written_bytes: The same, written.
        held: Whether most of its GPUs have a program.
        step_seconds: What a step takes by its own word, None where it said nothing since the last
            look.
    """

    at: float
    effort: float
    read_bytes: float
    written_bytes: float
    held: bool
    step_seconds: float | None = None


class Pace(StrEnum):
    """How a job goes."""

    UNKNOWN = "unknown"  # too little is known of its past, or nothing was read now
    STEADY = "steady"
    RESTING = "resting"  # it saves, loads, or holds no GPU
    SLOWER = "slower"  # than its own past, for DWELL looks


@dataclass(frozen=True, slots=True)
class Drop:
    """A job is slower than it was.

    Attributes:
        since: Epoch seconds.
        usual: What it did before: share of full effort, or steps a second.
        present: What it does.
        measured: By the job's own steps.
        words: In words.
    """

    since: float
    usual: float
    present: float
    measured: bool
    words: str


@dataclass(frozen=True, slots=True)
class _Usual:
    """What a job does at most looks."""

    effort: float
    read_bytes: float


class JobWatch:
    """Remembers one job; a drop stands until the job is back at its usual pace."""

    def __init__(self, began: float | None) -> None:
        """Begin to watch.

        Args:
            began: When the job was first seen, epoch seconds; None where it ran before.
        """
        self._began = began
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._tells = False
        self.drop: Drop | None = None

    def note(self, sample: Sample) -> Pace:
        """Take one look over, and say how the job goes."""
        self._samples.append(sample)
        self._tells = self._tells or sample.step_seconds is not None
        if self.drop is not None:
            if self._is_back(self.drop):
                self.drop = None
                return Pace.STEADY
            return Pace.SLOWER
        if _rests(sample, self._usual()):
            self.drop = self._long_rest()
            return Pace.RESTING if self.drop is None else Pace.SLOWER
        if sample.effort != sample.effort:
            return Pace.UNKNOWN
        if not self._tells and sample.effort >= BACK_SHARE * self._usual().effort:
            return Pace.STEADY  # nearly always: the rest costs a hundred times more
        past = self._past()
        if len(past) < LEAST_PAST:
            return Pace.UNKNOWN
        self.drop = self._found(past)
        return Pace.STEADY if self.drop is None else Pace.SLOWER

    def _working(self) -> list[Sample]:
        """Looks at work, without those beside a rest, which are half of each."""
        told = list(self._samples)
        usual = self._usual()
        rests = [_rests(one, usual) for one in told]
        return [
            one
            for n, one in enumerate(told)
            if one.effort == one.effort and not any(rests[max(0, n - 1) : n + 2])
        ]

    def _past(self) -> list[Sample]:
        begin = 0.0 if self._began is None else self._began + START_S
        return [one for one in self._working()[:-DWELL] if one.at >= begin]

    def _usual(self) -> _Usual:
        read = [one for one in self._samples if one.effort == one.effort]
        if not read:
            return _Usual(0.0, 0.0)
        return _Usual(median(one.effort for one in read), median(one.read_bytes for one in read))

    def _found(self, past: Sequence[Sample]) -> Drop | None:
        measured = sum(one.step_seconds is not None for one in past) >= _TELLS * len(past)
        speeds = [speed for one in past if (speed := _speed(one, measured)) is not None]
        usual = median(speeds)
        spread = 1.4826 * median(abs(speed - usual) for speed in speeds)
        limit = min(DROP_SHARE * usual, usual - SPREADS * spread)
        now = self._working()[-DWELL:]
        latest = [_present(one, measured) for one in now]
        if usual <= 0 or any(speed >= limit for speed in latest):
            return None
        present = median(latest)
        what = "steps a second" if measured else "of full effort"
        words = f"{present:.3g} {what} for {DWELL} looks, {usual:.3g} before"
        return Drop(now[0].at, usual, present, measured, words)

    def _is_back(self, drop: Drop) -> bool:
        now = self._working()[-DWELL:]
        enough = BACK_SHARE * drop.usual
        lasts = len(now) == DWELL and now[0].at > drop.since
        return lasts and all(_present(one, drop.measured) >= enough for one in now)

    def _long_rest(self) -> Drop | None:
        """A checkpoint or load that goes on for far longer than any before."""
        usual = self._usual()
        lengths, length = list[int](), 0
        for one in self._samples:
            length = length + 1 if _moves(one, usual) else 0
            lengths.append(length)
        present = lengths[-1]
        earlier = max(lengths[:-present] if present else lengths, default=0)
        past = [one.effort for one in self._past()]
        if len(past) < LEAST_PAST or present <= max(LONG_REST, 3 * earlier):
            return None
        since = list(self._samples)[-present].at
        words = f"it saves or loads for {present} looks, {earlier} was the longest before"
        return Drop(since, median(past), 0.0, False, words)


def _rests(one: Sample, usual: _Usual) -> bool:
    """It holds no GPU, or its GPUs rest while it saves or loads."""
    return not one.held or _moves(one, usual)


def _moves(one: Sample, usual: _Usual) -> bool:
    if one.written_bytes >= SAVE_BYTES_A_NODE and one.written_bytes >= one.read_bytes:
        return not one.effort >= DROP_SHARE * usual.effort
    # A job that waits for its data reads less than ever; one that loads reads more.
    loads = one.read_bytes >= max(LOAD_BYTES_A_NODE, LOADS * usual.read_bytes)
    return loads and one.effort < _RESTS * usual.effort


def _speed(one: Sample, measured: bool) -> float | None:
    """Pace in the past; None where it was not told."""
    if not measured:
        return one.effort
    return None if one.step_seconds is None else 1.0 / one.step_seconds


def _present(one: Sample, measured: bool) -> float:
    """Pace now: a job that tells its steps and tells none makes none."""
    return _speed(one, measured) or 0.0

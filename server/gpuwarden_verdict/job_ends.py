"""Ends of jobs: evidence with weight about the nodes that they ran on, never a verdict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_wire.events import Event, EventKind

WINDOW_S = 86_400.0
"""Ends count for so long."""
LEAST_JOBS = 3
"""Different jobs that must have ended badly on a node before it is said to be odd."""
LEAST_USERS = 2
"""Of so many users, where users are known: one user's program fails everywhere."""
MOST_OF_A_USER = 2
"""Bad ends of one user count so often at most: a program that fails is started again and again."""
SCORE_A_JOB = 0.15
"""Of a job that ran on this node alone."""
MOST_SCORE = 0.6
GOOD_WEIGHT = 0.5
"""A job that ended well weighs against a bad one by this much: it may have used little."""
_KEPT = 64  # ends of a node


class JobOutcome(StrEnum):
    """What the end of a job says of where it ran."""

    GOOD = "good"
    BAD = "bad"
    NEUTRAL = "neutral"  # a person, a limit or the scheduler ended it: says nothing of the hardware


JOB_STATES: Mapping[str, JobOutcome] = MappingProxyType(
    {
        "COMPLETED": JobOutcome.GOOD,
        "SUCCEEDED": JobOutcome.GOOD,
        "FAILED": JobOutcome.BAD,
        "NODE_FAIL": JobOutcome.BAD,
        "BOOT_FAIL": JobOutcome.BAD,
        "LAUNCH_FAILED": JobOutcome.BAD,
        "CANCELLED": JobOutcome.NEUTRAL,
        "PREEMPTED": JobOutcome.NEUTRAL,
        "REVOKED": JobOutcome.NEUTRAL,
        "REQUEUED": JobOutcome.NEUTRAL,
        "TIMEOUT": JobOutcome.NEUTRAL,
        "DEADLINE": JobOutcome.NEUTRAL,
        "OUT_OF_MEMORY": JobOutcome.NEUTRAL,
        "EVICTED": JobOutcome.NEUTRAL,
    }
)
"""States in the words of Slurm and Kubernetes (any case). A job may run into its time limit or out
of memory on the best of nodes."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job ended.

    Attributes:
        job: "KIND:ID".
        state: One of JOB_STATES.
        exit_code: Of the job, None where nobody said.
        user: Whose it was, "" unknown.
        at: Epoch seconds.
        nodes: How many nodes it ran on.
    """

    job: str
    state: str
    exit_code: int | None
    user: str
    at: float
    nodes: int = 1

    @property
    def outcome(self) -> JobOutcome:
        """What it says; a word that nobody knows says nothing."""
        return JOB_STATES.get(self.state, JobOutcome.NEUTRAL)

    @property
    def words(self) -> str:
        """Such as "slurm:4711 FAILED (exit code 1)"."""
        code = "" if self.exit_code is None else f" (exit code {self.exit_code})"
        return f"{self.job} {self.state}{code}"


@dataclass(frozen=True, slots=True)
class EndTally:
    """What the ends of jobs on one node amount to.

    Attributes:
        bad: Newest bad end of each job, oldest first.
        good: How many jobs ended well.
        users: Users of the bad ones, as far as they are known.
        score: 0..1.
    """

    bad: tuple[JobEnd, ...]
    good: int
    users: int
    score: float

    @property
    def speaks(self) -> bool:
        """Whether it is worth a word: several jobs of several people, and few that went well."""
        several = len(self.bad) >= LEAST_JOBS and (self.users == 0 or self.users >= LEAST_USERS)
        return several and self.score >= 2 * SCORE_A_JOB


def told_end(event: Event) -> JobEnd | None:
    """What a JOB_ENDED event says; None for any other, and for one that names no job."""
    said = event.attributes
    job, code, nodes = said.get("job"), said.get("exit_code"), said.get("nodes")
    if event.kind is not EventKind.JOB_ENDED or not isinstance(job, str):
        return None
    return JobEnd(
        job,
        str(said.get("state", "")).upper(),
        code if isinstance(code, int) else None,
        str(said.get("user", "")),
        event.observed_at,
        nodes if isinstance(nodes, int) and nodes > 0 else 1,
    )


def end_event(event_id: str, end: JobEnd) -> Event:
    """The event by which one of a job's nodes is told that it ended."""
    return Event(
        id=event_id,
        kind=EventKind.JOB_ENDED,
        observed_at=end.at,
        text=f"job {end.words}",
        attributes={
            "job": end.job,
            "state": end.state,
            "exit_code": end.exit_code,
            "user": end.user,
            "nodes": end.nodes,
        },
    )


def tally_of(ends: Iterable[JobEnd], now: float) -> EndTally:
    """What ends on one node amount to at `now` (epoch seconds).

    A job of many nodes says little about each of them: its weight falls with the root of their
    number. Of one user the heaviest MOST_OF_A_USER count.
    """
    newest: dict[str, JobEnd] = {}
    for end in sorted(ends, key=lambda end: end.at):
        if now - end.at < WINDOW_S:
            newest[end.job] = end
    bad = tuple(end for end in newest.values() if end.outcome is JobOutcome.BAD)
    good = [end for end in newest.values() if end.outcome is JobOutcome.GOOD]
    weight = sum(_weights_by_user(bad)) - GOOD_WEIGHT * sum(map(_weight, good))
    users = len({end.user for end in bad if end.user})
    return EndTally(bad, len(good), users, min(MOST_SCORE, max(0.0, SCORE_A_JOB * weight)))


def _weights_by_user(bad: Iterable[JobEnd]) -> Iterator[float]:
    by_user: dict[str, list[float]] = defaultdict(list)
    for end in bad:
        by_user[end.user].append(_weight(end))
    for user, weights in by_user.items():
        counted = MOST_OF_A_USER if user else len(weights)
        yield from sorted(weights, reverse=True)[:counted]


def _weight(end: JobEnd) -> float:
    return 1.0 / math.sqrt(max(1, end.nodes))


class EndBook:
    """Ends of jobs by node, the latest; those of nodes where none went badly cost nothing."""

    def __init__(self) -> None:
        self._ends: dict[str, list[JobEnd]] = {}
        self._shown: Mapping[str, tuple[JobEnd, ...]] = {}
        self._changed = False

    def note(self, node_id: str, end: JobEnd) -> None:
        """Take an end on a node over; the same one twice is one."""
        ends = self._ends.setdefault(node_id, [])
        if end not in ends:
            ends.append(end)
            del ends[:-_KEPT]
            self._changed = True

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        if old in self._ends:
            self._ends[new] = self._ends.pop(old)
            self._changed = True

    def shown(self, now: float) -> Mapping[str, tuple[JobEnd, ...]]:
        """Ends of nodes on which a job ended badly within WINDOW_S before `now`."""
        if self._changed or any(_is_old(ends, now) for ends in self._shown.values()):
            for node_id, ends in list(self._ends.items()):
                ends[:] = [end for end in ends if now - end.at < WINDOW_S]
                if not ends:
                    del self._ends[node_id]
            self._shown = {
                node_id: tuple(ends)
                for node_id, ends in self._ends.items()
                if any(end.outcome is JobOutcome.BAD for end in ends)
            }
            self._changed = False
        return self._shown


def _is_old(ends: tuple[JobEnd, ...], now: float) -> bool:
    return now - ends[0].at >= WINDOW_S

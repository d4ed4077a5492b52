"""Asks by itself where a job became slower than its own past, and tells the judge what is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.diagnosis.desk import Answer, DiagnosisDesk
from gpuwarden_server.diagnosis.record import TRIGGER, DiagnosisRecord
from gpuwarden_server.diagnosis.sampling import JobSampler
from gpuwarden_server.diagnosis.schemas import kind_word
from gpuwarden_server.incidents.repository import read_live
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.diagnosis import CulpritKind
from gpuwarden_verdict.diagnosis.alarm import Alarm, alarm_of, alarm_over
from gpuwarden_verdict.diagnosis.watching import Drop, JobWatch, Pace
from gpuwarden_verdict.entities import EntityRef, renamed_ref
from gpuwarden_verdict.incidents.diagnosed import DIAGNOSIS
from gpuwarden_verdict.signals import Recovery, Signal

WINDOW_S = 1800.0
"""Before now, at most, that a diagnosis of its own asks about; the hour before is its past."""
BEFORE_S = 300.0
PAST_S = 3600.0
AGAIN_S = 900.0
"""Until a job that is still slower is asked about again; doubled where nothing is found."""
MOST_AGAIN_S = 4 * 3600.0
CALM = 2
"""Diagnoses in a row that find nothing, after which what stood before is over."""
SHARE = 0.05
"""Of the time, at most, that diagnoses of its own take: a slow one puts the next one off."""
_log = structlog.get_logger(__name__)


class AlarmJudge(Protocol):
    """Who alone writes incidents; the judge is."""

    def take_findings(self, signals: Sequence[Signal], recoveries: Sequence[Recovery]) -> None:
        """Take evidence over, committed on return.

        Raises:
            WriteFailed: Nothing is.
            ProblemError: It does not come to it in time.
        """
        ...


class RunningJobs(Protocol):
    """Which GPUs run which jobs; the directory knows."""

    def jobs(self) -> Mapping[str, str]:
        """The job of each GPU that has one."""
        ...

    def jobs_began(self) -> Mapping[str, float]:
        """When each job was first seen, epoch seconds."""
        ...


class TriggerMeters:
    """What the trigger counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.made = Counter(
            "gpuwarden_diagnosis_trigger_total",
            "Diagnoses that nobody asked for, by what they blame; failed: none could be made.",
            ["kind"],
            registry=registry,
        )
        self.seconds = Histogram(
            "gpuwarden_diagnosis_trigger_seconds",
            "One of them, from history to the judge.",
            buckets=(0.1, 0.5, 1.0, 5.0, 15.0, 60.0),
            registry=registry,
        )


@dataclass(slots=True)
class _Watched:
    """A job.

    Attributes:
        watch: Its pace.
        entity: What is blamed for it, as the judge was told; None for nothing.
        hit: Nodes that suffer from that.
        due: When it is asked about next, epoch seconds.
        again_s: How long after.
        calm: Diagnoses in a row that found nothing.
    """

    watch: JobWatch
    entity: EntityRef | None = None
    hit: frozenset[str] = frozenset()
    due: float = 0.0
    again_s: float = AGAIN_S
    calm: int = 0


@dataclass(slots=True)
class _Owed:
    """What the judge has not taken yet."""

    signals: list[Signal] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TriggerParts:
    """What the trigger works with.

    Attributes:
        state: state.db, for what stands after a restart.
        running: Which GPUs run which jobs.
        sampler: Looks at them.
        desk: Makes diagnoses.
        record: Keeps them.
        clock: Time.
        registry: Metrics.
    """

    state: Database
    running: RunningJobs
    sampler: JobSampler
    desk: DiagnosisDesk
    record: DiagnosisRecord
    clock: Clock
    registry: CollectorRegistry


class Trigger:
    """Looks at all jobs; `look` is called by one thread at a time, `hit` by any."""

    def __init__(self, parts: TriggerParts) -> None:
        self._parts = parts
        self._meters = TriggerMeters(parts.registry)
        self._jobs: dict[str, _Watched] = {}
        self._owed = _Owed()
        self._looked_at = 0.0
        self._rests_until = 0.0
        self._lock = Lock()
        self._hit: Mapping[str, frozenset[str]] = {}

    def hit(self) -> Mapping[str, frozenset[str]]:
        """Nodes that what is blamed hits, by key of the place."""
        with self._lock:
            return self._hit

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        for one in list(self._jobs.values()):
            if one.entity is not None:
                one.entity = renamed_ref(one.entity, old, new)
            if old in one.hit:
                one.hit = one.hit - {old} | {new}
        self._show()

    def recall(self) -> None:
        """Take over what stands since before a restart; it is asked about anew."""
        with self._parts.state.read() as connection:
            live = read_live(connection)
        for incident in live:
            for item in incident.evidence:
                if item.detector.startswith(DIAGNOSIS) and item.cleared_at is None:
                    job = item.detector.removeprefix(DIAGNOSIS)
                    self._jobs[job] = _Watched(JobWatch(None), incident.entity)

    def look(self, judge: AlarmJudge) -> None:
        """One look at all jobs; at most one of them is asked about.

        Args:
            judge: Told what is found.
        """
        now = self._parts.clock.now()
        jobs: defaultdict[str, list[str]] = defaultdict(list)
        for gpu, job in self._parts.running.jobs().items():
            jobs[job].append(gpu)
        self._note(jobs, now)
        self._end(jobs, now)
        due = self._due(now)
        if due is not None:
            self._ask(due, now)
        self._tell(judge)
        self._show()
        self._looked_at = now

    def _note(self, jobs: Mapping[str, Sequence[str]], now: float) -> None:
        began = self._parts.running.jobs_began()
        for job, sample in self._parts.sampler.look(jobs, now, self._looked_at).items():
            one = self._jobs.get(job)
            if one is None:
                one = self._jobs[job] = _Watched(JobWatch(began.get(job)))
            stood = one.watch.drop
            pace = one.watch.note(sample)
            if stood is not None and pace is Pace.STEADY:
                self._clear(job, one, "it is back at its usual pace", now)
                one.due, one.again_s = 0.0, AGAIN_S

    def _end(self, jobs: Mapping[str, Sequence[str]], now: float) -> None:
        for job in self._jobs.keys() - jobs.keys():
            self._clear(job, self._jobs.pop(job), "the job runs no more", now)

    def _due(self, now: float) -> str | None:
        """The job that waits for longest, None where none does."""
        if now < self._rests_until:
            return None
        waiting = [
            (one.due, job)
            for job, one in self._jobs.items()
            if (one.watch.drop is not None or one.entity is not None) and one.due <= now
        ]
        return min(waiting)[1] if waiting else None

    def _ask(self, job: str, now: float) -> None:
        one, began = self._jobs[job], self._parts.clock.monotonic()
        one.due = now + one.again_s
        try:
            answer = self._answer(job, one.watch.drop, now)
            kept = self._parts.record.keep(answer, TRIGGER, None)
        except (ProblemError, WriteFailed, SQLAlchemyError) as error:
            self._meters.made.labels("failed").inc()
            _log.warning("diagnosis_not_made", job=job, reason=str(error))
            return
        drop = one.watch.drop
        why = "it stood before" if drop is None else drop.words
        self._conclude(job, one, answer, alarm_of(answer.diagnosis, kept.id, why, now), now)
        took_s = self._parts.clock.monotonic() - began
        self._rests_until = now + took_s / SHARE
        self._meters.made.labels(kind_word(answer.diagnosis.kind)).inc()
        self._meters.seconds.observe(took_s)
        _log.info("diagnosis_made", job=job, id=kept.id, line=answer.diagnosis.line)

    def _answer(self, job: str, drop: Drop | None, now: float) -> Answer:
        since = now if drop is None else drop.since
        begin = max(now - WINDOW_S, min(since - BEFORE_S, now - 2 * BEFORE_S))
        return self._parts.desk.diagnose(job, begin, now, PAST_S)

    def _conclude(
        self, job: str, one: _Watched, answer: Answer, alarm: Alarm | None, now: float
    ) -> None:
        if alarm is None:
            one.again_s = min(MOST_AGAIN_S, 2 * one.again_s) if one.entity is None else AGAIN_S
            one.calm = one.calm + 1 if answer.diagnosis.kind is CulpritKind.NOTHING else 0
            if one.calm >= CALM:
                self._clear(job, one, f"{CALM} diagnoses in a row find nothing abnormal", now)
            return
        one.calm, one.again_s = 0, AGAIN_S
        if one.entity not in (None, alarm.signal.entity):
            self._clear(job, one, f"what slows {job} is {alarm.signal.entity.key} by now", now)
        one.entity, one.hit = alarm.signal.entity, alarm.hit
        self._owed.signals.append(alarm.signal)

    def _clear(self, job: str, one: _Watched, reason: str, now: float) -> None:
        if one.entity is None:
            return
        self._owed.signals = [s for s in self._owed.signals if s.job != job]
        self._owed.recoveries.append(alarm_over(one.entity, job, f"{job}: {reason}", now))
        one.entity, one.hit = None, frozenset()

    def _tell(self, judge: AlarmJudge) -> None:
        owed = self._owed
        if not (owed.signals or owed.recoveries):
            return
        try:
            judge.take_findings(owed.signals, owed.recoveries)
        except (ProblemError, WriteFailed, SQLAlchemyError) as error:
            _log.warning("diagnosis_not_told", reason=str(error))  # told at the next look
            return
        self._owed = _Owed()

    def _show(self) -> None:
        """Nodes hit, of all jobs that blame one thing together."""
        found: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for one in list(self._jobs.values()):
            if one.entity is not None:
                found[one.entity.key] |= one.hit
        with self._lock:
            self._hit = dict(found)

"""A stall of storage is found without anybody asking; what jobs do anyway stays silent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from gpuwarden_models.diagnosis.plant import GPUS, Parts, Site, Work, sound
from gpuwarden_models.diagnosis.readings import play
from gpuwarden_verdict.diagnosis import JobSpan, Window, diagnose
from gpuwarden_verdict.diagnosis.alarm import Alarm, alarm_of
from gpuwarden_verdict.diagnosis.robust import mean, middle, total
from gpuwarden_verdict.diagnosis.watching import JobWatch, Pace, Sample
from gpuwarden_verdict.diagnosis.window import Floats
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.incidents.diagnosed import DIAGNOSIS, members_of_diagnosed
from gpuwarden_verdict.incidents.lifecycle import advance
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.metrics import EntityKind

MINUTES, STALL = 110, 70
JOB = "slurm:24"
NODES = 24


def test_a_stall_of_the_file_server_is_found_blames_it_and_ends() -> None:
    window = tell(stalls=(STALL, STALL + 20))

    alarms, paces = look_on(window)

    assert alarms, paces
    first = alarms[0].signal
    assert first.entity == EntityRef(EntityKind.PLACE, "mount:/scratch", "")
    assert first.fault_class is FaultClass.STORAGE
    assert first.max_rung is Rung.OBSERVE  # no GPU is ever excluded for it
    assert not first.acts_alone
    assert "innocent: " in first.sentence
    assert "GPUs" in first.sentence
    assert len(alarms[0].hit) == NODES
    begun = paces.index(Pace.SLOWER)
    assert STALL + 4 <= begun <= STALL + 12
    assert paces[-1] is Pace.STEADY  # it is over, and so is the incident


def test_saves_and_a_finished_job_ask_for_nothing() -> None:
    for window in (tell(), tell(ends=STALL)):
        alarms, paces = look_on(window)
        assert Pace.SLOWER not in paces, paces
        assert alarms == []


def test_what_follows_from_the_stall_becomes_its_member_and_what_does_not_stays_free() -> None:
    (alarm, *_), _ = look_on(tell(stalls=(STALL, MINUTES)))
    opened = advance((), [alarm.signal, *others(10.0)], (), 10.0, names("inc"))
    incidents = [move.incident for move in opened]
    parent = next(one for one in incidents if one.entity.kind is EntityKind.PLACE)
    assert parent.evidence[0].detector == f"{DIAGNOSIS}{JOB}"

    found = members_of_diagnosed(incidents, {parent.entity.key: alarm.hit}, (), 20.0)

    kept = {one.entity.key for one in incidents if one.id in found}
    assert kept == {"n001", "GPU-n001-0"}
    assert set(found.values()) == {(parent.entity, f"{DIAGNOSIS}{JOB}")}
    assert members_of_diagnosed(incidents, {}, (), 20.0) == {}


def look_on(window: Window) -> tuple[list[Alarm], list[Pace]]:
    """Minute by minute; asked once when the job becomes slower."""
    (job,) = window.jobs
    watch, alarms, paces = JobWatch(None), list[Alarm](), list[Pace]()
    for minute in range(window.steps):
        at = float(window.times[minute])
        if job.until is not None and at >= job.until:
            break
        before = watch.drop
        paces.append(watch.note(sample_of(window, job, minute)))
        if before is None and watch.drop is not None:
            told = diagnose(window.until(minute), JOB)
            alarm = alarm_of(told, "dia-1", watch.drop.words, at)
            alarms += [] if alarm is None else [alarm]
    return alarms, paces


def sample_of(window: Window, job: JobSpan, minute: int) -> Sample:
    """What the columns of the server would show."""

    def now(kind: EntityKind, name: str) -> Floats:
        return window.metric(kind, name)[window.rows_of(kind, job)][:, minute]

    used, watts = (now(EntityKind.GPU, f"gpu_{n}") for n in ("utilization_ratio", "power_watts"))
    limit = now(EntityKind.GPU, "gpu_power_limit_watts")
    effort = np.fmin(used, watts / limit)
    moved = {
        what: sum(
            float(np.nan_to_num(total(now(kind, f"{name}_{what}_bytes_total")[:, None]))[0])
            for kind, name in ((EntityKind.MOUNT, "mount"), (EntityKind.DISK, "disk"))
        )
        for what in ("read", "written")
    }
    return Sample(
        at=float(window.times[minute]),
        effort=float(middle(effort[:, None], 0)[0]),
        read_bytes=moved["read"] / job.nodes.size,
        written_bytes=moved["written"] / job.nodes.size,
        held=mean(now(EntityKind.GPU, "gpu_memory_used_bytes")) > 2e9,
    )


def tell(stalls: tuple[int, int] | None = None, ends: int | None = None) -> Window:
    """A job that reads its data from a mount and saves to it each quarter of an hour."""
    work = Work(
        name=JOB,
        nodes=np.arange(NODES),
        compute_s=1.0,
        talk_bytes=2e10,
        copy_s=0.05,
        prepare_s=0.5,
        feed_bytes=2e8,
        cache_bytes=2e8,
        save_every_s=900.0,
        save_bytes=3e10,
        pause_every_s=0.0,
        share=np.ones(NODES * GPUS),
        presses=0.01,
        tells=False,
        watts=np.full(NODES * GPUS, 620.0),
        next_save_s=300.0,
    )
    site = Site(NODES, np.arange(NODES) // 8, [work], server_bytes=5e10)

    def state_at(since: float) -> Parts:
        parts = sound(NODES)
        if stalls is not None and stalls[0] <= since / 60.0 < stalls[1]:
            parts.server = 0.02
        return parts

    window = play(site, state_at, MINUTES, STALL - 5, np.random.default_rng(8))
    if ends is None:
        return window
    (job,) = window.jobs
    over = JobSpan(job.job, job.nodes, job.gpus, job.since, float(window.times[ends]))
    return Window(
        *(window.times, window.step_s, window.first, window.nodes, window.strips, window.places),
        (over,),
    )


def others(at: float) -> list[Signal]:
    """What else is open: two things that follow from a stall, two that do not, one elsewhere."""
    node, gpu = EntityRef(EntityKind.NODE, "n001", "n001"), gpu_of("n001", 0)
    return [
        signal(node, FaultClass.HOST, at),
        signal(gpu, FaultClass.UNKNOWN, at),
        signal(gpu_of("n001", 1), FaultClass.MEMORY, at),
        signal(gpu_of("n002", 1), FaultClass.UNKNOWN, at, acts_alone=True),
        signal(gpu_of("elsewhere", 1), FaultClass.UNKNOWN, at),
    ]


def gpu_of(node: str, number: int) -> EntityRef:
    return EntityRef(EntityKind.GPU, f"GPU-{node}-{number}", node)


def signal(ref: EntityRef, of: FaultClass, at: float, acts_alone: bool = False) -> Signal:
    return Signal(
        entity=ref,
        fault_class=of,
        score=0.5,
        severity=Severity.WARNING,
        plane=Plane.HOST,
        sentence="odd",
        detector="x",
        detector_version=1,
        observed_at=at,
        expires_at=at + 1e4,
        persistence=Persistence.EVENT,
        max_rung=Rung.SUSPECT,
        acts_alone=acts_alone,
        event_ids=(f"{ref.key}",),
    )


def names(prefix: str) -> Callable[[], str]:
    numbers = count()
    return lambda: f"{prefix}-{next(numbers)}"

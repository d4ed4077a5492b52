"""What one decision saved or lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.savings.assumptions import Assumptions

_HOUR_S = 3600.0


class Outcome(StrEnum):
    """What a decision turned out to be, by the label of its incident."""

    RIGHT = "right"  # action was needed
    WRONG = "wrong"  # it was not: a false alarm, the program's fault, a person's doing
    UNSETTLED = "unsettled"  # nobody can tell, or not yet


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a decision.

    Attributes:
        decision_id: It.
        node_id: Where it acts.
        fault_class: Of its incident.
        rung: The highest that it came to.
        acted: It was in force; else it is what would have been.
        begun_at: When it came into force, else when it was made; epoch seconds.
        ended_at: Epoch seconds, None while it stands.
        gpus_out: GPUs that it takes out.
        job_gpus: GPUs of the jobs that ran there then, None where nobody knows.
        model: Of the GPUs, "" unknown.
        watts_before: Mean power of a GPU in the hour before, by its energy counter, where it was
            right; None unknown.
        watts_out: The same while it is out, where it was wrong.
        outcome: What it turned out to be.
        incident_id: What it rests on, "" unknown.
        jobs: Jobs that ran there then, empty where nobody knows.
    """

    decision_id: str
    node_id: str
    fault_class: FaultClass
    rung: Rung
    acted: bool
    begun_at: float
    ended_at: float | None
    gpus_out: int
    job_gpus: int | None = None
    model: str = ""
    watts_before: float | None = None
    watts_out: float | None = None
    outcome: Outcome = Outcome.UNSETTLED
    incident_id: str = ""
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cost:
    """What a decision saved and lost so far; of an unsettled one both are 0.

    Attributes:
        outcome: What it turned out to be.
        saved_gpu_hours: Hours of GPUs that would have stood still.
        lost_gpu_hours: Hours of sound GPUs that were not used.
        saved_kwh: Energy of the hours saved, None where no energy counter was read.
        lost_kwh: Energy that GPUs used while they were out for nothing, None likewise.
        saved_money: None where no price is known.
        lost_money: None likewise.
        if_right_gpu_hours: What it saves if it was right.
        if_wrong_gpu_hours: What it costs so far if it was wrong.
        says: What is unknown or assumed here.
    """

    outcome: Outcome
    saved_gpu_hours: float
    lost_gpu_hours: float
    saved_kwh: float | None
    lost_kwh: float | None
    saved_money: float | None
    lost_money: float | None
    if_right_gpu_hours: float
    if_wrong_gpu_hours: float
    says: tuple[str, ...]


def outcome_of(needed: bool | None) -> Outcome:
    """The outcome behind a label: whether action was needed, None where nobody can tell."""
    if needed is None:
        return Outcome.UNSETTLED
    return Outcome.RIGHT if needed else Outcome.WRONG


def cost_of(facts: Facts, assumed: Assumptions, now: float) -> Cost:
    """What a decision saved or lost until `now` (epoch seconds).

    Right, it saved its job `failures` failures, each of which would have let all GPUs of the job
    wait for the time-out and the restart; that the faulty part did no work is no loss. Wrong, it
    lost the hours of the GPUs that it took out, and where it moved a job the restart of that.
    """
    job_gpus = assumed.job_gpus if facts.job_gpus is None else float(facts.job_gpus)
    if_right = job_gpus * assumed.failures * (assumed.hang_s + assumed.restart_s) / _HOUR_S
    end = now if facts.ended_at is None else facts.ended_at
    if_wrong = facts.gpus_out * max(0.0, end - facts.begun_at) / _HOUR_S
    if facts.rung >= Rung.DRAIN:
        if_wrong += job_gpus * assumed.restart_s / _HOUR_S
    saved = if_right if facts.outcome is Outcome.RIGHT else 0.0
    lost = if_wrong if facts.outcome is Outcome.WRONG else 0.0
    saved_kwh, lost_kwh = _kwh(saved, facts.watts_before), _kwh(lost, facts.watts_out)
    price = assumed.price_of(facts.model)
    return Cost(
        outcome=facts.outcome,
        saved_gpu_hours=saved,
        lost_gpu_hours=lost,
        saved_kwh=saved_kwh,
        lost_kwh=lost_kwh,
        saved_money=_money(saved, saved_kwh, price, assumed.kwh_price),
        lost_money=_money(lost, lost_kwh, price, assumed.kwh_price),
        if_right_gpu_hours=if_right,
        if_wrong_gpu_hours=if_wrong,
        says=tuple(_says(facts, assumed, price)),
    )


def _kwh(gpu_hours: float, watts: float | None) -> float | None:
    if gpu_hours == 0.0:
        return 0.0
    return None if watts is None else gpu_hours * watts / 1000.0


def _money(
    gpu_hours: float, kwh: float | None, price: float | None, kwh_price: float | None
) -> float | None:
    if gpu_hours == 0.0:
        return 0.0
    if price is None or (kwh_price is not None and kwh is None):
        return None
    return gpu_hours * price + (kwh or 0.0) * (kwh_price or 0.0)


def _says(facts: Facts, assumed: Assumptions, price: float | None) -> list[str]:
    told = []
    if facts.job_gpus is None:
        told.append(f"no job is known to have run there: one of {assumed.job_gpus:g} GPUs assumed")
    if facts.watts_before is None and facts.outcome is Outcome.RIGHT:
        told.append("no energy counter was read in the hour before: the energy saved is unknown")
    if facts.watts_out is None and facts.outcome is Outcome.WRONG:
        told.append("no energy counter was read while it was out: the energy lost is unknown")
    if price is None:
        told.append(f"no price for GPU model {facts.model or 'unknown'!r}: the money is unknown")
    if facts.ended_at is None:
        told.append("it stands still: what it costs if it is wrong grows")
    return told

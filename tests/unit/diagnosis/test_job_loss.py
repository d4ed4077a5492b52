"""Losses that are not finite or jump, and what is made of them."""

from __future__ import annotations

import math

import pytest

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors import EVENT_DETECTORS, SWEEP_DETECTORS
from gpuwarden_verdict.detectors.job_loss import LOSS_NOT_FINITE, JobLossDetector
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.job_loss import JobLoss, LossFault, loss_event, odd_loss, told_loss
from gpuwarden_wire.metrics import EntityKind

PAST = [2.5 - 0.01 * n + 0.02 * (n % 3) for n in range(40)]
GPU = EntityRef(EntityKind.GPU, "GPU-n1-0", "n1")


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_odd_from_the_first_call_on(loss: float) -> None:
    assert odd_loss([], loss) == (LossFault.NOT_FINITE, None)
    assert odd_loss(PAST, loss) is not None


def test_a_jump_is_odd_and_the_usual_noise_is_not() -> None:
    assert odd_loss(PAST, 2.4) is None
    assert odd_loss(PAST, 4.0) is None  # under twice the usual one
    found = odd_loss(PAST, 9.0)
    assert found is not None
    assert found[0] is LossFault.SPIKE
    assert odd_loss(PAST[:10], 9.0) is None  # too little is known
    assert odd_loss([0.0] * 30, 0.0) is None


def test_the_event_says_what_was_told() -> None:
    told = JobLoss("slurm:7", LossFault.NOT_FINITE, 1200, 17, "nan", 2.31, 5.0)
    event = loss_event("x", told, GPU)
    assert told_loss(event) == told
    assert event.text == "loss nan at step 1200 on rank 17 of slurm:7, 2.31 before"


@pytest.mark.parametrize("fault", list(LossFault))
def test_it_is_evidence_of_class_unknown_that_can_exclude_nothing(fault: LossFault) -> None:
    told = JobLoss("slurm:7", fault, 1, 0, "nan", None, 5.0)
    (signal,) = JobLossDetector().detect_event(
        loss_event("x", told, GPU), GPU, NodeContext("n1", "b")
    )
    assert signal.fault_class is FaultClass.UNKNOWN
    assert signal.max_rung is Rung.SUSPECT
    assert not signal.acts_alone
    assert signal.application_possible
    assert (signal.severity is Severity.WARNING) == (fault is LossFault.NOT_FINITE)
    assert LOSS_NOT_FINITE.max_rung is Rung.SUSPECT
    assert LOSS_NOT_FINITE in SWEEP_DETECTORS
    assert any(one.name == "job_loss" for one in EVENT_DETECTORS)

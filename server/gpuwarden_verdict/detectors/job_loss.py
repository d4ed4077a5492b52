"""A loss that is not finite, or jumps: class unknown, suspect at most, whoever tells it."""

from __future__ import annotations

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import HOUR_S, Weight, event_signal
from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.job_loss import LEAST_PAST, SPIKE_RATIO, SPIKE_SPREADS, LossFault, told_loss
from gpuwarden_verdict.signals import Plane, Signal
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind

_SCORE = 0.3
_WEIGHTS = {
    LossFault.NOT_FINITE: Weight(_SCORE, Severity.WARNING, ttl_s=HOUR_S, max_rung=Rung.SUSPECT),
    # By itself it opens no incident: trainings have them.
    LossFault.SPIKE: Weight(0.1, Severity.INFO, ttl_s=HOUR_S, max_rung=Rung.SUSPECT),
}


class JobLossDetector:
    """Signals of losses that training processes tell."""

    name = "job_loss"
    version = 1
    about = About(
        Plane.EVENTS,
        ("job_loss",),
        "the loss of a job is not finite, or jumps, as its process there told",
        f"nan or infinite; a jump: over {SPIKE_RATIO:g} times the median of {LEAST_PAST} losses or "
        f"more, and {SPIKE_SPREADS:g} of their spreads above it",
        Rung.SUSPECT,
        "time, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal a JOB_LOSS event; on several parts of one job it is the program's."""
        told = told_loss(event)
        if told is None:
            return []
        return [
            event_signal(
                event,
                ref,
                node,
                detector=self.name,
                version=self.version,
                fault_class=FaultClass.UNKNOWN,
                weight=_WEIGHTS[told.fault],
                sentence=told.words,
                application_possible=True,
            )
        ]


LOSS_NOT_FINITE = StateDetector(
    name="loss_not_finite",
    version=1,
    metric="node_job_loss_not_finite",
    fault_class=FaultClass.UNKNOWN,
    score=_SCORE,
    severity=Severity.WARNING,
    says="the loss of the job there is not finite",
    action=RecommendedAction.INVESTIGATE,
    max_rung=Rung.SUSPECT,
    kind=EntityKind.NODE,
    plane=Plane.HOST,
)
"""The same, read from a text metric."""

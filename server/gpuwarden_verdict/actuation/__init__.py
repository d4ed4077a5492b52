"""What a consumer of exclusions must do next: wanted against found. Pure: values in, steps out."""

from gpuwarden_verdict.actuation.domain import (
    REMEDIES,
    TAG,
    Act,
    Drift,
    Found,
    Held,
    Hold,
    Standing,
    Step,
    Wanted,
)
from gpuwarden_verdict.actuation.plan import plan_steps
from gpuwarden_verdict.actuation.wanting import wanted_nodes

__all__ = [
    "REMEDIES",
    "TAG",
    "Act",
    "Drift",
    "Found",
    "Held",
    "Hold",
    "Standing",
    "Step",
    "Wanted",
    "plan_steps",
    "wanted_nodes",
]

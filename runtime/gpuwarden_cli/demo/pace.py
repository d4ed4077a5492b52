"""How fast the demo goes: one place for every time of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of one run, seconds.

    Attributes:
        interval_s: Between readings of each node.
        sweep_s: Between the server's sweeps.
        settle_s: Policy: wait before evidence that an application can cause is judged.
        dwell_s: Policy: how long sound evidence must hold; also the probation.
        silent_s: A node counts as silent after this.
        quiet_s: How long the quiet beginning is watched.
        pause_s: Between two steps, for people to look.
        ramp_s: From the first warmth of the overheating GPU to its full effect.
        wear_s: From the first remapped row to the failure.
        step_s: How long a step may take to show what is told.
        slow_step_s: The same for the learnt score, which needs a trend.
    """

    interval_s: float
    sweep_s: float
    settle_s: float
    dwell_s: float
    silent_s: float
    quiet_s: float
    pause_s: float
    ramp_s: float
    wear_s: float
    step_s: float
    slow_step_s: float


STROLL = Pace(
    interval_s=2.0,
    sweep_s=1.0,
    settle_s=8.0,
    dwell_s=10.0,
    silent_s=20.0,
    quiet_s=12.0,
    pause_s=6.0,
    ramp_s=60.0,
    wear_s=8.0,
    step_s=30.0,
    slow_step_s=90.0,
)
"""For people: a story of about two minutes."""

BRISK = Pace(
    interval_s=1.0,
    sweep_s=0.5,
    settle_s=2.0,
    dwell_s=4.0,
    silent_s=15.0,
    quiet_s=4.0,
    pause_s=0.5,
    ramp_s=5.0,
    wear_s=4.0,
    step_s=20.0,
    slow_step_s=75.0,
)
"""For `--once`: the same story, as short as real clocks allow."""

"""Hosts: memory errors, a stall that shows before any message, a page-out burst, a lost clock."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import DAY_S
from gpuwarden_verdict.detectors.measures import change_to_usual, growth_a_day
from gpuwarden_verdict.detectors.reading import Bool
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.detectors.statistic import Measured, StatisticDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_wire.metrics import EntityKind

INTERRUPTS, RUNNING = "node_interrupts_total", "node_processes_running"
PAGES_OUT = "node_pages_out_bytes_total"

RUNNING_LEFT = 0.25
RUNNING_USUALLY = 4.0
"""A host that usually runs fewer than this many processes has nothing to collapse."""
BURST_FROM = 200e6
"""Bytes a second that are paged out in a burst, at least."""
USUAL_FROM = 10e6
"""A usual rate is not taken to be smaller: a multiple of nothing says nothing."""


def measure_stall(scene: Scene) -> Measured:
    """How far interrupts fell below their own last hour and the peers' change, as a share.

    Only while a job or a process holds the node's GPUs, and the runnable processes have collapsed
    too: the end of a job quietens a host as well. Seen at a bus fault of a B200 node: interrupts
    fell to a quarter, runnable processes to none.
    """
    own, peers = change_to_usual(scene, INTERRUPTS)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Without peers a host has only its own past.
        usual = np.fmin(np.where(np.isnan(peers), 1.0, peers), 1.0)
        value = (1.0 - own / np.maximum(usual, 0.05)).astype(np.float32)
        often = scene.view.ewma_slow(RUNNING)
        collapsed = scene.mean(RUNNING) <= RUNNING_LEFT * often
        collapsed &= often >= RUNNING_USUALLY
    shown = {"running": scene.mean(RUNNING), "often": often}
    return Measured(value, shown, condition=collapsed & _in_use(scene))


def measure_page_out(scene: Scene) -> Measured:
    """Bytes paged out, in multiples of the node's own last hour; none where its peers do so too."""
    own = scene.mean(PAGES_OUT)
    change, peers = change_to_usual(scene, PAGES_OUT)
    with np.errstate(invalid="ignore"):
        times = own / np.maximum(scene.view.ewma_slow(PAGES_OUT), USUAL_FROM)
        value = np.where(np.isnan(change), np.nan, times).astype(np.float32)
        burst = (own >= BURST_FROM) & ~(peers >= 0.5 * change)
    return Measured(value, {"own": own}, condition=burst)


def _in_use(scene: Scene) -> Bool:
    with np.errstate(invalid="ignore"):
        used: Bool = scene.latest("node_gpu_processes") > 0
    used |= scene.jobs() != NO_CODE
    return used


_host = partial(
    StatisticDetector,
    version=1,
    kind=EntityKind.NODE,
    fault_class=FaultClass.HOST,
    severity=Severity.WARNING,
)

HOST_PLANES: tuple[StatisticDetector | GrowthDetector | StateDetector, ...] = (
    _host(
        name="host_memory_corrected",
        what="the host's memory corrects many errors",
        needs=("node_memory_corrected_errors_total",),
        measure=growth_a_day("node_memory_corrected_errors_total"),
        limits=LimitRule("errors a day", 1000.0, 50.0, 1e8, persist_s=60.0, heavy=True),
        plane=Plane.COUNTERS,
        score=0.3,
        says="the memory of host {entity} corrected {value:.0f} errors in a day"
        " ({limit:.0f} would be odd): a module wears out",
        clear_says="{value:.0f} errors in a day",
        action=RecommendedAction.REPAIR,
    ),
    GrowthDetector(
        name="host_memory_uncorrected",
        version=1,
        metrics=("node_memory_uncorrected_errors_total",),
        limit=0.5,
        window_s=DAY_S,
        fault_class=FaultClass.HOST,
        score=0.7,
        severity=Severity.ERROR,
        says="errors of the host's memory could not be corrected",
        action=RecommendedAction.REPAIR,
        max_rung=Rung.EXCLUDE,
        kind=EntityKind.NODE,
    ),
    _host(
        name="host_stalled",
        what="interrupts and runnable processes of a host in use collapse",
        needs=(INTERRUPTS,),
        measure=measure_stall,
        limits=LimitRule("ratio", 0.55, 0.4, 0.95, persist_s=60.0),
        plane=Plane.HOST,
        score=0.4,
        says="host {entity}: interrupts fell by {value:.0%} against their own last hour and the"
        " peers', and {running:.0f} processes run where {often:.0f} did: what it worked at stands",
        clear_says="interrupts are {value:.0%} below what is usual",
    ),
    _host(
        name="page_out_burst",
        what="a host pages out far more than it did and its peers do",
        needs=(PAGES_OUT,),
        measure=measure_page_out,
        limits=LimitRule("times the usual", 8.0, 4.0, 1e4, persist_s=60.0, heavy=True),
        plane=Plane.HOST,
        score=0.15,
        says="host {entity} pages out {own:.3g} bytes a second, {value:.0f} times what it did",
        clear_says="{own:.3g} bytes a second",
    ),
    StateDetector(
        name="clock_unsynchronised",
        version=1,
        metric="node_clock_synchronised",
        fault_class=FaultClass.HOST,
        score=0.1,
        severity=Severity.WARNING,
        says="the clock is not synchronised",
        limit=0.0,
        below=True,
        held_s=600.0,
        after_boot=False,
        max_rung=Rung.SUSPECT,
        kind=EntityKind.NODE,
        plane=Plane.HOST,
    ),
)

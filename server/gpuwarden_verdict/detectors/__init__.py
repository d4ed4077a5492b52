"""Detectors: from an event, or from the fleet's windows, to signals."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_verdict.context import FleetContext, NodeContext
from gpuwarden_verdict.detectors.contract import EventDetector, SweepDetector
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.signals import Recovery, Risk, Signal
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.events import Event

EVENT_DETECTORS: tuple[EventDetector, ...] = ()
SWEEP_DETECTORS: tuple[SweepDetector, ...] = ()


def detect_event(event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
    """Signals of all event detectors for one event."""
    raise NotImplementedError


def detect_recovery(
    event: Event, ref: EntityRef, node: NodeContext, *, in_repair: bool
) -> list[Recovery]:
    """Recoveries that one event speaks for (NODE_BOOT, CHECK_PASSED, GPU_BACK, DRIVER_RESPONDS)."""
    raise NotImplementedError


def detect_sweep(state: FleetState, fleet: FleetContext, now: float) -> list[Signal]:
    """Signals of all sweep detectors."""
    raise NotImplementedError


def detect_clears(
    state: FleetState, fleet: FleetContext, open_incidents: Sequence[Incident], now: float
) -> list[Recovery]:
    """Recoveries by fresh readings for the level evidence of open incidents."""
    raise NotImplementedError


def detect_risk(risk: Risk, now: float, *, may_exclude: bool) -> Signal | None:
    """The learnt score as a signal (detector "learned_score"), None below its threshold.

    `may_exclude`: policy allows and the gate is open; else the signal supports SUSPECT at most.
    """
    raise NotImplementedError


def detect_risk_clear(risk: Risk, now: float) -> Recovery | None:
    """Recovery when the learnt score is low again."""
    raise NotImplementedError

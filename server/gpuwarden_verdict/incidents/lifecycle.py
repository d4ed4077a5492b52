"""How incidents move: opened, joined and closed on evidence. Pure: values in, moves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.incidents.domain import Acquittal, Incident, IncidentMove
from gpuwarden_verdict.signals import Recovery, Signal

GPUWARDEN = "gpuwarden"


def advance(
    open_incidents: Sequence[Incident],
    signals: Sequence[Signal],
    recoveries: Sequence[Recovery],
    now: float,
    new_id: Callable[[], str],
    *,
    dwell_of: Callable[[EntityRef], float] = lambda _ref: 600.0,
) -> list[IncidentMove]:
    """Moves that signals, recoveries and the passing of time bring.

    At most one move an incident; `open_incidents` may be those of one entity (event path) or of the
    fleet (sweep): only entities named in the arguments move. `new_id` gives "inc-" ids.
    """
    raise NotImplementedError


def acknowledge(incident: Incident, by: str, reason: str, now: float) -> IncidentMove:
    """A person has seen it. Raises LifecycleError where the phase does not allow it."""
    raise NotImplementedError


def acquit(incident: Incident, by: str, reason: str, now: float) -> IncidentMove:
    """A revoke: the incident may not decide again for 24 h unless it gets more severe."""
    raise NotImplementedError


def retire(incident: Incident, by: str, reason: str, now: float) -> IncidentMove:
    """Close the incident of an entity that has left the fleet."""
    raise NotImplementedError


def acquittals_of(incidents: Sequence[Incident], now: float) -> tuple[Acquittal, ...]:
    """Acquittals that still hold; pass resolved incidents of the last 24 h too."""
    raise NotImplementedError


def find_storms(incidents: Sequence[Incident]) -> frozenset[str]:
    """Ids of open incidents that are one application's storm: the same application-possible code on
    several GPUs at about the same time, and nothing else against them."""
    raise NotImplementedError

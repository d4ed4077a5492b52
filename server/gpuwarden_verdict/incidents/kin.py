"""Which incidents have one cause: a place, a job's program, or another node of the same job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.incidents.behind import Blamed, ParentKey, blame_places
from gpuwarden_verdict.incidents.diagnosed import members_of_diagnosed
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.job_kin import blame_programs, echoes_of
from gpuwarden_verdict.incidents.place_index import PlaceIndex
from gpuwarden_verdict.incidents.silence import blame_silence
from gpuwarden_verdict.signals import Recovery, Signal


@dataclass(frozen=True, slots=True)
class Kin:
    """What a sweep found.

    Attributes:
        members: Evidence of the place or job by id of the incident that is behind it.
        echoes: The cause's incident by id of the incident that is its echo.
        signals: Of places and jobs.
        recoveries: Of places and jobs.
    """

    members: Mapping[str, ParentKey] = field(default_factory=dict)
    echoes: Mapping[str, str] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


class KinFinder:
    """Looks for common causes at each sweep; keeps who stands behind what while it is the same."""

    def __init__(self) -> None:
        self._index = PlaceIndex({})

    def find(self, incidents: Sequence[Incident], fleet: FleetContext, now: float) -> Kin:
        """Common causes of what is open.

        Args:
            incidents: All that are open.
            fleet: What is known of the fleet.
            now: Epoch seconds.
        """
        silent = {
            node: since
            for node, since in fleet.silent_since.items()
            if node not in fleet.maintenance
        }
        if not incidents and not silent:
            return Kin()
        if self._index.places is not fleet.places:
            self._index = PlaceIndex(fleet.places)
        left_out = fleet.silent_nodes | fleet.maintenance.keys()
        echoes = echoes_of(incidents, now)
        programs = blame_programs(incidents, echoes, now)
        taken = {*echoes, *programs.members}
        others = [incident for incident in incidents if incident.id not in taken]
        places = blame_places(others, self._index, left_out, now)
        silence = blame_silence(silent, fleet.unheard, incidents, self._index, now)
        taken |= places.members.keys()
        diagnosed = Blamed(
            members=members_of_diagnosed(incidents, fleet.diagnosed, taken, now)
            if fleet.diagnosed
            else {}
        )
        return _joined(echoes, programs, places, silence, diagnosed)


def _joined(echoes: Mapping[str, str], *found: Blamed) -> Kin:
    return Kin(
        {id_: parent for one in found for id_, parent in one.members.items()},
        echoes,
        tuple(signal for one in found for signal in one.signals),
        tuple(recovery for one in found for recovery in one.recoveries),
    )

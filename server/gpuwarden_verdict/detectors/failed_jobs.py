"""Jobs of several people that keep ending badly on one node: a reason to look, never more."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.reading import level_signal
from gpuwarden_verdict.detectors.statistic import CROWD
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.job_ends import (
    LEAST_JOBS,
    LEAST_USERS,
    MOST_OF_A_USER,
    EndTally,
    tally_of,
)
from gpuwarden_verdict.signals import Plane, Recovery, RecoveryKind, Signal
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.metrics import EntityKind

_TOLD = 3


class FailedJobsDetector:
    """Weighs how the jobs of the last day ended on each node."""

    name = "failed_jobs"
    version = 2
    about = About(
        Plane.HISTORY,
        ("job_ended",),
        "jobs of several users keep ending badly on a node, and few end well",
        f">= {LEAST_JOBS} jobs of >= {LEAST_USERS} users within a day, weighed by their size, a "
        f"user's {MOST_OF_A_USER} heaviest; not on more than {CROWD:.0%} of all nodes",
        Rung.SUSPECT,
        "jobs that end well, a day without bad ones, or a passed check",
    )
    speaks_for = frozenset({"failed_jobs"})

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a node on which jobs of several users ended badly, and few ended well.

        None where many nodes are so at once: what they share is the cause, and blames none of them.
        """
        tallies = ((node_id, tally_of(ends, now)) for node_id, ends in fleet.job_ends.items())
        spoken = [(node_id, tally) for node_id, tally in tallies if tally.speaks]
        if len(spoken) > max(1.0, CROWD * len(state.view(EntityKind.NODE))):
            return []
        return [
            self._signal(node_id, tally, now)
            for node_id, tally in spoken
            if node_id not in fleet.silent_nodes
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Nodes where the ends of the last day say nothing any more."""
        tallies = ((ref, tally_of(fleet.job_ends.get(ref.key, ()), now)) for ref in entities)
        return [
            Recovery(
                ref,
                RecoveryKind.READING_CLEAR,
                now,
                f"{len(tally.bad)} jobs ended badly and {tally.good} well within a day",
                self.speaks_for,
            )
            for ref, tally in tallies
            if not tally.speaks
        ]

    def _signal(self, node_id: str, tally: EndTally, now: float) -> Signal:
        told = ", ".join(end.words for end in tally.bad[-_TOLD:])
        users = f" of {tally.users} users" if tally.users else ""
        return level_signal(
            EntityRef(EntityKind.NODE, node_id, node_id),
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.UNKNOWN,
            score=tally.score,
            severity=Severity.WARNING,
            sentence=f"{len(tally.bad)} jobs{users} ended badly on {node_id} within a day and "
            f"{tally.good} ended well: {told}",
            numbers={
                "jobs_bad": float(len(tally.bad)),
                "jobs_good": float(tally.good),
                "users": float(tally.users),
            },
            thresholds={"jobs_bad": float(LEAST_JOBS), "users": float(LEAST_USERS)},
            plane=Plane.HISTORY,
            max_rung=Rung.SUSPECT,
        )

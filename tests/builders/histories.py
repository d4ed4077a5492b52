"""Simulated fleets as histories whose frames lie decoded in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gpuwarden_models.frames import Frame
from gpuwarden_models.recording_tables import JobRow, LabelRow
from gpuwarden_models.simulator.simulation import JobView, Setting, Simulation
from gpuwarden_models.simulator.story import ScriptedFault
from gpuwarden_verdict.context import NodePlace
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Decoded:
    """A `History` of frames that are there already."""

    start: float
    end: float
    interval_s: float
    nodes: tuple[str, ...]
    metrics: Mapping[EntityKind, tuple[str, ...]]
    places: Mapping[str, NodePlace]
    gpus_expected: Mapping[str, int]
    kept: Sequence[Frame]
    jobs: Sequence[JobRow] = ()
    labels: Sequence[LabelRow] = ()
    kernel_logs: int = 1

    def frames(self) -> Iterator[Frame]:
        """All of them."""
        return iter(self.kept)


def simulated(setting: Setting, faults: Iterable[ScriptedFault], frames: int) -> Decoded:
    """A simulated fleet, decoded."""
    simulation = Simulation(setting, faults)
    kept = list(simulation.frames(frames))
    topology = simulation.topology
    stands = zip(topology.nodes, topology.racks, topology.leaves, strict=True)
    return Decoded(
        start=setting.start,
        end=simulation.now,
        interval_s=setting.interval_s,
        nodes=topology.nodes,
        metrics={table.kind: table.schema.names for table in kept[0].tables},
        places={node: NodePlace(rack, leaf) for node, rack, leaf in stands},
        gpus_expected=dict.fromkeys(topology.nodes, setting.gpus_per_node),
        kept=kept,
        jobs=[_job(job) for job in simulation.board_jobs()],
    )


def _job(job: JobView) -> JobRow:
    end = inf if job.end is None else job.end
    return JobRow(job.job_id, job.user, job.nodes, job.start, end, job.state, "")

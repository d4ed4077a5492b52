"""A simulated fleet as a history without a recording, which a reading a second would make huge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from gpuwarden_models.frames import Frame
from gpuwarden_models.recording import Tables, read_tables
from gpuwarden_models.recording_nodes import expected_gpus
from gpuwarden_models.simulate import Variation
from gpuwarden_models.simulator.parameters import parameters_for, parameters_hash
from gpuwarden_models.simulator.recording_writer import RecordingWriter
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import ScriptedFault
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_verdict.context import NodePlace
from gpuwarden_wire.metrics import EntityKind

_GPUS = 8


class SimulatedHistory:
    """A fleet with random faults; each look at its frames plays it anew, the same.

    What agents send is played, not what exporters would keep. Faults hang on seed and length
    alone, so the same ones come at every interval.

    Attributes:
        start: Epoch seconds of the first reading.
        end: Epoch seconds of the last.
        interval_s: Time between frames.
        nodes: Names.
        metrics: Metrics by kind.
        jobs: What ran where.
        labels: What was wrong.
        places: Where nodes stand.
        gpus_expected: GPUs of each node.
        kernel_logs: One a node.
        parameters_hash: Of the simulator.
    """

    def __init__(self, nodes: int, hours: float, seed: int, interval_s: float) -> None:
        """Play it through once, to know its jobs and labels.

        Args:
            nodes: Number of nodes of 8 GPUs.
            hours: Length.
            seed: Sets fleet and faults.
            interval_s: Time between readings.
        """
        usual = Variation()
        model = usual.model()
        topology = build_topology(nodes, _GPUS, seed)
        self._story: tuple[ScriptedFault, ...] = tuple(
            usual.selection().story(topology, model, hours, seed)
        )
        parameters = parameters_for(model, usual.scale_parameters)
        self._setting = Setting(nodes, _GPUS, seed, interval_s, parameters=parameters)
        self._frames = max(round(hours * 3600.0 / interval_s), 1)
        self.parameters_hash, self.interval_s = parameters_hash(), interval_s
        simulation = Simulation(self._setting, self._story)
        first = None
        for frame in simulation.frames(self._frames):
            first = first or frame
        assert first is not None
        self.start, self.end = first.at, simulation.now
        self.nodes: tuple[str, ...] = tuple(first.nodes)
        self.metrics: Mapping[EntityKind, tuple[str, ...]] = MappingProxyType(
            {table.kind: table.schema.names for table in first.tables}
        )
        tables = _told(simulation)
        self.jobs, self.labels = tables.jobs, tables.labels
        self.places: Mapping[str, NodePlace] = MappingProxyType(
            {row.node: NodePlace(row.rack, row.leaf, row.power, row.mounts) for row in tables.fleet}
        )
        self.gpus_expected: Mapping[str, int] = MappingProxyType(expected_gpus(tables.fleet))
        self.kernel_logs = nodes

    def frames(self) -> Iterator[Frame]:
        """All readings."""
        return Simulation(self._setting, self._story).frames(self._frames)


def _told(simulation: Simulation) -> Tables:
    """Its small files, as a recording of it would have them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        RecordingWriter(folder).close(simulation)
        return read_tables(folder)

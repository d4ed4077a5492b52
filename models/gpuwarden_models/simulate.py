"""`gpuwarden simulate`: a fleet with faults, written as a recording or played to a server."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TypeVar

from gpuwarden_models.simulator.fault_names import FaultName
from gpuwarden_models.simulator.metrics_writers import Form
from gpuwarden_models.simulator.parameters import GpuModel, parameters_for, parameters_hash
from gpuwarden_models.simulator.recording_writer import RecordingWriter
from gpuwarden_models.simulator.schedule import RateTable, Selection, random_story
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_models.simulator.wire_player import WirePlayer


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What was written.

    Attributes:
        folder: The recording.
        nodes: Number of nodes.
        gpus: Number of GPUs.
        frames: Moments recorded.
        events: Events, kernel lines included.
        faults: Faults and confounders by name.
        seed: Seed that makes the same recording again.
        parameters_sha256: Of the simulator's parameters.
    """

    folder: Path
    nodes: int
    gpus: int
    frames: int
    events: int
    faults: Mapping[str, int]
    seed: int
    parameters_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How a recording departs from the usual one.

    Attributes:
        gpu_model: h100 or a100.
        rates: dense or calibrated.
        fault_factor: Moves the rates of what needs action.
        scale_parameters: Moves all rates, noise and losses.
        only: Mechanisms that come alone, none for all.
        without: Mechanisms that do not come.
        confounders_only: Nothing that needs action.
        precursors: False for a control in which no fault announces itself.
        common_causes: Faults and operations that many entities show, beside those of single parts.
    """

    gpu_model: str = GpuModel.H100
    rates: str = RateTable.DENSE
    fault_factor: float = 1.0
    scale_parameters: float = 1.0
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    confounders_only: bool = False
    precursors: bool = True
    common_causes: bool = False

    def selection(self) -> Selection:
        """Which faults come.

        Raises:
            ValueError: A word or number that there is not; the message says which there are.
        """
        for name in ("fault_factor", "scale_parameters"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} is {getattr(self, name)}: use a positive number")
        return Selection(
            table=_word("rates", self.rates, RateTable),
            factor=self.scale_parameters,
            fault_factor=self.fault_factor,
            only=tuple(_word("only", name, FaultName) for name in self.only),
            without=tuple(_word("without", name, FaultName) for name in self.without),
            confounders_only=self.confounders_only,
            precursors=self.precursors,
            common=self.common_causes,
        )

    def model(self) -> GpuModel:
        """The GPU.

        Raises:
            ValueError: There is no such model.
        """
        return _word("gpu_model", self.gpu_model, GpuModel)


_USUAL = Variation()
_Word = TypeVar("_Word", bound=StrEnum)


def _word(what: str, text: str, words: type[_Word]) -> _Word:
    if text not in tuple(words):
        raise ValueError(f"{what} is {text!r}: use {', '.join(words)}")
    return words(text)


def simulate(
    out: Path,
    nodes: int,
    gpus_per_node: int,
    hours: float,
    seed: int,
    interval_s: float,
    form: str = Form.PARQUET,
    variation: Variation = _USUAL,
) -> SimulationReport:
    """Simulate a fleet with random faults and write a recording.

    Args:
        out: New or empty folder.
        nodes: Number of nodes.
        gpus_per_node: 1 to 8.
        hours: Length.
        seed: Equal arguments give equal recordings.
        interval_s: Time between readings.
        form: Of the metrics: parquet, openmetrics or both.
        variation: How it departs from the usual recording.

    Raises:
        ValueError: A number is out of range, or there is no such word; the message says which and
            what to use.
        FileExistsError: `out` has files in it already.
    """
    if hours <= 0:
        raise ValueError(f"hours is {hours}: use a positive number")
    selection, model = variation.selection(), variation.model()
    topology = build_topology(nodes, gpus_per_node, seed)
    story = selection.story(topology, model, hours, seed)
    parameters = parameters_for(model, variation.scale_parameters)
    setting = Setting(nodes, gpus_per_node, seed, interval_s, parameters=parameters)
    simulation = Simulation(setting, story)
    common = variation.common_causes
    more = {"variation": asdict(variation)}
    writer = RecordingWriter(out, form_of(form), common_causes=common, more=more)
    frames = max(round(hours * 3600.0 / interval_s), 1)
    for frame in simulation.frames(frames):
        writer.add(frame)
    writer.close(simulation)
    return SimulationReport(
        folder=out,
        nodes=nodes,
        gpus=len(simulation.topology.gpus),
        frames=frames,
        events=writer.events,
        faults=dict(Counter(fault.name.value for fault in story)),
        seed=seed,
        parameters_sha256=parameters_hash(),
    )


def form_of(text: str) -> Form:
    """A form by its name.

    Raises:
        ValueError: There is none such.
    """
    return _word("form", text, Form)


def live_fleet(
    url: str, key: str, nodes: int, gpus_per_node: int, hours: float, seed: int, interval_s: float
) -> WirePlayer:
    """A fleet with random faults that plays to a server in real time; not yet started.

    Args:
        url: Server.
        key: A key that may speak for every node: role admin.
        nodes: Number of nodes.
        gpus_per_node: 1 to 8.
        hours: Time over which the faults are spread; after it the fleet plays on without new ones.
        seed: Sets fleet and faults.
        interval_s: Time between readings.

    Raises:
        ValueError: A number is out of range; the message says which and what to use.
    """
    if hours <= 0:
        raise ValueError(f"hours is {hours}: use a positive number")
    story = random_story(build_topology(nodes, gpus_per_node, seed), hours, seed)
    setting = Setting(nodes, gpus_per_node, seed, interval_s, time.time(), secrets.token_hex(8))
    return WirePlayer(Simulation(setting, story), url, lambda node_id: key, interval_s)

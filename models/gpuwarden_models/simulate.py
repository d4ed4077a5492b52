"""`gpuwarden simulate`: a fleet with faults, written as a recording or played to a server."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_models.simulator.metrics_writers import Form
from gpuwarden_models.simulator.recording_writer import RecordingWriter
from gpuwarden_models.simulator.schedule import COMMON, random_story
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
    """

    folder: Path
    nodes: int
    gpus: int
    frames: int
    events: int
    faults: Mapping[str, int]
    seed: int


def simulate(
    out: Path,
    nodes: int,
    gpus_per_node: int,
    hours: float,
    seed: int,
    interval_s: float,
    form: str = Form.PARQUET,
    *,
    common_causes: bool = False,
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
        common_causes: Faults and operations that many entities show, beside those of single parts.

    Raises:
        ValueError: A number is out of range, or there is no such form; the message says which and
            what to use.
        FileExistsError: `out` has files in it already.
    """
    if hours <= 0:
        raise ValueError(f"hours is {hours}: use a positive number")
    topology = build_topology(nodes, gpus_per_node, seed)
    story = random_story(topology, hours, seed)
    if common_causes:
        story += random_story(topology, hours, seed, COMMON, stream=4)
    setting = Setting(nodes, gpus_per_node, seed, interval_s)
    simulation = Simulation(setting, story)
    writer = RecordingWriter(out, form_of(form), common_causes=common_causes)
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
    )


def form_of(text: str) -> Form:
    """A form by its name.

    Raises:
        ValueError: There is none such.
    """
    if text not in tuple(Form):
        raise ValueError(f"form is {text!r}: use {', '.join(Form)}")
    return Form(text)


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

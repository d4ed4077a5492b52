"""Small simulated fleets, recordings and the shipped model, for tests of several packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpuwarden_models.simulator.metrics_writers import Form
from gpuwarden_models.simulator.recording_writer import RecordingWriter
from gpuwarden_models.simulator.schedule import DENSE, random_story
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.features import FEATURE_SETS, FeatureScene
from gpuwarden_verdict.fusion import FusionModel, FusionModels, decode_model
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.metrics import EntityKind

ARTIFACTS = Path(__file__).resolve().parents[2] / "models" / "artifacts"
SHIPPED = ARTIFACTS / "gpu"
GPU_FEATURES = FEATURE_SETS[EntityKind.GPU]


def scene_of(state: FleetReading) -> FeatureScene:
    """Windows of a fleet of H100 of which nothing else is known."""
    models = {ref.key: "NVIDIA H100 80GB HBM3" for ref in state.view(EntityKind.GPU).refs}
    return FeatureScene(state, FleetContext(models=models))


def shipped_files(kind: EntityKind = EntityKind.GPU) -> dict[str, bytes]:
    """Files of the promoted model of a kind."""
    home = ARTIFACTS / kind.value
    version = (home / "PROMOTED").read_text(encoding="utf-8").strip()
    return {path.name: path.read_bytes() for path in (home / version).iterdir()}


@cache
def shipped_model(kind: EntityKind = EntityKind.GPU) -> FusionModel:
    """The promoted model of a kind, decoded."""
    return decode_model(shipped_files(kind), kind)


@cache
def shipped_models() -> FusionModels:
    """All promoted models."""
    kinds = (kind for kind in FEATURE_SETS if (ARTIFACTS / kind.value / "PROMOTED").is_file())
    return {kind: shipped_model(kind) for kind in kinds}


def record(
    folder: Path,
    setting: Setting,
    frames: int,
    faults: Iterable[ScriptedFault] = (),
    form: Form = Form.PARQUET,
) -> Simulation:
    """Write a recording of `frames` frames; returns the simulation at its end."""
    simulation = Simulation(setting, faults)
    writer = RecordingWriter(folder, form)
    for frame in simulation.frames(frames):
        writer.add(frame)
    writer.close(simulation)
    return simulation


def record_teachable(folder: Path) -> Simulation:
    """A recording that is small, yet has faults enough to learn from: 20 nodes x 4, 6 hours."""
    topology = build_topology(20, 4, seed=3)
    # Few mechanisms, each often: what 80 GPUs show of thirty is too little of any.
    rates = {
        name: replace(DENSE[name], per_entity_day=14 * DENSE[name].per_entity_day)
        for name in (
            FaultName.ROW_REMAP_FAILURE,
            FaultName.ECC_WEAR,
            FaultName.GPU_OFF_BUS,
            FaultName.SLOW_OVERHEATING,
            FaultName.NIC_PORT_DOWN,
            FaultName.HOT_AISLE,
            FaultName.POWER_CAP,
            FaultName.MISSING_SCRAPES,
        )
    }
    story = random_story(topology, 6.0, 3, rates)
    return record(folder, Setting(20, 4, seed=3, interval_s=120.0), 180, story)

"""Drawn faults: of their seed, from numbers with a source, as they were asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_models.recording import Recording
from gpuwarden_models.simulate import Variation, simulate
from gpuwarden_models.simulator import parameters
from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultName
from gpuwarden_models.simulator.faults import ADVANCE
from gpuwarden_models.simulator.parameters import MECHANISMS, GpuModel, parameters_for
from gpuwarden_models.simulator.schedule import (
    DENSE,
    RateTable,
    Selection,
    calibrated,
    random_story,
)
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import Repair
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_wire.metrics import EntityKind

FLEET = build_topology(64, 8, 7)


def test_every_fault_has_a_kind_its_numbers_and_a_way_to_unfold() -> None:
    assert set(FAULT_KINDS) == set(MECHANISMS) == set(ADVANCE) == set(FaultName)
    classes = {kind.fault_class for kind in FAULT_KINDS.values() if kind.action_needed}
    for one in classes - {FAULT_KINDS[FaultName.LEAF_REBOOT].fault_class}:
        own = [k for k in FAULT_KINDS.values() if k.action_needed and k.fault_class is one]
        assert len(own) >= 2, one


def test_every_number_says_where_it_is_from() -> None:
    tables = [name for name in parameters._file() if name not in ("version", "published")]
    paths = [name for name in tables if name not in ("gpu", "mechanisms")]
    paths += [f"gpu.{model}" for model in GpuModel] + [f"mechanisms.{name}" for name in FaultName]
    for path in paths:
        for key, entry in parameters._table(path).items():
            assert len(entry) == 2 and (key == "is" or entry[1]), f"{path}.{key}"


def test_the_hash_is_that_of_the_values() -> None:
    assert parameters.parameters_hash() == parameters.parameters_hash()
    assert len(parameters.parameters_hash()) == 64


def test_stories_are_those_of_their_seed_and_parts_differ() -> None:
    story = random_story(FLEET, 48.0, 7)
    assert story == random_story(FLEET, 48.0, 7) != random_story(FLEET, 48.0, 8)
    assert {fault.name for fault in story} > {FaultName.ECC_WEAR, FaultName.APPLICATION_FAULT}
    expected = sum(
        rate.per_entity_day
        * 2.0
        * (512 if FAULT_KINDS[name].entity_kind is not EntityKind.NODE else 64)
        for name, rate in DENSE.items()
    )
    assert 0.7 * expected < len(story) < 1.5 * expected
    repairs = {fault.repair for fault in story}
    assert repairs == set(Repair)


def test_what_is_left_out_changes_nothing_about_the_rest() -> None:
    whole = Selection().story(FLEET, GpuModel.H100, 24.0, 5)
    less = Selection(without=(FaultName.ECC_WEAR,)).story(FLEET, GpuModel.H100, 24.0, 5)
    assert {f for f in whole if f.name is not FaultName.ECC_WEAR} <= set(less)
    only = Selection(only=(FaultName.ECC_WEAR,)).story(FLEET, GpuModel.H100, 24.0, 5)
    assert {f.name for f in only} == {FaultName.ECC_WEAR}
    assert {f for f in whole if f.name is FaultName.ECC_WEAR} <= set(only)
    calm = Selection(confounders_only=True, common=True).story(FLEET, GpuModel.H100, 24.0, 5)
    assert calm and not any(fault.kind.action_needed for fault in calm)


def test_the_control_announces_nothing() -> None:
    drawn = Selection(precursors=False).story(FLEET, GpuModel.H100, 24.0, 5)
    faults = [fault for fault in drawn if fault.kind.action_needed]
    assert faults and {fault.needed_after_s for fault in faults} == {0.0}
    labels = Simulation(Setting(64, 8, seed=7), drawn).labels()
    assert not [label for label in labels if "precursor_start" in label.note]


def test_rates_of_life_are_those_of_the_file() -> None:
    fleet = build_topology(500, 8, 1)
    rates = calibrated(GpuModel.A100, fleet, common=False)
    story = random_story(fleet, 24.0 * 90, 1, {FaultName.GSP_TIMEOUT: rates[FaultName.GSP_TIMEOUT]})
    hours = 4000 * 24.0 * 90 / 1e6
    assert len(story) / hours == pytest.approx(120.0, rel=0.5), "with repeats, less replaced parts"
    few = Selection(RateTable.CALIBRATED, without=(FaultName.APPLICATION_FAULT,))
    assert len(few.story(FLEET, GpuModel.H100, 24.0, 1)) < len(
        Selection().story(FLEET, GpuModel.H100, 24.0, 1)
    )


def test_moved_parameters_move_noise_losses_and_rates() -> None:
    usual, moved = parameters_for(GpuModel.H100), parameters_for(GpuModel.H100, 2.0)
    assert moved.rates.scrape_loss == 2 * usual.rates.scrape_loss
    assert moved.gpu.power_noise_watts == 2 * usual.gpu.power_noise_watts
    assert moved.gpu.power_limit_watts == usual.gpu.power_limit_watts
    assert parameters_for(GpuModel.A100).gpu.power_limit_watts == 400.0


def test_a_recording_says_how_it_was_varied_and_equal_ones_are_equal(tmp_path: Path) -> None:
    varied = Variation(gpu_model="a100", scale_parameters=2.0, fault_factor=40.0)
    for name in ("a", "b"):
        simulate(tmp_path / name, 3, 4, 1.0, 5, 60.0, variation=varied)
    for path in sorted((tmp_path / "a").rglob("*")):
        if path.is_file():
            assert (
                path.read_bytes()
                == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
            )
    described = json.loads((tmp_path / "a" / "recording.json").read_text())
    assert described["variation"]["gpu_model"] == "a100"
    recording = Recording(tmp_path / "a")
    assert recording.parameters_hash == parameters.parameters_hash()
    assert {row.model for row in recording.fleet} == {"NVIDIA A100-SXM4-80GB"}
    last = list(recording.frames())[-1].tables[0]
    assert np.nanmax(last.column("gpu_power_watts")) <= 400.0


@pytest.mark.parametrize(
    ("variation", "said"),
    [
        (Variation(gpu_model="v100"), "gpu_model is 'v100': use h100, a100"),
        (Variation(rates="often"), "rates is 'often': use dense, calibrated"),
        (Variation(only=("gremlins",)), "only is 'gremlins': use row_remap_failure"),
        (Variation(scale_parameters=0.0), "scale_parameters is 0.0: use a positive number"),
    ],
)
def test_what_there_is_not_is_named(tmp_path: Path, variation: Variation, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(tmp_path / "x", 1, 1, 0.1, 1, 30.0, variation=variation)

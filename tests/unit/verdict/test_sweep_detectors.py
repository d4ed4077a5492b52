from __future__ import annotations

import time

import numpy as np
import pytest

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import SWEEP_DETECTORS, detect_clears, detect_sweep
from gpuwarden_verdict.detectors.learned import detect_risk, detect_risk_clear
from gpuwarden_verdict.detectors.peer_groups import UNKNOWN_GROUP, group_median
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.signals import Contribution, Persistence, Plane, Risk, Signal
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import metrics_of
from gpuwarden_wire.schema import schema_for
from tests.builders.verdict import START, Fleet, gpu_ref, node_ref

GPU = gpu_ref(0, 0)


def told(fleet: Fleet) -> list[tuple[str, str]]:
    signals = detect_sweep(fleet.state, fleet.fleet_context(), fleet.now)
    return [(signal.detector, signal.entity.key) for signal in signals]


def only(fleet: Fleet) -> Signal:
    (signal,) = detect_sweep(fleet.state, fleet.fleet_context(), fleet.now)
    return signal


def test_an_empty_fleet_gives_nothing() -> None:
    assert detect_sweep(FleetState(), FleetContext(silent_nodes=frozenset({"x"})), START) == []
    assert detect_clears(FleetState(), FleetContext(), [], START) == []


def test_row_remap_failure_acts_alone_and_is_the_parts() -> None:
    fleet = Fleet()
    fleet.tell([GPU], gpu_row_remap_failure=1.0, gpu_row_remap_pending=0.0)
    signal = only(fleet)
    assert (signal.detector, signal.persistence) == ("row_remap_failure", Persistence.PART)
    assert signal.acts_alone
    assert signal.severity is Severity.CRITICAL


def test_a_pending_remap_alone_is_advice() -> None:
    fleet = Fleet()
    fleet.tell([GPU], gpu_row_remap_pending=1.0)
    signal = only(fleet)
    assert signal.score < 0.8
    assert signal.severity is Severity.WARNING


@pytest.mark.parametrize("how", ["silent", "stale", "missing"])
def test_old_missing_or_silent_readings_give_neither_signal_nor_recovery(how: str) -> None:
    fleet = Fleet()
    fleet.tell([GPU], gpu_row_remap_failure=1.0)
    fleet.sweep()
    if how == "silent":
        fleet.silent.add("n0")
    if how == "stale":
        fleet.tell([GPU], at=START + 61, gpu_temperature_celsius=40.0)
    if how == "missing":
        fleet.tell([GPU], at=START + 5, gpu_row_remap_failure=MissingKind.UNAVAILABLE)
    assert told(fleet) == []
    assert detect_clears(fleet.state, fleet.fleet_context(), fleet.open(), START + 61) == []


def test_a_clock_that_is_an_hour_off_does_not_blind_the_sweep() -> None:
    fleet = Fleet()
    fleet.tell([GPU], at=START - 3600, gpu_row_remap_failure=1.0)
    assert told(fleet) == [("row_remap_failure", GPU.key)]


@pytest.mark.parametrize(
    ("value", "alone", "rung"),
    [(1, True, 2), (2, True, 2), (3, True, 3), (4, True, 3), (5, False, 1), (6, True, 2),
     (7, True, 2), (8, False, 1)],
)  # fmt: skip
def test_recovery_action_follows_the_drivers_enumeration(
    value: int, alone: bool, rung: int
) -> None:
    fleet = Fleet()
    fleet.tell([GPU], gpu_recovery_action=float(value))
    signal = only(fleet)
    assert (signal.acts_alone, signal.max_rung) == (alone, rung)
    assert signal.fault_class is FaultClass.UNKNOWN


def test_recovery_action_takes_the_class_of_the_event_beside_it() -> None:
    fleet = Fleet()
    fleet.tell([GPU], gpu_recovery_action=0.0)
    fleet.state.note_event(GPU, EventGroup.XID_DRIVER, START - 5000, 1)
    fleet.state.note_event(GPU, EventGroup.XID_MEMORY, START + 20, 1)
    fleet.tell([GPU], at=START + 25, gpu_recovery_action=1.0)
    assert only(fleet).fault_class is FaultClass.MEMORY


def test_ecc_tells_a_rise_not_a_standing_count() -> None:
    fleet = Fleet()
    for at, total in ((0, 5.0), (5, 5.0)):
        fleet.tell([GPU], at=START + at, gpu_ecc_uncorrected_volatile_total=total)
        assert told(fleet) == []
    fleet.tell([GPU], at=START + 10, gpu_ecc_uncorrected_volatile_total=6.0)
    signal = only(fleet)
    assert (signal.score, signal.observed_at) == (0.6, START + 10)
    fleet.tell([GPU], at=START + 15, gpu_ecc_uncorrected_volatile_total=9.0)
    assert only(fleet).score == 0.85
    fleet.tell([GPU], at=START + 140, gpu_ecc_uncorrected_volatile_total=9.0)
    assert told(fleet) == []


def counts(visible: float, on_pci: float, expected: float = 8.0) -> dict[str, float]:
    return {
        "node_gpus_visible": visible,
        "node_gpus_on_pci": on_pci,
        "node_gpus_expected": expected,
    }


def test_a_missing_device_needs_two_readings_and_tells_bus_from_driver() -> None:
    fleet = Fleet()
    node = node_ref(0)
    fleet.tell([node], **counts(8, 8))
    fleet.tell([node], at=START + 5, **counts(7, 7))
    assert told(fleet) == []
    fleet.tell([node], at=START + 10, **counts(7, 7))
    assert only(fleet).fault_class is FaultClass.BUS
    fleet.tell([node], at=START + 15, **counts(7, 8))
    assert only(fleet).fault_class is FaultClass.DRIVER


def test_a_missing_device_is_judged_by_the_inventory_where_the_node_does_not_say() -> None:
    fleet = Fleet()
    for at in (0, 5):
        fleet.tell([node_ref(0)], at=START + at, node_gpus_visible=7.0)
    plain = detect_sweep(fleet.state, FleetContext(), fleet.now)
    expecting = FleetContext(gpus_expected={"n0": 8, "unknown": 4})
    assert plain == []
    assert [s.entity.key for s in detect_sweep(fleet.state, expecting, fleet.now)] == ["n0"]


@pytest.mark.parametrize("how", ["uptime", "boot event"])
def test_boot_grace_holds_structure_back(how: str) -> None:
    fleet = Fleet()
    uptime = 100.0 if how == "uptime" else 1e6
    if how == "boot event":
        fleet.booted_at["n0"] = START - 100
    for at in (0, 5):
        fleet.tell([node_ref(0)], at=START + at, node_uptime_seconds=uptime, **counts(3, 3))
    assert told(fleet) == []


def test_one_gpu_with_fewer_nvlinks_than_its_model_or_its_past() -> None:
    fleet = Fleet()
    full = {"gpu_nvlinks_active": 18.0, "gpu_nvlinks_inactive": 0.0}
    short = {"gpu_nvlinks_active": 17.0, "gpu_nvlinks_inactive": 1.0}
    for at in (0, 5):
        fleet.tell(fleet.all_gpus()[1:], at=START + at, **full)
        fleet.tell([GPU], at=START + at, **short)
    assert told(fleet) == [("nvlink_down", GPU.key)]
    other = gpu_ref(3, 3)
    for at in (10, 15):
        fleet.tell([other], at=START + at, **short)
    assert ("nvlink_down", other.key) in told(fleet)


def test_medians_hold_against_ties_gaps_and_small_or_unknown_groups() -> None:
    values = np.array([1.0, 5.0, np.nan, 9.0, 7.0, 7.0, 3.0])
    groups = np.array([0, 0, 0, 0, 1, 1, UNKNOWN_GROUP])
    found = group_median(values, groups, fewest=3)
    assert found[:4].tolist() == [5.0] * 4
    assert np.isnan(found[4:]).all()


def risk(probability: float, *terms: Contribution) -> Risk:
    return Risk(GPU, probability, FaultClass.THERMAL, terms, "v1", "hash", START)


def test_the_learnt_score_is_advice_unless_the_gate_is_open() -> None:
    warm = Contribution("temperature_excess_celsius", Plane.PEERS, 14.0, 2.5)
    advice = detect_risk(risk(0.9, warm), START, may_exclude=False)
    assert advice is not None
    assert (advice.max_rung, advice.severity) == (Rung.SUSPECT, Severity.WARNING)
    assert "temperature excess 14 C" in advice.sentence
    order = detect_risk(risk(0.9, warm), START, may_exclude=True)
    assert order is not None
    assert (order.max_rung, order.severity) == (Rung.EXCLUDE, Severity.ERROR)
    assert detect_risk(risk(0.49), START, may_exclude=True) is None
    assert detect_risk(risk(float("nan")), START, may_exclude=True) is None


def test_the_rule_floor_is_not_counted_twice_and_the_score_clears_with_hysteresis() -> None:
    floor = Contribution("rule_floor", None, 1.0, 5.0)
    low = Contribution("intercept", None, 1.0, -3.0)
    assert detect_risk(risk(0.88, low, floor), START, may_exclude=True) is None
    assert detect_risk_clear(risk(0.88, low, floor), START) is not None
    assert detect_risk_clear(risk(0.4), START) is None
    assert detect_risk_clear(risk(float("nan")), START) is None


def test_a_sweep_over_many_gpus_is_vectorised() -> None:
    """8,000 GPUs x all metrics, a tenth of the largest fleet, well within a tenth of a second."""
    state, schema = big_fleet(1000)
    fleet = FleetContext(models={ref.key: "H100" for ref in state.view(EntityKind.GPU).refs})
    detect_sweep(state, fleet, START)
    started = time.process_time()
    signals = detect_sweep(state, fleet, START)
    spent = time.process_time() - started
    assert signals == []
    assert spent < 0.5, f"{spent:.3f} s of CPU for {len(schema)} metrics"


def big_fleet(nodes: int) -> tuple[FleetState, list[str]]:
    state = FleetState()
    refs = [
        EntityRef(EntityKind.GPU, f"GPU-{n}-{g}", f"n{n}") for n in range(nodes) for g in range(8)
    ]
    for ref in refs:
        state.register(ref)
    names = [metric.name for metric in metrics_of(EntityKind.GPU)]
    schema = schema_for(EntityKind.GPU, names)
    rows = state.rows_of(EntityKind.GPU, [ref.key for ref in refs])
    columns = [column.name for column in schema.columns]
    for at in (0.0, 5.0):
        f32 = np.zeros((schema.f32_count, len(refs)), np.float32)
        f32[columns.index("gpu_inforom_valid")] = 1.0
        f64 = np.zeros((len(names) - schema.f32_count, len(refs)))
        f64[columns.index("gpu_energy_joules_total") - schema.f32_count] = at
        state.apply_table(EntityKind.GPU, rows, schema, f32, f64, (), START + at)
    return state, names


def test_every_sweep_detector_speaks_for_itself_or_for_nobody() -> None:
    for detector in SWEEP_DETECTORS:
        assert not detector.speaks_for or detector.name in detector.speaks_for

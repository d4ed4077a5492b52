"""Columns of the feature sets, one story each, over small fleets of which more is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features import (
    FEATURE_SETS,
    FeatureScene,
    above_limits,
    column_of,
    feature_table,
)
from gpuwarden_verdict.features.standing import MONTH_S
from gpuwarden_verdict.job_ends import JobEnd
from gpuwarden_verdict.ledger import LedgerReading, Mark, PartLedger, part_name
from gpuwarden_wire.metrics import EntityKind
from tests.builders.sweeping import DAY, hold
from tests.builders.verdict import Fleet, gpu_ref, node_ref

GPU, NODE, NIC = EntityKind.GPU, EntityKind.NODE, EntityKind.NIC
AT_WORK: Mapping[str, float] = {
    "gpu_temperature_celsius": 60.0,
    "gpu_power_watts": 600.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_sm_clock_hertz": 1.9e9,
    "gpu_sm_clock_max_hertz": 1.98e9,
    "gpu_utilization_ratio": 0.95,
    "gpu_ecc_corrected_volatile_total": 0.0,
    "gpu_pcie_link_width": 16.0,
    "gpu_pcie_link_width_max": 16.0,
}


def at_work(**fleet: int) -> Fleet:
    """A fleet whose GPUs have worked for two minutes."""
    made = Fleet(**fleet)  # type: ignore[arg-type]  # sizes by name
    hold(made, made.all_gpus(), 120.0, 10.0, **AT_WORK)
    made.tell([node_ref(n) for n in range(made.nodes)], node_uptime_seconds=1e6)
    return made


def scene(fleet: Fleet, ledger: LedgerReading | None = None, **known: object) -> FeatureScene:
    context = replace(fleet.fleet_context(), **known)  # type: ignore[arg-type]  # fields by name
    return FeatureScene(fleet.state, context, ledger or LedgerReading())


def of(kind: EntityKind, name: str, seen: FeatureScene, fleet: Fleet) -> dict[str, float]:
    """A column by entity."""
    made = column_of(kind, name, seen, fleet.now)
    keys = [ref.key for ref in seen.state.view(kind).refs]
    return dict(zip(keys, made.tolist(), strict=True))


def test_some_rows_are_those_of_the_whole_table() -> None:
    fleet = at_work(nodes=9)
    fleet.state.note_event(gpu_ref(0, 3), EventGroup.XID_MEMORY, fleet.now, 1)
    fleet.tell([gpu_ref(0, 5)], gpu_pcie_link_width=8.0, gpu_ecc_corrected_volatile_total=4.0)
    for kind in (GPU, NODE):
        whole = feature_table(kind, scene(fleet), fleet.now)
        for rows in (np.array([5, 3]) if kind is GPU else np.array([1]), np.arange(9)[::-1]):
            some = feature_table(kind, scene(fleet, silent_nodes=frozenset()), fleet.now, rows)
            assert list(some.refs) == [whole.refs[row] for row in rows.tolist()]
            assert np.array_equal(some.matrix, whole.matrix[rows], equal_nan=True)


@pytest.mark.parametrize("boots", [False, True])
def test_who_is_above_a_limit_is_seen_as_in_the_whole_table(boots: bool) -> None:
    """The first stage looks at bounds before it looks at features: nobody may slip through."""
    fleet = at_work(nodes=9)
    fleet.state.note_event(gpu_ref(0, 3), EventGroup.XID_MEMORY, fleet.now, 1)
    fleet.state.note_event(gpu_ref(8, 3), EventGroup.XID_MEMORY, fleet.now, 1)
    errors = {"gpu_ecc_corrected_volatile_total": 4.0, "gpu_pcie_replay_total": 9.0}
    for sick in (gpu_ref(0, 5), gpu_ref(3, 1), gpu_ref(7, 0)):
        fleet.tell([sick], gpu_row_remap_pending=1.0, gpu_row_remap_failure=0.0, **errors)
        fleet.now += 10.0
        later = {name: 3.0 * count for name, count in errors.items()}
        fleet.tell([sick], gpu_power_watts=80.0, gpu_recovery_action=1.0, **later)
    if boots:
        fleet.tell([node_ref(3)], node_uptime_seconds=60.0)
    silent = frozenset({"n7"})
    for kind in (GPU, NODE):
        whole = feature_table(kind, scene(fleet, silent_nodes=silent), fleet.now).matrix
        told = 0
        for place in FEATURE_SETS[kind].cheap:
            name = FEATURE_SETS[kind].names[place]
            for limit in (-1.0, 0.0, 0.4, 2.0, 1e6):
                limits = [(place, limit)]
                found = above_limits(kind, scene(fleet, silent_nodes=silent), fleet.now, limits)
                assert np.array_equal(found, whole[:, place] > limit), name
                told += int(found.sum())
        assert told
        limits = [(place, 0.5) for place in FEATURE_SETS[kind].cheap]
        found = above_limits(kind, scene(fleet, silent_nodes=silent), fleet.now, limits)
        cheap = whole[:, list(FEATURE_SETS[kind].cheap)]
        assert np.array_equal(found, (cheap > 0.5).any(axis=1)) and 0 < found.sum() < found.size
        assert above_limits(kind, scene(fleet, silent_nodes=silent), fleet.now, []).all()


def test_of_a_silent_node_nothing_is_known_but_what_is_on_record() -> None:
    fleet = at_work(nodes=2)
    fleet.state.note_event(gpu_ref(0, 3), EventGroup.XID_MEMORY, fleet.now, 1)
    seen = scene(fleet, silent_nodes=frozenset({"n0"}))
    for kind in (GPU, NODE):
        table = feature_table(kind, seen, fleet.now)
        row = next(n for n, ref in enumerate(table.refs) if ref.node_id == "n0")
        known = dict(zip(FEATURE_SETS[kind].names, table.matrix[row].tolist(), strict=True))
        told = {name for name, value in known.items() if not np.isnan(value)}
        odd = {
            name for name in told if not name.startswith(("ledger_", "failed_jobs", "gpu_events"))
        }
        assert not odd, kind
    events = of(GPU, "memory_events_24h", seen, fleet)
    assert events["GPU-0-3"] == 1.0, "what was heard is known"


def test_links_are_not_judged_while_a_node_boots() -> None:
    fleet = at_work(nodes=2)
    fleet.tell([gpu_ref(0, 0)], gpu_pcie_link_width=8.0)
    lacks = of(GPU, "pcie_width_deficit_ratio", scene(fleet), fleet)
    assert lacks["GPU-0-0"] == 0.5 and lacks["GPU-0-1"] == 0.0
    booting = scene(fleet, booted_at={"n0": fleet.now - 60.0})
    lacks = of(GPU, "pcie_width_deficit_ratio", booting, fleet)
    assert np.isnan(lacks["GPU-0-0"]) and lacks["GPU-1-0"] == 0.0


def test_a_gpu_stands_out_from_its_job_only_where_it_stands_out_on_its_board() -> None:
    fleet = at_work(nodes=4)
    fleet.jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()}
    rack = [gpu_ref(0, n) for n in range(8)]
    hot = {**AT_WORK, "gpu_temperature_celsius": 75.0}
    for step in range(1, 31):
        at = fleet.now + 10.0 * step
        fleet.tell([r for r in fleet.all_gpus() if r not in rack], at=at, **AT_WORK)
        fleet.tell(rack[1:], at=at, **hot)
        fleet.tell(rack[:1], at=at, **{**hot, "gpu_temperature_celsius": 82.0})
    fleet.now += 300.0
    excess = of(GPU, "temperature_excess_celsius", scene(fleet), fleet)
    assert excess["GPU-0-1"] == pytest.approx(0.0, abs=0.1), "the rack is hot, not the GPU"
    assert excess["GPU-0-0"] == pytest.approx(7.0, abs=0.2)


def test_a_hung_gpu_is_busy_without_drawing_power() -> None:
    fleet = at_work(nodes=1)
    for step in range(1, 31):
        at, sick = fleet.now + 10.0 * step, gpu_ref(0, 5)
        fleet.tell([one for one in fleet.all_gpus() if one != sick], at=at, **AT_WORK)
        fleet.tell([sick], at=at, **{**AT_WORK, "gpu_power_watts": 115.0})
    fleet.now += 300.0
    odd = of(GPU, "busy_without_power_ratio", scene(fleet), fleet)
    assert odd["GPU-0-5"] > 0.7 and odd["GPU-0-4"] < 0.15


def test_errors_that_begin_now_rise_above_the_days_mean() -> None:
    fleet = at_work(nodes=1)
    for step in range(1, 31):
        grown = {**AT_WORK, "gpu_ecc_corrected_volatile_total": 10.0 * step}
        fleet.tell([gpu_ref(0, 2)], at=fleet.now + 60.0 * step, **grown)
    fleet.now += 1800.0
    rise = of(GPU, "ecc_corrected_rise_1h", scene(fleet), fleet)
    assert rise["GPU-0-2"] > 200.0


def test_the_calm_of_neighbours_makes_trouble_ones_own() -> None:
    fleet = at_work(nodes=4)
    fleet.jobs = {ref.key: f"slurm:{ref.node_id in ('n0', 'n1')}" for ref in fleet.all_gpus()}
    places = {f"n{n}": NodePlace(rack=f"r{n // 2}", leaf="l0") for n in range(4)}
    for gpu in range(4):
        fleet.state.note_event(gpu_ref(0, gpu), EventGroup.XID_BUS, fleet.now, 1)
    seen = scene(fleet, places=places)
    job = of(GPU, "job_gpus_calm_ratio", seen, fleet)
    assert job["GPU-0-0"] == pytest.approx(1 - 3 / 15), "less its own"
    assert job["GPU-1-0"] == pytest.approx(1 - 4 / 15) and job["GPU-3-0"] == 1.0
    rack = of(NODE, "rack_calm_ratio", seen, fleet)
    assert rack == {"n0": 1.0, "n1": 0.0, "n2": 1.0, "n3": 1.0}
    leaf = of(NODE, "leaf_calm_ratio", seen, fleet)
    assert leaf["n0"] == 1.0 and leaf["n2"] == pytest.approx(2 / 3)
    assert np.isnan(of(NODE, "rack_calm_ratio", scene(fleet), fleet)["n0"]), "no place is known"


def test_what_a_part_has_on_record_counts_once_it_is_a_day_old() -> None:
    fleet = at_work(nodes=2)
    ledger, sick = PartLedger(), gpu_ref(0, 1)
    for days, mark in ((0.2, Mark.BUS), (5, Mark.BUS), (100, Mark.MEMORY), (100, Mark.EXCLUSION)):
        ledger.note(part_name(sick, "S1"), sick, mark, fleet.now - days * DAY)
    seen = scene(fleet, ledger.reading())
    assert of(GPU, "ledger_severe_30d", seen, fleet)["GPU-0-1"] == 1.0
    assert of(GPU, "ledger_severe_180d", seen, fleet)["GPU-0-1"] == 2.0
    assert of(GPU, "ledger_exclusions_180d", seen, fleet)["GPU-0-1"] == 1.0
    decayed = of(GPU, "ledger_severe_decayed_30d", seen, fleet)
    expected = np.exp(-5 * DAY / MONTH_S) + np.exp(-100 * DAY / MONTH_S)
    assert decayed["GPU-0-1"] == pytest.approx(expected)
    assert decayed["GPU-0-2"] == 0.0


def test_a_job_has_an_age_where_its_begin_was_seen_and_a_node_its_failed_jobs() -> None:
    fleet = at_work(nodes=2)
    fleet.jobs = {ref.key: f"slurm:{ref.node_id}" for ref in fleet.all_gpus()}
    end = JobEnd("slurm:9", "NODE_FAIL", None, "eve", fleet.now, nodes=4)
    ends = {"n1": (end, replace(end, job="slurm:8", state="COMPLETED"))}
    seen = scene(fleet, jobs_began={"slurm:n0": fleet.now - 7200.0}, job_ends=ends)
    age = of(GPU, "job_age_hours", seen, fleet)
    assert age["GPU-0-0"] == pytest.approx(2.0) and np.isnan(age["GPU-1-0"])
    assert of(GPU, "failed_jobs_24h", seen, fleet)["GPU-1-7"] == 0.5
    assert of(NODE, "failed_jobs_24h", seen, fleet) == {"n0": 0.0, "n1": 0.5}


def test_a_checkpoint_of_a_whole_job_is_no_page_out_of_a_node() -> None:
    fleet = at_work(nodes=8)
    fleet.jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()}
    nodes, written = [node_ref(n) for n in range(8)], dict.fromkeys(range(8), 0.0)
    for step in range(1, 81):
        for n, node in enumerate(nodes):
            burst = step > 74 and (n == 7 or fleet.now > 0)
            written[n] += (3e10 if burst and (n == 7 or step > 74) else 3e8) * (5 if n == 7 else 1)
            at = fleet.now + 30.0 * step
            fleet.tell([node], at=at, node_pages_out_bytes_total=written[n])
    fleet.now += 2400.0
    rise = of(NODE, "page_out_rise_ratio", scene(fleet), fleet)
    assert abs(rise["n0"]) < 0.5, "all do so"


def test_a_node_has_the_worst_of_its_mounts() -> None:
    fleet = at_work(nodes=2)
    mounts = [EntityRef(EntityKind.MOUNT, f"n0/{name}", "n0") for name in ("/home", "/scratch")]
    for mount, a_step in zip(mounts, (1.0, 40.0), strict=True):
        for step in range(3):
            at = fleet.now + 30.0 * step
            fleet.tell([mount], at=at, mount_retransmits_total=a_step * step)
    fleet.now += 60.0
    fleet.tell([node_ref(0), node_ref(1)], node_uptime_seconds=1e6)
    lost = of(NODE, "mount_retransmits_1h", scene(fleet), fleet)
    assert lost["n0"] == pytest.approx(80.0, rel=0.02) and np.isnan(lost["n1"])


def test_a_port_lacks_what_the_same_port_of_other_nodes_has() -> None:
    fleet = at_work(nodes=8)
    ports = [EntityRef(NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(8)]
    up = {"nic_port_state": 4.0, "nic_rate_bytes_per_second": 5e10}
    fleet.tell(ports, **up, nic_symbol_errors_total=0.0)
    slow = {"nic_port_state": 4.0, "nic_rate_bytes_per_second": 2.5e10}
    fleet.now += 30.0
    fleet.tell(ports[1:], **up, nic_symbol_errors_total=0.0)
    fleet.tell(ports[:1], **slow, nic_symbol_errors_total=12.0)
    fleet.tell([node_ref(n) for n in range(8)], node_uptime_seconds=1e6)
    fleet.state.note_event(ports[2], EventGroup.NIC, fleet.now, 1)
    seen = scene(fleet)
    assert of(NIC, "rate_deficit_ratio", seen, fleet)["n0/mlx5_0/1"] == pytest.approx(0.5)
    assert of(NIC, "symbol_errors_1h", seen, fleet)["n0/mlx5_0/1"] == pytest.approx(12.0)
    assert of(NIC, "nic_events_24h", seen, fleet)["n2/mlx5_0/1"] == 1.0
    assert of(NIC, "rate_deficit_ratio", seen, fleet)["n3/mlx5_0/1"] == 0.0

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from gpuwarden_verdict.detectors.peer_deviation import PEER_DETECTORS
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.grouping import LARGEST, Grouping
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet, gpu_ref

ODD = gpu_ref(3, 7)
USUAL: Mapping[str, float] = {
    "gpu_temperature_celsius": 60.0,
    "gpu_memory_temperature_celsius": 70.0,
    "gpu_utilization_ratio": 0.95,
    "gpu_power_watts": 650.0,
    "gpu_sm_clock_hertz": 1.9e9,
    "gpu_slowdown_temperature_celsius": 87.0,
}


def run(
    fleet: Fleet,
    seconds: float,
    tell: Callable[[float], None],
    step: float = 20.0,
) -> list[Signal]:
    """Readings and sweeps for some time; what the last sweep said."""
    said: list[Signal] = []
    for _ in range(int(seconds / step)):
        tell(fleet.now)
        said = fleet.sweep(step)
    return said


def told(said: list[Signal]) -> list[tuple[str, str]]:
    return [(signal.detector, signal.entity.key) for signal in said]


def odd_one(fleet: Fleet, odd: Mapping[str, float | MissingKind], peers: int = 31) -> list[Signal]:
    """A fleet that is as usual but for one GPU."""

    def tell(now: float) -> None:
        fleet.tell(fleet.all_gpus()[:peers], at=now, **USUAL)
        fleet.tell([ODD], at=now, **{**USUAL, **odd})

    return run(fleet, 440.0, tell)


@pytest.mark.parametrize(
    ("detector", "odd"),
    [
        ("temperature_peers", {"gpu_temperature_celsius": 84.0}),
        ("memory_temperature_peers", {"gpu_memory_temperature_celsius": 92.0}),
        ("power_peers", {"gpu_power_watts": 300.0}),
        ("clock_peers", {"gpu_sm_clock_hertz": 1.2e9}),
    ],
)
def test_a_gpu_far_from_its_peers_is_told_as_advice_and_cleared(
    detector: str, odd: Mapping[str, float]
) -> None:
    fleet = Fleet()
    (signal,) = odd_one(fleet, odd)
    assert (signal.detector, signal.entity) == (detector, ODD)
    assert signal.max_rung is Rung.SUSPECT
    assert signal.thresholds[detector] < signal.numbers[detector]
    assert fleet.excluded_names() == []
    assert odd_one(fleet, {}) == []
    assert [i.evidence[0].cleared_at is not None for i in fleet.open()] == [True]


@pytest.mark.parametrize(
    "odd",
    [
        {"gpu_temperature_celsius": 76.0},  # warmer, and far from the slowdown limit
        {"gpu_temperature_celsius": 66.0},
        {"gpu_temperature_celsius": MissingKind.UNAVAILABLE},
        {"gpu_power_watts": 560.0},
        {"gpu_sm_clock_hertz": 1.8e9},
        {"gpu_power_watts": 300.0, "gpu_utilization_ratio": 0.3},  # less load, less power
        {"gpu_power_watts": 300.0, "gpu_power_limit_watts": 300.0},  # capped, as it was told to be
        {"gpu_sm_clock_hertz": 1.2e9, "gpu_clock_event_reasons": 4.0},  # software power cap
    ],
)
def test_what_is_usual_or_differs_for_a_reason_is_not_told(
    odd: Mapping[str, float | MissingKind],
) -> None:
    assert odd_one(Fleet(), odd) == []


def test_few_peers_and_unknown_models_say_nothing() -> None:
    hot = {"gpu_temperature_celsius": 90.0}
    assert odd_one(Fleet(), hot, peers=6) == []
    assert odd_one(Fleet(model=""), hot) == []


def test_what_lasts_a_moment_is_not_told() -> None:
    fleet = Fleet()

    def tell(now: float) -> None:
        hot = 90.0 if now < START + 60.0 else 60.0
        fleet.tell(fleet.all_gpus()[:31], at=now, **USUAL)
        fleet.tell([ODD], at=now, **{**USUAL, "gpu_temperature_celsius": hot})

    seen = [told(run(fleet, 10.0, tell)) for _ in range(40)]
    assert seen == [[]] * 40


def test_when_all_are_shifted_or_many_are_odd_nobody_is_blamed() -> None:
    fleet = Fleet()
    hot = {**USUAL, "gpu_temperature_celsius": 88.0}
    assert run(fleet, 600.0, lambda now: fleet.tell(fleet.all_gpus(), at=now, **hot)) == []
    fleet = Fleet()

    def some(now: float) -> None:
        fleet.tell(fleet.all_gpus()[:20], at=now, **USUAL)
        fleet.tell(fleet.all_gpus()[20:], at=now, **hot)

    assert run(fleet, 600.0, some) == []


def test_a_gpu_is_held_against_its_own_job_first() -> None:
    """A cool job beside a hot one: what is usual in the fleet would hide the odd one."""
    fleet = Fleet()
    cool, warm = fleet.all_gpus()[:16], fleet.all_gpus()[16:]
    fleet.jobs = {ref.key: "slurm:1" for ref in cool} | {ref.key: "slurm:2" for ref in warm}

    def tell(now: float) -> None:
        fleet.tell(warm, at=now, **{**USUAL, "gpu_temperature_celsius": 80.0})
        fleet.tell(cool[1:], at=now, **USUAL)
        fleet.tell(cool[:1], at=now, **{**USUAL, "gpu_temperature_celsius": 80.0})

    assert told(run(fleet, 600.0, tell)) == [("temperature_peers", cool[0].key)]


def test_an_idle_gpu_in_a_busy_job_is_told_and_an_idle_job_is_not() -> None:
    fleet = Fleet()
    fleet.jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()[:16]}

    def tell(now: float) -> None:
        fleet.tell(fleet.all_gpus()[1:16], at=now, gpu_utilization_ratio=0.98)
        fleet.tell(fleet.all_gpus()[16:], at=now, gpu_utilization_ratio=0.0)
        fleet.tell(fleet.all_gpus()[:1], at=now, gpu_utilization_ratio=0.0)

    assert told(run(fleet, 600.0, tell)) == [("utilization_peers", gpu_ref(0, 0).key)]


def test_a_node_that_rests_while_its_job_works_elsewhere_has_no_odd_gpu_or_port() -> None:
    """It was drained or booted, or lost its rank: that is no single GPU's, nor any port's."""
    fleet = Fleet(nodes=6, gpus=8)
    fleet.jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()}
    board = [ref for ref in fleet.all_gpus() if ref.node_id == "n0"]
    others = [ref for ref in fleet.all_gpus() if ref.node_id != "n0"]
    ports = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(6)]
    idle = {"gpus": 8}

    def tell(now: float) -> None:
        sent = (now - START) * 10e9
        fleet.tell(others + board[idle["gpus"] :], at=now, gpu_utilization_ratio=0.98)
        fleet.tell(board[: idle["gpus"]], at=now, gpu_utilization_ratio=0.0)
        fleet.tell(ports[1:], at=now, nic_received_bytes_total=sent)
        fleet.tell(ports[:1], at=now, nic_received_bytes_total=0.0)

    assert run(fleet, 900.0, tell) == []
    idle["gpus"] = 1
    assert told(run(fleet, 900.0, tell)) == [
        ("utilization_peers", board[0].key),
        ("nic_receive_peers", "n0/mlx5_0/1"),
    ]


def test_a_slow_port_is_held_against_the_same_port_of_its_jobs_nodes() -> None:
    fleet = Fleet(nodes=6, gpus=1)
    fleet.jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()}
    ports = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(6)]
    others = [EntityRef(EntityKind.NIC, f"n{n}/eth0", f"n{n}") for n in range(6)]
    for ref in fleet.all_gpus():
        fleet.state.register(ref)

    def tell(now: float) -> None:
        sent = (now - START) * 10e9
        fleet.tell(ports[1:], at=now, nic_received_bytes_total=sent)
        fleet.tell(ports[:1], at=now, nic_received_bytes_total=sent / 10)
        fleet.tell(others, at=now, nic_received_bytes_total=sent / 1e6)

    assert told(run(fleet, 900.0, tell)) == [("nic_receive_peers", "n0/mlx5_0/1")]
    fleet.jobs = {}
    assert run(fleet, 900.0, tell) == []


IDLE = {**USUAL, "gpu_utilization_ratio": 0.0, "gpu_sm_clock_hertz": 3e8, "gpu_power_watts": 90.0}


def standing(fleet: Fleet) -> list[str]:
    """Detectors whose evidence stands."""
    items = [item for incident in fleet.open() for item in incident.evidence]
    return [item.detector for item in items if item.cleared_at is None]


@pytest.mark.parametrize(
    ("detector", "odd"),
    [("clock_peers", {"gpu_sm_clock_hertz": 1.2e9}), ("power_peers", {"gpu_power_watts": 300.0})],
)
def test_a_straggler_is_over_once_it_is_idle_and_not_when_readings_stop(
    detector: str, odd: Mapping[str, float]
) -> None:
    fleet = Fleet()
    fleet.jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()}
    odd_one(fleet, odd)
    assert standing(fleet) == [detector]
    fleet.jobs = {}
    run(fleet, 200.0, lambda now: None)
    assert standing(fleet) == [detector], "nothing is read"
    unread: dict[str, float | MissingKind] = {
        **dict.fromkeys(USUAL, MissingKind.UNAVAILABLE),
        "gpu_utilization_ratio": 0.0,
    }
    run(fleet, 400.0, lambda now: fleet.tell(fleet.all_gpus(), at=now, **unread))
    assert standing(fleet) == [detector], "idle, and what was odd is not read"
    fleet.silent = {f"n{node}" for node in range(4)}
    run(fleet, 400.0, lambda now: fleet.tell(fleet.all_gpus(), at=now, **IDLE))
    assert standing(fleet) == [detector], "the node is not heard of"
    fleet.silent = set()
    run(fleet, 400.0, lambda now: fleet.tell(fleet.all_gpus(), at=now, **IDLE))
    assert standing(fleet) == []


def test_an_idle_gpu_stands_while_its_job_is_busy_or_unread_and_no_longer() -> None:
    fleet = Fleet()
    mine = fleet.all_gpus()[:16]
    fleet.jobs = {ref.key: "slurm:1" for ref in mine}

    def busy(now: float) -> None:
        fleet.tell(mine[1:], at=now, gpu_utilization_ratio=0.98)
        fleet.tell(mine[:1], at=now, gpu_utilization_ratio=0.0)

    run(fleet, 600.0, busy)
    assert standing(fleet) == ["utilization_peers"]
    unread = MissingKind.UNAVAILABLE

    def blind(now: float) -> None:
        fleet.tell(mine[1:], at=now, gpu_utilization_ratio=unread)
        fleet.tell(mine[:1], at=now, gpu_utilization_ratio=0.0)

    run(fleet, 300.0, blind)
    assert standing(fleet) == ["utilization_peers"], "its peers may be busy"
    run(fleet, 300.0, busy)
    assert standing(fleet) == ["utilization_peers"]
    fleet.jobs = {}
    run(fleet, 20.0, blind)
    assert standing(fleet) == []


def test_a_gpu_that_sent_too_little_is_over_with_its_job() -> None:
    fleet = Fleet()
    mine = fleet.all_gpus()[:16]
    fleet.jobs = {ref.key: "slurm:1" for ref in mine}

    def tell(now: float) -> None:
        sent = (now - START) * 10e9
        both = {"gpu_utilization_ratio": 0.9}
        fleet.tell(mine[1:], at=now, gpu_nvlink_transmitted_bytes_total=sent, **both)
        fleet.tell(mine[:1], at=now, gpu_nvlink_transmitted_bytes_total=sent / 10, **both)

    run(fleet, 600.0, tell)
    assert standing(fleet) == ["nvlink_throughput_peers"]
    fleet.jobs = {}
    run(fleet, 20.0, tell)
    assert standing(fleet) == []


@pytest.mark.parametrize("ends", ["job", "load"])
def test_a_slow_port_is_over_with_its_job_or_once_its_node_is_idle(ends: str) -> None:
    fleet = Fleet(nodes=6, gpus=2)
    jobs = {ref.key: "slurm:1" for ref in fleet.all_gpus()}
    ports = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(6)]
    rates = {"load": 1e10, "gpu": 0.9}
    sent = {"sum": 0.0}

    def tell(now: float) -> None:
        sent["sum"] += rates["load"] * 20.0
        fleet.tell(ports[1:], at=now, nic_received_bytes_total=sent["sum"])
        fleet.tell(ports[:1], at=now, nic_received_bytes_total=sent["sum"] / 10)
        fleet.tell(fleet.all_gpus(), at=now, gpu_utilization_ratio=rates["gpu"])

    fleet.jobs = jobs
    run(fleet, 900.0, tell)
    assert standing(fleet) == ["nic_receive_peers"]
    rates["load"] = 0.0
    run(fleet, 900.0, tell)
    assert standing(fleet) == ["nic_receive_peers"], "busy in a job that sends nothing now"
    if ends == "job":
        fleet.jobs = {}
    else:
        rates["gpu"] = 0.0
    fleet.silent = {"n0"}
    run(fleet, 300.0, tell)
    assert standing(fleet) == ["nic_receive_peers"], "its node is not heard of"
    fleet.silent = set()
    run(fleet, 300.0, tell)
    assert standing(fleet) == []


def test_peers_alone_never_exclude() -> None:
    assert all(one.max_rung is Rung.SUSPECT for one in PEER_DETECTORS)


def test_middles_are_those_of_numpy_whatever_the_sizes_ties_and_gaps() -> None:
    rng = np.random.default_rng(7)
    sizes = [1, 3, 4, 5, 8, 9, 12, 13, 40, 100, 512]
    codes = np.repeat(np.arange(len(sizes)), sizes)
    codes = np.r_[codes, np.full(20, NO_CODE)][rng.permutation(codes.size + 20)]
    values = np.round(rng.normal(60.0, 4.0, codes.size)).astype(np.float32)
    values[rng.random(codes.size) < 0.2] = np.nan
    grouping = Grouping(codes, 4)
    found = grouping.middle(values)
    for group, size in enumerate(sizes):
        members = np.flatnonzero(codes == group)
        inside = values[members]
        inside = inside[~np.isnan(inside)]
        median = grouping.per_entity(found.median)[members]
        if size < 4 or inside.size < 4:
            assert np.isnan(median).all()
            continue
        middle = np.median(inside)
        assert median.tolist() == [middle] * size
        spread = 1.4826 * np.median(np.abs(inside - middle))
        assert np.allclose(grouping.per_entity(found.spread)[members], spread)
    assert np.isnan(grouping.per_entity(found.median)[codes == NO_CODE]).all()


def test_a_large_group_is_judged_by_members_taken_evenly() -> None:
    values = np.linspace(0.0, 1.0, 20 * LARGEST, dtype=np.float32)
    found = Grouping(np.zeros(values.size, np.int64), 8).middle(values)
    assert abs(found.median[0] - 0.5) < 0.01
    assert found.count[0] == LARGEST
    assert Grouping(np.empty(0, np.int64), 8).middle(np.empty(0, np.float32)).median.size == 1

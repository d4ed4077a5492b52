"""Ports, disks, mounts and hosts: each detector fires, is silent at look-alikes, and clears."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from gpuwarden_verdict.detectors.host_planes import HOST_PLANES
from gpuwarden_verdict.detectors.nic_planes import NIC_PLANES
from gpuwarden_verdict.detectors.storage_planes import DISK_PLANES, MOUNT_PLANES
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet

NODES = 10
USUAL_S, ODD_S, STEP_S = 1_500.0, 1_800.0, 120.0
NIC, DISK, MOUNT, NODE = EntityKind.NIC, EntityKind.DISK, EntityKind.MOUNT, EntityKind.NODE
_DEVICES = {NIC: "/mlx5_0/1", DISK: "/nvme0n1", MOUNT: "//data", NODE: ""}
ALL = (*NIC_PLANES, *DISK_PLANES, *MOUNT_PLANES, *HOST_PLANES)


@dataclass(frozen=True)
class Case:
    """One detector's readings.

    Attributes:
        detector: Name.
        kind: Kind of entity.
        usual: Gauges, and counters' rates a second.
        odd: What differs where something is wrong.
        counters: Metrics of `usual` that are counters.
        spares_all: Whether nobody is told of when all show it.
        outlasts: Seconds of the same that are normal.
        odd_s: Seconds after which it is told.
    """

    detector: str
    kind: EntityKind
    usual: Mapping[str, float]
    odd: Mapping[str, float]
    counters: frozenset[str] = field(default_factory=frozenset)
    spares_all: bool = False
    outlasts: float = 0.0
    odd_s: float = ODD_S


def counted(detector: str, kind: EntityKind, metric: str, usual: float, odd: float) -> Case:
    """A counter that grows too fast."""
    return Case(detector, kind, {metric: usual}, {metric: odd}, frozenset({metric}), kind is NIC)


_UP = {"nic_port_state": 4.0}
_NFS = {
    "mount_operations_total": 1_000.0,
    "mount_execute_seconds_total": 20.0,
    "mount_queue_seconds_total": 2.0,
}
_HOST = {
    "node_interrupts_total": 1e4,
    "node_processes_running": 40.0,
    "node_gpu_processes": 8.0,
}
CASES = (
    Case(
        "nic_downtrained",
        NIC,
        {**_UP, "nic_rate_bytes_per_second": 50e9},
        {"nic_rate_bytes_per_second": 25e9},
        spares_all=True,
    ),
    Case("nic_pcie_width", NIC, {"nic_pcie_link_width": 16.0}, {"nic_pcie_link_width": 8.0}),
    Case(
        "nic_pcie_generation",
        NIC,
        {"nic_pcie_link_generation": 5.0},
        {"nic_pcie_link_generation": 3.0},
    ),
    counted("nic_symbol_errors", NIC, "nic_symbol_errors_total", 0.0, 1.0),
    counted("nic_symbol_errors", NIC, "nic_phy_symbol_errors_total", 0.0, 1.0),
    counted("nic_link_integrity", NIC, "nic_link_error_recovery_total", 0.0, 0.05),
    counted("nic_corrected_bits", NIC, "nic_phy_corrected_bits_total", 1e3, 1e7),
    counted("nic_packet_loss", NIC, "nic_packet_sequence_errors_total", 0.01, 1e3),
    counted("nic_ack_timeouts", NIC, "nic_local_ack_timeouts_total", 0.0, 0.5),
    counted("nic_out_of_buffer", NIC, "nic_out_of_buffer_total", 0.0, 1e3),
    counted("nic_pause_received", NIC, "nic_pause_received_priority3_seconds_total", 0.01, 0.6),
    counted("nic_pause_sent", NIC, "nic_pause_sent_priority3_seconds_total", 0.01, 0.6),
    Case(
        "disk_critical_warning",
        DISK,
        {"disk_critical_warning": 0.0},
        {"disk_critical_warning": 4.0},
    ),
    Case(
        "disk_spare_low",
        DISK,
        {"disk_available_spare_ratio": 1.0},
        {"disk_available_spare_ratio": 0.05},
    ),
    Case(
        "disk_worn", DISK, {"disk_endurance_used_ratio": 0.3}, {"disk_endurance_used_ratio": 0.99}
    ),
    counted("disk_media_errors", DISK, "disk_media_errors_total", 0.0, 0.01),
    Case(
        "nvme_controller_down",
        NODE,
        {"node_nvme_controllers_down": 0.0},
        {"node_nvme_controllers_down": 1.0},
    ),
    Case(
        "md_array_degraded",
        NODE,
        {"node_md_arrays_degraded": 0.0},
        {"node_md_arrays_degraded": 1.0},
    ),
    counted("mount_timeouts", MOUNT, "mount_major_timeouts_total", 0.0, 0.01),
    Case(
        "mount_queue",
        MOUNT,
        _NFS,
        {"mount_execute_seconds_total": 60.0, "mount_queue_seconds_total": 58.0},
        frozenset(_NFS),
        outlasts=360.0,
    ),
    Case(
        "mount_slow",
        MOUNT,
        _NFS,
        {"mount_execute_seconds_total": 400.0},
        frozenset(_NFS),
        outlasts=360.0,
    ),
    Case(
        "mount_backlog",
        MOUNT,
        {"mount_backlog_requests": 0.0, "mount_slots_in_use_ratio": 0.1},
        {"mount_backlog_requests": 200.0, "mount_slots_in_use_ratio": 1.0},
        outlasts=360.0,
    ),
    counted("host_memory_corrected", NODE, "node_memory_corrected_errors_total", 0.0, 1.0),
    counted("host_memory_uncorrected", NODE, "node_memory_uncorrected_errors_total", 0.0, 0.01),
    Case(
        "host_stalled",
        NODE,
        _HOST,
        {"node_interrupts_total": 2.5e3, "node_processes_running": 0.0},
        frozenset({"node_interrupts_total"}),
        spares_all=True,
    ),
    Case(
        "page_out_burst",
        NODE,
        {"node_pages_out_bytes_total": 1e6},
        {"node_pages_out_bytes_total": 900e6},
        frozenset({"node_pages_out_bytes_total"}),
        spares_all=True,
        odd_s=3 * STEP_S,
    ),
    Case(
        "clock_unsynchronised",
        NODE,
        {"node_clock_synchronised": 1.0},
        {"node_clock_synchronised": 0.0},
    ),
)
_IDS = [f"{case.detector}-{next(iter(case.odd))}" for case in CASES]


class Plane:
    """Entities of one kind, one a node, read and swept together."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.fleet = Fleet(nodes=NODES, gpus=0)
        self.refs = [
            EntityRef(case.kind, f"n{n}{_DEVICES[case.kind]}", f"n{n}") for n in range(NODES)
        ]
        self.totals = {ref: dict.fromkeys(case.counters, 0.0) for ref in self.refs}

    def run(self, seconds: float, odd: Callable[[int], bool], step: float = STEP_S) -> list[Signal]:
        """Let time pass; what the last sweep said."""
        said: list[Signal] = []
        for _ in range(int(seconds / step)):
            now = [odd(number) for number in range(NODES)]
            self._tell([r for r, is_odd in zip(self.refs, now, strict=True) if not is_odd], step)
            self._tell([r for r, is_odd in zip(self.refs, now, strict=True) if is_odd], step, 1)
            said = self.fleet.sweep(step)
        return said

    def _tell(self, refs: list[EntityRef], step: float, odd: int = 0) -> None:
        """Readings of entities that have been alike so far."""
        if not refs:
            return
        values = {**self.case.usual, **(self.case.odd if odd else {})}
        for name in self.case.counters:
            for ref in refs:
                self.totals[ref][name] += values[name] * step
            values[name] = self.totals[refs[0]][name]
        self.fleet.tell(refs, **values)


def nobody(_number: int) -> bool:
    return False


def first(number: int) -> bool:
    return number == 0


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_it_is_told_of_the_odd_one_and_cleared(case: Case) -> None:
    plane = Plane(case)
    assert plane.run(USUAL_S, nobody) == []
    (signal,) = plane.run(case.odd_s, first)
    assert (signal.detector, signal.entity) == (case.detector, plane.refs[0])
    assert plane.fleet.excluded_names() == []
    assert plane.run(30 * 3600.0, nobody, step=2 * 3600.0) == []
    assert all(i.evidence[0].cleared_at for i in plane.fleet.incidents.values())


@pytest.mark.parametrize("case", [one for one in CASES if one.spares_all], ids=lambda c: c.detector)
def test_when_all_show_it_nobody_is_told_of(case: Case) -> None:
    plane = Plane(case)
    plane.run(USUAL_S, nobody)
    assert plane.run(case.odd_s, lambda _number: True) == []


@pytest.mark.parametrize("case", [one for one in CASES if one.outlasts], ids=lambda c: c.detector)
def test_a_checkpoint_of_minutes_is_normal(case: Case) -> None:
    plane = Plane(case)
    plane.run(USUAL_S, nobody)
    assert plane.run(case.outlasts, lambda _number: True) == []
    assert plane.run(USUAL_S, nobody) == []


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_missing_readings_say_nothing(case: Case) -> None:
    fleet = Fleet(nodes=1, gpus=0)
    ref = EntityRef(case.kind, f"n0{_DEVICES[case.kind]}", "n0")
    for missing in (MissingKind.UNAVAILABLE, MissingKind.NOT_SUPPORTED):
        for _ in range(4):
            values: dict[str, float | MissingKind] = dict.fromkeys(
                [*case.usual, *case.odd], missing
            )
            fleet.tell([ref], at=None, **values)
            assert fleet.sweep(600.0) == []


def test_every_detector_of_these_planes_has_a_case() -> None:
    assert {one.name for one in ALL} - {one.detector for one in CASES} == {"nic_pcie_errors"}
    assert all(one.max_rung is Rung.SUSPECT for one in ALL if one.name != "host_memory_uncorrected")
    assert {one.fault_class for one in MOUNT_PLANES} == {FaultClass.STORAGE}


def test_a_link_that_is_narrow_by_design_everywhere_is_no_fault() -> None:
    """A NIC of 16 lanes in a slot of 8: below its maximum, and never more."""
    fleet = Fleet(nodes=NODES, gpus=0)
    refs = [EntityRef(NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(NODES)]
    for _ in range(20):
        fleet.tell(refs, nic_pcie_link_width=8.0, nic_pcie_link_width_max=16.0)
        assert fleet.sweep(60.0) == []


def test_a_host_whose_job_has_ended_is_quiet_and_no_fault() -> None:
    case = next(one for one in CASES if one.detector == "host_stalled")
    plane = Plane(case)
    plane.run(USUAL_S, nobody)
    ended = Case(
        case.detector, NODE, case.usual, {**case.odd, "node_gpu_processes": 0.0}, case.counters
    )
    plane.case = ended
    assert plane.run(ODD_S, first) == []


def test_errors_while_links_train_after_a_boot_are_no_fault() -> None:
    fleet = Fleet(nodes=NODES, gpus=0)
    port = EntityRef(NIC, "n0/mlx5_0/1", "n0")
    node = EntityRef(NODE, "n0", "n0")
    total = 0.0
    for number in range(40):
        total += 5_000.0 if number < 4 else 0.0
        fleet.tell([node], node_uptime_seconds=60.0 * number)
        fleet.tell([port], nic_symbol_errors_total=total)
        assert fleet.sweep(60.0) == [], f"{fleet.now - START:.0f} s after the boot"

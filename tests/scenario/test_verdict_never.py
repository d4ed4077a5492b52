"""What must never happen: stories that made peers take sound machines away."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.entities import EntityRef, EntityState, FaultClass
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.acknowledgement import Usable
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import ACT, Fleet, gpu_ref, node_ref, pci_of, xid_line

EAGER = ACT.replace("[defaults]", "[defaults]\nexclude_confidence = 0.1\nsettle_s = 0")
"""A policy so eager that only what may never act is left in."""


@pytest.mark.parametrize("policy", [ACT, EAGER])
@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_a_storm_of_application_xids_excludes_nobody_and_makes_nobody_suspect(
    code: int, policy: str
) -> None:
    """NVSentinel#1629 and #1710: 77 sound nodes, 672 fatal events from XID 45."""
    fleet = Fleet(policy=parse_policy(policy))
    for _ in range(6):
        for node in range(4):
            for gpu in range(8):
                fleet.line(node, xid_line(code, gpu))
        fleet.sweep(7)
    for _ in range(30):
        fleet.sweep(60)
    assert not any(decision.rung >= 2 for decision in fleet.decisions.values())
    assert all(fleet.record(gpu).state is EntityState.HEALTHY for gpu in fleet.all_gpus())


@pytest.mark.parametrize("code", [13, 31, 109])
def test_one_gpu_with_an_application_xid_again_and_again_is_suspect_at_most(code: int) -> None:
    fleet = Fleet(policy=parse_policy(EAGER))
    for _ in range(200):
        fleet.line(0, xid_line(code, 1))
        fleet.sweep(60)
        assert fleet.excluded() == ()
    assert fleet.record(gpu_ref(0, 1)).state in (EntityState.HEALTHY, EntityState.SUSPECT)
    for _ in range(70):
        fleet.sweep(60)
    assert fleet.open() == []
    assert fleet.record(gpu_ref(0, 1)).state is EntityState.HEALTHY


def test_echoes_alone_open_nothing_however_many() -> None:
    fleet = Fleet(policy=parse_policy(EAGER))
    for code in (43, 45, 171, 172):
        fleet.line(0, xid_line(code, 1), count=100_000)
    fleet.sweep(60)
    assert fleet.incidents == {}


def test_a_hardware_fault_within_a_storm_is_still_seen() -> None:
    fleet = Fleet()
    for gpu in range(8):
        fleet.line(0, xid_line(31, gpu))
    fleet.line(0, xid_line(79, 3))
    for gpu in range(8):
        fleet.line(0, xid_line(45, gpu))
    fleet.sweep(60)
    assert fleet.excluded_names() == ["GPU-0-3"]
    assert fleet.verdict(0).gpus[2].usable is Usable.YES


def test_our_own_trouble_is_never_a_hardware_verdict() -> None:
    """NVSentinel#1642: a timeout of the monitor at an upgrade cordoned many nodes."""
    fleet = Fleet(policy=parse_policy(EAGER))
    fleet.tell(fleet.all_gpus(), gpu_present=1.0, gpu_row_remap_failure=0.0)
    nodes = [node_ref(node) for node in range(4)]
    fleet.tell(nodes, node_gpus_visible=8.0, node_gpus_on_pci=8.0, node_gpus_expected=8.0)
    for _ in range(40):
        fleet.now += 30
        for node in range(4):
            fleet.event(
                node,
                EventKind.COLLECTOR_TROUBLE,
                text="nvml child is stopped",
                severity="critical",
                attributes={"collector": "nvml"},
            )
        fleet.tell(
            fleet.all_gpus(),
            gpu_present=MissingKind.STALE,
            gpu_row_remap_failure=MissingKind.UNAVAILABLE,
        )
        fleet.tell(
            nodes,
            node_gpus_visible=MissingKind.UNAVAILABLE,
            node_gpus_on_pci=8.0,
            node_gpus_expected=8.0,
        )
        fleet.sweep()
    fleet.event(0, EventKind.COLLECTOR_RECOVERED)
    assert (fleet.incidents, fleet.decisions) == ({}, {})


def test_a_stuck_driver_is_suspect_at_most_until_another_plane_agrees() -> None:
    fleet = Fleet(policy=parse_policy(EAGER))
    fleet.event(0, EventKind.DRIVER_STUCK, text="NVML call nvmlDeviceGetPowerUsage: 31 s")
    for _ in range(100):
        fleet.sweep(60)
    assert fleet.excluded() == ()
    assert fleet.record(node_ref(0)).state is EntityState.SUSPECT
    (incident,) = fleet.open()
    assert incident.fault_class is FaultClass.DRIVER
    fleet.event(0, EventKind.DRIVER_RESPONDS)
    fleet.sweep(600)
    assert fleet.open() == []
    assert fleet.record(node_ref(0)).state is EntityState.HEALTHY


def test_a_stuck_driver_counts_once_the_kernel_tells_of_the_driver_too() -> None:
    fleet = Fleet()
    fleet.event(0, EventKind.DRIVER_STUCK, text="NVML call nvmlDeviceGetPowerUsage: 31 s")
    fleet.line(1, "NVRM: The NVIDIA probe routine failed for 1 device(s).")
    fleet.sweep(60)
    assert fleet.excluded() == ()  # each alone
    fleet.line(0, "NVRM: The NVIDIA probe routine failed for 1 device(s).")
    fleet.sweep(60)
    assert fleet.excluded_names() == ["n0"]


def test_a_planned_reboot_of_the_whole_fleet_flags_nobody() -> None:
    """NVSentinel#1701: 214 nodes got NVLINK_DOWN at planned reboots."""
    fleet = Fleet(nodes=12, policy=parse_policy(ACT))
    up = {"gpu_nvlinks_active": 18.0, "gpu_nvlinks_inactive": 0.0}
    down = {"gpu_nvlinks_active": 0.0, "gpu_nvlinks_inactive": 18.0}
    _live_through(fleet, uptime=9e5, visible=8.0, links=up)
    for node in range(12):
        fleet.line(node, "mlx5_core 0000:5e:00.0 ens1: Link down")
        fleet.silent.add(f"n{node}")
    for _ in range(10):
        fleet.sweep(12)
    fleet.silent.clear()
    for node in range(12):
        fleet.reboot(node)
        fleet.line(node, "mlx5_core 0000:5e:00.0 ens1: Link down")
    _live_through(fleet, uptime=20.0, visible=3.0, links=down)
    _live_through(fleet, uptime=120.0, visible=8.0, links=down)
    _live_through(fleet, uptime=200.0, visible=8.0, links=up)
    assert fleet.excluded() == ()
    assert {i.fault_class for i in fleet.open()} <= {FaultClass.NIC}  # the line at the way down
    assert {record.state for record in fleet.records.values()} <= {EntityState.HEALTHY}
    for _ in range(3):
        _live_through(fleet, uptime=9e5, visible=8.0, links=up)
        fleet.sweep(3600)
    assert fleet.open() == []


def _live_through(fleet: Fleet, *, uptime: float, visible: float, links: dict[str, float]) -> None:
    nodes = [node_ref(node) for node in range(fleet.nodes)]
    for n in range(5):
        fleet.now += 5
        fleet.tell(fleet.all_gpus(), gpu_present=1.0, **links)
        fleet.tell(
            nodes,
            node_gpus_visible=visible,
            node_gpus_on_pci=8.0,
            node_gpus_expected=8.0,
            node_uptime_seconds=uptime + 5 * n,
        )
        fleet.sweep()


def test_not_supported_is_neither_missing_nor_down_nor_failed() -> None:
    """NVSentinel#1481: a PCIe A100 without a bridge had 12 links "down"."""
    fleet = Fleet(policy=parse_policy(EAGER))
    for _ in range(10):
        fleet.now += 5
        fleet.tell(
            fleet.all_gpus(),
            gpu_row_remap_failure=MissingKind.NOT_SUPPORTED,
            gpu_row_remap_pending=MissingKind.NOT_SUPPORTED,
            gpu_recovery_action=MissingKind.NOT_SUPPORTED,
            gpu_ecc_uncorrected_volatile_total=MissingKind.NOT_SUPPORTED,
            gpu_nvlinks_active=0.0,
            gpu_nvlinks_inactive=12.0,
            gpu_temperature_celsius=MissingKind.NOT_SUPPORTED,
        )
        fleet.sweep()
    assert fleet.incidents == {}


def test_silence_excludes_nobody_and_reads_unknown() -> None:
    fleet = Fleet(policy=parse_policy(EAGER))
    fleet.tell(fleet.all_gpus(), gpu_row_remap_failure=0.0)
    fleet.silent.add("n0")
    for _ in range(100):
        fleet.sweep(60)
    assert fleet.excluded() == ()
    verdict = fleet.verdict(0)
    assert verdict.node.usable is Usable.UNKNOWN
    assert {gpu.usable for gpu in verdict.gpus} == {Usable.UNKNOWN}


def test_an_exclusion_in_force_stays_no_through_silence() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(79, 3))
    fleet.silent.add("n0")
    fleet.sweep(3600)
    assert fleet.verdict(0).node.usable is Usable.NO


def test_a_port_that_was_never_up_is_no_fault_and_one_that_fell_is() -> None:
    """NVSentinel#1361: an auxiliary port down by design was fatal."""
    fleet = Fleet()
    spare = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_1/1", f"n{n}") for n in range(4)]
    used = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(4)]
    for _ in range(4):
        fleet.now += 5
        fleet.tell(spare, nic_port_state=1.0)
        fleet.tell(used, nic_port_state=4.0)
        fleet.sweep()
    assert fleet.incidents == {}
    for _ in range(9):
        fleet.now += 5
        fleet.tell(used[:1], nic_port_state=1.0)
        fleet.sweep()
    assert fleet.excluded_names() == ["n0"]
    for _ in range(3):
        fleet.now += 5
        fleet.tell(used[:1], nic_port_state=4.0)
        fleet.sweep()
    fleet.sweep(600)
    assert fleet.excluded() == ()


def test_ports_of_many_nodes_down_together_blame_the_fabric_and_exclude_nobody() -> None:
    fleet = Fleet(nodes=12, policy=parse_policy(ACT))
    ports = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(12)]
    fleet.tell(ports, nic_port_state=4.0)
    for _ in range(30):
        fleet.now += 5
        fleet.tell(ports[:8], nic_port_state=1.0)
        fleet.sweep()
    assert fleet.excluded() == ()
    assert {incident.fault_class for incident in fleet.open()} == {FaultClass.FABRIC}


def test_ports_fall_together_by_the_time_that_passed_not_by_what_the_clocks_say() -> None:
    """Six nodes on one leaf switch, their clocks 100 s apart: all six were excluded for it."""
    fleet = Fleet(nodes=6)
    ports = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(6)]
    for step in range(30):
        fleet.now += 5
        for n, port in enumerate(ports):
            fleet.tell([port], at=fleet.now - 100 * n, nic_port_state=1.0 if step > 3 else 4.0)
        fleet.sweep()
    assert fleet.excluded() == ()
    assert {incident.fault_class for incident in fleet.open()} == {FaultClass.FABRIC}


def test_clocks_that_are_off_do_not_make_one_fault_of_many() -> None:
    """Five ports fall 100 s after each other; by their nodes' clocks it is the same moment."""
    fleet = Fleet(nodes=5)
    ports = [EntityRef(EntityKind.NIC, f"n{n}/mlx5_0/1", f"n{n}") for n in range(5)]
    for step in range(120):
        fleet.now += 5
        for n, port in enumerate(ports):
            state = 1.0 if step > 4 + 20 * n else 4.0
            fleet.tell([port], at=fleet.now - 100 * n, nic_port_state=state)
        fleet.sweep()
    assert fleet.excluded_names() == [f"n{n}" for n in range(5)]


def test_when_all_gpus_are_warm_together_no_gpu_is_blamed_and_a_hot_one_is() -> None:
    fleet = Fleet()
    hot = gpu_ref(2, 5)
    others = [ref for ref in fleet.all_gpus() if ref != hot]
    steady = {"gpu_utilization_ratio": 0.95, "gpu_slowdown_temperature_celsius": 90.0}
    for celsius in (60.0, 70.0, 80.0, 88.0):
        for _ in range(30):
            fleet.now += 5
            fleet.tell(fleet.all_gpus(), gpu_temperature_celsius=celsius, **steady)
            fleet.sweep()
    assert fleet.incidents == {}
    for _ in range(60):
        fleet.now += 5
        fleet.tell(others, gpu_temperature_celsius=62.0, **steady)
        fleet.tell([hot], gpu_temperature_celsius=84.0, **steady)
        fleet.sweep()
    (incident,) = fleet.open()
    assert (incident.entity, incident.fault_class) == (hot, FaultClass.THERMAL)
    assert fleet.record(hot).state is EntityState.SUSPECT
    assert fleet.excluded() == ()


def test_sweeps_and_restarts_that_see_nothing_end_no_incident() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(79, 3))
    fleet.state = type(fleet.state)()  # a restart without any checkpoint
    fleet.recent.clear()
    for _ in range(500):
        fleet.sweep(600)
    assert len(fleet.open()) == 1
    assert fleet.excluded_names() == ["GPU-0-3"]


def test_a_replayed_event_changes_nothing() -> None:
    fleet = Fleet()
    event = fleet.line(0, xid_line(79, 3))
    before = (dict(fleet.incidents), dict(fleet.decisions))
    fleet.now += 60
    fleet.replay(0, event)
    assert (fleet.incidents, fleet.decisions) == before


def test_nvml_alone_never_concludes_a_reset_from_undecoded_nvlink_codes() -> None:
    fleet = Fleet(policy=parse_policy(ACT))
    for code in (*range(144, 150), 154, 162, 163, 168, 185, 999):
        fleet.event(
            0,
            EventKind.NVML_XID,
            entity_kind=EntityKind.GPU,
            entity="GPU-0-1",
            pci_bus_id=pci_of(1),
            xid=code,
        )
        fleet.now += 40
    fleet.sweep(60)
    assert fleet.excluded() == ()


def test_lost_gpus_leave_their_node_usable_for_the_others() -> None:
    fleet = Fleet()
    lost, node = gpu_ref(0, 3), node_ref(0)
    fleet.line(0, xid_line(79, 3))
    for _ in range(20):
        fleet.now += 5
        fleet.tell([lost], gpu_present=0.0)
        fleet.tell([node], node_gpus_visible=7.0, node_gpus_on_pci=7.0, node_gpus_expected=8.0)
        fleet.sweep()
    assert fleet.excluded_names() == [lost.key]
    assert fleet.record(node).state is EntityState.SUSPECT
    assert fleet.verdict(0).gpus[0].usable is Usable.YES


def test_a_gpu_that_never_showed_makes_its_node_unusable() -> None:
    fleet = Fleet(gpus=7)
    for _ in range(20):
        fleet.now += 5
        fleet.tell(
            [node_ref(0)], node_gpus_visible=7.0, node_gpus_on_pci=7.0, node_gpus_expected=8.0
        )
        fleet.sweep()
    assert fleet.excluded_names() == ["n0"]

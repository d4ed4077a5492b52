"""What the text of an exporter means in our metrics."""

from __future__ import annotations

import pytest

from gpuwarden_exporters.dcgm_fields import FIELDS
from gpuwarden_exporters.gathering import ExporterKind, Gathered, Gatherer
from gpuwarden_exporters.memory import FORGET_AFTER_S, FROZEN_AFTER_S
from gpuwarden_exporters.rules import XidForm
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Rows, Stale, Unavailable
from tests.builders.dcgm import OTHER_UUID, RENAMED, UUID, DcgmGpu, dcgm_text

NUMBERS: dict[str, float | str] = {
    "DCGM_FI_DEV_SM_CLOCK": 1755,
    "DCGM_FI_DEV_GPU_TEMP": 41,
    "DCGM_FI_DEV_POWER_USAGE": "648.125000",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5_000_000_000,
    "DCGM_FI_DEV_GPU_UTIL": 97,
    "DCGM_FI_DEV_FB_USED": 62464,
    "DCGM_FI_DEV_FB_TOTAL": 81920,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 7,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": 1_500_000_000,
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": 1,
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 3,
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 4,
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 5,
    "DCGM_FI_DEV_XID_ERRORS": 43,
    "DCGM_FI_DEV_COUNT": 8,
}
EXPECTED = {
    "gpu_sm_clock_hertz": 1.755e9,
    "gpu_temperature_celsius": 41,
    "gpu_power_watts": 648.125,
    "gpu_energy_joules_total": 5_000_000.0,
    "gpu_utilization_ratio": 0.97,
    "gpu_memory_used_bytes": 62464 * 1024**2,
    "gpu_memory_total_bytes": 81920 * 1024**2,
    "gpu_row_remap_failure": 0,
    "gpu_rows_remapped_uncorrectable_total": 2,
    "gpu_pcie_replay_total": 7,
    "gpu_thermal_slowdown_seconds_total": 1.5,
    "gpu_recovery_action": 1,
    "gpu_nvlink_errors_total": 12,
    "gpu_nvlinks_active": 2.0,
    "gpu_nvlinks_inactive": 1.0,
}
LINKS = {0: 1, 1: 2, 2: 0}  # one up, one asleep, one down


def take(text: str, kind: ExporterKind = ExporterKind.AUTO) -> Gathered:
    return Gatherer(kind).take(text, 0.0)


def gpu_row(gathered: Gathered, uuid: str = UUID) -> dict[str, Reading]:
    return dict(gathered.rows[EntityKind.GPU][uuid])


def line(metric: str, value: object, labels: str = f'UUID="{UUID}"') -> str:
    return f"{metric}{{{labels}}} {value}\n"


@pytest.mark.parametrize("new", [False, True], ids=["before DCGM 4.6", "since"])
def test_names_and_labels_of_all_versions_give_the_same_in_base_units(new: bool) -> None:
    text = dcgm_text([DcgmGpu(numbers=NUMBERS, links=LINKS)], new=new)
    gathered = take(text)
    assert gpu_row(gathered) == pytest.approx(EXPECTED)
    assert gathered.rows[EntityKind.NODE] == {"": {"node_gpus_visible": 8}}
    assert (gathered.broken, gathered.duplicates) == (0, 0)


def test_each_field_is_known_by_number_under_each_of_its_names() -> None:
    numbers = {name: field.number for field in FIELDS for name in field.names}
    for old, new in RENAMED.items():
        assert numbers.get(old) == numbers.get(new), (old, new)
    assert numbers["dcgm_gpu_temp"] == numbers["DCGM_FI_DEV_GPU_TEMP_CELSIUS"] == 150


def test_the_fabric_is_told_in_nvmls_states() -> None:
    def state(number: int) -> Reading:
        return gpu_row(take(line("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", number)))["gpu_fabric_state"]

    assert [state(number) for number in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert state(0) == NotSupported()
    assert state(6) == Unavailable("not_a_known_state")


def test_error_ratios_are_the_worst_links() -> None:
    text = "".join(
        line("DCGM_FI_DEV_NVLINK_SYMBOL_BER_RATIO", ratio, f'nvlink="{n}",gpu_uuid="{UUID}"')
        for n, ratio in enumerate(("1e-15", "3e-12", "2e-15"))
    )
    assert gpu_row(take(text)) == {"gpu_nvlink_symbol_ber_ratio": 3e-12}


def test_what_labels_tell_of_a_gpu_becomes_its_identity() -> None:
    text = dcgm_text([DcgmGpu(numbers={"DCGM_FI_DEV_GPU_TEMP": 41}, index=3)])
    text = text.replace('Hostname="', 'DCGM_FI_DEV_SERIAL="1650522003001",Hostname="')
    facts = take(text).gpus[UUID]
    assert (facts.index, facts.model) == (3, "NVIDIA H100 80GB HBM3")
    assert (facts.pci_bus_id, facts.serial) == ("0000:1b:00.0", "1650522003001")
    assert facts.driver_version == "580.95.05"


# dcgm_structs.h: 0x7ffffff0, 0x7ffffffffffffff0 and 2**47; +1 not found, +2 not supported, +3 not
# permitted.
@pytest.mark.parametrize(
    ("value", "reading"),
    [
        (2147483632, Unavailable("dcgm_blank")),
        (2147483633, Unavailable("dcgm_not_found")),
        (2147483634, NotSupported()),
        (2147483635, Unavailable("permission_denied")),
        (9223372036854775792, Unavailable("dcgm_blank")),
        (9223372036854775793, Unavailable("dcgm_not_found")),
        (9223372036854775794, NotSupported()),
        (9223372036854775795, Unavailable("permission_denied")),
        ("9.223372036854776e+18", Unavailable("dcgm_blank")),
        ("140737488355328.000000", Unavailable("dcgm_blank")),
        ("140737488355330.000000", NotSupported()),
        ("NaN", Unavailable("not_finite")),
        ("+Inf", Unavailable("not_finite")),
        (2147483631, 2147483631),
    ],
)
def test_blanks_are_missing_with_their_reason(value: object, reading: Reading) -> None:
    text = line("DCGM_FI_DEV_GPU_TEMP", value)
    assert gpu_row(take(text))["gpu_temperature_celsius"] == reading


def test_a_counter_below_zero_and_a_share_above_all_are_no_readings() -> None:
    text = line("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", -1) + line("DCGM_FI_DEV_GPU_UTIL", 101)
    row = gpu_row(take(text))
    assert row["gpu_pcie_replay_total"] == Unavailable("implausible_value")
    assert row["gpu_utilization_ratio"] == Unavailable("implausible_value")


def test_the_numbers_tell_whether_a_ratio_goes_to_one_or_to_a_hundred() -> None:
    def share(gatherer: Gatherer, value: float) -> Reading:
        text = line("DCGM_FI_DEV_GPU_UTIL_RATIO", value)
        return gpu_row(gatherer.take(text, 0.0))["gpu_utilization_ratio"]

    percents, ratios = Gatherer(), Gatherer()
    assert share(percents, 0) == 0
    assert share(percents, 1) == Unavailable("scale_not_known_yet")
    assert [share(percents, value) for value in (57, 1, 100)] == [0.57, 0.01, 1.0]
    assert [share(ratios, value) for value in (0.25, 1, 0)] == [0.25, 1.0, 0]


def test_exact_units_go_before_coarse_ones() -> None:
    text = line("DCGM_FI_DEV_FB_USED", 1) + line("DCGM_FI_DEV_FB_USED_BYTES", 1048999)
    assert gpu_row(take(text))["gpu_memory_used_bytes"] == 1048999


def test_a_blank_in_the_finer_unit_leaves_the_coarse_one() -> None:
    text = line("DCGM_FI_DEV_FB_USED", 1) + line("DCGM_FI_DEV_FB_USED_BYTES", 9223372036854775794)
    assert gpu_row(take(text))["gpu_memory_used_bytes"] == 1048576


def test_mig_rows_speak_for_the_board_only_where_the_board_alone_can_be_meant() -> None:
    numbers: dict[str, float | str] = {
        "DCGM_FI_DEV_GPU_TEMP": 45,
        "DCGM_FI_DEV_FB_USED": 3744,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
    }
    gpu = DcgmGpu(numbers=numbers, instances=((3, "1g.6gb"), (6, "1g.6gb")))
    row = gpu_row(take(dcgm_text([gpu])))
    assert row["gpu_temperature_celsius"] == 45
    assert row["gpu_memory_used_bytes"] == Unavailable("only_of_mig_instances")
    assert row["gpu_ecc_uncorrected_volatile_total"] == Unavailable("only_of_mig_instances")


def test_a_row_of_the_gpu_goes_before_rows_of_its_instances() -> None:
    of_instance = f'UUID="{UUID}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
    text = line("DCGM_FI_DEV_FB_USED", 10, of_instance) + line("DCGM_FI_DEV_FB_USED", 70)
    text += line("DCGM_FI_DEV_GPU_TEMP", 50, of_instance) + line("DCGM_FI_DEV_GPU_TEMP", 51)
    row = gpu_row(take(text))
    assert row["gpu_memory_used_bytes"] == 70 * 1024**2
    assert row["gpu_temperature_celsius"] == 51


def test_broken_lines_cost_themselves_only_and_are_counted_and_named() -> None:
    text = (
        line("DCGM_FI_DEV_GPU_TEMP", 41)
        + 'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-\n'
        + line("DCGM_FI_DEV_SM_CLOCK", "fast")
        + "one two three four\n"
        + line("DCGM_FI_DEV_MEM_CLOCK", 2619)
    )
    gathered = take(text)
    assert gpu_row(gathered) == {
        "gpu_temperature_celsius": 41,
        "gpu_memory_clock_hertz": 2.619e9,
    }
    assert gathered.broken == 3
    assert gathered.first_broken == 'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-'


def test_a_series_that_comes_twice_counts_once_and_is_named() -> None:
    gathered = take(line("DCGM_FI_DEV_GPU_TEMP", 41) + line("DCGM_FI_DEV_GPU_TEMP", 99))
    assert gpu_row(gathered)["gpu_temperature_celsius"] == 41
    assert gathered.duplicates == 1
    assert gathered.first_duplicate.startswith("DCGM_FI_DEV_GPU_TEMP{")


def test_rows_of_several_pods_on_one_gpu_are_no_duplicates_and_not_added_up() -> None:
    pods = [f'UUID="{UUID}",pod="{pod}"' for pod in ("a", "b")]
    text = "".join(line("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 3, pod) for pod in pods)
    gathered = take(text)
    assert gpu_row(gathered) == {"gpu_nvlink_errors_total": 3}
    assert gathered.duplicates == 0


def test_timestamps_and_a_second_look_change_nothing() -> None:
    gatherer = Gatherer()
    for value in (41, 42):
        text = f'DCGM_FI_DEV_GPU_TEMP{{UUID="{UUID}"}} {value} 1700000000000\n'
        assert gpu_row(gatherer.take(text, 0.0))["gpu_temperature_celsius"] == value


def test_what_falls_silent_says_so_for_an_hour() -> None:
    gatherer = Gatherer()
    both = line("DCGM_FI_DEV_GPU_TEMP", 41) + line("DCGM_FI_DEV_SM_CLOCK", 1000)
    other = line("DCGM_FI_DEV_GPU_TEMP", 40, f'UUID="{OTHER_UUID}"')
    gatherer.take(both + other, 0.0)
    gathered = gatherer.take(line("DCGM_FI_DEV_GPU_TEMP", 41), 10.0)
    silent = Unavailable("not_in_exporter")
    assert gpu_row(gathered)["gpu_sm_clock_hertz"] == silent
    assert gpu_row(gathered, OTHER_UUID) == {"gpu_temperature_celsius": silent}
    assert set(gathered.gpus) == {UUID}
    late = gatherer.take(line("DCGM_FI_DEV_GPU_TEMP", 41), FORGET_AFTER_S + 1)
    assert set(late.rows[EntityKind.GPU]) == {UUID}


def test_a_sum_over_links_does_not_fall_when_a_link_falls_silent() -> None:
    gatherer = Gatherer()
    counts = "".join(
        line("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL", 10, labels)
        for labels in (f'nvlink="{n}",gpu_uuid="{UUID}"' for n in (0, 1))
    )
    assert gpu_row(gatherer.take(counts, 0.0))["gpu_nvlink_errors_total"] == 20
    one = line(
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL", 11, f'nvlink="1",gpu_uuid="{UUID}"'
    )
    assert gpu_row(gatherer.take(one, 5.0))["gpu_nvlink_errors_total"] == 21


def test_an_exporter_whose_energy_counter_stands_still_repeats_itself() -> None:
    gatherer = Gatherer()
    for clock in (0.0, FROZEN_AFTER_S - 1, FROZEN_AFTER_S):
        gatherer.take(line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5000), clock)
    rows: Rows = {UUID: {"gpu_energy_joules_total": 5.0, "gpu_power_watts": Unavailable("x")}}
    assert gatherer.without_frozen(rows, FROZEN_AFTER_S - 1) == rows
    assert gatherer.without_frozen(rows, FROZEN_AFTER_S)[UUID] == {
        "gpu_energy_joules_total": Stale(FROZEN_AFTER_S),
        "gpu_power_watts": Unavailable("x"),
    }
    gatherer.take(line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5001), FROZEN_AFTER_S + 1)
    assert gatherer.without_frozen(rows, FROZEN_AFTER_S + 2) == rows


def test_a_kind_that_was_asked_for_leaves_other_series_alone() -> None:
    text = line("DCGM_FI_DEV_GPU_TEMP", 41) + "node_load1 3\n"
    assert set(take(text, ExporterKind.NODE).rows) == {EntityKind.NODE}
    assert set(take(text, ExporterKind.DCGM).rows) == {EntityKind.GPU}
    assert set(take(text).rows) == {EntityKind.NODE, EntityKind.GPU}


def test_series_without_a_gpu_that_has_a_uuid_are_passed_over() -> None:
    text = line("DCGM_FI_DEV_GPU_TEMP", 41, 'gpu="0"')
    text += line("DCGM_FI_DEV_GPU_TEMP", 41, 'UUID="MIG-0d463822-1413-4315-e1a4-5503c4d55d03"')
    assert take(text).rows == {}


def test_xids_are_no_readings() -> None:
    text = line("DCGM_FI_DEV_XID_ERRORS", 79, f'UUID="{UUID}",err_code="79"')
    text += line("DCGM_EXP_XID_ERRORS_TOTAL", 2, f'UUID="{UUID}",xid="79"')
    text += line("DCGM_FI_DEV_XID_ERROR", 9223372036854775794, f'uuid="{OTHER_UUID}"')
    gathered = take(text)
    assert gathered.rows == {}
    forms = [(series.form, series.gpu_uuid, series.code, n) for series, n in gathered.xids]
    assert forms == [
        (XidForm.LAST_CODE, UUID, None, 79),
        (XidForm.COUNTED, UUID, 79, 2),
    ]


def test_nvidia_gpu_exporter_by_uuid_without_its_prefix() -> None:
    bare = UUID.removeprefix("GPU-")
    text = (
        f'nvidia_smi_gpu_info{{uuid="{bare}",index="1",name="NVIDIA H200",pci_bus_id='
        f'"00000000:83:00.0",serial="1655732113547",driver_version="590.48.01"}} 1\n'
        f'nvidia_smi_clocks_current_sm_clock_hz{{uuid="{bare}"}} 1.98e+09\n'
        f'nvidia_smi_utilization_gpu_ratio{{uuid="{bare}"}} 0.5\n'
        f'nvidia_smi_remapped_rows_pending{{uuid="{bare}"}} 1\n'
        f'nvidia_smi_xid_errors_total{{uuid="{bare}",xid="79"}} 1\n'
        "nvidia_smi_last_collect_success 1\n"
    )
    gathered = take(text)
    assert gpu_row(gathered) == {
        "gpu_sm_clock_hertz": 1.98e9,
        "gpu_utilization_ratio": 0.5,
        "gpu_row_remap_pending": 1,
    }
    assert gathered.gpus[UUID].pci_bus_id == "0000:83:00.0"
    assert gathered.gpus[UUID].serial == "1655732113547"
    assert [(series.form, series.code) for series, _ in gathered.xids] == [(XidForm.COUNTED, 79)]


def test_all_smi_writes_zero_for_what_it_did_not_read() -> None:
    labels = f'gpu="NVIDIA A100",instance="n1",gpu_uuid="{UUID}",gpu_index="0"'
    text = (
        line("all_smi_gpu_utilization", "30.0", labels)
        + line("all_smi_gpu_temperature_celsius", 0, labels)
        + line("all_smi_gpu_frequency_mhz", 1410, labels)
        + line("all_smi_gpu_memory_used_bytes", 0, labels)
    )
    assert gpu_row(take(text)) == {
        "gpu_utilization_ratio": pytest.approx(0.3),
        "gpu_temperature_celsius": Unavailable("zero_for_unknown"),
        "gpu_sm_clock_hertz": 1.41e9,
        "gpu_memory_used_bytes": 0,
    }


def test_a_collector_of_node_exporter_that_fails_is_the_reason_of_what_is_missing() -> None:
    gatherer = Gatherer()
    port = 'node_infiniband_state_id{device="mlx5_0",port="1"} 4\n'
    gatherer.take(port + "node_load1 3\n", 0.0)
    text = 'node_scrape_collector_success{collector="infiniband"} 0\nnode_load1 3\n'
    rows = gatherer.take(text, 5.0).rows
    assert rows[EntityKind.NIC] == {
        "mlx5_0/1": {"nic_port_state": Unavailable("exporter_part_failed")}
    }
    assert rows[EntityKind.NODE] == {"": {"node_load1": 3}}


def test_interfaces_and_disks_of_software_are_passed_over() -> None:
    names = ("eth0", "ib0", "enp1s0f0np0", "enP5p9s0", "veth12ab", "lo", "bond0", "eth0.100")
    text = "".join(f'node_network_receive_bytes_total{{device="{n}"}} 1\n' for n in names)
    text += 'node_network_receive_bytes_total{device="enp1s0f0v3"} 1\n'
    disks = ("sda", "nvme0n1", "sda1", "nvme0n1p2", "dm-0", "md0", "loop3")
    text += "".join(f'node_disk_io_now{{device="{name}"}} 1\n' for name in disks)
    rows = take(text).rows
    assert set(rows[EntityKind.NIC]) == {"eth0", "ib0", "enp1s0f0np0", "enP5p9s0"}
    assert set(rows[EntityKind.DISK]) == {"sda", "nvme0n1"}


@pytest.mark.parametrize(
    ("flags", "operstate", "carrier", "reading"),
    [
        (4099, "up", 1, 1.0),
        (4099, "down", 0, 0.0),
        (4099, "lowerlayerdown", 0, 0.0),
        (4099, "unknown", 1, 1),
        (4098, "down", 0, Unavailable("administratively_down")),
    ],
)
def test_a_link_is_judged_as_natively(
    flags: int, operstate: str, carrier: int, reading: Reading
) -> None:
    text = (
        f'node_network_flags{{device="eth0"}} {flags}\n'
        f'node_network_carrier{{device="eth0"}} {carrier}\n'
        f'node_network_info{{device="eth0",operstate="{operstate}"}} 1\n'
        'node_network_speed_bytes{device="eth0"} -125000\n'
    )
    row = take(text).rows[EntityKind.NIC]["eth0"]
    assert row["nic_carrier"] == reading
    assert row["nic_rate_bytes_per_second"] == Unavailable("speed_unknown")


def test_a_port_counter_at_the_end_of_its_bits_is_no_number() -> None:
    text = 'node_infiniband_link_downed_total{device="mlx5_0",port="1"} 255\n'
    row = take(text).rows[EntityKind.NIC]["mlx5_0/1"]
    assert row["nic_link_downed_total"] == Unavailable("saturated")


def test_labels_that_come_and_go_are_forgotten() -> None:
    gatherer = Gatherer()
    for pod in range(3000):
        labels = f'UUID="{UUID}",pod="{pod}"'
        row = gpu_row(gatherer.take(line("DCGM_FI_DEV_GPU_TEMP", pod, labels), float(pod)))
        assert row == {"gpu_temperature_celsius": pod}
    assert len(gatherer._plan) + len(gatherer._former_plan) < 600

"""Recordings as people really have them: what is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_models.recording import Recording
from gpuwarden_wire.events import Backlog, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.recorded import (
    ALL_KINDS,
    GPU,
    MOUNT,
    NIC,
    NODE,
    START,
    A,
    B,
    column,
    events_of,
    frames_of,
    gpu_lines,
    table,
    text,
    wide,
)

# What is read


def test_both_spellings_of_dcgm_mean_the_same(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_SM_CLOCK", [1980, 1500]))
    assert column(tmp_path, GPU, "gpu_sm_clock_hertz") == [1.98e9, 1.5e9]
    text(tmp_path, gpu_lines("DCGM_FI_DEV_SM_CLOCK_HERTZ", [1.98e9, 1.5e9]))
    assert column(tmp_path, GPU, "gpu_sm_clock_hertz") == [1.98e9, 1.5e9]
    both = gpu_lines("DCGM_FI_DEV_SM_CLOCK", [1000]) + gpu_lines(
        "DCGM_FI_DEV_SM_CLOCK_HERTZ", [1.98e9, 1.5e9]
    )
    text(tmp_path, both)
    assert column(tmp_path, GPU, "gpu_sm_clock_hertz") == [1.98e9, 1.5e9], "the finer unit"


def test_a_share_is_read_in_its_own_scale(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_UTIL", [98, 1]))
    assert column(tmp_path, GPU, "gpu_utilization_ratio") == [0.98, 0.01]
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_UTIL_RATIO", [0.98, 1]))
    assert column(tmp_path, GPU, "gpu_utilization_ratio") == [0.98, 1.0]
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_UTIL_RATIO", [1, 98]))
    assert column(tmp_path, GPU, "gpu_utilization_ratio") == [0.01, 0.98], "percents after all"


def test_sentinels_and_unknown_metrics_are_no_readings(tmp_path: Path) -> None:
    lines = gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 2147483632, 9223372036854775794])
    lines += [*gpu_lines("DCGM_FI_DEV_MOON_PHASE", [1, 2, 3]), "go_goroutines 8 1772323200"]
    text(tmp_path, lines)
    heat = column(tmp_path, GPU, "gpu_temperature_celsius")
    assert heat[0] == 41 and np.isnan(heat[1:]).all()
    assert Recording(tmp_path).metrics[GPU] == ("gpu_temperature_celsius",)


def test_only_node_exporter_is_enough(tmp_path: Path) -> None:
    text(
        tmp_path,
        [
            'node_load1{instance="n1:9100"} 3 1772323200',
            'node_load1{instance="n1:9100"} 4 1772323230',
            'node_memory_SwapTotal_bytes{instance="n1:9100"} 10 1772323200',
            'node_memory_SwapFree_bytes{instance="n1:9100"} 4 1772323200',
            'node_edac_correctable_errors_total{instance="n1:9100",controller="0"} 1 1772323200',
            'node_edac_correctable_errors_total{instance="n1:9100",controller="1"} 2 1772323200',
            'node_edac_correctable_errors_total{instance="n1:9100",controller="1"} 5 1772323230',
        ],
    )
    recording = Recording(tmp_path, ALL_KINDS)
    assert recording.nodes == ("n1",) and recording.kinds == (NODE,)
    assert column(tmp_path, NODE, "node_load1") == [3, 4]
    assert column(tmp_path, NODE, "node_swap_used_bytes")[0] == 6
    errors = column(tmp_path, NODE, "node_memory_corrected_errors_total")
    assert errors == [3, 6], "a controller without a number counts as it was last"


def test_ports_interfaces_and_disks_are_those_of_hardware(tmp_path: Path) -> None:
    text(
        tmp_path,
        [
            'node_infiniband_state_id{instance="n1:9100",device="mlx5_0",port="1"} 4 1772323200',
            'node_network_info{instance="n1:9100",device="eth0",operstate="up"} 1 1772323200',
            'node_network_flags{instance="n1:9100",device="eth0"} 4099 1772323200',
            'node_network_info{instance="n1:9100",device="docker0",operstate="up"} 1 1772323200',
            'node_disk_io_now{instance="n1:9100",device="nvme0n1"} 2 1772323200',
            'node_disk_io_now{instance="n1:9100",device="nvme0n1p1"} 2 1772323200',
        ],
    )
    (frame,) = frames_of(tmp_path)
    assert table(frame, NIC).keys == ("n1/eth0", "n1/mlx5_0/1")
    assert table(frame, NIC).column("nic_carrier")[0] == 1.0
    assert table(frame, EntityKind.DISK).wire_keys == ("nvme0n1",)


def test_mounts_are_named_by_their_mount_points(tmp_path: Path) -> None:
    export = 'instance="n1:9100",export="fs01:/srv/ckpt",protocol="tcp",mountaddr="10.0.0.1"'
    requests = "node_mountstats_nfs_operations_requests_total"
    again = "node_mountstats_nfs_operations_transmissions_total"
    lines = [
        f'{requests}{{{export},operation="WRITE"}} 10 1772323200',
        f'{requests}{{{export},operation="READ"}} 5 1772323200',
        f'{again}{{{export},operation="WRITE"}} 13 1772323200',
        f'{again}{{{export},operation="READ"}} 5 1772323200',
    ]
    text(tmp_path, lines)
    assert table(frames_of(tmp_path)[0], MOUNT).keys == ("n1//srv/ckpt",), "the export's path"
    point = f'node_mountstats_nfs_mountpoint_info{{{export},mountpoint="/ckpt"}} 1 1772323200'
    text(tmp_path, [*lines, point])
    mounts = table(frames_of(tmp_path)[0], MOUNT)
    assert mounts.keys == ("n1//ckpt",) and mounts.wire_keys == ("/ckpt",)
    assert mounts.column("mount_operations_total")[0] == 15
    assert mounts.column("mount_retransmits_total")[0] == 3
    (tmp_path / "metrics" / "all.om").unlink()
    wide(
        tmp_path,
        "mount-0",
        {
            "timestamp": [START],
            "node": ["n1"],
            "export": ["fs01:/srv/ckpt"],
            "mountpoint": ["/ckpt"],
            f"{requests}:WRITE": [10.0],
            f"{requests}:READ": [5.0],
            f"{again}:WRITE": [13.0],
        },
    )
    same = table(frames_of(tmp_path)[0], MOUNT)
    assert same.keys == mounts.keys
    assert same.column("mount_operations_total")[0] == 15
    assert same.column("mount_retransmits_total")[0] == 3


def test_suffixes_of_columns_are_labels(tmp_path: Path) -> None:
    wide(
        tmp_path,
        "node",
        {
            "timestamp": [START, START + 30],
            "node": ["n1", "n1"],
            "up:dcgm": [1.0, 1.0],
            "scrape_duration_seconds:dcgm": [0.2, 4.0],
            "scrape_duration_seconds:node": [0.1, 0.1],
        },
    )
    assert column(tmp_path, NODE, "node_nvml_poll_seconds") == [0.2, 4.0]


def test_the_label_node_goes_before_host_names_and_instances(tmp_path: Path) -> None:
    labels = f'Hostname="h",instance="10.0.0.7:9400",UUID="{A}"'
    text(tmp_path, [f'DCGM_FI_DEV_GPU_TEMP{{node="n1",{labels}}} 41 1772323200'])
    assert Recording(tmp_path).nodes == ("n1",)
    text(tmp_path, [f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 41 1772323200"])
    assert Recording(tmp_path).nodes == ("h",)


def test_rows_of_mig_instances_say_nothing_of_the_gpu(tmp_path: Path) -> None:
    labels = f'node="n1",UUID="{A}"'
    text(
        tmp_path,
        [
            f'DCGM_FI_DEV_FB_USED{{{labels},GPU_I_ID="1"}} 10 1772323200',
            f'DCGM_FI_DEV_GPU_TEMP{{{labels},GPU_I_ID="1"}} 41 1772323200',
        ],
    )
    assert Recording(tmp_path).metrics[GPU] == ("gpu_temperature_celsius",)


def test_exporters_are_scraped_at_their_own_moments(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = []
    for number in range(20):
        for uuid, phase in ((A, 14.9), (B, 29.5)):
            at = START + 30 * number + phase + rng.uniform(-0.4, 0.4)
            labels = f'node="n{uuid[-1]}",UUID="{uuid}"'
            lines.append(f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} {number} {at:.3f}")
    rng.shuffle(lines)
    recording = Recording(text(tmp_path, lines))
    assert recording.interval_s == 30.0
    frames = list(recording.frames())
    heat = np.array([table(frame, GPU).column("gpu_temperature_celsius") for frame in frames])
    assert heat.shape[0] in (20, 21) and np.isfinite(heat).sum() == 40
    for row in (0, 1):
        there = heat[np.isfinite(heat[:, row]), row]
        assert there.tolist() == list(range(20)), "every sample in a frame of its own"


def test_duplicates_count_once_and_gaps_make_no_frames(tmp_path: Path) -> None:
    lines = gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 42, 43, 44])
    later = [line.replace(f"{START + 90:.3f}", f"{START + 600:.3f}") for line in lines[3:]]
    text(tmp_path, [*lines, *lines, *later])
    frames = frames_of(tmp_path)
    assert [frame.at - START for frame in frames] == [0, 30, 60, 90, 600]
    assert column(tmp_path, GPU, "gpu_temperature_celsius") == [41, 42, 43, 44, 44]


def test_parts_packed_or_not_and_both_forms_together(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 42]))
    plain = tmp_path / "metrics" / "all.om"
    (tmp_path / "metrics" / "part-001.om.gz").write_bytes(
        gzip.compress(plain.read_bytes().replace(A.encode(), B.encode()))
    )
    wide(tmp_path, "node-000", {"timestamp": [START], "node": ["n1"], "node_load1": [3.0]})
    frames = frames_of(tmp_path)
    assert table(frames[0], GPU).keys == (A, B)
    assert table(frames[0], NODE).column("node_load1")[0] == 3


def test_times_may_be_iso_and_names_of_gpus_made_up(tmp_path: Path) -> None:
    wide(
        tmp_path,
        "gpu",
        {
            "timestamp": ["2026-03-01T00:00:00Z", "2026-03-01T00:00:30Z"],
            "node": ["n1", "n1"],
            "gpu_uuid": ["GPU-left", "GPU-left"],
            "DCGM_FI_DEV_GPU_TEMP": [41, 42],
        },
    )
    recording = Recording(tmp_path)
    assert (recording.start, recording.end) == (START, START + 30)
    assert column(tmp_path, GPU, "gpu_temperature_celsius") == [41, 42]
    text(tmp_path, [f'DCGM_FI_DEV_POWER_USAGE{{node="n1",UUID="GPU-left"}} 300 {START:.0f}'])
    assert table(frames_of(tmp_path)[0], GPU).keys == ("GPU-left",)


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 42]))
    path = tmp_path / "metrics" / "all.om"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert column(tmp_path, GPU, "gpu_temperature_celsius") == [41, 42]


# XIDs of a gauge, and kernel logs


def test_a_gauge_of_the_last_xid_is_an_event_when_it_changes(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_XID_ERRORS", [31, 31, 31, 79, 79, 79]))
    told = [event for event in events_of(tmp_path) if event.xid]
    assert [(event.kind, event.xid, event.entity) for event in told] == [
        (EventKind.NVML_XID, 79, A)
    ], "what stood there at first is old, what never clears is no repeat"
    assert told[0].observed_at == START + 90


def test_the_kernel_log_tells_an_xid_once_with_its_gauge(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_XID_ERRORS", [0, 0, 79, 79]))
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "n1.log").write_text(
        "2026-03-01T00:00:40,5+00:00 NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>',"
        " name=<unknown>, GPU has fallen off the bus.\n"
    )
    told = [event for event in events_of(tmp_path) if event.xid]
    assert [(event.kind, event.entity) for event in told] == [(EventKind.KERNEL_LOG, A)], (
        "joined by the PCI address that the exporter's labels tell"
    )


XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        f"2026-03-01T00:00:10,250000+00:00 {XID}",
        f"kern  :warn  : 2026-03-01T00:00:10,250000+00:00 {XID}",
        f"Mar  1 00:00:10 n1 kernel: [ 8424.1] {XID}",
        f"2026-03-01T00:00:10+0000 n1 kernel: {XID}",
        '{"__REALTIME_TIMESTAMP":"1772323210250000","SYSLOG_IDENTIFIER":"kernel",'
        f'"_TRANSPORT":"kernel","MESSAGE":"{XID}"}}',
    ],
)
def test_kernel_logs_may_have_any_wrapper_with_a_time(tmp_path: Path, line: str) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 42]))
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "n1.log.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
    (event,) = (event for event in events_of(tmp_path) if event.xid)
    assert event.observed_at == pytest.approx(START + 10, abs=0.3)
    assert (event.entity, event.backlog) == (A, Backlog.NONE)


def test_lines_name_the_ports_and_disks_that_the_metrics_have(tmp_path: Path) -> None:
    lines = [
        'node_infiniband_state_id{node="n1",device="mlx5_0",port="1"} 4 1772323200',
        'node_disk_io_now{node="n1",device="nvme0n1"} 2 1772323230',
    ]
    text(tmp_path, lines)
    (tmp_path / "kernel").mkdir()
    told = (
        "mlx5_0: Port: 1 Link DOWN",
        "nvme nvme0: I/O 12 QID 3 timeout, aborting",
        "mlx5_core 0000:9a:00.0 ibp154s0: Link down",
    )
    (tmp_path / "kernel" / "n1.log").write_text(
        "".join(f"2026-03-01T00:00:0{n},0+00:00 {line}\n" for n, line in enumerate(told))
    )
    found = [event for event in events_of(tmp_path) if event.kind is EventKind.KERNEL_LOG]
    assert [(event.entity_kind, event.entity) for event in found] == [
        (NIC, "mlx5_0/1"),
        (EntityKind.DISK, "nvme0n1"),
        (NODE, ""),
    ]


def test_lines_from_before_the_recording_are_an_old_ring(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 42]))
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "n1.log").write_text(f"2026-02-27T00:00:00,0+00:00 {XID}\n{XID}\n")
    (event,) = (event for event in events_of(tmp_path) if event.xid)
    assert event.backlog is Backlog.FIRST_LOOK, "and a line without a time is left out"


def test_a_turn_of_the_year_is_seen_in_syslog(tmp_path: Path) -> None:
    new_year = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    labels = f'node="n1",UUID="{A}"'
    text(
        tmp_path,
        [f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 41 {new_year + 30 * n:.0f}" for n in (-1, 0, 1)],
    )
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "n1.log").write_text(
        f"Dec 31 23:59:40 n1 kernel: {XID}\nJan  1 00:00:10 n1 kernel: {XID}\n"
    )
    told = [event.observed_at - new_year for event in events_of(tmp_path) if event.xid]
    assert told == [-20, 10]


# Nodes and jobs beside the metrics


def test_boots_inventories_and_jobs_are_told_as_an_agent_tells_them(tmp_path: Path) -> None:
    lines = gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41] * 10)
    boots = [(0, 1_772_000_000), (30, 1_772_000_000), (270, 1_772_323_400)]
    for after, booted in boots:
        lines += [
            f'node_time_seconds{{node="n1"}} {START + after} {START + after:.0f}',
            f'node_boot_time_seconds{{node="n1"}} {booted} {START + after:.0f}',
        ]
    text(tmp_path, lines)
    (tmp_path / "fleet.csv").write_text(
        "node,gpu_index,gpu_uuid,serial,pci_bus_id,model,rack,leaf,mounts\n"
        f"n1,0,{A},165,00000000:1B:00.0,H100,r1,l1,/ckpt;/home\n"
        f"n1,1,{B},166,00000000:43:00.0,H100,r1,l1,/ckpt;/home\n"
    )
    (tmp_path / "jobs.csv").write_text(
        "job_id,user,nodes,start,end,state,exit_code\n"
        f"4711,ann,n1;n2,2026-03-01T00:00:50Z,{START + 200},CANCELLED by 1000,0\n"
    )
    recording = Recording(tmp_path, ALL_KINDS)
    assert recording.gpus_expected == {"n1": 2}
    assert recording.places["n1"].mounts == ("/ckpt", "/home")
    assert recording.jobs[0].nodes == ("n1", "n2") and recording.jobs[0].state == "CANCELLED"
    events = events_of(tmp_path)
    booted_at = [e.attributes["booted_at"] for e in events if e.kind is EventKind.NODE_BOOT]
    assert booted_at == [1_772_000_000, 1_772_323_400]
    told = [(e.observed_at - START, e.inventory) for e in events if e.inventory is not None]
    assert [(at, len(one.jobs), len(one.gpus)) for at, one in told] == [
        (0, 0, 1),
        (60, 1, 1),
        (210, 0, 1),
    ]
    first = told[0][1]
    assert first.gpus_expected == 2 and first.labels["rack"] == "r1"
    assert first.gpus[0].serial == "165" and first.gpus[0].pci_bus_id == "0000:1b:00.0"


def test_another_gpu_in_a_slot_has_replaced_the_first(tmp_path: Path) -> None:
    lines = gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41, 42])
    text(tmp_path, lines + [line.replace(A, B).replace("772323", "772324") for line in lines])
    told = [event.inventory for event in events_of(tmp_path) if event.inventory is not None]
    assert [[gpu.gpu_uuid for gpu in one.gpus] for one in told] == [[A], [B]]

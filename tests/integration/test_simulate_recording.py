"""Recordings: written, read back, and refused with the mend where they are broken."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpuwarden_models.recording import Recording, RecordingError
from gpuwarden_models.simulate import simulate
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, Repair, ScriptedFault
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import record

SETTING = Setting(3, 2, seed=9, interval_s=15.0)
ALL_KINDS = tuple(EntityKind)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gpus = [gpu.gpu_uuid for gpu in Simulation(SETTING).topology.gpus]
    faults = (
        ScriptedFault(FaultName.GPU_OFF_BUS, gpus[3], 100.0, duration_s=200.0),
        ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0001", 60.0, duration_s=60.0),
        ScriptedFault(FaultName.NIC_PORT_DOWN, "gpu-0003/mlx5_1/1", 90.0, duration_s=90.0),
        ScriptedFault(FaultName.ECC_WEAR, gpus[0], 30.0, ramp_s=120.0),
    )
    record(tmp_path / "recording", SETTING, 30, faults)
    return tmp_path / "recording"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_written_reads_back_frame_by_frame(folder: Path) -> None:
    recording = Recording(folder, ALL_KINDS)
    assert (recording.interval_s, recording.origin, recording.seed) == (15.0, "simulated", 9)
    again = list(recording.frames())
    assert len(again) == 30
    simulation = Simulation(SETTING)
    first = simulation.next_frame()
    assert again[0].at == first.at
    for table in first.tables:
        (same,) = (t for t in again[0].tables if t.kind is table.kind)
        order = [list(same.keys).index(key) for key in table.keys]
        names = [column.name for column in table.schema.columns]
        for name in names:
            got = same.column(name)[order]
            np.testing.assert_allclose(got, table.column(name), rtol=1e-12, err_msg=name)
        assert [same.wire_keys[row] for row in order] == list(table.wire_keys)


def test_a_lost_gpu_simply_stops(folder: Path) -> None:
    recording = Recording(folder)
    lost = next(row for row in recording.labels if row.fault_class == "bus")
    seen = []
    for frame in recording.frames():
        table = frame.tables[0]
        seen.append(bool(table.reported[list(table.keys).index(lost.entity)]))
    assert seen[6] and not any(seen[7:20]) and seen[21]


def test_names_are_those_of_the_public_exporters(folder: Path) -> None:
    gpu = pq.read_table(folder / "metrics" / "gpu-000.parquet")
    assert {"timestamp", "node", "gpu_uuid", "DCGM_FI_DEV_GPU_TEMP"} <= set(gpu.column_names)
    clock = gpu["DCGM_FI_DEV_SM_CLOCK"].to_numpy()
    assert 1000 < clock.max() <= 1980, "MHz"
    assert gpu["DCGM_FI_DEV_GPU_UTIL"].to_numpy().max() > 50, "per cent"
    nic = pq.read_schema(folder / "metrics" / "nic-000.parquet").names
    assert nic[:4] == ["timestamp", "node", "device", "port"]
    assert "node_infiniband_port_data_received_bytes_total" in nic
    assert "node_load1" in pq.read_schema(folder / "metrics" / "node-000.parquet").names
    assert rows(folder / "fleet.csv")[0]["model"] == "NVIDIA H100 80GB HBM3"


def test_labels_tell_faults_from_confounders(folder: Path) -> None:
    labels = {row["fault_class"]: row for row in rows(folder / "labels.csv")}
    assert labels["application"]["action_needed"] == "no"
    assert labels["bus"]["action_needed"] == "yes"
    assert labels["nic"]["entity"] == "gpu-0003/mlx5_1"
    wear = labels["memory"]
    onset = float(wear["note"].partition("precursor_start=")[2])
    assert float(wear["start"]) - onset == pytest.approx(120.0)
    found = Recording(folder)
    assert {row.mechanism for row in found.labels} >= {"gpu_off_bus", "ecc_wear"}
    assert found.generator == "gpuwarden-simulator" and len(found.parameters_hash) == 64
    assert float(wear["end"]) == pytest.approx(found.end), "cut at the end"


def kernel_events(folder: Path) -> list[Event]:
    events = [item.event for frame in Recording(folder).frames() for item in frame.events]
    assert not [event for event in events if event.kind is EventKind.NVML_XID], "told already"
    return [event for event in events if event.kind is EventKind.KERNEL_LOG]


def test_kernel_logs_read_plain_and_gzipped(folder: Path) -> None:
    plain = kernel_events(folder)
    for path in list((folder / "kernel").iterdir()):
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert [event.text for event in kernel_events(folder)] == [event.text for event in plain]
    assert {79, 154, 31, 43, 48} <= {event.xid for event in plain}
    off = next(event for event in plain if event.xid == 79)
    assert off.entity.startswith("GPU-"), "joined by the fleet's PCI addresses"


def test_everything_but_the_metrics_is_optional(folder: Path) -> None:
    for name in ("recording.json", "fleet.csv", "labels.csv", "jobs.csv"):
        (folder / name).unlink()
    for path in (folder / "kernel").iterdir():
        path.unlink()
    recording = Recording(folder)
    assert recording.interval_s == 15.0 and recording.labels == ()
    assert sum(1 for _ in recording.frames()) == 30


def test_rows_in_any_order_and_off_the_grid_still_make_frames(folder: Path) -> None:
    path = folder / "metrics" / "gpu-000.parquet"
    table = pq.read_table(path)
    rng = np.random.default_rng(1)
    stamps = table["timestamp"].to_numpy() + rng.uniform(-5.0, 5.0, table.num_rows)
    table = table.set_column(0, "timestamp", pa.array(stamps)).take(rng.permutation(table.num_rows))
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), path)
    pq.write_table(table.slice(half), folder / "metrics" / "gpu-b.parquet")
    frames = list(Recording(folder).frames())
    assert len(frames) == 30
    assert sum(int(frame.tables[0].reported.sum()) for frame in frames) == table.num_rows


def test_equal_seeds_write_equal_recordings(tmp_path: Path) -> None:
    reports = [simulate(tmp_path / name, 2, 2, 0.2, 4, 30.0) for name in ("a", "b")]
    assert reports[0].frames == 24 and reports[0].gpus == 4
    for path in sorted((tmp_path / "a").rglob("*")):
        twin = tmp_path / "b" / path.relative_to(tmp_path / "a")
        if path.is_file():
            assert path.read_bytes() == twin.read_bytes(), path.name


def damage_parquet(folder: Path) -> None:
    path = folder / "metrics" / "gpu-000.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def damage_pages(folder: Path) -> None:
    path = folder / "metrics" / "gpu-000.parquet"
    content = bytearray(path.read_bytes())
    content[100:4000] = bytes(3900)
    path.write_bytes(bytes(content))


def drop_key(folder: Path) -> None:
    path = folder / "metrics" / "gpu-000.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["gpu_uuid"]), path)


def spoil_label(folder: Path) -> None:
    text = (folder / "labels.csv").read_text()
    (folder / "labels.csv").write_text(text.replace(",bus,", ",gremlins,"))


def spoil_header(folder: Path) -> None:
    text = (folder / "labels.csv").read_text()
    (folder / "labels.csv").write_text(text.replace("action_needed", "needed"))


def spoil_version(folder: Path) -> None:
    described = json.loads((folder / "recording.json").read_text())
    (folder / "recording.json").write_text(json.dumps({**described, "version": 2}))


def spoil_description(folder: Path) -> None:
    (folder / "recording.json").write_text("{")


def cut_gzip(folder: Path) -> None:
    path = next((folder / "kernel").iterdir())
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-9])
    path.unlink()


def only_openmetrics(folder: Path) -> None:
    for path in (folder / "metrics").iterdir():
        path.unlink()
    (folder / "metrics" / "all.om").write_text("# EOF\n")


def empty_metrics(folder: Path) -> None:
    path = folder / "metrics" / "gpu-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    (folder / "metrics" / "node-000.parquet").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (damage_parquet, r"gpu-000\.parquet: not a readable Parquet file.*move it out"),
        (damage_pages, r"gpu-000\.parquet: not a readable Parquet file"),
        (drop_key, r"gpu-000\.parquet: no column gpu_uuid"),
        (spoil_label, r"labels\.csv, line \d: .*gremlins.*fault_class is one of"),
        (spoil_header, r"labels\.csv: no column action_needed"),
        (spoil_version, r"recording\.json: .*version 2.*reads gpuwarden-recording version 1"),
        (spoil_description, r"recording\.json: .*mend it, or delete it"),
        (cut_gzip, r"\.log\.gz: .*write it again"),
        (only_openmetrics, "no rows of any metric that we know"),
        (empty_metrics, "no rows"),
    ],
)
def test_a_broken_recording_names_the_file_and_the_mend(
    folder: Path, spoil: object, said: str
) -> None:
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(RecordingError, match=said):
        list(Recording(folder).frames())


def test_a_folder_that_is_none_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"no such folder.*gpuwarden simulate --out"):
        Recording(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="not a recording"):
        Recording(tmp_path)


def test_a_recording_is_never_written_over(folder: Path) -> None:
    with pytest.raises(FileExistsError, match="not empty"):
        simulate(folder, 1, 1, 0.1, 1, 30.0)
    with pytest.raises(ValueError, match="hours is 0"):
        simulate(folder / "new", 1, 1, 0.0, 1, 30.0)


def test_lines_of_a_slot_speak_of_the_part_that_was_in_it_then(tmp_path: Path) -> None:
    first = Simulation(SETTING).topology.gpus[2]
    faults = [
        ScriptedFault(
            FaultName.GPU_OFF_BUS, first.gpu_uuid, 60.0, duration_s=60.0, repair=Repair.REPLACE
        ),
        # Named by the slot's first part, which is gone by then.
        ScriptedFault(FaultName.PMU_HALT, first.gpu_uuid, 4200.0),
    ]
    simulation = record(tmp_path / "recording", SETTING, 285, faults)
    new = simulation.parts[-1].gpu
    recording = Recording(tmp_path / "recording", ALL_KINDS)
    assert {row.gpu_uuid for row in recording.fleet} >= {first.gpu_uuid, new.gpu_uuid}
    assert recording.gpus_expected == dict.fromkeys(recording.nodes, 2)
    events = [one.event for frame in recording.frames() for one in frame.events]
    said = {event.xid: event.entity for event in events if event.xid}
    assert (said[79], said[62]) == (first.gpu_uuid, new.gpu_uuid)
    labels = {row.mechanism: row.entity for row in recording.labels if row.action_needed}
    assert labels == {"gpu_off_bus": first.gpu_uuid, "pmu_halt": new.gpu_uuid}


def test_a_part_that_came_at_no_time_is_named(folder: Path) -> None:
    text = (folder / "fleet.csv").read_text()
    (folder / "fleet.csv").write_text(text.replace("power-01,\n", "power-01,noon\n", 1))
    with pytest.raises(RecordingError, match=r"fleet\.csv, line 2: since: .*noon"):
        Recording(folder)

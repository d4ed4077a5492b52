"""Public texts of exporters: each is read, and what is in it is found. Not shipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwarden_agent.sources.smi_query import parse_fields, parse_query
from gpuwarden_exporters.gathering import Gathered, Gatherer
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading
from gpuwarden_wire.registry import METRIC_BY_NAME

FOLDER = Path(os.environ.get("GPUWARDEN_PUBLIC_DATA", "") or "/nonexistent")
FOLDERS = ("dcgm_prom", "nvidia_smi", "node_exporter")
pytestmark = pytest.mark.skipif(
    not all((FOLDER / name).is_dir() for name in FOLDERS),
    reason=f"GPUWARDEN_PUBLIC_DATA names no folder with {', '.join(FOLDERS)}: not shipped",
)


def files(*patterns: str) -> list[Path]:
    return sorted(path for one in patterns for path in FOLDER.glob(one) if path.is_file())


def texts() -> list[Path]:
    return files(
        "dcgm_prom/*.prom", "nvidia_smi/exporter_metrics/*", "node_exporter/e2e-output.txt"
    )


def read(path: Path) -> Gathered:
    return Gatherer().take(path.read_text(encoding="utf-8"), 0.0)


def numbers(gathered: Gathered) -> dict[tuple[EntityKind, str, str], Reading]:
    return {
        (kind, entity, metric): reading
        for kind, table in gathered.rows.items()
        for entity, row in table.items()
        for metric, reading in row.items()
        if isinstance(reading, float | int)
    }


def test_every_text_of_an_exporter_is_read_without_a_broken_line() -> None:
    read_files = {path.name: read(path) for path in texts()}
    assert len(read_files) >= 18
    assert {name: one.broken for name, one in read_files.items() if one.broken} == {}
    assert {name for name, one in read_files.items() if not one.known} == set()


def test_every_file_of_whatever_format_is_read_without_an_exception() -> None:
    everything = files(*(f"{name}/**/*" for name in FOLDERS))
    assert len(everything) > 1000
    for path in everything:
        text = path.read_bytes().decode("utf-8", errors="replace")
        gathered = Gatherer().take(text, 0.0)
        for _, _, metric in numbers(gathered):
            assert metric in METRIC_BY_NAME


def test_every_query_of_nvidia_smi_is_read() -> None:
    captures = files("nvidia_smi/captures/*.txt")
    assert len(captures) >= 5
    for path in captures:
        text = path.read_text(encoding="utf-8")
        assert len(parse_fields(text)) >= 30, path.name
        lines = text.splitlines()
        headers = [n for n, line in enumerate(lines) if line.startswith("timestamp, driver_v")]
        assert len(headers) == 2, path.name  # idle, and under load
        for at in headers:
            (gpu,) = parse_query("\n".join(lines[at : at + 2]))
            readings = [one for one in gpu.row.values() if isinstance(one, float | int)]
            assert gpu.facts["driver_version"] in path.name
            assert len(readings) >= 13, path.name


def test_other_files_of_nvidia_smi_give_no_gpu_and_no_exception() -> None:
    for path in files("nvidia_smi/**/*"):
        text = path.read_bytes().decode("utf-8", errors="replace")
        parse_fields(text)
        for gpu in parse_query(text):
            assert gpu.facts["uuid"] == "", path.name


def test_the_sentinel_of_the_exporters_own_page_is_no_temperature() -> None:
    gathered = read(FOLDER / "dcgm_prom" / "readme_blank_sentinel.prom")
    (row,) = gathered.rows[EntityKind.GPU].values()
    assert row["gpu_memory_temperature_celsius"] == NotSupported()
    assert row["gpu_sm_clock_hertz"] == 139e6


def test_mig_texts_give_no_reading_of_a_gpu_from_its_instances_alone() -> None:
    gathered = read(FOLDER / "dcgm_prom" / "mixed_a30mig_rtx2000ada_pr736.prom")
    metrics = {metric for _, _, metric in numbers(gathered)}
    assert metrics == {"gpu_temperature_celsius"}
    assert {facts.model for facts in gathered.gpus.values()} == {
        "NVIDIA A30",
        "NVIDIA RTX 2000 Ada Generation",
    }


@pytest.mark.parametrize("load", ["idle", "load"])
def test_a_whole_answer_of_nvidia_gpu_exporter(load: str) -> None:
    (path,) = files(f"nvidia_smi/exporter_metrics/*nvidia-h200*__{load}.metrics")
    gathered = read(path)
    (facts,) = gathered.gpus.values()
    assert (facts.model, facts.driver_version) == ("NVIDIA H200", "590.48.01")
    assert len([key for key in numbers(gathered) if key[0] is EntityKind.GPU]) >= 27


def test_the_whole_answer_of_node_exporter_1_12() -> None:
    gathered = read(FOLDER / "node_exporter" / "e2e-output.txt")
    found = numbers(gathered)
    assert found[EntityKind.NODE, "", "node_hung_tasks_total"] == 42
    assert found[EntityKind.NIC, "mlx4_0/1", "nic_port_state"] == 4
    assert {entity for kind, entity, _ in found if kind is EntityKind.DISK} >= {"sda", "nvme0n1"}

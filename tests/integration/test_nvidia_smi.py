"""nvidia-smi as a source, by a program of ours that speaks as it does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.exporter_gpus import ExporterGpus
from gpuwarden_agent.collectors.nvidia_smi import NvidiaSmiCollector
from gpuwarden_agent.config import ConfigError, load_settings
from gpuwarden_agent.once import collect_once
from gpuwarden_agent.sources.smi_process import SmiFailed, SmiRunner
from gpuwarden_agent.sources.smi_query import SmiField as Field
from gpuwarden_agent.sources.smi_query import parse_cell, parse_fields, parse_query
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from tests.builders.agent import BOOT, agent_settings
from tests.builders.dcgm import OTHER_UUID, UUID
from tests.fakes.waiting import wait_for

PATIENCE_S = 30.0
HELP = """\
List of valid properties to query for the switch "--query-gpu":
"index"
Zero based index of the GPU.
"uuid"
"pci.bus_id" or "gpu_bus_id"
"temperature.gpu"
"power.draw"
"clocks_event_reasons.active" or "clocks_throttle_reasons.active"
"clocks.current.sm" or "clocks.sm"
"clocks_event_reasons_counters.hw_thermal_slowdown"
"memory.used"
"remapped_rows.pending"
"gpu_recovery_action"
"fan.speed"
"""
HEADER = (
    "uuid, pci.bus_id, index, temperature.gpu, power.draw [W], clocks.current.sm [MHz], "
    "clocks_event_reasons.active, clocks_event_reasons_counters.hw_thermal_slowdown [us], "
    "memory.used [MiB], remapped_rows.pending, gpu_recovery_action"
)
HEALTHY = f"{UUID}, 00000000:83:00.0, 0, 59, 77.71 W, 345 MHz, 0x0000000000000001, 0 us, 614 MiB"
SICK = (
    f"{OTHER_UUID}, 00000000:84:00.0, 1, [GPU requires reset], [N/A], 1980 MHz, "
    "0x0000000000000040, 1500000 us, [Unknown Error]"
)
ANSWER = f"{HEADER}\n{HEALTHY}, No, None\n{SICK}, Yes, Reset\n"
FIELDS = [cell.partition(" ")[0] for cell in HEADER.split(", ")]


def program(folder: Path, script: str) -> Path:
    """A program that answers to its first argument."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def speaking(folder: Path, answer: str = ANSWER) -> Path:
    (folder / "help").write_text(HELP)
    (folder / "answer").write_text(answer)
    return program(
        folder,
        f'echo "$@" >> {folder}/calls\n'
        f'case "$1" in --help-query-gpu) cat {folder}/help ;; *) cat {folder}/answer ;; esac',
    )


def collector(folder: Path, command: Path, deadline_s: float = PATIENCE_S) -> NvidiaSmiCollector:
    settings = agent_settings(folder, sys_root=folder / "sys", proc_root=folder / "proc")
    gpus = ExporterGpus.of(CollectorContext(settings, BOOT, 0.0, None, None))  # type: ignore[arg-type]  # no positions here
    return NvidiaSmiCollector(SmiRunner([str(command)], deadline_s), gpus, 60.0, 60.0)


def test_what_it_prints_becomes_readings_in_base_units(tmp_path: Path) -> None:
    harvest = collector(tmp_path, speaking(tmp_path)).collect(0.0)
    assert harvest.rows[EntityKind.GPU][UUID] == {
        "gpu_temperature_celsius": 59,
        "gpu_power_watts": 77.71,
        "gpu_sm_clock_hertz": 345e6,
        "gpu_clock_event_reasons": 1,
        "gpu_thermal_slowdown_seconds_total": 0,
        "gpu_memory_used_bytes": 614 * 1024**2,
        "gpu_row_remap_pending": 0,
        "gpu_recovery_action": 0,
    }
    assert harvest.rows[EntityKind.GPU][OTHER_UUID] == {
        "gpu_temperature_celsius": Unavailable("reset_required"),
        "gpu_power_watts": NotSupported(),
        "gpu_sm_clock_hertz": 1.98e9,
        "gpu_clock_event_reasons": 0x40,
        "gpu_thermal_slowdown_seconds_total": 1.5,
        "gpu_memory_used_bytes": Unavailable("unknown_error"),
        "gpu_row_remap_pending": 1,
        "gpu_recovery_action": 1,
    }
    assert harvest.rows[EntityKind.NODE][""]["node_gpus_visible"] == 2
    assert harvest.inventory is not None
    assert [gpu.pci_bus_id for gpu in harvest.inventory.gpus] == ["0000:83:00.0", "0000:84:00.0"]


def test_only_fields_that_it_knows_are_asked_for_and_its_help_is_read_once(tmp_path: Path) -> None:
    one = collector(tmp_path, speaking(tmp_path))
    one.collect(0.0)
    one.collect(60.0)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "--help-query-gpu"
    assert len(calls) == 3
    asked = calls[1].removeprefix("--query-gpu=").split()[0].split(",")
    assert sorted(asked) == sorted(FIELDS)
    assert calls[1] == calls[2]


def test_a_gpu_that_it_lists_no_more_says_so(tmp_path: Path) -> None:
    one = collector(tmp_path, speaking(tmp_path))
    one.collect(0.0)
    speaking(tmp_path, f"{HEADER}\n{HEALTHY}, No, None\nsome noise, cut short\n")
    harvest = one.collect(60.0)
    readings = set(harvest.rows[EntityKind.GPU][OTHER_UUID].values())
    assert readings == {Unavailable("not_in_exporter")}
    assert harvest.inventory is None


@pytest.mark.parametrize(
    ("script", "reason", "told"),
    [
        (
            "echo 'Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.  "
            "Reboot the system to recover this GPU'; exit 15",
            "nvidia_smi_gpu_is_lost",
            "0000:0A:00.0",
        ),
        ("echo 'NVIDIA-SMI has failed' >&2; exit 9", "nvidia_smi_exit_9", "has failed"),
        ("exit 0", "nvidia_smi_unreadable", "no field"),
        ("echo '\"uuid\"'", "nvidia_smi_no_gpus", "no GPU"),
    ],
)
def test_what_it_says_of_its_failure_is_told(
    tmp_path: Path, script: str, reason: str, told: str
) -> None:
    with pytest.raises(CollectorError) as caught:
        collector(tmp_path, program(tmp_path, script)).collect(0.0)
    assert caught.value.reason == reason
    assert told in caught.value.mend


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match="nvidia_smi_not_started"):
        collector(tmp_path, tmp_path / "none").collect(0.0)


def test_one_that_hangs_is_left_alone_and_no_other_started(tmp_path: Path) -> None:
    (tmp_path / "gate").mkdir()
    hung = program(
        tmp_path,
        f"echo $$ >> {tmp_path}/pids\nwhile [ -d {tmp_path}/gate ]; do sleep 0.02; done\necho over",
    )
    runner = SmiRunner([str(hung)], 0.3)
    for _ in range(3):
        with pytest.raises(SmiFailed, match="nvidia_smi_hangs"):
            runner.run("-q")
    pids = tmp_path / "pids"
    wait_for(lambda: pids.exists() and pids.read_text())
    (pid,) = pids.read_text().split()
    os.kill(int(pid), 0)  # it runs still
    (tmp_path / "gate").rmdir()
    process = runner._hanging
    assert process is not None
    assert process.wait(PATIENCE_S) == 0
    assert SmiRunner([str(hung)], PATIENCE_S).run("-q") == "over\n"


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("41", 41),
        ("N/A", NotSupported()),
        ("[Not Supported]", NotSupported()),
        ("[Requested functionality has been deprecated]", NotSupported()),
        ("[Insufficient Permissions]", Unavailable("no_permission")),
        ("ERR!", Unavailable("unknown_error")),
        ("", Unavailable("not_a_number")),
        ("-1", Unavailable("implausible_value")),
        ("hot", Unavailable("not_a_number")),
    ],
)
def test_a_cell_is_a_number_or_says_why_not(text: str, reading: Reading) -> None:
    assert parse_cell(text, Field("gpu_temperature_celsius")) == reading


def test_a_word_that_is_not_known_is_no_state() -> None:
    field = Field("gpu_recovery_action", words={"none": 0.0})
    assert parse_cell("Replace", field) == Unavailable("not_a_known_word")


def test_the_newer_of_two_names_is_asked_for() -> None:
    assert parse_fields(HELP).count("clocks_event_reasons.active") == 1
    assert "clocks_throttle_reasons.active" not in parse_fields(HELP)
    old = parse_fields('"uuid"\n"clocks_throttle_reasons.active"\n')
    assert old == ("uuid", "clocks_throttle_reasons.active")


def test_an_answer_without_lines_is_no_gpu() -> None:
    assert parse_query("") == parse_query(HEADER) == parse_query("No devices were found") == []


def test_it_is_run_by_the_agent_where_nvml_is_off(tmp_path: Path) -> None:
    flags = {"nvidia_smi": speaking(tmp_path), "collectors": "nvidia_smi"}
    snapshot = collect_once(agent_settings(tmp_path, sys_root=tmp_path / "sys", **flags))
    readings = {(entity, metric): one for _, entity, metric, one in snapshot.readings()}
    assert readings[UUID, "gpu_power_watts"] == 77.71


def test_beside_nvml_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="NVML=off"):
        load_settings({}, {"nvidia_smi": "nvidia-smi"})

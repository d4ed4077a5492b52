"""What `gpuwarden-agent once --json` says of each model, held to files.

`GPUWARDEN_WRITE_GOLDEN=1 .venv/bin/pytest tests/contract/test_once_golden.py` writes them: read
the difference before committing it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.cli import main
from gpuwarden_wire.registry import METRIC_BY_NAME
from gpuwarden_wire.version import __version__
from tests.builders import nvml
from tests.builders.nvml import NodeScenario, ScenarioFile, pci_bus, stub_environment

GOLDEN = Path(__file__).parents[1] / "fixtures" / "agent" / "once"
WRITE = "GPUWARDEN_WRITE_GOLDEN"
MODELS: dict[str, Callable[[int], NodeScenario]] = {
    "a100": nvml.a100_node,
    "h100": nvml.h100_node,
    "b200": nvml.b200_node,
    "gb200": nvml.gb200_node,
    "l40s": nvml.l40s_node,
    "mig": nvml.mig_node,
}
_MEASURED = {"gpu_probe_seconds", "node_nvml_poll_seconds", "node_nvml_call_age_seconds"}


def node_of(folder: Path, model: str) -> tuple[list[str], dict[str, str]]:
    """Flags and environment of a node with one GPU of a model, its daemons running."""
    scenario = ScenarioFile(folder / "scenario", MODELS[model](1))
    pci_bus(folder / "sys", [gpu.pci for gpu in scenario.node.gpus])
    (folder / "sys/module/nvidia").mkdir(parents=True)
    (folder / "sys/module/nvidia/version").write_text(scenario.node.driver + "\n")
    for pid, comm in ((811, "nvidia-persiste"), (4711, "python3")):
        (folder / f"proc/{pid}").mkdir(parents=True)
        (folder / f"proc/{pid}/comm").write_text(comm + "\n")
    boot_id = folder / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("6f2d1c9a-7a51-4f0e-9a9e-2d0b7c1f5e11\n")
    flags = [
        "once",
        "--json",
        "--node-id=node-1",
        "--collectors=nvml,structure",
        f"--proc-root={folder}/proc",
        f"--sys-root={folder}/sys",
        f"--spool-folder={folder}/spool",
        f"--verdict-file={folder}/run/verdict.json",
    ]
    return flags, stub_environment(scenario.path)


def settled(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without what differs from run to run."""
    for visit in answer["collectors"]:
        assert visit.pop("duration_s") >= 0.0
    for reading in answer["readings"]:
        if reading["metric"] in _MEASURED:
            assert reading["value"] >= 0.0
            reading["value"] = "measured"
    answer["agent_version"] = "VERSION" if answer["agent_version"] == __version__ else "?"
    return answer


def as_text(answer: dict[str, Any]) -> str:
    """One reading a line, so that a difference can be read."""
    readings = answer.pop("readings")
    lines = ",\n".join("  " + json.dumps(one) for one in readings)
    head = json.dumps({**answer, "readings": []}, indent=1).removesuffix("[]\n}")
    return f"{head}[\n{lines}\n ]\n}}\n"


def compare(model: str, answer: dict[str, Any]) -> None:
    path = GOLDEN / f"{model}.json"
    text = as_text(settled(answer))
    if os.environ.get(WRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"set {WRITE}=1 to write {path.name} anew"


@pytest.mark.parametrize("model", sorted(MODELS))
def test_once_says_of_each_model_what_it_has_and_what_not(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags, environment = node_of(tmp_path, model)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(flags) == 0
    compare(model, json.loads(capsys.readouterr().out))


@pytest.mark.serial
def test_the_command_itself_says_the_same(tmp_path: Path) -> None:
    flags, environment = node_of(tmp_path, "h100")
    done = subprocess.run(
        [sys.executable, "-m", "gpuwarden_agent.cli", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | environment,
    )
    compare("h100", json.loads(done.stdout))


def test_every_model_says_something_of_every_gpu_metric_and_nothing_unavailable() -> None:
    for model in MODELS:
        readings = json.loads((GOLDEN / f"{model}.json").read_text())["readings"]
        said = {one["metric"] for one in readings if one["entity_kind"] == "gpu"}
        known = {name for name, metric in METRIC_BY_NAME.items() if metric.entity_kind == "gpu"}
        assert said == known, model
        missing = {one.get("reason") for one in readings if one.get("missing") == "unavailable"}
        assert missing == {"first_round"}, model  # there is no gap yet

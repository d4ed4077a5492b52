"""What `gpuwarden-agent once --json` says of each kind of GPU: golden files, one a model.

`GPUWARDEN_WRITE_GOLDEN=1` writes them anew; the difference is then read like any other change.
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

from tests.builders import nvml
from tests.builders.nvml import NodeScenario
from tests.builders.processes import agent_environment

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "agent" / "once"
MODELS: dict[str, Callable[[int], NodeScenario]] = {
    "a100": nvml.a100_node,
    "h100": nvml.h100_node,
    "b200": nvml.b200_node,
    "gb200": nvml.gb200_node,
    "l40s": nvml.l40s_node,
    "mig": nvml.mig_node,
}
PASSING = {"gpu_probe_seconds"}
"""What differs from run to run."""


def once(folder: Path, node: NodeScenario) -> dict[str, Any]:
    environment = agent_environment(
        folder, "http://127.0.0.1:9", "gw_key", "node-1", node, collectors="nvml,hardware_errors"
    )
    done = subprocess.run(
        [Path(sys.executable).with_name("gpuwarden-agent"), "once", "--json"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def of_gpus(said: dict[str, Any]) -> dict[str, Any]:
    """Identity and readings of the GPUs, in the order told."""
    readings: dict[str, dict[str, Any]] = {}
    for one in said["readings"]:
        if one["entity_kind"] == "gpu" and one["metric"] not in PASSING:
            value = {key: one[key] for key in one if key not in {"entity_kind", "entity", "metric"}}
            readings.setdefault(one["entity"], {})[one["metric"]] = value
    return {"gpus": said["inventory"]["gpus"], "readings": readings}


@pytest.mark.parametrize("model", MODELS)
def test_each_model_is_told_as_in_its_golden_file(model: str, tmp_path: Path) -> None:
    found = of_gpus(once(tmp_path / "node", MODELS[model](1)))
    golden = GOLDEN / f"{model}.json"
    if os.environ.get("GPUWARDEN_WRITE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(golden.read_text())


def test_a_gpu_says_what_it_has_not_and_never_a_zero_for_it(tmp_path: Path) -> None:
    told = {model: json.loads((GOLDEN / f"{model}.json").read_text()) for model in MODELS}
    rows = {model: next(iter(one["readings"].values())) for model, one in told.items()}
    metrics = set(rows["h100"])
    assert all(set(row) == metrics for row in rows.values())
    absent = {
        model: {name for name, one in row.items() if one.get("value") is None}
        for model, row in rows.items()
    }
    assert "gpu_nvlink_errors_total" in absent["b200"]
    assert "gpu_nvlink_symbol_errors_total" in absent["h100"] - absent["b200"]
    assert "gpu_c2c_links" in absent["b200"] - absent["gb200"]
    assert {"gpu_nvlinks_active", "gpu_memory_temperature_celsius"} <= absent["l40s"]
    assert "gpu_utilization_ratio" in absent["mig"] - absent["h100"]
    assert "gpu_recovery_action" in absent["a100"] - absent["h100"]

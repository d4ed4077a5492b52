"""A fleet that is not what its model learnt from is told to people; nothing else comes of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, quick_settings
from tests.builders.models import version_files
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until
from tests.fakes.clock import MovedClock

FAR = 1e9  # no reading comes there


def gpu_model(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = get(server, "/v1/models")["items"][0]
    return found


def test_features_that_lie_elsewhere_are_named_on_every_surface(tmp_path: Path) -> None:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path, Mode.ADVISE), clock) as server:
        told = [
            {"name": name, "content": base64.b64encode(content).decode()}
            for name, content in version_files("gpu-elsewhere", deciles=FAR).items()
        ]
        why = {"reason": "as a test"}
        server.admin.post("/v1/models", json={"files": told, **why}).raise_for_status()
        body = {"version": "gpu-elsewhere", **why}
        server.admin.post("/v1/models/gpu/promotion", json=body).raise_for_status()
        node = Feeder(server, server.mint("agent", "far"), "far")
        node.introduce([make_gpu(number, "far") for number in range(8)])
        table, schema = gpu_table({f"GPU-far-{n}": (50.0, 300.0, 1.0) for n in range(8)})
        node.telemetry([table], [schema])
        wait_until(lambda: gpu_model(server)["drift"], "a first look", 60.0)
        assert gpu_model(server)["drift"]["warning"] == "", "nothing is said in the first hour"
        clock.ahead += 3700.0
        wait_until(lambda: gpu_model(server)["drift"]["warning"], "drift", 60.0)
        drift = gpu_model(server)["drift"]
        assert "not as in training" in drift["warning"]
        assert all(one["shift"] > one["limit"] for one in drift["drifted"])
        assert server.figure("gpuwarden_model_drifted_features", kind="gpu") == len(
            drift["drifted"]
        )
        assert server.figure("gpuwarden_learning_failures_total") == 0
        node.close()

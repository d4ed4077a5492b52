"""`gpuwarden config check`, run as a person runs it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builders.feed import quick_settings
from tests.builders.server import running_server


def _check(folder: Path, **variables: str) -> tuple[int, list[dict[str, str]]]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GPUWARDEN_")}
    given = {"GPUWARDEN_PORT": "0", **variables}
    command = [str(Path(sys.executable).with_name("gpuwarden")), "config", "check", "--json"]
    done = subprocess.run(
        command, cwd=folder, env={**kept, **given}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    looks: list[dict[str, str]] = json.loads(done.stdout)
    return done.returncode, looks


def _of(looks: list[dict[str, Any]], part: str) -> list[tuple[str, str]]:
    return [(look["outcome"], look["says"]) for look in looks if look["part"] == part]


def test_defaults_are_good_and_nothing_is_made(tmp_path: Path) -> None:
    code, looks = _check(tmp_path)
    assert code == 0
    parts = ["settings", "policy", "model", "notifications", "actuators", "store", "address"]
    assert [look["part"] for look in looks] == parts
    assert [look["part"] for look in looks if look["outcome"] != "good"] == [
        "notifications",
        "actuators",
    ]
    assert list(tmp_path.iterdir()) == []


def test_each_wrong_thing_is_named_with_its_mend(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\nmode = "shoot"\n')
    notify = tmp_path / "notify.toml"
    notify.write_text('[[endpoints]]\nname = "am"\nkind = "alertmanager"\nurls = ["am:9093"]\n')
    (tmp_path / "gpuwarden-state").mkdir()
    (tmp_path / "gpuwarden-state" / "state.db").write_text("no database, but long enough " * 40)
    code, looks = _check(
        tmp_path,
        GPUWARDEN_POLICY_FILE=str(policy),
        GPUWARDEN_MODEL_FOLDER="/nowhere",
        GPUWARDEN_NOTIFY_FILE=str(notify),
        GPUWARDEN_SWEEP_INTERVALS="5",
    )
    assert code == 2
    assert ("note", "nothing reads GPUWARDEN_SWEEP_INTERVALS; GPUWARDEN_SWEEP_INTERVAL_S was "
            "probably meant") in _of(looks, "settings")  # fmt: skip
    assert [outcome for outcome, _ in _of(looks, "policy")] == ["wrong"]
    assert "shoot" in _of(looks, "policy")[0][1]
    assert [outcome for outcome, _ in _of(looks, "model")] == ["note"]
    assert [outcome for outcome, _ in _of(looks, "notifications")] == ["wrong"]
    assert "urls" in _of(looks, "notifications")[0][1]
    assert [outcome for outcome, _ in _of(looks, "store")] == ["wrong"]
    assert "not a database" in _of(looks, "store")[0][1]


def test_a_variable_that_is_not_valid_ends_the_look(tmp_path: Path) -> None:
    code, looks = _check(tmp_path, GPUWARDEN_PORT="many")
    assert code == 2
    assert [look["part"] for look in looks] == ["settings"]
    assert "GPUWARDEN_PORT" in looks[0]["says"]


def test_a_taken_port_is_no_reason_to_refuse(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, looks = _check(tmp_path, GPUWARDEN_PORT=str(taken.getsockname()[1]))
    assert code == 0
    assert [outcome for outcome, _ in _of(looks, "address")] == ["note"]


@pytest.mark.serial
def test_a_running_servers_store_can_be_looked_at(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings):
        code, looks = _check(tmp_path, GPUWARDEN_STATE_FOLDER=str(settings.state_folder))
    assert code == 0
    assert "schema version" in _of(looks, "store")[0][1]

"""The demo's installation under a launcher, and under a power cut of its server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwarden_cli.app import run as run_command
from gpuwarden_cli.demo.folder import make_folder
from gpuwarden_cli.demo.installation import Installation
from gpuwarden_cli.demo.pace import BRISK
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.exits import ExitCode
from gpuwarden_runtime.feed import FeedState
from gpuwarden_runtime.records import Role
from gpuwarden_runtime.watch import ExclusionWatch
from tests.fakes.ports import free_port

pytestmark = pytest.mark.serial

JOB_NODE = "gpu-0010"
GPU = (JOB_NODE, 3)
OTHER = ("gpu-0012", 2)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = make_folder(tmp_path_factory.mktemp("survival") / "demo", BRISK)
    installation = Installation(folder, BRISK, free_port())
    try:
        installation.start()
        with installation.client() as client:
            wait_for(lambda: sum(len(node.gpus) for node in client.all_nodes()) == 128)
        yield installation
    finally:
        installation.end()


@pytest.fixture
def client(installation: Installation) -> Iterator[Client]:
    with installation.client() as client:
        yield client


def test_launcher_obeys_the_exclusion_and_the_revoke(
    installation: Installation, client: Client, tmp_path: Path
) -> None:
    uuid = installation.fleet.gpu_uuids[GPU]
    environ = launcher_settings(installation, tmp_path)
    sleeper = launch("sh", "-c", "echo up; exec sleep 600")
    with run(environ, "gpuwarden_runtime.launcher", *sleeper) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "up\n"
        installation.fleet.fail("row_remap_failure", uuid, 0.0)
        _, err = job.communicate(timeout=30)
    assert job.returncode == ExitCode.ENDED, err
    assert uuid in err

    code, err = result(environ, "gpuwarden_runtime.launcher", *launch("true"))
    assert code == ExitCode.REFUSED, err
    decision = next(item for item in client.exclusions().exclusions if item.entity == uuid)
    assert f"gpuwarden decisions revoke {decision.decision_id}" in err

    operator = {**environ, "GPUWARDEN_KEY": installation.operator_key}
    words = ("decisions", "revoke", str(decision.decision_id), "--reason", "the drill is over")
    assert result(operator, "gpuwarden_cli.main", *words)[0] == 0
    assert result(environ, "gpuwarden_runtime.launcher", *launch("true"))[0] == 0

    # The GPU's counters still say that no spare row is left: sweep after sweep sees it.
    pending = client.gpu(uuid).readings["gpu_row_remap_failure"]
    time.sleep(6.0 * BRISK.sweep_s)
    assert pending == 1.0
    assert [item for item in client.exclusions().exclusions if item.entity == uuid] == []
    assert result(environ, "gpuwarden_runtime.launcher", *launch("true"))[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("nodes", "--json"),
        ("nodes",),
        ("incidents", "--json"),
        ("incidents", "--phase", "live"),
        ("decisions", "--json"),
        ("decisions", "--phase", "live", "--node", JOB_NODE),
        ("why", f"{JOB_NODE}:3", "--json"),
        ("why", f"{JOB_NODE}:3"),
        ("why", JOB_NODE),
        ("exclusions",),
        ("exclusions", "--format", "json"),
        ("exclusions", "--format", "hosts"),
        ("exclusions", "--format", "slurm", "--scope", "node"),
    ],
)
def test_commands_read_the_real_server(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("GPUWARDEN_URL", installation.url)
    monkeypatch.setenv("GPUWARDEN_KEY", installation.operator_key)
    assert run_command(words) == 0
    out = capsys.readouterr().out
    if "json" in words or "--json" in words:
        assert json.loads(out) is not None
    elif "--format" not in words:  # host lists are empty where nothing is excluded
        assert out.strip()


def test_keys_are_made_listed_and_ended(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUWARDEN_URL", installation.url)
    monkeypatch.setenv("GPUWARDEN_KEY", installation.folder.admin_key)
    assert run_command(["keys", "create", "--role", "reader", "--name", "ana", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("GPUWARDEN_KEY", made["key"])
    assert run_command(["nodes"]) == 0
    assert run_command(["keys", "list"]) == 4  # a reader may not
    monkeypatch.setenv("GPUWARDEN_KEY", installation.folder.admin_key)
    assert run_command(["keys", "delete", made["id"]]) == 0
    monkeypatch.setenv("GPUWARDEN_KEY", made["key"])
    assert run_command(["nodes"]) == 4
    capsys.readouterr()


def test_power_cut_loses_no_event_and_no_exclusion(
    installation: Installation, client: Client
) -> None:
    fleet, positions = installation.fleet, list[tuple[str, int]]()

    def note(state: FeedState) -> None:
        positions.append((state.feed_id, state.epoch))

    with (
        Client(RuntimeSettings(url=installation.url, key=installation.operator_key)) as own,
        ExclusionWatch(own, note, lambda sentence: None),
    ):
        fleet.fail("gpu_off_bus", fleet.gpu_uuids[OTHER])
        wait_for(lambda: excluded(client, fleet.gpu_uuids[OTHER]))
        before = client.exclusions()

        fleet.fail("application_burst", "gpu-0003")  # events are on their way while it dies
        time.sleep(BRISK.interval_s * 0.6)
        installation.server.kill()
        acknowledged = fleet.player.acknowledged_event_ids()
        time.sleep(BRISK.interval_s * 2)
        installation.start_server()

        after = client.exclusions()
        assert after.feed_id == before.feed_id
        assert after.epoch >= before.epoch
        assert {item.key for item in before.exclusions} <= {item.key for item in after.exclusions}

        made = wait_until_applied(installation)
        stored = Counter(row["id"] for row in client.all_events())
        assert len(made) > 150 > len(acknowledged) > 30  # the burst of 128 was on its way
        assert acknowledged - set(stored) == set()  # nothing that was acknowledged is lost
        assert made - set(stored) == set()  # nor anything that was on its way
        assert [event for event, count in stored.items() if count > 1] == []

        fleet.fail("gpu_off_bus", fleet.gpu_uuids["gpu-0014", 0])  # the restarted server judges
        wait_for(lambda: excluded(client, fleet.gpu_uuids["gpu-0014", 0]))
        wait_for(lambda: positions[-1][1] == client.exclusions().epoch)
    assert len({feed_id for feed_id, _ in positions}) == 1
    epochs = [epoch for _, epoch in positions]
    assert epochs == sorted(set(epochs))  # each once, in order


def wait_until_applied(installation: Installation) -> set[str]:
    """Ids of all events made so far, once the server has acknowledged them."""
    player = installation.fleet.player
    made = set(player.event_ids())
    wait_for(lambda: made <= player.acknowledged_event_ids())
    return made


def excluded(client: Client, uuid: str) -> bool:
    return any(item.entity == uuid for item in client.exclusions().exclusions)


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def launcher_settings(installation: Installation, folder: Path) -> dict[str, str]:
    settings = RuntimeSettings(url=installation.url, key=installation.folder.admin_key)
    with Client(settings) as admin:
        key = admin.create_key(Role.RUNTIME, None, "launcher").key
    return {
        **{name: value for name, value in os.environ.items() if "GPUWARDEN" not in name},
        "GPUWARDEN_URL": installation.url,
        "GPUWARDEN_KEY": key or "",
        "GPUWARDEN_CACHE_FOLDER": str(folder / "cache"),
        "GPUWARDEN_VERDICT_FILE": str(folder / "none.json"),
    }


def launch(*command: str) -> tuple[str, ...]:
    return ("--node", JOB_NODE, "--grace", "5", "--", *command)


def run(environ: dict[str, str], module: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(environ: dict[str, str], module: str, *words: str) -> tuple[int, str]:
    with run(environ, module, *words) as process:
        try:
            _, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
    return process.returncode, err

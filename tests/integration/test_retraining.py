"""What people say of a fleet's incidents moves the score, without a restart and without a risk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until
from tests.fakes.clock import MovedClock

BOTH_STORES = True
COSTS = "\n[learning]\ngpu_hour_false_exclusion = 1\ngpu_hour_missed_fault = 9\n"
NODES, HEALTHY_NODES = 24, 4
FATAL, PROGRAM = (79, 95, 48, 64), (31,)


class Fleet:
    """A server, nodes of which every other one has a fault of hardware, and an operator."""

    def __init__(self, server: Running, clock: MovedClock, folder: Path) -> None:
        self.server = server
        self.clock = clock
        self.folder = folder
        key = folder / "operator.key"
        key.write_text(server.mint("operator"))
        self._at = ["--url", server.url, "--key-file", str(key)]

    def command(self, *words: str) -> int:
        """`gpuwarden` as the operator calls it."""
        return run([*self._at, *words])

    def model(self) -> dict[str, Any]:
        found: dict[str, Any] = get(self.server, "/v1/models")["items"][0]
        return found

    def feed(self) -> None:
        """Every node reports; all but the healthy ones tell of a fault."""
        for number in range(NODES + HEALTHY_NODES):
            name = f"n{number:02}"
            node = Feeder(self.server, self.server.mint("agent", name), name)
            node.introduce([make_gpu(0, name)])
            table, schema = gpu_table({f"GPU-{name}-0": (50.0, 300.0, 1.0)})
            node.telemetry([table], [schema])
            if number < NODES:
                codes = FATAL if number % 2 == 0 else PROGRAM
                node.events(*(xid_event(code, "0000:10:00.0") for code in codes))
            node.close()

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = get(self.server, "/v1/feature-rows", limit=1000)["items"]
        return [one for one in found if one["why"] == "incident"]

    def suspects(self) -> set[str]:
        """Who has an incident."""
        found = get(self.server, "/v1/incidents", limit=1000)["items"]
        return {one["entity"] for one in found if one["entity_kind"] == "gpu"}

    def judge(self) -> None:
        """Say of every incident what it was."""
        for one in get(self.server, "/v1/incidents", limit=1000)["items"]:
            if one["entity_kind"] != "gpu":
                continue  # so many at once: a place is blamed too
            number = int(one["node_id"][1:])
            said = "hardware" if number % 2 == 0 else "application"
            assert self.command("verdict", one["id"], said, "--note", "looked at") == ExitCode.DONE


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    clock = MovedClock()
    settings = quick_settings(tmp_path, Mode.OBSERVE)
    assert settings.policy_file is not None
    settings.policy_file.write_text(settings.policy_file.read_text() + COSTS)
    with running_server(settings, clock) as server:
        yield Fleet(server, clock, tmp_path)


def test_twenty_labels_move_the_operating_point_and_the_challenger_becomes_the_judge(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.feed()
    wait_until(lambda: len(fleet.suspects()) >= NODES, "incidents", 90.0)
    fleet.clock.ahead += 301.0
    wait_until(lambda: len({row["entity"] for row in fleet.rows()}) >= NODES, "their rows", 90.0)
    before = fleet.model()
    out = fleet.folder / "models"
    train = ["train", "--from-store", "--out", str(out)]
    assert fleet.command(*train) == ExitCode.USAGE
    assert "labelled" in capsys.readouterr().err
    fleet.judge()
    assert fleet.command(*train) == ExitCode.DONE
    (version,) = [path.name for path in (out / "gpu").iterdir() if path.is_dir()]

    assert fleet.command("models", "add", str(out / "gpu" / version)) == ExitCode.DONE
    assert fleet.command("models", "challenge", version, "--reason", "better?") == ExitCode.DONE
    wait_until(lambda: tried(fleet, version), "the challenger is scored in shadow", 90.0)
    assert fleet.model()["in_use"] == before["in_use"], "a challenger never judges"

    assert fleet.command("models", "promote", version, "--reason", "better") == ExitCode.DONE
    now = fleet.model()
    assert (now["in_use"], now["challenger"]) == (version, None)
    assert now["operating_point"] == pytest.approx(0.1)
    assert now["operating_point"] != before["operating_point"]
    scored = get(fleet.server, "/v1/gpus/GPU-n00-0/why")["risk"]
    assert wait_for_version(fleet, version) == version, scored

    capsys.readouterr()
    for words, said in (
        (("models",), "judges"),
        (("models", "costs"), "0.100"),
        (("shadow",), "may not exclude; missing is"),
        (("labels",), "application"),
        (("models", "fetch", str(fleet.folder / "fetched")), "say whether action was needed"),
    ):
        assert fleet.command(*words) == ExitCode.DONE
        assert said in capsys.readouterr().out, words
    assert fleet.command("models", "promote", "none", "--reason", "x") == ExitCode.REFUSED

    assert fleet.command("models", "rollback", "--reason", "worse") == ExitCode.DONE
    back = fleet.model()
    assert (back["in_use"], back["operating_point"]) == (
        before["in_use"],
        before["operating_point"],
    )


def tried(fleet: Fleet, version: str) -> bool:
    """Whether a challenger has been scored over healthy time."""
    found = get(fleet.server, "/v1/shadow")["items"]
    return any(
        one["version"] == version and one["role"] == "challenger" and one["healthy_days"] > 0
        for one in found
    )


def wait_for_version(fleet: Fleet, version: str) -> str:
    """The version that scored a GPU, once the next sweep has used what was promoted."""

    def used() -> str:
        return str(get(fleet.server, "/v1/gpus/GPU-n00-0/why")["risk"]["model_version"])

    wait_until(lambda: used() == version, f"{version} scores", 60.0)
    return used()

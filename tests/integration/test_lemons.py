"""The lemon list of a running server: from what its judge put on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until


def items(server: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(server, "/v1/lemons")["items"]
    return found


def test_a_board_that_failed_is_listed_and_nothing_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = quick_settings(tmp_path, Mode.OBSERVE)
    assert settings.admin_key is not None
    with running_server(settings) as server:
        assert items(server) == []
        gpus = [make_gpu(number, "sour", serial=f"S{number}") for number in range(2)]
        node = Feeder(server, server.mint("agent", "sour"), "sour")
        node.introduce(gpus)
        node.events(xid_event(79, gpus[0].pci_bus_id))
        wait_until(lambda: items(server), "the board is on record")
        (one,) = items(server)
        assert (one["because"], one["entity"], one["serial"]) == ("part", gpus[0].gpu_uuid, "S0")
        assert (one["node_id"], [event["fault"] for event in one["events"]]) == ("sour", ["bus"])
        record = get(server, "/v1/lemons")["parts"]
        assert (record["entries"], record["young"], record["precision"]) == (0, 1, None)
        assert exclusions_of(server)["count"] == 0
        monkeypatch.setenv("GPUWARDEN_URL", server.url)
        monkeypatch.setenv("GPUWARDEN_KEY", settings.admin_key.get_secret_value())
        assert run(["lemons"]) == ExitCode.DONE
        told = " ".join(capsys.readouterr().out.split())
        assert "unknown yet" in told and "nothing acts on this list" in told and "S0" in told
        node.close()

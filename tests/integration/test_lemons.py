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
from tests.builders.stores import query

BOTH_STORES = True


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


@pytest.mark.postgres
def test_a_verdict_takes_a_board_off_the_list_puts_it_back_and_outlives_a_restart(
    tmp_path: Path,
) -> None:
    settings = quick_settings(tmp_path, Mode.OBSERVE)
    with running_server(settings) as server:
        gpu = make_gpu(0, "judged", serial="S9")
        node = Feeder(server, server.mint("agent", "judged"), "judged")
        node.introduce([gpu])
        node.events(xid_event(79, gpu.pci_bus_id))
        wait_until(lambda: items(server), "the board is on record", 30.0)
        incident = get(server, "/v1/incidents", node="judged")["items"][0]["id"]
        for verdict, listed in (("operator", False), ("hardware", True), ("false_alarm", False)):
            say(server, incident, verdict)
            wait_until(lambda listed=listed: bool(items(server)) is listed, verdict, 30.0)
        say(server, incident, "hardware")
        wait_until(lambda: items(server), "it was the board after all", 30.0)
        node.close()
    # As if it had been said a moment before a crash: the ledger was stored before it.
    query(settings.state_folder, "UPDATE incident_verdicts SET verdict = 'false_alarm'")
    with running_server(settings) as server:
        wait_until(lambda: not items(server), "the word holds", 30.0)


def say(server: Running, incident: str, verdict: str) -> None:
    body = {"verdict": verdict, "note": "looked at"}
    server.admin.post(f"/v1/incidents/{incident}/verdict", json=body).raise_for_status()

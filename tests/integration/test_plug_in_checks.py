"""Plug-in checks of a real agent at a real server: shown, advising, and never excluding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.cli import main
from tests.builders.agent import agent_settings, running
from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps, xid_event
from tests.builders.plug_ins import definitions_file, program
from tests.builders.server import Feeder, Running, make_event, make_gpu, running_server
from tests.fakes.waiting import wait_for

GPU = "GPU-node-1-0"


@contextmanager
def checked_node(folder: Path, **keys: Any) -> Iterator[tuple[Running, Path]]:
    """A server, and an agent whose one check runs every second; `output` is what it prints."""
    output = folder / "output"
    output.write_text('{"state": "ok"}')
    check = program(folder / "check", f"cat {output}", shell=True)
    definition = {"name": "gemm", "command": [str(check)], "interval_s": 1.0, "deadline_s": 1.0}
    checks = definitions_file(folder / "checks.json", definition | {"output": "json"} | keys)
    (folder / "kern.log").touch()
    with running_server(quick_settings(folder / "server")) as server:
        settings = agent_settings(
            folder, server_url=server.url, key=server.mint("agent", "node-1"), checks=checks
        )
        with running(settings):
            yield server, output


def events(server: Running, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = get(server, "/v1/events", limit=1000)["items"]
    return [one for one in items if one["kind"] == kind]


def replace(output: Path, text: str) -> None:
    fresh = output.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(output)


def test_a_critical_check_is_stored_shown_and_makes_suspect_at_most(tmp_path: Path) -> None:
    with checked_node(tmp_path, fault_class="memory") as (server, output):
        wait_for(lambda: events(server, "check_passed"))
        replace(output, '{"state": "critical", "text": "sum differs"}')
        (event,) = wait_for(lambda: events(server, "check_failed"))
        assert (event["text"], event["attributes"]["check"]) == ("sum differs", "gemm")
        (incident,) = wait_for(lambda: get(server, "/v1/incidents", node="node-1")["items"])
        assert "plug-in gemm says critical of node node-1" in incident["why"]
        wait_for(lambda: get(server, "/v1/nodes/node-1")["state"] == "suspect")
        wait_sweeps(server, 8)
        feed = exclusions_of(server)
        assert (feed["exclusions"], feed["would_exclude"]) == ([], [])
        replace(output, '{"state": "ok"}')
        wait_for(lambda: get(server, "/v1/nodes/node-1")["state"] == "healthy")


def test_a_check_that_breaks_is_trouble_and_no_incident(tmp_path: Path) -> None:
    with checked_node(tmp_path) as (server, output):
        wait_for(lambda: events(server, "check_passed"))
        replace(output, "Segmentation fault")

        def told() -> list[dict[str, Any]]:
            troubles = get(server, "/v1/nodes/node-1")["trouble"]
            return [one for one in troubles if one["source"] == "check:gemm"]

        assert wait_for(told)[0]["reason"] == "not_json"
        wait_sweeps(server, 4)
        assert get(server, "/v1/incidents", node="node-1")["items"] == []
        replace(output, '{"state": "ok"}')
        wait_for(lambda: not told())


@pytest.mark.parametrize("proves", [False, True])
def test_only_a_check_that_proves_a_repair_ends_one(tmp_path: Path, proves: bool) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node = Feeder(server, server.mint("agent", "node-1"), "node-1")
        node.introduce([make_gpu(0, "node-1")])
        node.events(xid_event(79, make_gpu(0, "node-1").pci_bus_id))
        wait_for(lambda: state_of(server) == "excluded")
        begun = server.admin.post(f"/v1/gpus/{GPU}/repair", json={"reason": "swap the board"})
        begun.raise_for_status()
        node.events(passed(proves))
        wait_sweeps(server, 4)
        assert (state_of(server) == "in_repair") is not proves
        node.close()


def test_a_repair_hurries_the_check_that_may_end_it(tmp_path: Path) -> None:
    with checked_node(tmp_path, interval_s=604_800.0, proves_repair=True) as (server, _):
        wait_for(lambda: events(server, "check_passed"), what="its one run")
        body = {"nodes": ["node-1"], "at": 0, "check": True, "reason": "new riser"}
        answer = server.admin.post("/v1/leaves", json=body)
        (leave,) = answer.json()["items"]
        wait_for(lambda: exclusions_of(server)["count"] == 1, what="it leaves")
        ended = server.admin.post(f"/v1/pins/{leave['id']}/end", json={"reason": "done"})
        ended.raise_for_status()
        wait_for(lambda: exclusions_of(server)["count"] == 0, 60, "back by its own check")
        assert len(events(server, "check_passed")) == 2


def test_who_mended_a_node_returns_it_by_running_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: dict[str, Any] = {"interval_s": 604_800.0, "proves_repair": True}
    with checked_node(tmp_path, **keys) as (server, output):
        wait_for(lambda: events(server, "check_passed"), what="its first run")
        replace(output, '{"state": "critical", "text": "sum differs"}')
        body = {"nodes": ["node-1"], "at": 0, "check": True, "reason": "new riser"}
        (leave,) = server.admin.post("/v1/leaves", json=body).json()["items"]
        wait_for(lambda: exclusions_of(server)["count"] == 1, what="it leaves")
        ended = server.admin.post(f"/v1/pins/{leave['id']}/end", json={"reason": "done"})
        ended.raise_for_status()
        wait_for(lambda: events(server, "check_failed"), 60, "the repair hurries its check")
        assert check_run(tmp_path) == 1
        assert "gemm node: critical sum differs" in capsys.readouterr().out
        assert exclusions_of(server)["count"] == 1
        replace(output, '{"state": "ok", "text": "sums agree"}')
        assert check_run(tmp_path, "--json") == 0
        printed = capsys.readouterr().out  # the server of this process logs there too
        told = json.loads(printed[printed.index("{\n") :])
        assert (told["said"][0]["text"], told["proves_repair"]) == ("sums agree", True)
        wait_for(lambda: exclusions_of(server)["count"] == 0, 60, "back by the check")
    assert check_run(tmp_path) == 4
    assert "no agent runs" in capsys.readouterr().err


def check_run(folder: Path, *options: str) -> int:
    """The command as an SRE types it on the node."""
    where = ["--verdict-file", str(agent_settings(folder).verdict_file)]
    return main(["check", "run", "gemm", *options, *where])


def state_of(server: Running) -> object:
    return get(server, f"/v1/gpus/{GPU}")["state"]


def passed(proves: bool) -> Any:
    return make_event(
        kind="check_passed",
        entity_kind="gpu",
        entity=GPU,
        attributes={"plug_in": True, "check": "gemm", "state": "ok", "proves_repair": proves},
    )

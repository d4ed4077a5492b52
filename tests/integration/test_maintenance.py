"""A whole agent over the NVML stub lets go of the driver when told, and takes it again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.maintenance import RunFolder
from gpuwarden_agent.maintenance_command import (
    MaintenanceExit,
    MaintenanceRequest,
    run_maintenance,
)
from gpuwarden_wire.batches import MissingKind, Table
from gpuwarden_wire.events import EventKind
from tests.builders import nvml
from tests.builders.agent import XID_79, agent_settings, running
from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps
from tests.builders.nvml import ScenarioFile, child_pids, pci_bus, stub_environment
from tests.builders.server import running_server
from tests.fakes.ingest_server import FakeIngestServer
from tests.fakes.waiting import wait_for

POWER = "nvmlDeviceGetPowerUsage"


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScenarioFile:
    found = ScenarioFile(tmp_path / "scenario", nvml.h100_node(2))
    for name, value in stub_environment(found.path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "kern.log").touch()
    pci_bus(tmp_path / "sys", [gpu.pci for gpu in found.node.gpus])
    return found


def settings_of(folder: Path, url: str, **more: object) -> AgentSettings:
    return agent_settings(folder, server_url=url, nvml="on", sys_root=folder / "sys", **more)


def ask(settings: AgentSettings, action: str, **more: float | str) -> MaintenanceExit:
    return run_maintenance(settings, MaintenanceRequest(action, **more))  # type: ignore[arg-type]  # its fields


def shown(settings: AgentSettings, capsys: pytest.CaptureFixture[str]) -> str:
    ask(settings, "show")
    return capsys.readouterr().out


def troubles(server: FakeIngestServer) -> list[tuple[EventKind, object]]:
    mine = [e for e in server.events.values() if e.attributes.get("source") == "maintenance"]
    return [(event.kind, event.attributes.get("reason")) for event in mine]


def gpu_tables(server: FakeIngestServer) -> list[Table]:
    tables = [table for one in server.received for table in one.batch.tables]
    return [table for table in tables if any("GPU" in entity for entity in table.entities)]


def test_it_holds_no_device_in_maintenance_and_resumes(
    tmp_path: Path, scenario: ScenarioFile, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeIngestServer() as server:
        settings = settings_of(tmp_path, server.url)
        with running(settings):
            wait_for(lambda: gpu_tables(server))
            assert ask(settings, "start", reason="new driver") is MaintenanceExit.DONE
            assert child_pids() == []
            assert "holds no device" in capsys.readouterr().out
            assert ask(settings, "show") is MaintenanceExit.DONE
            assert "new driver" in capsys.readouterr().out
            wait_for(lambda: troubles(server) == [(EventKind.COLLECTOR_TROUBLE, "maintenance")])
            wait_for(lambda: _all_missing(gpu_tables(server)[-1]))
            (tmp_path / "kern.log").write_text(XID_79 + "\n")
            wait_for(lambda: any(e.xid == 79 for e in server.events.values()))
            assert child_pids() == []
            count = len(gpu_tables(server))
            assert ask(settings, "stop") is MaintenanceExit.DONE
            assert "goes on" in capsys.readouterr().out
            wait_for(lambda: any(not _all_missing(t) for t in gpu_tables(server)[count:]))
            wait_for(lambda: (EventKind.COLLECTOR_RECOVERED, None) in troubles(server))
            assert len(child_pids()) == 1
        assert child_pids() == []
        kinds = {event.kind for event in server.events.values()}
        assert not kinds & {EventKind.GPU_LOST, EventKind.DRIVER_STUCK}


def _all_missing(table: Table) -> bool:
    cells = [*memoryview(table.f32).cast("f"), *memoryview(table.f64).cast("d")]
    said = {cell.reason for cell in table.missing if cell.kind is MissingKind.UNAVAILABLE}
    return all(map(math.isnan, cells)) and said == {"maintenance"}


def test_a_call_of_the_driver_that_hangs_is_named_and_waited_for(
    tmp_path: Path, scenario: ScenarioFile, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeIngestServer() as server:
        settings = settings_of(tmp_path, server.url)
        with running(settings) as agent:
            wait_for(lambda: gpu_tables(server))
            (pid,) = child_pids()
            probe = agent.sources.nvml_probe
            assert probe is not None
            scenario.change(lambda node: node.gpu(0).rules.append(f"hang {POWER}"))
            wait_for(lambda: probe.condition().call == POWER, what="the call that hangs")
            assert ask(settings, "start", wait_s=3.0) is MaintenanceExit.NOT_YET
            told = capsys.readouterr().out
            assert "nvml: a call is in flight" in told
            assert child_pids() == [pid]  # never killed inside a call
            scenario.change(lambda node: node.gpu(0).rules.clear())
            assert ask(settings, "start") is MaintenanceExit.DONE
            assert child_pids() == []


def test_an_agent_that_starts_in_maintenance_opens_nothing(
    tmp_path: Path, scenario: ScenarioFile, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeIngestServer() as server:
        settings = settings_of(tmp_path, server.url)
        assert ask(settings, "start", for_s=600.0) is MaintenanceExit.DONE
        assert f"No agent runs with its files in {settings.run_folder}" in capsys.readouterr().out
        with running(settings):
            note = wait_for(RunFolder(settings.run_folder).note)
            assert note.is_alive
            wait_for(lambda: troubles(server))
            wait_for(lambda: ask(settings, "show") is MaintenanceExit.DONE)
            assert child_pids() == []
            assert ask(settings, "start", for_s=3.0) is MaintenanceExit.DONE
            wait_for(lambda: len(troubles(server)) == 2, what="it ends by itself")
            wait_for(lambda: gpu_tables(server))


def test_maintenance_is_no_fault_of_any_gpu(tmp_path: Path, scenario: ScenarioFile) -> None:
    with running_server(quick_settings(tmp_path / "server")) as server:
        key = server.mint("agent", "node-1")
        settings = settings_of(tmp_path, server.url, key=key)
        with running(settings):
            wait_for(lambda: len(get(server, "/v1/gpus")["items"]) == 2)
            ask(settings, "start")
            wait_for(lambda: get(server, "/v1/nodes/node-1")["trouble"])
            wait_sweeps(server, 10)
            (trouble,) = get(server, "/v1/nodes/node-1")["trouble"]
            assert (trouble["source"], trouble["reason"]) == ("maintenance", "maintenance")
            assert get(server, "/v1/incidents")["items"] == []
            assert exclusions_of(server)["would_exclude"] == []
            ask(settings, "stop")
            wait_for(lambda: not get(server, "/v1/nodes/node-1")["trouble"])


@pytest.mark.parametrize("for_s", [0.0, -1.0, 1e9, float("nan")])
def test_a_length_that_makes_no_sense_is_refused(
    tmp_path: Path, for_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(agent_settings(tmp_path), "start", for_s=for_s) is MaintenanceExit.FAILED
    assert "--for" in capsys.readouterr().err

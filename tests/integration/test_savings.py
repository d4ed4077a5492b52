"""The ledger of costs of a running server: sums by hand, shown wherever a decision is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_server.app import create_app
from gpuwarden_server.core.errors import StartError
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import GpuJob, JobKind
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)
from tests.fakes.clock import MovedClock

SLOT = "0000:10:00.0"
PRICES = """
[assumptions]
hang_s = 1800
restart_s = 360
[prices]
currency = "USD"
gpu_hour = { "*" = 2.0 }
"""


def nodes_with_a_job(server: Running, names: list[str]) -> dict[str, Feeder]:
    """Nodes of four GPUs each; one job runs on all of them."""
    made = {}
    for name in names:
        node = Feeder(server, server.mint("agent", name), name)
        gpus = [make_gpu(number, name) for number in range(4)]
        jobs = tuple(GpuJob(kind=JobKind.SLURM, job_id="77", gpu_uuid=gpu.gpu_uuid) for gpu in gpus)
        node.introduce(gpus, jobs=jobs)
        made[name] = node
    return made


def decision_on(server: Running, node: str) -> dict[str, Any]:
    wait_until(lambda: get(server, "/v1/decisions", node=node)["items"], f"a decision on {node}")
    found: dict[str, Any] = get(server, "/v1/decisions", node=node, ledger="true")["items"][0]
    return found


def judge(server: Running, decision: dict[str, Any], verdict: str) -> None:
    path = f"/v1/incidents/{decision['incident_id']}/verdict"
    server.admin.post(path, json={"verdict": verdict}).raise_for_status()


def test_sums_equal_the_hand_computed_case_and_stand_wherever_a_decision_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = MovedClock()
    file = tmp_path / "savings.toml"
    file.write_text(PRICES)
    settings = quick_settings(tmp_path, Mode.ACT, savings_file=file)
    with running_server(settings, clock) as server:
        nodes = nodes_with_a_job(server, ["n1", "n2", "n3", "n4"])
        for name in ("n1", "n2", "n3"):
            nodes[name].events(xid_event(79, SLOT))
        first, second, third = (decision_on(server, name) for name in ("n1", "n2", "n3"))
        (advice,) = get(server, "/v1/standby/advice")["items"]
        assert (advice["pool"], advice["nodes"], advice["leaves"]) == ("default", 4, 3)
        assert (advice["spares"], advice["ready"]) == (0, 0)
        assert "a stay of 24 h is assumed" in " ".join(advice["says"])
        # 16 GPUs of the job would have stood still for 2160 s each: 9.6 GPU-hours, 19.20 USD.
        judge(server, first, "hardware")
        judge(server, second, "false_alarm")
        clock.ahead += 3 * 3600.0
        # One sound GPU out for three hours: 3 GPU-hours, 6 USD.
        answer = get(server, "/v1/ledger", days=1)
        sums = answer["acted"]
        assert (sums["decisions"], sums["right"], sums["wrong"]) == (3, 2, 1), sums
        assert third["ledger"]["outcome"] == "right", "XID 79 needs no second opinion"
        assert sums["saved_gpu_hours"] == pytest.approx(9.6), "one job, which would fail once"
        assert sums["lost_gpu_hours"] == pytest.approx(3.0, rel=0.02)
        assert sums["saved_money"] == pytest.approx(19.2)
        assert sums["lost_money"] == pytest.approx(6.0, rel=0.02)
        assert sums["kwh_unknown"] == 2, "no energy counter was read, and that is said"
        listed = {one["decision_id"]: one for one in answer["items"]}
        assert listed[first["id"]]["job_gpus"] == 16
        fleet = answer["false_rates"][0]
        assert (fleet["of"], fleet["wrong"], fleet["settled"]) == ("fleet", 1, 3)
        assert answer["concentration"]["nodes"] == 4
        for shown in (
            decision_on(server, "n2")["ledger"],
            get(server, f"/v1/decisions/{second['id']}")["ledger"],
            get(server, "/v1/gpus/GPU-n2-0/why")["decisions"][0]["ledger"],
        ):
            assert (shown["outcome"], shown["saved_gpu_hours"]) == ("wrong", 0.0)
            assert shown["lost_gpu_hours"] == pytest.approx(3.0, rel=0.02)
        judge(server, second, "hardware")
        assert get(server, "/v1/ledger", days=1)["acted"]["wrong"] == 0, "a correction corrects"
        assert settings.admin_key is not None
        monkeypatch.setenv("GPUWARDEN_URL", server.url)
        monkeypatch.setenv("GPUWARDEN_KEY", settings.admin_key.get_secret_value())
        for words in (["ledger"], ["decisions"], ["why", "GPU-n1-0"], ["standby", "advice"]):
            assert run(words) == ExitCode.DONE
        told = " ".join(capsys.readouterr().out.split())
        assert "hang_s = 1800 seconds" in told
        assert "3 decisions, 3 right, 0 wrong, 0 open." in told
        assert "no pool has nodes with GPUs" in told, "they have been silent for hours"
        for node in nodes.values():
            node.close()


def test_in_observe_mode_it_tells_what_would_have_been_and_asks_for_energy(tmp_path: Path) -> None:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path, Mode.OBSERVE), clock) as server:
        node = nodes_with_a_job(server, ["n1"])["n1"]
        joules = 0.0
        for _ in range(6):  # 500 W, read once a minute
            rows = {f"GPU-n1-{number}": (joules,) for number in range(4)}
            table, schema = gpu_table(rows, clock.now(), metrics=("gpu_energy_joules_total",))
            node.telemetry([table], [schema])
            clock.ahead += 60.0
            joules += 60.0 * 500.0
        node.events(xid_event(79, SLOT))
        decision = decision_on(server, "n1")
        cost = decision["ledger"]
        assert (cost["acted"], cost["outcome"], cost["currency"]) == (False, "right", "")
        assert cost["saved_money"] is None
        assert "no price for GPU model" in " ".join(cost["says"])
        assert cost["saved_kwh"] == pytest.approx(cost["saved_gpu_hours"] * 0.5, rel=0.05)
        answer = get(server, "/v1/ledger")
        assert (answer["acted"]["decisions"], answer["would"]["decisions"]) == (0, 1)
        assert answer["concentration"]["exclusions"] == 0
        node.close()


def test_a_file_that_cannot_be_used_refuses_the_start(tmp_path: Path) -> None:
    file = tmp_path / "savings.toml"
    file.write_text("[assumptions]\nhang = 3\n")
    with pytest.raises(StartError, match=r"assumptions\.hang.*hang_s"):
        create_app(make_settings(tmp_path, savings_file=file))
    with pytest.raises(StartError, match="GPUWARDEN_SAVINGS_FILE"):
        create_app(make_settings(tmp_path, savings_file=tmp_path / "none.toml"))

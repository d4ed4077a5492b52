"""The `gpuwarden` command over real HTTP: tables, JSON, exit codes, mends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_runtime.records import Exclusion
from gpuwarden_wire.acknowledgement import Problem
from tests.fakes.api_server import FakeApi, serve

GPU = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
NODE = {
    "node_id": "gpu-0001",
    "pool": "train",
    "state": "suspect",
    "usable": "yes",
    "agent_version": "0.1.0",
    "boot_id": "b",
    "last_seen_at": 1.0,
    "silent": True,
    "gpus_visible": 7,
    "gpus_expected": 8,
    "gpus_unread": None,
    "gpus": [{"gpu_uuid": GPU, "index": 3, "pci_bus_id": "0000:3b:00.0", "state": "suspect"}],
    "trouble": [{"source": "nic", "reason": "permission_denied", "since": 1.0}],
    "open_incidents": 1,
}
INCIDENT = {
    "id": "inc-1",
    "entity_kind": "gpu",
    "entity": GPU,
    "node_id": "gpu-0001",
    "fault_class": "bus",
    "severity": "critical",
    "phase": "open",
    "why": "XID 79: fell off the bus",
    "action": "reboot_node",
    "confidence": 0.98,
    "opened_at": 1.0,
    "evidence": [
        {"detector": "xid", "sentence": "XID 79 once", "score": 0.98, "severity": "critical"}
    ],
}
DECISION = {
    "id": "dec-1",
    "entity_kind": "gpu",
    "entity": GPU,
    "node_id": "gpu-0001",
    "rung": "exclude",
    "phase": "held_back",
    "mode": "act",
    "reasons": ["XID 79"],
    "confidence": 0.98,
    "decided_by": "rule",
    "decided_at": 1.0,
    "guard": "cap_nodes",
}
WHY = {
    "entity": GPU,
    "verdict": {
        "entity_kind": "gpu",
        "entity": GPU,
        "usable": "no",
        "state": "excluded",
        "since": 1.0,
        "why": "XID 79 [once]",
        "confidence": 0.98,
        "action": "reboot_node",
        "decided_by": "rule",
        "decision_id": "dec-1",
    },
    "incidents": [INCIDENT],
    "decisions": [DECISION],
    "risk": {
        "probability": 0.25,
        "fault_class": "thermal",
        "model_version": "2026-03",
        "contributions": [
            {"name": "intercept", "plane": None, "value": None, "log_odds": -3.0},
            {"name": "temperature_excess_celsius", "plane": "peers", "value": 9, "log_odds": 1.9},
        ],
    },
    "gate": {"open": False, "missing": ["no backtest on this fleet"]},
}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    api = FakeApi()
    with serve(api) as url:
        monkeypatch.setenv("GPUWARDEN_URL", url)
        monkeypatch.delenv("GPUWARDEN_KEY", raising=False)
        monkeypatch.delenv("GPUWARDEN_KEY_FILE", raising=False)
        yield api


def answer(api: FakeApi, path: str, *items: dict[str, Any]) -> None:
    api.answers["GET", path] = {"items": list(items), "next_cursor": None}


def test_nodes_for_people_and_programs(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    answer(api, "/v1/nodes", NODE)
    assert run(["nodes"]) == ExitCode.DONE
    out = capsys.readouterr().out
    for part in ("gpu-0001", "7 of 8", "silent", "GPU 3 suspect"):
        assert part in out
    assert re.search(r"nic for \d+ d: permission_denied$", out, re.MULTILINE)
    assert run(["nodes", "--json"]) == ExitCode.DONE
    (node,) = json.loads(capsys.readouterr().out)
    placed = {"rack": "", "leaf": "", "mounts": [], "labels": {}}
    nested = {"gpus": None, "trouble": None}
    assert {**node, **nested} == {**NODE, **placed, **nested}
    assert run(["nodes", "--json", "--usable", "no"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == []


def test_two_agents_of_a_node_are_told_with_the_mend(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    trouble = {
        "source": "node_claimed",
        "reason": "refused spool 9f2 of another machine",
        "since": time.time() - 600,
        "mend": "Stop the agent there",
    }
    answer(api, "/v1/nodes", {**NODE, "trouble": [trouble]})
    assert run(["nodes"]) == ExitCode.DONE
    said = "node_claimed for 10 min: refused spool 9f2 of another machine (Stop the agent there)"
    assert said in capsys.readouterr().out


def test_a_node_whose_gpus_are_not_read_says_so_and_once(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = {**NODE, "gpus_visible": 0, "gpus": [], "trouble": [], "gpus_unread": "no NVML"}
    told = [{"source": "nvml", "reason": "no NVML", "since": 1.0}]
    answer(api, "/v1/nodes", bare, {**bare, "node_id": "gpu-0002", "trouble": told})
    assert run(["nodes"]) == ExitCode.DONE
    first, second = capsys.readouterr().out.splitlines()[1:]
    for line in (first, second):
        assert line.rstrip().endswith("silent; no GPU read: no NVML")


@pytest.mark.parametrize(
    ("state", "out", "said"),
    [
        ("healthy", [3], " 1 of 8 GPUs excluded "),
        ("suspect", [0, 3], " suspect, 2 of 8 GPUs excluded "),
        ("excluded", list(range(8)), " excluded "),
        ("healthy", [], " healthy "),
    ],
)
def test_a_node_that_is_out_for_the_sake_of_a_gpu_says_so(
    api: FakeApi, capsys: pytest.CaptureFixture[str], state: str, out: list[int], said: str
) -> None:
    gpus = [
        {
            "gpu_uuid": f"GPU-{n}",
            "index": n,
            "state": "healthy",
            "usable": "no" if n in out else "yes",
        }
        for n in range(8)
    ]
    node = NODE | {"state": state, "usable": "no" if out else "yes", "gpus": gpus}
    answer(api, "/v1/nodes", node)
    assert run(["nodes"]) == ExitCode.DONE
    table = capsys.readouterr().out
    assert said in table
    assert ("GPUs excluded" in table) is ("GPUs excluded" in said)
    assert run(["nodes", "--json"]) == ExitCode.DONE
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["usable"]) == (state, node["usable"])


def test_no_node_is_said(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    answer(api, "/v1/nodes")
    assert run(["nodes"]) == ExitCode.DONE
    assert "no node has reported yet" in capsys.readouterr().out


def test_incidents(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    answer(api, "/v1/incidents", INCIDENT)
    for words in (["incidents"], ["incidents", "list"]):
        assert run([*words, "--phase", "open", "--node", "gpu-0001"]) == ExitCode.DONE
        assert "XID 79: fell off the bus" in capsys.readouterr().out
        query = api.requests[-1][2]
        assert (query["phase"], query["node"]) == (["open"], ["gpu-0001"])
    assert run(["incidents", "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)[0]["evidence"][0]["detector"] == "xid"


DONE = {"entity_kind": "node", "entity": "gpu-0001", "state": "in_repair"}
"""What the answers to acts have in common."""


def test_acting_on_incidents_and_decisions(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {
        ("incidents", "acknowledge", "inc-1"): "/v1/incidents/inc-1/acknowledge",
        ("decisions", "revoke", "dec-1"): "/v1/decisions/dec-1/revoke",
        ("repair", GPU): f"/v1/gpus/{GPU}/repair",
        ("repair", "gpu-0001"): "/v1/nodes/gpu-0001/repair",
        ("nodes", "retire", "gpu-0001"): "/v1/nodes/gpu-0001/retire",
    }
    for words, path in paths.items():
        api.answers["POST", path] = {**DONE, "id": words[-1]}
        assert run([*words, "--reason", "looked at it"]) == ExitCode.DONE
        assert api.requests[-1] == ("POST", path, {"reason": "looked at it"})
        assert capsys.readouterr().out
        assert run([*words]) == ExitCode.USAGE  # every act needs its reason


def test_what_was_printed_is_approved(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/v1/decisions/dec-1"
    api.answers["GET", path] = {"id": "dec-1", "rung": "exclude", "advised": "drain", "entity": GPU}
    api.answers["POST", f"{path}/approve"] = {"id": "dec-1"}
    words = ["decisions", "approve", "dec-1", "--reason", "r"]
    assert run(words) == ExitCode.DONE
    assert f"dec-1: drain {GPU}" in capsys.readouterr().out
    asked = len(api.requests)
    assert api.requests[-1] == ("POST", f"{path}/approve", {"reason": "r", "rung": "drain"})
    assert run([*words, "--rung", "exclude"]) == ExitCode.NEGATIVE
    assert [method for method, *_ in api.requests[asked:]] == ["GET"]
    assert run(words[:3]) == ExitCode.USAGE


def test_a_node_is_renamed(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/v1/nodes/gpu-0001/rename"
    api.answers["POST", path] = {"node_id": "r1-n1", "former": ["gpu-0001"]}
    assert run(["nodes", "rename", "gpu-0001", "r1-n1", "--reason", "scheme"]) == ExitCode.DONE
    assert api.requests[-1] == ("POST", path, {"to": "r1-n1", "reason": "scheme"})
    assert "gpu-0001 is called r1-n1 now" in capsys.readouterr().out
    assert run(["nodes", "rename", "gpu-0001", "r1-n1"]) == ExitCode.USAGE


def test_decisions(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    answer(api, "/v1/decisions", DECISION)
    assert run(["decisions"]) == ExitCode.DONE
    assert "held back: cap_nodes" in capsys.readouterr().out
    assert run(["decisions", "list", "--json", "--phase", "held_back"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)[0]["id"] == "dec-1"


def test_why_shows_evidence_and_contributions(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["GET", f"/v1/gpus/{GPU}/why"] = WHY
    assert run(["why", GPU]) == ExitCode.DONE
    out = capsys.readouterr().out
    for part in (
        *("usable no", "state excluded", "XID 79 [once]", "XID 79 once", "dec-1", "25.0%"),
        *("temperature_excess_celsius", "+1.900", "-1.100", "no backtest on this fleet"),
    ):
        assert part in out
    assert run(["why", GPU, "--exit-code"]) == ExitCode.NEGATIVE
    capsys.readouterr()
    assert run(["why", GPU, "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["risk"]["probability"] == 0.25


def test_why_tells_the_score_line_by_line_and_what_it_would_be(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    explanation = {
        "probability": 0.25,
        "log_odds": -1.1,
        "lines": [
            {"name": "intercept", "log_odds": -3.0, "sentence": "before it sees anything"},
            {"name": "peers", "log_odds": 1.9, "sentence": "mostly temperature excess, 9 C"},
        ],
        "leading": [
            {
                "feature": "temperature_excess_celsius",
                "log_odds": 1.9,
                "sentence": "temperature excess: 9 C",
                "said": "above its peers [own draw taken off]",
            }
        ],
        "without": [
            {
                "feature": "temperature_excess_celsius",
                "probability": 0.05,
                "sentence": "without temperature excess: 0.05",
            }
        ],
    }
    api.answers["GET", f"/v1/gpus/{GPU}/why"] = {**WHY, "explanation": explanation}
    assert run(["why", GPU]) == ExitCode.DONE
    out = capsys.readouterr().out
    for part in (
        *("+1.900", "-1.100", "mostly temperature excess, 9 C", "25.0%"),
        *("above its peers [own draw taken off]", "without temperature excess: 0.05"),
    ):
        assert part in out
    assert run(["why", GPU, "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["explanation"]["without"][0]["probability"] == 0.05


def test_why_takes_a_gpu_by_node_and_index(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["GET", "/v1/nodes/gpu-0001"] = NODE
    api.answers["GET", f"/v1/gpus/{GPU}/why"] = WHY
    assert run(["why", "gpu-0001:3"]) == ExitCode.DONE
    capsys.readouterr()
    assert run(["why", "gpu-0001:4"]) == ExitCode.USAGE
    assert "GPUs of this node: 3" in capsys.readouterr().err


def test_why_of_a_node_that_is_none(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "gpu-0009"]) == ExitCode.REFUSED
    error = capsys.readouterr().err
    assert "gpu-0009" in error
    assert "gpuwarden nodes" in error


def test_why_says_why_there_is_no_score(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {**WHY, "risk": None, "risk_missing": "no reading of this GPU has come in yet"}
    api.answers["GET", f"/v1/gpus/{GPU}/why"] = answer
    assert run(["why", GPU]) == ExitCode.DONE
    assert "No learnt score: no reading of this GPU has come in yet." in capsys.readouterr().out


def test_exclusions_in_all_forms(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.exclude(Exclusion(entity_kind="node", entity="n1", node_id="n1", reason="hot"))
    assert run(["exclusions"]) == ExitCode.DONE
    assert "hot" in capsys.readouterr().out
    assert run(["exclusions", "--format", "json"]) == ExitCode.DONE
    printed = json.loads(capsys.readouterr().out)
    assert (printed["count"], printed["exclusions"][0]["entity"]) == (1, "n1")
    api.answers["GET", "/v1/exclusions"] = "n1,n2\n"
    assert run(["exclusions", "--format", "slurm", "--scope", "node"]) == ExitCode.DONE
    assert capsys.readouterr().out == "n1,n2\n"
    query = api.requests[-1][2]
    assert (query["format"], query["scope"]) == (["slurm"], ["node"])


def test_key_is_printed_alone(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["POST", "/v1/keys"] = {"id": "k1", "role": "agent", "node_id": "n1", "key": "gw_x"}
    assert run(["keys", "create", "--role", "agent", "--node", "n1"]) == ExitCode.DONE
    assert capsys.readouterr().out == "gw_x\n"
    assert run(["keys", "create", "--role", "agent"]) == ExitCode.USAGE
    assert "--node" in capsys.readouterr().err
    assert run(["keys", "create", "--role", "emperor"]) == ExitCode.USAGE
    capsys.readouterr()
    api.answers["GET", "/v1/keys"] = {"items": [{"id": "k1", "role": "reader", "name": "ana"}]}
    assert run(["keys", "list"]) == ExitCode.DONE
    assert "ana" in capsys.readouterr().out
    api.answers["DELETE", "/v1/keys/k1"] = {"id": "k1", "role": "agent"}
    assert run(["keys", "delete", "k1"]) == ExitCode.DONE


def test_options_before_the_command_win(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(api, "/v1/nodes")
    api.key = "gw_right"
    file = tmp_path / "key"
    file.write_text("gw_right\n")
    monkeypatch.setenv("GPUWARDEN_KEY", "gw_wrong")
    assert run(["nodes"]) == ExitCode.REFUSED
    assert run(["--key-file", str(file), "nodes"]) == ExitCode.DONE
    assert run(["--url", "http://127.0.0.1:9", "nodes"]) == ExitCode.UNREACHABLE
    assert run(["--url", "nonsense", "nodes"]) == ExitCode.USAGE


def test_key_that_no_header_can_carry_is_told_with_its_mend(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUWARDEN_KEY", "gw_…")
    assert run(["nodes"]) == ExitCode.USAGE
    fault, mend = capsys.readouterr().err.splitlines()
    assert fault.startswith("gpuwarden: GPUWARDEN_KEY: character 4 of the key is … (U+2026)")
    assert "gpuwarden keys create" in mend
    assert api.requests == []


def test_every_no_says_its_mend(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.problems["POST", "/v1/decisions/dec-1/revoke"] = Problem(
        type="urn:x",
        title="Conflict",
        status=409,
        code="not_in_force",
        detail="dec-1 is over",
        mend="see decisions list",
    )
    assert run(["decisions", "revoke", "dec-1", "--reason", "x"]) == ExitCode.REFUSED
    assert capsys.readouterr().err == (
        "gpuwarden: dec-1 is over [409 not_in_force]\n  mend: see decisions list\n"
    )


@pytest.mark.parametrize(
    ("words", "status", "code", "mend"),
    [
        (["nodes"], 401, "no_valid_key", "set GPUWARDEN_KEY or GPUWARDEN_KEY_FILE"),
        (["decisions", "revoke", "dec-1", "--reason", "x"], 404, "not_found", "decisions list"),
        (["decisions", "revoke", "dec-1", "--reason", "x"], 409, "not_live", "decisions list"),
        (["incidents", "acknowledge", "i", "--reason", "x"], 409, "wrong_phase", "incidents list"),
        (["repair", GPU, "--reason", "x"], 404, "not_found", "nodes --json"),
        (["keys", "delete", "k1"], 404, "not_found", "keys list"),
    ],
)
def test_a_mend_speaks_of_commands_not_of_http(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    status: int,
    code: str,
    mend: str,
) -> None:
    sent = "Send `Authorization: Bearer gw_…`. See GET /v1/decisions?phase=live. Read it again."
    said = Problem(type="urn:x", title="No", status=status, code=code, detail="no", mend=sent)
    for route in (
        ("GET", "/v1/nodes"),
        ("POST", "/v1/decisions/dec-1/revoke"),
        ("POST", "/v1/incidents/i/acknowledge"),
        ("POST", f"/v1/gpus/{GPU}/repair"),
        ("DELETE", "/v1/keys/k1"),
    ):
        api.problems[route] = said
    assert run(words) == ExitCode.REFUSED
    shown = capsys.readouterr().err
    assert mend in shown
    assert "Bearer" not in shown
    assert "/v1/" not in shown


def test_wrong_usage_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--nonsense"]) == ExitCode.USAGE
    assert run(["nonsense"]) == ExitCode.USAGE
    assert "Traceback" not in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == ExitCode.DONE
    assert capsys.readouterr().out.startswith("gpuwarden ")
